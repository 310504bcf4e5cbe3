"""A teacher's predictions on disk, for several students of the same images.

A batch depends on the config and its step alone, augmentation included, so that
predictions are stored by step (as TinyViT's, Wu et al. 2022, 2207.10666, are
with the seeds of the augmentation).
"""

import dataclasses
import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_vit import distribution, training
from keras_vit._paths import digest
from keras_vit.data import order
from keras_vit.data.optional_imports import tensorflow
from keras_vit.training.by_step import by_step
from keras_vit.training.distillation import (
    INPUT,
    LEAST,
    check_classes,
    predicted,
)
from recipes import fields, inputs, method, training_step
from recipes import workdir as workdirs

DTYPE = np.dtype("<f2")
LARGEST = np.finfo(DTYPE).max


def stored(
    config, devices: distribution.Devices, images: inputs.Inputs, batches: tuple
) -> method.Batches:
    """Return batches with stored predictions; those that miss are computed.

    Args:
        config: A `distill.Config` with `distill.predictions`.
        devices: Those of the run.
        images: The images of the run.
        batches: Those of `inputs.pipelines`.

    Raises:
        ValueError: If the folder has the predictions of other batches or of
            another teacher, or misses some and several processes run, or
            another run writes them; or several processes read a stream.
    """
    if devices.num_processes > 1 and images.train.stream is not None:
        raise ValueError(
            "`distill.predictions` must be '' for several processes that read "
            "TFRecords or TFDS, each of which draws batches of its own. "
            f"Received: distill.predictions={config.distill.predictions!r}"
        )
    folder = pathlib.Path(os.path.expanduser(config.distill.predictions))
    _refuse_others(folder, config, images)
    train, evaluation = batches
    shape = (config.data.batch_size, len(images.info.class_names))
    counts = dict(
        train=training_step.steps_of(config, images.info)[0],
        evaluation=int(evaluation().cardinality()),
    )
    if any(_done(folder / k, shape) < n for k, n in counts.items()):
        if devices.num_processes > 1:
            raise ValueError(
                "`distill.predictions` must be a complete folder for a run of "
                "several processes: write it with a run of one. Received: "
                f"distill.predictions={config.distill.predictions!r}"
            )
        # Two runs that write at once would mix their batches.
        with workdirs.lock(folder, devices, "distill.predictions"):
            _write_missing(config, images, batches, folder, shape, counts)
        # The student is that of a run which only reads.
        keras.utils.set_random_seed(config.seed)
    return method.wrapped(
        config,
        images,
        _with_stored,
        folder=folder,
        num_evaluated=images.evaluation.num_examples,
    )


def _write_missing(config, images, batches, folder, shape, counts):
    """Write the predictions of all batches that no file has."""
    train, evaluation = batches
    size = sum(counts.values()) * np.prod(shape) * DTYPE.itemsize / 1e9
    print(f"Predictions, {size:.3g} GB, go to {folder}.", flush=True)
    ask = _asker(config.distill, images.info)
    _write(folder / "train", counts["train"], shape, train, ask)
    _write(
        folder / "evaluation",
        counts["evaluation"],
        shape,
        lambda done: evaluation().skip(done),
        ask,
    )


def _refuse_others(folder, config, images):
    """Write what the predictions are of, or compare it."""
    teacher = config.distill.teacher
    settings = dataclasses.asdict(config.data)
    del settings["cache"], settings["dataset"]  # its digest is compared
    names = ("train", "evaluation")
    here = dict(
        teacher=digest(teacher)
        or str(pathlib.Path(os.path.expanduser(teacher))),
        seed=config.seed,
        data=settings,
        image_shape=images.info.image_shape,
        digests={name: images.described[name] for name in names},
    )
    if config.distill.probabilities:  # folders of logits do not say so
        here["probabilities"] = True
    here = json.loads(json.dumps(here))
    path = folder / "predictions.json"
    if not path.exists():
        if any((folder / name).exists() for name in names):
            raise ValueError(
                "`distill.predictions` must have a predictions.json, which "
                "says what its predictions are of. Received: "
                f"{str(folder)!r} without. Restore it, or give another folder."
            )
        folder.mkdir(parents=True, exist_ok=True)
        workdirs.write_json(path, here)
        return
    there, here = fields.flat(json.loads(path.read_text())), fields.flat(here)
    compared = dict.fromkeys((*here, "probabilities"))
    differ = [name for name in compared if there.get(name) != here.get(name)]
    if differ:
        raise ValueError(
            "`distill.predictions` must be a folder of the same batches and "
            f"the same teacher. Received: {str(folder)!r}, which differs in "
            + ", ".join(differ)
        )


def _done(path, shape):
    """Return the number of batches of a file."""
    size = int(np.prod(shape)) * DTYPE.itemsize
    return path.stat().st_size // size if path.exists() else 0


def _asker(settings, info):
    """Return a function from a batch of images to logits in NumPy."""
    ask = _predictor(settings, info)
    if not settings.probabilities:
        return ask
    # Small probabilities would be 0 in float16, their logarithms are not.
    return lambda images: np.log(np.maximum(ask(images), LEAST))


def _predictor(settings, info):
    """Return a function from a batch of images to what the teacher gives."""
    teacher: Any = training.open_teacher(settings.teacher)
    names = tuple(info.class_names)
    if training.is_function_of_files(settings.teacher):
        check_classes(teacher, len(names), names, len(names))
        tf = tensorflow()
        return lambda images: teacher(tf.cast(images, "float32")).numpy()
    images = keras.Input(info.image_shape)
    outputs = predicted(
        images, teacher, names, len(names), settings.probabilities
    )
    model = keras.Model(images, outputs)
    return lambda images: model.predict_on_batch(images.numpy())


def _write(path, count, shape, batches: Callable, ask):
    """Append the predictions that a file misses; a killed run resumes."""
    done = _done(path, shape)
    with open(path, "ab") as file:
        file.truncate(done * int(np.prod(shape)) * DTYPE.itemsize)
        for batch in batches(done).take(max(0, count - done)):
            found = np.asarray(ask(batch["images"]), "float32")
            if found.shape != shape:
                raise ValueError(
                    f"`distill.teacher` must predict {shape[1]} classes. "
                    f"Received: {found.shape[1:]}"
                )
            found = np.clip(found, -LARGEST, LARGEST).astype(DTYPE)
            file.write(found.tobytes())


def _with_stored(
    images,
    *,
    folder,
    num_evaluated,
    start_step=None,
    shard_index=0,
    num_shards=1,
    num_replicas=1,
):
    """Add the predictions to batches; without a step, of evaluation.

    In training a process reads a part of each batch, in evaluation a range of
    the examples.
    """
    tf = tensorflow()
    is_train = start_step is not None
    path = folder / ("train" if is_train else "evaluation")

    def add(step, batch):
        size, classes = batch["labels"].shape
        shard = order.Shard(size * num_shards, shard_index, num_shards)
        first, stride = shard_index * size, shard.batch_size
        if not is_train:
            first, stride = shard.range_of(num_evaluated)[0], size

        def read(step):
            rows = np.memmap(path, DTYPE, "r").reshape(-1, classes)
            rows = rows[first + step * stride :][:size].astype("float32")
            # Padding of evaluation may lie beyond the end.
            return np.pad(rows, [(0, size - len(rows)), (0, 0)])

        found = tf.numpy_function(read, [step], "float32")
        found = tf.ensure_shape(found, (size, classes))
        return dict(batch, images={"images": batch["images"], INPUT: found})

    return by_step(
        images, add, start_step=start_step or 0, num_replicas=num_replicas
    )
