"""Trains a model on labelled images, from released weights or from scratch.

python -m recipes.finetune
python -m recipes.finetune --config.dataset=path/to/images --workdir=runs/mine
python -m recipes.finetune --config=recipes/configs/finetune.py:ViTB16,cifar10
"""

import contextlib
import dataclasses
import pathlib
import re
import shlex

import keras
import numpy as np
import tensorflow as tf

import keras_vit
from keras_vit import data, distribution
from keras_vit.inspection import figures
from recipes import cli, experiment, fitting, inputs, training_step
from recipes import workdir as workdirs

# As a config file says it.
Architecture = experiment.Architecture
Config = experiment.Config

DEFAULT_CONFIG = pathlib.Path(__file__).parent / "configs" / "finetune.py"
# Images in predictions.png, and kept in examples/.
NUM_SHOWN = 12


def run(config: Config, workdir: str = "") -> dict[str, float]:
    """Trains, keeps the best model, and draws what it does.

    A run that was stopped, by whatever, goes on when it is started again, and
    ends with the same numbers.

    Usage:
        python -m recipes.finetune
            Scikit-learn's handwritten digits, from scratch.
        python -m recipes.finetune --config.dataset=path/to/images
            A small model from scratch on your own images.
        python -m recipes.finetune \\
            --config=recipes/configs/finetune.py:ViTB16,path/to/images
            Released weights on your own images, or on a data set of TFDS.

    The workdir, "runs/" and the data set's name unless given, receives
    config.json, metrics.csv, tensorboard/, checkpoints/, best.keras (the
    highest evaluation accuracy), curves.png, predictions.png and examples/;
    with broken="skip" skipped.csv too, the files left out and why.

    Returns:
        Loss and accuracy of best.keras on the evaluation images.
    """
    experiment.check(config)
    workdir = pathlib.Path(
        workdir or workdirs.default(config.model, config.dataset)
    )
    workdirs.refuse_other_config(workdir, config, free=experiment.PLACE)
    devices = distribution.setup(
        config.devices,
        config.strategy,
        model_parallel=config.model_parallel,
        **dataclasses.asdict(config.cluster),
    )
    devices.check_batch(config.batch_size, config.micro_batches)
    keras.utils.set_random_seed(config.seed)
    keras.config.set_dtype_policy(config.dtype_policy)

    # Data.
    train, evaluation = inputs.load(config)
    data.warn_if_scaled(train)
    facts = inputs.facts_of(config, train)
    train_batches, eval_batches = inputs.pipelines(
        config, facts, train, evaluation
    )
    # What cannot be made is refused before the workdir is written.
    train_batches(0)
    all_eval_batches = eval_batches()

    # Model, optimizer, training step.
    with devices.scope():
        built = training_step.build(config, facts, devices.kind)
    distribution.check_model(devices.strategy, built.model)
    model = built.model

    # Everything cheap has been checked: the workdir is written.
    if devices.is_main:
        left_out, left_out_counts = inputs.left_out(train, evaluation)
        derived = dict(
            model=built.model_arguments,
            num_parameters=model.count_params(),
            image_size=facts.image_size,
            channels=facts.channels,
            classes=len(train.class_names),
            train_images=train.num_examples,
            eval_images=evaluation.num_examples,
            **left_out_counts,
            total_steps=built.total_steps,
            warmup_steps=built.warmup_steps,
            eval_every=built.eval_every,
            devices=f"{devices.num_devices} {devices.kind}",
            backend=keras.backend.backend(),
            keras=keras.__version__,
        )
        workdirs.write_config(workdir, config, derived)
        if config.broken == "skip":
            inputs.write_skipped(workdir / "skipped.csv", train, evaluation)
        size = "x".join(map(str, (*facts.image_size, facts.channels)))
        print(
            f"{config.model}, {model.count_params():,} parameters, "
            f"{size} pixels; "
            f"{train.num_examples} images of {len(train.class_names)} classes "
            f"to train on, {evaluation.num_examples} to evaluate"
            f"; {built.total_steps} steps of {config.batch_size}, evaluated "
            f"every {built.eval_every}." + (left_out and f" {left_out}."),
            flush=True,
        )

    # Fit and evaluate.
    with naming_broken_files(train, evaluation):
        rows = fitting.fit(
            built,
            config,
            devices,
            workdir,
            train_batches,
            eval_batches,
            eval_steps=int(all_eval_batches.cardinality()),
        )
        if not devices.is_main:
            return fitting.best_results(rows)
        # Images that stand evenly spaced, so that all classes show.
        images, labels = _every_nth(
            all_eval_batches, max(1, evaluation.num_examples // NUM_SHOWN)
        )
    results = fitting.best_results(rows)
    best = keras.models.load_model(workdir / "best.keras", compile=False)

    # Figures.
    figures.plot_curves(workdir / "metrics.csv", workdir / "curves.png")
    probabilities = _softmax(best.predict(images, verbose=0))
    predicted = probabilities.argmax(axis=-1)
    figures.plot_attention(
        images,
        keras_vit.inspection.attention_rollout(best, images),
        [
            f"{train.class_names[guess]} {probability[guess]:.0%}"
            + ("" if guess == label else f", not {train.class_names[label]}")
            for guess, label, probability in zip(
                predicted, labels, probabilities, strict=True
            )
        ],
        workdir / "predictions.png",
        right=predicted == labels,
    )
    examples = _write_examples(
        images, [train.class_names[label] for label in labels], workdir
    )

    # Where everything is.
    print(
        f"\nbest.keras: {results['accuracy']:.2%} of {evaluation.num_examples} "
        f"evaluation images right (the last evaluation: "
        f"{float(rows[-1]['val_accuracy']):.2%})."
    )
    width = len(str(workdir / "predictions.png"))
    for name, description in (
        ("best.keras", "the model, best at evaluation"),
        ("curves.png", "loss, accuracy and learning rate"),
        ("predictions.png", "images, what the model saw, and where"),
        ("metrics.csv", "the numbers"),
        ("config.json", "what was run"),
        ("checkpoints", "the last states, from which it goes on"),
        ("tensorboard", f"tensorboard --logdir {workdir / 'tensorboard'}"),
    ):
        print(f"  {str(workdir / name):{width}}  {description}")
    command = ["python", "-m", "recipes.predict", str(workdir / "best.keras")]
    command += examples[:3] or ["image.jpg"]
    command += ["--attention", str(workdir / "attention.png")]
    print(f"Use it:\n  {shlex.join(command)}", flush=True)
    return results


@contextlib.contextmanager
def naming_broken_files(*sources):
    """Turns a decoding error, which names no file, into one that does."""
    try:
        yield
    except tf.errors.OpError:
        for source in sources:
            message = data.explain_broken(source)
            if message:
                raise ValueError(message) from None
        raise


def _every_nth(batches, n):
    """Returns some images as uint8 and their labels, evenly spaced."""
    examples = batches.unbatch().filter(lambda x: x["weights"] > 0)
    chosen = examples.shard(n, 0).take(NUM_SHOWN)
    images, labels = zip(
        *((x["images"], x["labels"]) for x in chosen.as_numpy_iterator()),
        strict=True,
    )
    images = np.clip(np.rint(images), 0, 255).astype("uint8")
    return images, np.argmax(labels, axis=-1)


def _softmax(logits):
    return keras.ops.convert_to_numpy(keras.ops.softmax(logits))


def _write_examples(images, names, workdir):
    """Writes PNGs to try the model on; returns their paths."""
    if images.shape[-1] not in (1, 3):
        return []
    (workdir / "examples").mkdir(exist_ok=True)
    paths = []
    for i, (image, name) in enumerate(zip(images, names, strict=True)):
        name = re.sub(r"[^\w-]+", "_", name)
        paths.append(str(workdir / "examples" / f"{i}-{name}.png"))
        tf.io.write_file(paths[-1], tf.io.encode_png(image))
    return paths


if __name__ == "__main__":
    cli.main(run, DEFAULT_CONFIG)
