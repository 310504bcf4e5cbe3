"""Trains the variants of a study one after another, and draws their results."""

from recipes import start

if __name__ == "__main__":  # before the imports, which take seconds
    start.main("recipes.study")

import dataclasses
import math
import pathlib

import keras
import numpy as np

import keras_vit
from keras_vit.inspection import pictures
from recipes import (
    checks,
    experiment,
    fields,
    finetune,
    fitting,
    inputs,
    probes,
    study_figures,
    sweep,
)
from recipes import workdir as workdirs

DEFAULT_CONFIG = pathlib.Path(__file__).parent / "configs" / "study.py"
REPORTS = ("last", "best")


@dataclasses.dataclass(frozen=True, slots=True)
class Times:
    """A multiple of the run's value of a field.

    Attributes:
        factor: Factor of the value. A `data.train_images` of 0 counts as the
            number of training images.
    """

    factor: float


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """A run of a study.

    Attributes:
        name: The name of its folder.
        line: Its line in the figure; "" is a point of every line.
        x: Its position on the x axis, where the study does not compute it.
        changes: Its changes of the run: path of a field, such as
            "model.architecture.num_layers" -> value or `Times`.
    """

    name: str
    line: str = ""
    x: float | str = ""
    changes: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(kw_only=True, slots=True)
class Config:
    """A table of runs, and how to draw them.

    Attributes:
        name: The last part of the workdir's name.
        title: The title of the figure.
        run: The config that the variants share.
        variants: The runs. One that changes `data.train_images` is trained for
            as many steps as on all images.
        transfers: Sweeps that fine-tune each model. If there are any, their
            accuracies are the results. Model, weights and seed are those of
            the variant, and each sweep ends with one run.
        report: The evaluation to report: "last", or "best" (early stopping:
            the one with the highest accuracy on the evaluation images).
        num_seeds: Number of runs of each variant. The seeds count up from
            that of `run`.
        figure: "points", "curves" (against epochs) or "positions" (similarity
            of position embeddings).
        x: The x axis of "points": "compute" (relative to the first variant),
            "train_images" or "" (each variant's `x`).
        x_label: The label of the x axis.
    """

    name: str = "study"
    title: str = ""
    run: experiment.Config = dataclasses.field(
        default_factory=experiment.Config
    )
    variants: tuple[Variant, ...] = ()
    transfers: tuple[sweep.Config, ...] = ()
    report: str = "last"
    num_seeds: int = 1
    figure: str = "points"
    x: str = ""
    x_label: str = ""


def run(config: Config, workdir: str = "") -> list[dict]:
    """Train every variant, print a table of the results and draw them.

    The result of a run is its few-shot accuracy if it has a `fewshot_dataset`,
    or else its accuracy on the evaluation images. A stopped study resumes when
    it is started again.

    Usage:
        python -m recipes.study
            The scaling of depth, width, MLP and patch size (Figure 8) on
            scikit-learn's handwritten digits, with small models.
        python -m recipes.study \\
            --config=recipes/configs/study.py:figure_4,path/to/images
            Another study, on your own images.
        python -m recipes.study \\
            --config=recipes/configs/study.py:table_8,jft300m \\
            --config.run.data.dataset=path/to/images
            The paper's own models and training.

    Writes results.json, the figure and a folder for each variant and seed, like
    the workdir of recipes.finetune. The workdir is by default "runs/", the name
    of the data set and that of the study.

    Returns:
        The contents of results.json, a row for each variant (and each data set
        of `transfers`): "name", "line", "x", "accuracy" (the mean over seeds),
        "accuracies", "eval_images" (0 if unknown), and each seed's "curves" of
        (epoch, accuracy) and, of `transfers`, "chosen" setup and rate.

    Raises:
        ValueError: If the config is invalid, or the workdir holds a run with
            another config.
    """
    name = workdirs.default("ViT", config.run.data.dataset)
    workdir = workdirs.path_of(workdir or f"{name}-{config.name}")
    _check(config)
    devices = fitting.set_up(config.run)
    with workdirs.lock(workdir, devices):
        configs = _configs(config)
        for each in configs.values():
            checks.check(each)
        rows = _train(config, configs, workdir)
        if devices.is_main:
            workdirs.write_json(workdir / "results.json", {"rows": rows})
            _report(config, rows, workdir)
    return rows


def _configs(config):
    """Return name -> config of each variant."""
    count = 0
    if any("data.train_images" in v.changes for v in config.variants):
        count = inputs.load(config.run)[0].num_examples
    return {
        variant.name: config_of(config.run, variant, count)
        for variant in config.variants
    }


def config_of(
    run: experiment.Config, variant: Variant, num_images: int = 0
) -> experiment.Config:
    """Return the config of a variant.

    Args:
        num_images: Number of training images, for variants that change it.

    Raises:
        ValueError: If the variant multiplies a field that is 0.
    """
    changes = dict(variant.changes)
    for path, value in changes.items():
        if not isinstance(value, Times):
            continue
        base = fields.get(run, path)
        if path == "data.train_images":
            base = base or num_images
        if not base:
            raise ValueError(
                f"`run.{path}` must be positive, because variant "
                f"{variant.name!r} multiplies it. Received: {base}"
            )
        multiple = base * value.factor
        if isinstance(base, int):
            multiple = max(1, round(multiple))
        changes[path] = multiple
    run = fields.changed(run, changes)
    if "data.train_images" in changes and not run.schedule.total_steps:
        passes = run.schedule.num_epochs * num_images * run.data.repeats
        run.schedule.total_steps = max(1, passes // run.data.batch_size)
        run.schedule.num_epochs = 0
    return run


def _train(config, configs, workdir):
    """Train all runs; return the rows of results.json."""
    rows = []
    for i, variant in enumerate(config.variants):
        own = configs[variant.name]
        found = []  # for each seed, a result for each data set of measurement
        for seed in range(own.seed, own.seed + config.num_seeds):
            each = dataclasses.replace(own, seed=seed)
            folder = workdir / variant.name / f"seed_{seed}"
            print(f"\nVariant {i + 1} of {len(configs)}: {folder}", flush=True)
            _run(each, folder)
            if config.transfers:
                found.append(
                    [_transfer(each, to, folder) for to in config.transfers]
                )
            else:
                found.append([_result(each, folder, config.report)])
        macs = _macs(folder)
        for results in zip(*found, strict=True):
            accuracies = [result["accuracy"] for result in results]
            rows.append(
                dict(
                    name=variant.name,
                    line=variant.line,
                    x=results[0].get("dataset", variant.x),
                    train_images=workdirs.read_derived(folder)["train_images"],
                    eval_images=results[0]["eval_images"],
                    macs=macs,
                    accuracy=float(np.mean(accuracies)),
                    accuracies=accuracies,
                    curves=[result["curve"] for result in results],
                )
            )
            if config.transfers:
                rows[-1]["chosen"] = [result["chosen"] for result in results]
    for row in rows:
        if config.x == "compute":
            row["x"] = row["macs"] / rows[0]["macs"]
        elif config.x == "train_images":
            row["x"] = row["train_images"]
    return rows


def _run(config, folder):
    keras.utils.clear_session()  # frees the previous run
    finetune.run(config, str(folder))


def _transfer(config, to, folder):
    """Fine-tune a trained model; return the result on that data set."""
    dataset = _name_of(to.run.data.dataset)
    changes = {
        "model.name": config.model.name,
        "model.weights": str(folder / "last.keras"),
        "seed": config.seed,
    }
    run = fields.changed(to.run, changes)
    folder = folder.with_name(f"{folder.name}-{dataset}")
    print(f"\nTransfer to {dataset}: {folder}", flush=True)
    to = dataclasses.replace(to, run=run, num_seeds=1)
    found = sweep.run(to, str(folder))
    chosen = {name: found[name] for name in ("setup", "base_lr")}
    # Its setup may have its own batch size.
    run = fields.changed(run, to.setups[found["setup"]])
    result = _result(run, folder / f"seed_{run.seed}", "last")
    return result | {"dataset": dataset, "chosen": chosen}


def _result(config, folder, report):
    """Return the accuracy of a finished run, and its curve over epochs."""
    name = "val_accuracy"
    if config.evaluation.fewshot_dataset:
        dataset = _name_of(config.evaluation.fewshot_dataset)
        name = f"{dataset}/{config.evaluation.fewshot_shots[0]}-shot"
    log = folder / "metrics.csv"
    derived = workdirs.read_derived(folder)
    examples = derived["train_images"] * config.data.repeats
    per_epoch = examples / config.data.batch_size
    curve = [
        (int(row["step"]) / per_epoch, float(row[name]))
        for row in workdirs.read_log(log, name)
        # Few-shot accuracy is not measured at every evaluation.
        if math.isfinite(float(row[name]))
    ]
    accuracy = curve[-1][1]
    if report == "best":
        epoch = fitting.results(log)["best_step"] / per_epoch
        accuracy = min(curve, key=lambda point: abs(point[0] - epoch))[1]
    eval_images = derived.get("eval_images", 0)
    if config.evaluation.fewshot_dataset:
        _, test = inputs.load_source(
            probes.source_of(config, config.evaluation.fewshot_dataset)
        )
        eval_images = min(probes.MAX_TEST_IMAGES, test.num_examples)
    return dict(accuracy=accuracy, curve=curve, eval_images=eval_images)


def _macs(folder):
    model = keras.models.load_model(folder / "last.keras", compile=False)
    return keras_vit.cost(model).macs


def _report(config, rows, workdir):
    """Print a table and draw the figure."""
    wide = max(len(row["name"]) for row in rows)
    print(f"\n{'':{wide}}  {config.x_label[:24]:>24}  accuracy")
    for row in rows:
        x = row["x"] if isinstance(row["x"], str) else f"{row['x']:g}"
        spread = ""
        if len(row["accuracies"]) > 1:
            spread = f" +- {np.std(row['accuracies'], ddof=1):.2%}"
        print(f"{row['name']:{wide}}  {x:>24}  {row['accuracy']:.2%}{spread}")
    paths = [workdir / f"{config.name}.png"]
    if config.figure == "positions":
        paths = [_draw_positions(row, workdir) for row in rows]
    else:
        y_label = "accuracy"
        if config.run.evaluation.fewshot_dataset and not config.transfers:
            name = _name_of(config.run.evaluation.fewshot_dataset)
            shots = config.run.evaluation.fewshot_shots[0]
            y_label = f"{name} {shots}-shot accuracy"
        draw = getattr(study_figures, f"draw_{config.figure}")
        draw(rows, config.title, config.x_label, y_label, paths[0])
    print("\n".join(map(str, [workdir / "results.json", *paths])), flush=True)


def _draw_positions(row, workdir):
    """Draw the first seed of a variant; return the path."""
    folder = sorted((workdir / row["name"]).glob("seed_*"))[0]
    model = keras.models.load_model(folder / "last.keras", compile=False)
    [similarity, *_] = keras_vit.inspection.position_similarity(model).values()
    path = workdir / f"positions_{row['name']}.png"
    title = row["line"] or row["name"]
    pictures.plot_position_similarity(similarity, title, path)
    return path


def _check(config):
    names = [variant.name for variant in config.variants]
    if not names or len(set(names)) < len(names):
        raise ValueError(
            "`variants` must be one or more of different names, as in "
            "recipes/configs/study.py:figure_8,digits. Received: "
            f"variants={names}"
        )
    checks.check_choice("report", config.report, REPORTS)
    if config.transfers and config.report != "last":
        raise ValueError(
            "`report` must be 'last' with `transfers`, whose sweeps report the "
            f"last evaluation. Received: report={config.report!r}"
        )
    checks.check_choice("figure", config.figure, study_figures.KINDS)
    checks.check_choice("x", config.x, ("", "compute", "train_images"))
    checks.check_range("num_seeds", config.num_seeds, 1)
    checks.check_range("seed", config.run.seed + config.num_seeds - 1, 0, 2**32)
    _check_fields(config)
    if "/" in config.name:
        raise ValueError(
            "`name` must be a name without '/', of the figure. Received: "
            f"name={config.name!r}"
        )
    datasets = [_name_of(to.run.data.dataset) for to in config.transfers]
    if len(set(datasets)) < len(datasets):
        raise ValueError(
            "`transfers` must be to data sets of different names, which their "
            f"folders have. Received: {datasets}"
        )
    places = [variant.x for variant in config.variants]
    is_drawn = config.figure == "points" and not config.x
    if is_drawn and len({isinstance(x, str) for x in places}) > 1:
        raise ValueError(
            "`x` of the variants must be all numbers or all names. Received: "
            f"{places}"
        )
    evaluation = config.run.evaluation
    if evaluation.fewshot_dataset and not evaluation.fewshot_shots:
        raise ValueError(
            "`run.evaluation.fewshot_shots` must be one or more numbers, of "
            "which the first is reported. Received: ()"
        )


def _check_fields(config):
    """Refuse changes of fields that the run does not have."""
    paths = set(fields.flat(dataclasses.asdict(config.run)))
    for variant in config.variants:
        if unknown := sorted(variant.changes.keys() - paths):
            raise ValueError(
                "`changes` of a variant must name fields of `run`. Received: "
                f"{unknown} of {variant.name!r}" + fields.hint(unknown)
            )


def _name_of(dataset):
    return pathlib.Path(dataset).name
