"""Trains a model on labelled images or videos, from weights or from scratch."""

from recipes import start

if __name__ == "__main__":  # before the imports, which take seconds
    start.main("recipes.finetune")

import importlib.util
import pathlib
import re
import shlex

import keras
import numpy as np

import keras_vit
from keras_vit import data, evaluation
from keras_vit.data.optional_imports import tensorflow
from keras_vit.inspection import figures
from recipes import (
    begin,
    checks,
    contrastive,
    distill,
    experiment,
    fitting,
    inputs,
    probes,
    task_settings,
    tasks,
)
from recipes import workdir as workdirs

# The names under which config files use them.
Architecture = experiment.Architecture
Config = experiment.Config

DEFAULT_CONFIG = pathlib.Path(__file__).parent / "configs" / "finetune.py"
# Images in predictions.png and in examples/.
NUM_SHOWN = 12
# Images of which the mean average precision is logged: all scores are in
# memory at once.
NUM_MEASURED = 10_000


def run(config: Config, workdir: str = "") -> dict[str, float]:
    """Train and save a model, and draw curves and predictions.

    A stopped run resumes when it is started again, and ends with the same
    results. A finished run only draws its figures again.

    Usage:
        python -m recipes.finetune
            Scikit-learn's handwritten digits, from scratch.
        python -m recipes.finetune --config.data.dataset=path/to/images
            A small model from scratch on your own images.
        python -m recipes.finetune \\
            --config=recipes/configs/finetune.py:ViTB16,path/to/images
            Released weights on your own images, or on a data set of TFDS.
        python -m recipes.finetune --config=recipes/configs/video.py
            MViT on clips of moving digits, or on your own videos.
        python -m recipes.finetune --config=recipes/configs/detect.py
            Boxes of digits in scenes, or of objects in your own images; and
            segment.py and depth.py (docs/tasks.md).
        python -m recipes.finetune --config=recipes/configs/contrastive.py
            Two towers on digits and sentences, or on your own images with
            captions (docs/recipes/contrastive.md).
        python -m recipes.finetune --config=recipes/configs/distill.py \\
            --config.distill.teacher=teacher.keras
            A model that learns from another (docs/recipes/distill.md).

    The workdir, "runs/" and the data set's name unless given, receives
    config.json, metrics.csv, tensorboard/, checkpoints/, last.keras (the
    model of the last evaluation, written at the end), best.keras (that of the
    highest evaluation accuracy), curves.png, predictions.png and examples/;
    with broken="skip" also skipped.csv, the skipped files and the reasons.

    Returns:
        Loss, accuracy and step of the last evaluation, and those of the best
        one as "best_loss", "best_accuracy" and "best_step". With several
        labels per image, accuracy is precision at 1, and
        "mean_average_precision" is logged as well.
    """
    workdir = workdirs.path_of(
        workdir or workdirs.default(config.model.name, config.data.dataset)
    )
    if isinstance(config, task_settings.Config):
        return tasks.run(config, workdir)
    if isinstance(config, contrastive.Config):
        return contrastive.run(config, workdir)
    if isinstance(config, distill.Config):
        distill.check(config)
    else:
        checks.check(config)
    with fitting.opened(config, workdir) as (devices, finished):
        images = inputs.prepare(config, workdir)
        train, evaluation = images.train, images.evaluation
        batches = inputs.pipelines(config, images.info, train, evaluation)
        with inputs.naming_broken_files(train, evaluation):
            if not finished:
                _train(config, workdir, devices, images, batches)
            results = fitting.results(workdir / "metrics.csv")
            if devices.is_main:
                # Evenly spaced images, so that all classes are shown.
                shown, labels = _every_nth(
                    batches[1](), max(1, evaluation.num_examples // NUM_SHOWN)
                )
                drawn = _draw(
                    workdir,
                    shown,
                    labels,
                    train.class_names,
                    config.optim.loss,
                )
        if devices.is_main:
            _report(workdir, results, evaluation.num_examples, *drawn)
    return results


def _train(config, workdir, devices, images, batches):
    """Build the model, write config.json, and train."""
    objective = None
    if isinstance(config, distill.Config) and config.distill.teacher:
        objective, batches = distill.prepare(config, devices, images, batches)
    eval_steps = fitting.check_batches(batches)
    built = begin.build(config, devices, images, objective)
    info = images.info
    size, kind = info.pixels, "images"
    if info.num_frames:
        size, kind = f"{info.num_frames} frames of {size}", "clips"
    kind = f"{kind} of {len(info.class_names)} classes"
    begin.announce(config, workdir, devices, images, built, size, kind)
    fitting.fit(
        built,
        config,
        devices,
        workdir,
        batches,
        eval_steps=eval_steps,
        measurements=_measurements(config, images, built.model),
        train_source=images.train,
    )


def _measurements(config, images, model):
    """Return what is logged of several labels besides the accuracy."""
    if not images.info.multi_label:
        return ()
    part = probes.at_most(images.evaluation, NUM_MEASURED)
    _, batches = inputs.pipelines(config, images.info, images.train, part)
    frames = images.info.num_frames
    if frames and len(model.input_shape) == 4:
        model = evaluation.average_scores(model, frames)
    return (evaluation.MeanAveragePrecision(batches(), model),)


def _draw(workdir, images, labels, class_names, loss):
    """Write the figures and the examples.

    Returns:
        The paths of the examples, and whether attention was drawn.
    """
    model = keras.models.load_model(workdir / "last.keras", compile=False)
    figures.plot_curves(workdir / "metrics.csv", workdir / "curves.png")
    is_video = images.ndim == 5
    by_frame = is_video and len(model.input_shape) == 4
    predictor = model
    if by_frame:
        predictor = evaluation.average_scores(model, images.shape[1])
    # Losses have the names of their activations.
    probabilities = getattr(keras.ops, loss)(
        predictor.predict(images, verbose=0)
    )
    probabilities = keras.ops.convert_to_numpy(probabilities)
    predicted = probabilities.argmax(axis=-1)
    is_right = np.take_along_axis(labels, predicted[:, None], -1)[:, 0] > 0
    names = [
        ", ".join(class_names[k] for k in np.flatnonzero(label)) or "no label"
        for label in labels
    ]
    attention = None
    if keras_vit.inspection.has_rollout(model) and not by_frame:
        attention = keras_vit.inspection.attention_rollout(model, images)
    plot = figures.plot_clips if is_video else figures.plot_attention
    plot(
        images,
        attention,
        [
            f"{class_names[guess]} {probability[guess]:.0%}"
            + ("" if right else f", not {name}")
            for guess, right, name, probability in zip(
                predicted, is_right, names, probabilities, strict=True
            )
        ],
        workdir / "predictions.png",
        right=is_right,
    )
    # A model of images cannot read files of videos.
    examples = [] if by_frame else _write_examples(images, names, workdir)
    return examples, attention is not None


def _report(workdir, results, num_images, examples, with_rollout):
    """Print the results, the files, and how to use the model."""
    print(
        f"\nLast evaluation (step {results['step']}): "
        f"{results['accuracy']:.2%} of {num_images} evaluation images right."
        f"\nBest evaluation (step {results['best_step']}): "
        f"{results['best_accuracy']:.2%}, chosen by these same images."
    )
    if "mean_average_precision" in results:
        print(
            "Mean average precision of the last: "
            f"{results['mean_average_precision']:.2%}."
        )
    width = len(str(workdir / "predictions.png"))
    for name, description in (
        ("last.keras", "the model of the last evaluation"),
        ("best.keras", "the model of the best evaluation"),
        ("curves.png", "loss, accuracy and learning rate"),
        ("predictions.png", "examples, and what the model saw"),
        ("metrics.csv", "the numbers"),
        ("config.json", "what was run"),
        ("checkpoints", "the last states, from which a run resumes"),
        ("tensorboard", f"tensorboard --logdir {workdir / 'tensorboard'}"),
    ):
        if (workdir / name).exists():  # one may have been removed since
            print(f"  {str(workdir / name):{width}}  {description}")
    command = ["keras-vit", "predict", str(workdir / "last.keras")]
    command += examples[:3] or ["image.jpg"]
    if with_rollout:
        command += ["--attention", str(workdir / "attention.png")]
    print(f"Use it:\n  {shlex.join(command)}", flush=True)


def _every_nth(batches, n):
    """Return some images as uint8 and their labels, evenly spaced."""
    examples = batches.unbatch().filter(lambda x: x["weights"] > 0)
    chosen = examples.shard(n, 0).take(NUM_SHOWN)
    images, labels = zip(
        *((x["images"], x["labels"]) for x in chosen.as_numpy_iterator()),
        strict=True,
    )
    images = np.clip(np.rint(images), 0, 255).astype("uint8")
    return images, np.stack(labels)


def _write_examples(images, names, workdir):
    """Write files to try the model on; return their paths."""
    if images.shape[-1] not in (1, 3):
        return []
    is_video = images.ndim == 5
    if is_video and importlib.util.find_spec("av") is None:
        return []
    (workdir / "examples").mkdir(exist_ok=True)
    paths = []
    for i, (image, name) in enumerate(zip(images, names, strict=True)):
        name = re.sub(r"[^\w-]+", "_", name)[:100]
        path = str(workdir / "examples" / f"{i}-{name}")
        paths.append(path + (".mkv" if is_video else ".png"))
        if is_video:
            data.video_files.write_video(paths[-1], image)
        else:
            io = tensorflow().io
            io.write_file(paths[-1], io.encode_png(image))
    return paths
