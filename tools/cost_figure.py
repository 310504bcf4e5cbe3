"""Transfer accuracy against the cost of pre-training, as in the ViT paper.

    python -m tools.cost_figure
    python -m tools.cost_figure runs/cifar10 --output=figure_5.png

Figure 5 of the paper: the accuracies of its Table 6 against exaFLOPs, which are
counted in the models of this package and printed beside those of the paper's
final and first edition, which differ by 2.9 to 3.3 times. A WORKDIR
of recipes.finetune, recipes.sweep or recipes.vtab, or a folder of these, adds
its last accuracy, in a panel for each data set. Its cost is that of its
pre-training, if `weights` is the last.keras of a run, or without weights that
of its own training.
"""

import collections
import functools
import pathlib
import statistics
import sys
from collections.abc import Iterator

from keras_vit_cli import command
from recipes import paper_tables
from tools import counts, pictures, runs

JFT_IMAGES = 303_000_000  # section 4.1
AVERAGE_5 = ("imagenet2012", "cifar10", "cifar100")
AVERAGE_5 += ("oxford_iiit_pet", "oxford_flowers102")
# Name in the legend -> colour, as in the paper.
KINDS = {
    "Transformer (ViT)": "#4c72b0",
    "ResNet (BiT)": "#8c8c8c",
    "Hybrid": "#dd8452",
}
OURS = "#1b7f3b"


@command.entry
def main(arguments: list[str]) -> int:
    """Print the costs of Table 6 and draw Figure 5."""
    parser = command.Parser(description=__doc__)
    add = parser.add_argument
    add("workdir", nargs="*", type=pathlib.Path)
    add("--output", default="performance_and_cost.png", type=pathlib.Path)
    flags = parser.parse_args(arguments)
    ours = points_of(runs.find(*flags.workdir))
    print(
        f"{'':<16}{'epochs':>8}{'MACs':>12}{'exaFLOPs':>10}{'paper':>7}"
        f"{'first edition':>24}"
    )
    paper = []
    for (name, epochs, *accuracies, printed), first in zip(
        paper_tables.TABLE_6, paper_tables.TABLE_6_FIRST_EDITION, strict=True
    ):
        macs = macs_of(name)
        cost = exaflops(macs, epochs * JFT_IMAGES)
        paper.append((name, cost, accuracies))
        print(
            f"{name:<16}{epochs:>8}{macs / 1e9:>10.2f} G"
            f"{cost:>10.1f}{printed:>7} ({cost / printed - 1:+.1%})"
            f"{first:>10} ({first / printed:.2f} times)",
            flush=True,
        )
    for label, cost, accuracies in ours:
        results = ", ".join(f"{k} {v:.2f} %" for k, v in accuracies.items())
        print(f"{label}: {cost:.4g} exaFLOPs, {results}")
    pictures.save(draw(paper, ours), flags.output)
    return 0


def exaflops(macs: int, images: int) -> float:
    """Return the cost of training in exaFLOPs.

    Two operations for each multiply-accumulate, and twice the operations of the
    forward pass for the backward pass, as in Table 6 of the final edition.
    """
    return 6 * macs * images / 1e18


@functools.cache
def macs_of(name: str) -> int:
    """Return the multiply-accumulates at 224 pixels of a model of the paper."""
    import keras_vit

    known = keras_vit.list_models()
    (constructor,) = (x for x in known if runs.paper_name(x) == name)
    return counts.cost_of(constructor).macs


def points_of(found: list[runs.Run]) -> list[tuple[str, float, dict]]:
    """Return (label, exaFLOPs, data set -> mean accuracy) of runs.

    Runs of one model with several data sets or seeds are one point.
    """
    groups = collections.defaultdict(lambda: collections.defaultdict(list))
    for run, cost in costs_of(found):
        label = f"{run.model} ({run.pretraining or 'from scratch'})"
        groups[label, cost][run.dataset].append(run.accuracy)
    return [
        (label, cost, {k: statistics.fmean(v) for k, v in members.items()})
        for (label, cost), members in groups.items()
    ]


def costs_of(found: list[runs.Run]) -> Iterator[tuple[runs.Run, float]]:
    """Yield runs and their costs; list those of unknown cost on stderr."""
    for run in found:
        if cost := cost_of(run.folder):
            yield run, cost
        else:
            print(
                f"Left out: {run.folder}, whose compute is unknown: no "
                "last.keras, or weights of another origin.",
                file=sys.stderr,
            )


def cost_of(folder: pathlib.Path) -> float | None:
    """Return exaFLOPs of a run's pre-training, or without one of the run."""
    config, derived = runs.config_of(folder)
    weights = config["model.weights"]
    if weights:
        folder = pathlib.Path(weights).expanduser().parent
        if not (folder / "config.json").is_file():
            return None
        config, derived = runs.config_of(folder)
    path = folder / "last.keras"
    if not path.is_file():
        return None
    import keras

    import keras_vit

    images = config["data.batch_size"] * derived["total_steps"]
    model = keras.models.load_model(path, compile=False)
    return exaflops(keras_vit.cost(model).macs, images)


def draw(
    paper: list[tuple[str, float, list[float]]],
    ours: list[tuple[str, float, dict]],
):
    """Draw a panel for each data set, and one for the paper's average.

    Args:
        paper: (name, exaFLOPs, accuracies on `paper_tables.TABLE_6_DATASETS`).
        ours: The result of `points_of`.
    """
    from keras_vit.inspection import figures

    panels = {"Average-5": AVERAGE_5, "ImageNet": AVERAGE_5[:1]}
    for name in dict.fromkeys(k for _, _, members in ours for k in members):
        title = paper_tables.DATASETS.get(name, name)
        panels.setdefault(title, (name,))
    figure = figures.new_figure(4.2 * len(panels), 4.5)
    figure.suptitle(
        "Dots: accuracies are the paper's (Table 6), costs ours"
        + ("\nStars: accuracies and costs are ours" if ours else ""),
        fontsize=11,
    )
    shown, names = {}, paper_tables.TABLE_6_DATASETS
    for i, (title, datasets) in enumerate(panels.items()):
        axes = figure.add_subplot(1, len(panels), i + 1)
        for name, cost, accuracies in paper:
            by_name = dict(zip(names, accuracies, strict=True))
            if set(datasets) <= set(by_name):
                mean = statistics.fmean(by_name[name] for name in datasets)
                kind = kind_of(name)
                (shown[kind],) = axes.plot(
                    cost, mean, "o", color=KINDS[kind], markersize=8, alpha=0.8
                )
        for label, cost, members in ours:
            if set(datasets) <= set(members):
                mean = statistics.fmean(members[name] for name in datasets)
                (shown["our runs"],) = axes.plot(
                    cost, mean, "*", color=OURS, markersize=13
                )
                style = dict(fontsize=8, color=OURS)
                pictures.name(axes, label, (cost, mean), **style)
        _decorate(axes, title, "transfer accuracy [%]" if i == 0 else None)
    order = [name for name in (*KINDS, "our runs") if name in shown]
    handles = [shown[name] for name in order]
    place = dict(loc="outside lower center", ncols=len(order))
    figure.legend(handles, order, frameon=False, **place)
    return figure


def kind_of(name: str) -> str:
    """Return "Transformer (ViT)", "ResNet (BiT)" or "Hybrid"."""
    transformer, resnet, hybrid = KINDS
    if name.startswith("ResNet"):
        return resnet
    return hybrid if "+" in name else transformer


def _decorate(axes, title, y_label):
    from matplotlib import ticker

    axes.set_title(title, fontsize=11)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
    axes.set_xlabel("pre-training compute, counted here [exaFLOPs]")
    if y_label:
        axes.set_ylabel(y_label)
    pictures.plain(axes)
    axes.margins(0.1)
    axes.set_ylim(top=min(100, axes.get_ylim()[1]))


if __name__ == "__main__":
    sys.exit(main())
