r"""Trains a model on images without labels, for fine-tuning (B.1.2).

python -m recipes.masked_patch
python -m recipes.masked_patch --config.data.dataset=path/to/images
python -m recipes.masked_patch \
    --config=recipes/configs/masked_patch.py:ViTB16,jft300m
"""

import dataclasses
import pathlib
import shlex

import keras

from keras_vit import data, distribution
from keras_vit.inspection import figures
from keras_vit.training import masked_patch
from recipes import (
    cli,
    experiment,
    finetune,
    fitting,
    inputs,
    trained_on,
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
    """Pre-trains by masked patch prediction, and saves the model.

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
    experiment.check(config)
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
    """Builds the model, writes config.json, and trains."""
    devices.check_batch(config.data.batch_size, config.run.micro_batches)
    inputs.check_weights(config.model)

    # Model, optimizer, training step.
    train, evaluation = inputs.load(config)
    data.warn_if_scaled(train)
    described = inputs.describe(config, train, evaluation)
    workdirs.refuse_other_data(workdir, described)
    info = inputs.dataset_info(config, train)
    objective = training_step.Objective(
        predictor=lambda model: masked_patch.predictor(model, config.target),
        loss=masked_patch.loss(config.target),
        metrics=masked_patch.metrics(config.target),
        include_top=False,
        best_by="loss",
    )
    with devices.scope():
        built = training_step.build(config, info, devices.kind, objective)
    model = built.model
    distribution.check_model(devices.strategy, model)
    notes = inputs.size_notes(info, train, model)

    # Data.
    images, eval_images = inputs.pipelines(config, info, train, evaluation)
    corruption = dict(
        grid_size=model.metadata["grid"],
        target=config.target,
        fraction=config.corrupted,
        seed=config.seed,
    )

    def train_batches(start_step, shard_index=0, num_shards=1, num_replicas=1):
        return masked_patch.batches(
            images(start_step, shard_index, num_shards),
            **corruption,
            start_step=start_step,
            shard_index=shard_index,
            num_shards=num_shards,
            num_replicas=num_replicas,
        )

    def eval_batches(shard_index=0, num_shards=1, num_replicas=1):
        return masked_patch.batches(
            eval_images(shard_index, num_shards),
            **corruption,
            shard_index=shard_index,
            num_shards=num_shards,
            num_replicas=num_replicas,
        )

    # Fail on invalid settings before the workdir is written.
    train_batches(0)
    eval_steps = int(eval_batches().cardinality())
    if devices.is_main:
        _begin(
            config,
            workdir,
            devices,
            built,
            info,
            (train, evaluation),
            described,
            notes,
        )

    with finetune.naming_broken_files(train, evaluation):
        fitting.fit(
            built,
            config,
            devices,
            workdir,
            train_batches,
            eval_batches,
            eval_steps=eval_steps,
            train_source=train,
        )


def _begin(config, workdir, devices, built, info, sources, described, notes):
    """Writes config.json and prints a summary of the run."""
    train, evaluation = sources
    overlap = trained_on.overlap(
        evaluation, config.data.dataset, config.model.weights, train
    )
    workdirs.say_other_backend(workdir)
    left_out, left_out_counts = inputs.left_out(train, evaluation)
    rows, columns = built.model.metadata["grid"]
    derived = dict(
        model=built.model_arguments,
        num_parameters=built.model.count_params(),
        image_size=info.image_size,
        channels=info.channels,
        patches=(rows, columns),
        train_images=info.train_images,
        eval_images=evaluation.num_examples,
        data=described,
        overlap=overlap,
        **left_out_counts,
        total_steps=built.total_steps,
        warmup_steps=built.warmup_steps,
        eval_every=built.eval_every,
        devices=f"{devices.num_devices} {devices.kind}",
        backend=keras.backend.backend(),
        keras=keras.__version__,
    )
    workdirs.write_config(workdir, config, derived)
    if config.data.broken == "skip":
        inputs.write_skipped(workdir / "skipped.csv", train, evaluation)
    height, width = info.image_size
    print(
        f"{config.model.name} {inputs.origin(config.model.weights)}, "
        f"{built.model.count_params():,} parameters, "
        f"{rows}x{columns} patches of {height}x{width}x{info.channels} "
        f"pixels, {config.corrupted:.0%} of them corrupted; "
        f"{info.train_images} images to train on, {evaluation.num_examples} "
        f"to evaluate; {built.total_steps} steps of {config.data.batch_size}, "
        f"evaluated every {built.eval_every}." + (left_out and f" {left_out}."),
        flush=True,
    )
    if overlap:
        notes.append(f"WARNING: {overlap}.")
    for note in notes:
        print(note, flush=True)


def _report(config, workdir, results):
    """Prints the results and the command to fine-tune."""
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


if __name__ == "__main__":
    cli.main(run, DEFAULT_CONFIG)
