"""The figures of recipes.miniature, beside those of the paper."""

import pathlib

from keras_vit.inspection import figures
from recipes import paper_tables, uncertainty
from recipes.miniature_claims import choices_of_sizes, result_of

COLORS = {"ResNet": "#3f9150", "Hybrid": "#dd8452", "ViT": "#4c72b0"}
# Training images of the paper's three sets, section 4.1.
PAPER_SIZES = {"ImageNet": 1.3e6, "I21k": 14e6, "JFT": 303e6}
# What differs from the ViT of all images, by the names of the runs.
CHOICES = {
    "all": "1-D positions,\nclass token",
    "no_positions": "no positions",
    "average": "average,\nthe same rate",
    "average_low_rate": "average,\n3/8 of the rate",
}


def draw_accuracies(results: dict, out_path: pathlib.Path) -> None:
    """Draw accuracy against training images, the paper's and ours."""
    figure = figures.new_figure(9, 4)
    paper, ours = figure.subplots(1, 2)
    for name, style in (
        ("ViTB32", "o--"),
        ("ViTB16", "o-"),
        ("ViTL32", "s--"),
        ("ViTL16", "s-"),
    ):
        column = paper_tables.TABLE_5_MODELS.index(name)
        accuracies = [
            paper_tables.TABLE_5[dataset, "imagenet2012"][column]
            for dataset in PAPER_SIZES
        ]
        label = f"ViT-{name[3]}/{name[4:]}"
        color = COLORS["ViT"] if name[3] == "B" else "#28416b"
        paper.plot(
            PAPER_SIZES.values(), accuracies, style, color=color, label=label
        )
    bit = "BiT-L (ResNet152x4)"
    accuracy, _ = paper_tables.TABLE_2[bit]["imagenet2012"]
    paper.plot(
        PAPER_SIZES["JFT"], accuracy, "D", color=COLORS["ResNet"], label=bit
    )
    _decorate(
        paper, "the paper: ImageNet top-1 (Tables 2 and 5)\nwithout intervals"
    )
    paper.set_xlabel("pre-training images")
    for name, color in COLORS.items():
        found = [
            _percent(result_of(results, results["accuracies"][name][choice]))
            for choice in choices_of_sizes(results)
        ]
        uncertainty.draw_segments(ours, results["sizes"], found, color)
        ours.errorbar(
            results["sizes"],
            [mean for mean, _ in found],
            [2 * error for _, error in found],
            fmt="o",
            capsize=3,
            color=color,
            label=name,
        )
    ours.plot([], [], ":", color=uncertainty.GREY, label="no difference")
    _decorate(ours, f"here: images held out\nbars: {_interval(results)}")
    ours.set_xlabel("training images")
    figure.savefig(out_path)


def draw_choices(results: dict, out_path: pathlib.Path) -> None:
    """Draw position embeddings and classifiers compared."""
    figure = figures.new_figure(9, 3.6)
    paper, ours = figure.subplots(1, 2, width_ratios=(2, 3))
    bars = {
        "1-D positions": paper_tables.TABLE_8["1-D"],
        "no positions": paper_tables.TABLE_8["none"],
    }
    _bars(paper, {label: (share, 0.0) for label, share in bars.items()})
    title = "the paper: few-shot accuracy (Table 8)\nwithout intervals"
    _decorate(paper, title, legend=False)
    found = {
        label: result_of(results, results["accuracies"]["ViT"][choice])
        for choice, label in CHOICES.items()
    }
    _bars(ours, found)
    _decorate(
        ours,
        "here: images held out; grey: no difference from the first\n"
        f"lines: {_interval(results)}",
        legend=False,
    )
    figure.savefig(out_path)


def _interval(results):
    samples = [
        sample
        for choices in results["accuracies"].values()
        for sample in choices.values()
    ]
    return uncertainty.describe(samples, [results["eval_images"]])


def _percent(result):
    return tuple(100 * value for value in result)


def _bars(axes, found):
    """Draw label -> (mean, standard error); grey if the first is no other."""
    first, *others = found.values()
    colors = [COLORS["ViT"]] + [
        "#a9bcd9" if uncertainty.differ(first, other) else uncertainty.GREY
        for other in others
    ]
    bars = axes.bar(
        found.keys(),
        [100 * mean for mean, _ in found.values()],
        yerr=[200 * error for _, error in found.values()] if first[1] else None,
        width=0.55,
        capsize=3,
        color=colors,
    )
    axes.bar_label(bars, fmt="%.1f", padding=2, fontsize=9)
    axes.tick_params(axis="x", labelsize=8)
    axes.margins(y=0.12)


def _decorate(axes, title, legend=True):
    from matplotlib import ticker

    axes.set_title(title, fontsize=10)
    axes.set_ylabel("accuracy [%]")
    axes.grid(alpha=0.25, axis="both" if legend else "y")
    axes.spines[["top", "right"]].set_visible(False)
    if legend:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(ticker.EngFormatter(sep=""))
        axes.legend(frameon=False, fontsize=9)
