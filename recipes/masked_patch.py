"""Trains a model on images without labels, for fine-tuning (B.1.2)."""

from recipes import start

if __name__ == "__main__":  # before the imports, which take seconds
    start.main("recipes.masked_patch")

import dataclasses
import pathlib
import shlex

from keras_vit.inspection import figures
from keras_vit.training import masked_patch
from recipes import (
    begin,
    checks,
    experiment,
    finetune,
    fitting,
    inputs,
    training_step,
)
from recipes import workdir as workdirs

DEFAULT_CONFIG = pathlib.Path(__file__).parent / "configs" / "masked_patch.py"


@dataclasses.dataclass(kw_only=True, slots=True)
class Config(experiment.Config):
    """The model, the data and the training. 0 and "" mean off.

    The other fields are those of recipes/experiment.py; optim.loss,
    model.head_bias and optim.label_smoothing, which concern classes, have no
    effect.

    Attributes:
        target: The prediction target of a corrupted patch: "mean_colour" (3
            bits a channel), "downsized" (the same of 4 x 4 parts) or "pixels".
        corrupted: Share of the patches to corrupt.
    """

    target: str = "mean_colour"
    corrupted: float = 0.5


def run(config: Config, workdir: str = "") -> dict[str, float]:
    """Pre-train by masked patch prediction, and save the model.

    Labels are not used. A stopped run resumes when it is started again, and
    ends with the same results.

    Usage:
        python -m recipes.masked_patch
            Scikit-learn's handwritten digits.
        python -m recipes.masked_patch --config.data.dataset=path/to/images
            Your own images.
        python -m recipes.masked_patch \\
            --config=recipes/configs/masked_patch.py:ViTB16,jft300m \\
            --config.data.dataset=path/to/images
            As the paper does.

    The workdir, "runs/", the data set's name and "-masked_patch" unless
    given, receives config.json, metrics.csv, tensorboard/, checkpoints/,
    curves.png, last.keras (the model of the last evaluation) and best.keras
    (that of the lowest evaluation loss): the plain model without a head, which
    is a `weights` of fine-tuning.

    Returns:
        Loss, accuracy (for colours) and step of the last evaluation, over the
        corrupted patches; those of the best one as "best_loss" and so on.
    """
    name = workdirs.default(config.model.name, config.data.dataset)
    workdir = workdirs.path_of(workdir or f"{name}-masked_patch")
    checks.check(config)
    devices = fitting.set_up(config)
    with workdirs.lock(workdir, devices):
        workdirs.refuse_other_config(
            workdir, config, free=experiment.RUNTIME_FIELDS
        )
        if workdirs.is_finished(workdir, devices):
            workdirs.say_finished(workdir, devices)
        else:
            _train(config, workdir, devices)
        log = workdir / "metrics.csv"
        results = fitting.results(workdirs.read_log(log), "loss")
        if devices.is_main:
            figures.plot_curves(log, workdir / "curves.png")
            _report(config, workdir, results)
    return results


def _train(config, workdir, devices):
    """Build the model, write config.json, and train."""
    inputs.check_weights(config.model)
    images = inputs.prepare(config, workdir)
    objective = training_step.Objective(
        predictor=lambda model: masked_patch.predictor(model, config.target),
        loss=masked_patch.loss(config.target),
        metrics=masked_patch.metrics(config.target),
        include_top=False,
        best_by="loss",
    )
    built = begin.build(config, devices, images, objective)
    rows, columns = grid = built.model.metadata["grid"]
    batches = _batches(config, images, grid)
    eval_steps = fitting.check_batches(batches)
    height, width, channels = images.info.image_shape
    size = (
        f"{rows}x{columns} patches of {height}x{width}x{channels} pixels, "
        f"{config.corrupted:.0%} of them corrupted"
    )
    begin.announce(config, workdir, devices, images, built, size, "images")
    with finetune.naming_broken_files(images.train, images.evaluation):
        fitting.fit(
            built,
            config,
            devices,
            workdir,
            batches,
            eval_steps=eval_steps,
            train_source=images.train,
        )


def _batches(config, images, grid):
    """Return functions that make corrupted images and their targets."""
    train, evaluation = inputs.pipelines(
        config, images.info, images.train, images.evaluation
    )
    corruption = dict(
        grid_size=grid,
        target=config.target,
        fraction=config.corrupted,
        seed=config.seed,
    )

    def train_batches(start_step, shard_index=0, num_shards=1, num_replicas=1):
        return masked_patch.batches(
            train(start_step, shard_index, num_shards),
            **corruption,
            start_step=start_step,
            shard_index=shard_index,
            num_shards=num_shards,
            num_replicas=num_replicas,
        )

    def eval_batches(shard_index=0, num_shards=1, num_replicas=1):
        return masked_patch.batches(
            evaluation(shard_index, num_shards),
            **corruption,
            shard_index=shard_index,
            num_shards=num_shards,
            num_replicas=num_replicas,
        )

    return train_batches, eval_batches


def _report(config, workdir, results):
    """Print the results and the command to fine-tune."""
    for title, prefix in (("\nLast", ""), ("Best", "best_")):
        values = ", ".join(
            f"{name} {results[prefix + name]:.4g}"
            for name in ("loss", "accuracy")
            if name in results
        )
        step = results[f"{prefix}step"]
        print(
            f"{title} evaluation (step {step}), of corrupted patches: {values}."
        )
    command = ["python", "-m", "recipes.finetune"]
    command.append(f"--config.data.dataset={config.data.dataset}")
    command.append(f"--config.model.weights={workdir / 'last.keras'}")
    command.append(f"--workdir={workdir}-finetuned")
    print(f"Fine-tune it:\n  {shlex.join(command)}", flush=True)
