"""Trains a model on images without labels, for fine-tuning."""

from recipes import start

if __name__ == "__main__":  # before the imports, which take seconds
    start.main("recipes.unlabelled", "mae")

import dataclasses
import functools
import pathlib
import shlex

from keras_vit.inspection import figures
from recipes import (
    begin,
    checks,
    dino,
    experiment,
    fitting,
    inputs,
    mae,
    masked_patch,
    method,
    probes,
    scored,
)
from recipes import workdir as workdirs
from recipes.dino import Dino
from recipes.mae import Mae
from recipes.masked_patch import MaskedPatch

DEFAULT_CONFIG = pathlib.Path(__file__).parent / "configs" / "mae.py"
# What concerns classes; another value than the default is refused.
UNUSED = ("optim.loss", "model.head_bias", "optim.label_smoothing")
# Name of an objective -> what differs.
METHODS: dict[str, method.Method] = {
    "dino": dino.METHOD,
    "mae": mae.METHOD,
    "masked_patch": masked_patch.METHOD,
}


@dataclasses.dataclass(kw_only=True, slots=True)
class Probe:
    """A labelled data set, on which progress is measured.

    Attributes:
        dataset: The data set, given like `data.dataset`, whose k-NN accuracy
            and that of a linear probe are logged; "" is none.
        every: Number of evaluations between measurements.
    """

    dataset: str = ""
    every: int = 1


@dataclasses.dataclass(kw_only=True, slots=True)
class Config(experiment.Config):
    """The model, the data, the training and the objective. 0, "" mean off.

    The other fields are those of recipes/experiment.py; optim.loss,
    model.head_bias and optim.label_smoothing, which concern classes, are
    refused.

    Attributes:
        objective: "mae", "masked_patch" or "dino" (DINOv2 too), whose settings
            are in the field of this name.
        mae: Masked autoencoders.
        masked_patch: Masked patch prediction.
        dino: Self-distillation.
        probe: A labelled data set, on which progress is measured.
    """

    objective: str = "mae"
    mae: Mae = dataclasses.field(default_factory=Mae)
    masked_patch: MaskedPatch = dataclasses.field(default_factory=MaskedPatch)
    dino: Dino = dataclasses.field(default_factory=Dino)
    probe: Probe = dataclasses.field(default_factory=Probe)


def run(config: Config, workdir: str = "") -> dict[str, float]:
    """Pre-train without labels, and save the model.

    A stopped run resumes when it is started again, and ends with the same
    results.

    Usage:
        python -m recipes.unlabelled
            A masked autoencoder of scikit-learn's handwritten digits.
        python -m recipes.unlabelled --config.data.dataset=path/to/images
            Your own images.
        python -m recipes.unlabelled \\
            --config=recipes/configs/mae.py:ViTB16,imagenet2012
            As He et al. do.
        python -m recipes.unlabelled --config=recipes/configs/masked_patch.py
            Masked patch prediction (B.1.2 of the ViT paper).
        python -m recipes.unlabelled --config=recipes/configs/dino.py
            Self-distillation: DINO, and DINOv2.

    The workdir, "runs/", the data set's name and the objective unless given,
    receives config.json, metrics.csv, tensorboard/, checkpoints/, curves.png,
    last.keras (the model of the last evaluation, written at the end) and
    best.keras (that of the lowest evaluation loss): the plain model without a
    head, which is a `weights` of fine-tuning.

    Returns:
        Loss, further metrics and step of the last evaluation; those of the best
        one as "best_loss" and so on.
    """
    name = workdirs.default(config.model.name, config.data.dataset)
    workdir = workdirs.path_of(workdir or f"{name}-{config.objective}")
    check(config)
    with fitting.opened(config, workdir) as (devices, finished):
        if not finished:
            _train(config, workdir, devices)
        log = workdir / "metrics.csv"
        results = fitting.results(log, "loss")
        if devices.is_main:
            figures.plot_curves(log, workdir / "curves.png")
            _report(config, workdir, results)
    return results


def check(config: Config) -> None:
    """Refuse an unknown objective, and what it does not support."""
    checks.check(config)
    checks.check_choice("objective", config.objective, tuple(METHODS))
    checks.check_range("probe.every", config.probe.every, 1)
    if not config.probe.dataset:
        kind = "a run without `probe.dataset`"
        scored.refuse_unused(config, ["probe.every"], kind)
    scored.refuse_unused(config, UNUSED, "training without labels")
    others = [name for name in METHODS if name != config.objective]
    scored.refuse_unused(config, others, f"objective={config.objective!r}")
    METHODS[config.objective].check(config)


# What a plan reads of the data set, beside `planned`.
dataset_info, load = inputs.dataset_info, inputs.load


def planned(config: Config, info: inputs.DatasetInfo) -> tuple:
    """Return the objective of a config, and what makes its symbolic batch."""
    own = METHODS[config.objective]
    return own.objective(config, info), functools.partial(own.planned, config)


def _train(config, workdir, devices):
    """Build the model, write config.json, and train."""
    own = METHODS[config.objective]
    images = inputs.prepare(config, workdir)
    objective = own.objective(config, images.info)
    built = begin.build(config, devices, images, objective)
    train_batches, eval_batches = own.batches(config, images, built)
    batches = functools.cache(train_batches), functools.cache(eval_batches)
    eval_steps = fitting.check_batches(batches)
    size = "x".join(map(str, images.info.input_shape))
    size = f"{own.describe(config, built)}, {size} pixels"
    kind = "clips" if images.info.num_frames else "images"
    begin.announce(config, workdir, devices, images, built, size, kind)
    measurements = own.callbacks(config, images, built, devices, workdir)
    if config.probe.dataset:
        measurements += (
            probes.callback(
                built.model,
                probes.source_of(config, config.probe.dataset),
                (),
                every=config.probe.every,
                seed=config.seed,
            ),
        )
    with inputs.naming_broken_files(images.train, images.evaluation):
        fitting.fit(
            built,
            config,
            devices,
            workdir,
            batches,
            eval_steps=eval_steps,
            train_source=images.train,
            measurements=measurements,
        )


def _report(config, workdir, results):
    """Print the results and the command to fine-tune."""
    for title, prefix in (("\nLast", ""), ("Best", "best_")):
        values = ", ".join(
            f"{name} {results[prefix + name]:.4g}"
            for name in results
            if prefix + name in results
            and name != "step"
            and not name.startswith("best_")
        )
        step = results[f"{prefix}step"]
        print(f"{title} evaluation (step {step}): {values}.")
    *_, last = workdirs.read_log(workdir / "metrics.csv")
    for name, value in last.items():
        if name.endswith(("/knn", "/linear")):
            print(f"Frozen representation, {name}: {float(value):.2%} right.")
    command = ["python", "-m", "recipes.finetune"]
    command.append(f"--config.data.dataset={config.data.dataset}")
    if any(size := config.data.image_size):
        command.append(f"--config.data.image_size={','.join(map(str, size))}")
    command.append(f"--config.model.weights={workdir / 'last.keras'}")
    command.append(f"--workdir={workdir}-finetuned")
    print(f"Fine-tune it:\n  {shlex.join(command)}", flush=True)
