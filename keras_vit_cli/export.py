"""Exports a model for TF Serving, or as one file for another runtime."""

import csv
import os
import pathlib
import subprocess

import keras
import numpy as np

import keras_vit
from keras_vit import data
from keras_vit._paths import files_to_name, save_whole
from keras_vit.evaluation.task_scores import BEST_BY
from keras_vit.export import (
    formats,
    limits,
    precision,
    runtimes,
    serving_assets,
)
from keras_vit.export.scores import activation_of
from keras_vit.heads import TaskModel
from keras_vit_cli import runs

# Ending of a file -> its format, and the function that writes it.
FORMATS = dict(onnx="onnx", tflite="litert", xml="openvino")
FILES = dict(
    onnx=formats.export_onnx,
    tflite=formats.export_litert,
    xml=formats.export_openvino,
    keras=save_whole,
)
# Options of a SavedModel alone, and their defaults.
_SERVED = dict(
    class_names=None,
    top_k=None,
    max_images=serving_assets.BATCH_SIZES[-1],
    decoding_budget=limits.DECODING_BUDGET,
    weights=None,
    licence=None,
)


def run(options) -> int:
    """Export as the command line specifies; return 0."""
    _export(options)
    return 0


def _export(options):
    if os.path.exists(options.path) and not options.overwrite:
        raise ValueError(
            f"{options.path!r} exists. Pass --overwrite to replace it."
        )
    kind = os.path.splitext(options.path)[1].removeprefix(".")
    if kind in FILES:
        _refuse_served(options)
    model = _load(options)
    if kind in FILES and options.activation:
        _check_activation(model, options.activation)
    images = [_read(path, model.input_shape[1:]) for path in options.images]
    metadata = {}
    if os.path.basename(options.model) in ("best.keras", "last.keras"):
        metadata = _of_the_run(options.model)
    metadata |= dict(licence=options.licence)
    metadata |= dict(weights=options.weights or metadata.get("weights"))
    metadata |= dict(commit=_commit(options.model))
    activation = options.activation
    if isinstance(model, TaskModel):
        if options.precision != "float32":
            raise ValueError(
                "--precision must be float32 for a model with a head of "
                f"keras_vit.heads. Received: {options.precision}"
            )
    else:
        activation = activation or activation_of(model)
    is_int8 = options.precision == "int8"
    if is_int8 and FORMATS.get(kind) in formats.QUANTIZED:
        _export_file(model, options, kind, precision="int8")
        if images:
            images = np.stack(images).astype("float32")
            expected = model.predict_on_batch(images)
            outputs = runtimes.run_file(options.path, images)
            found = precision.compare_outputs(
                expected,
                outputs,  # type: ignore[arg-type]  # of one output
            )
            print(precision.report_text("int8", found))
        return
    if options.precision != "float32":
        metadata["precision"] = options.precision
        other = precision.in_precision(model, options.precision)
        if images:
            comparison = precision.compare(model, other, np.stack(images))
            metadata["comparison"] = comparison
            print(precision.report_text(options.precision, comparison))
        model = other
    if kind in FILES:
        _export_file(model, options, kind)
    else:
        _export_version(model, options, images, activation, metadata)


def _refuse_served(options):
    given = [x for x, y in _SERVED.items() if getattr(options, x) != y]
    if given:
        raise ValueError(
            f"{', '.join(f'--{name}' for name in given)} must be left out for "
            f"{options.path!r}: only a SavedModel has a place for it"
        )
    if options.images and options.precision == "float32":
        raise ValueError(
            f"--images must be left out for {options.path!r} in float32: they "
            "warm up a SavedModel, or show what another --precision changes"
        )


def _check_activation(model, activation):
    stated = activation_of(model)
    if activation != stated:
        raise ValueError(
            f"--activation must be that of the model's loss, {stated!r}, for a "
            f"file, which states this one. Received: {activation!r}"
        )


def _load(options):
    if not os.path.isfile(options.model):
        raise ValueError(
            f"MODEL.keras must be a file. Received: {options.model!r}"
            f"{files_to_name(options.model)}"
        )
    try:
        model = keras.models.load_model(options.model)
    except (TypeError, ValueError):
        # A custom loss, which does not specify the meaning of the outputs.
        try:
            model = keras.models.load_model(options.model, compile=False)
        except (TypeError, ValueError) as error:  # as of unknown layers
            raise ValueError(
                "MODEL.keras must be a model that keras_vit can load. "
                f"Received: {options.model!r}: {error}"
            ) from error
        if not options.activation:
            raise ValueError(
                "--activation must be given for a model whose loss does not "
                f"load. Received: {options.model!r}"
            ) from None
        if options.activation == "sigmoid":  # files state that of the loss
            loss = keras.losses.BinaryCrossentropy(from_logits=True)
            model.compile("sgd", loss)
    rank = len(model.input_shape)
    if rank not in (4, 5):
        raise ValueError(
            "MODEL.keras must take images or video. Received: one that takes "
            f"{model.input_shape}"
        )
    return model


def _read(path, shape):
    """Return an image, or the first clip of a video, of a model's size."""
    *frames, height, width, channels = shape
    if not frames:
        return data.read_image(path, (height, width), channels)

    def plan(*size):
        return (0, 0, *size), (height, width)

    with data.video_files.open_video(path) as video:
        found = video.frames(list(range(frames[0])))
        return data.video_files.to_pixels(found, channels, plan)


def _export_file(model, options, kind, **arguments):
    FILES[kind](model, options.path, **arguments)
    size = os.path.getsize(options.path)
    print(f"{options.path}  {size:,} bytes, in {options.precision}")
    if kind in FORMATS:
        print(formats.LIMITS[FORMATS[kind]])


def _export_version(model, options, images, activation, metadata):
    class_names = options.class_names and serving_assets.read_class_names(
        options.class_names
    )
    warmup = {"warmup_videos": tuple(images)}
    if len(model.input_shape) == 4:
        files = [pathlib.Path(path).read_bytes() for path in options.images]
        warmup = {"warmup_images": tuple(files)}
    keras_vit.export_savedmodel(
        model,
        options.path,
        class_names=class_names,
        top_k=options.top_k,
        activation=activation,
        **warmup,
        metadata=metadata,
        overwrite=options.overwrite,
        max_images=options.max_images,
        decoding_budget=options.decoding_budget,
    )
    what = getattr(model, "task", activation)
    print(f"{options.path}: a SavedModel in {options.precision}, {what}")
    for folder, _, files in sorted(os.walk(options.path)):
        for name in sorted(files):
            file = os.path.join(folder, name)
            print(f"  {file}  {os.path.getsize(file):,} bytes")
    base = os.path.abspath(os.path.dirname(os.path.normpath(options.path)))
    name = os.path.basename(base)
    print(
        "Serve it:\n  docker run -p 8500:8500 -p 8501:8501 "
        f"-v {base}:/models/{name} -e MODEL_NAME={name} tensorflow/serving"
    )
    if len(model.input_shape) == 4 and not isinstance(model, TaskModel):
        print(
            "Ask it:\n  keras-vit classify --server localhost:8501 "
            f"--model {name} image.jpg"
        )


def _of_the_run(model):
    """Return the metadata of a model in its recipe's workdir."""
    config = runs.config_of(model)
    workdir, name = os.path.split(model)
    metrics = os.path.join(workdir, "metrics.csv")
    if not config or not os.path.isfile(metrics):
        return {}
    metadata = {}
    try:
        metadata["weights"] = (
            _public(config["weights"]) or "trained from scratch"
        )
        metadata["dataset"] = _public(config["dataset"])
        with open(metrics, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        row = rows[-1]
        scores = (f"val_{score}" for score in ("accuracy", *BEST_BY.values()))
        (best_by,) = set(scores) & set(row)
        if name == "best.keras":
            row = max(rows, key=lambda row: float(row[best_by]))
        metadata["metrics"] = {
            column: float(row[column])
            for column in (best_by, "val_loss", "step")
        }
    except (IndexError, KeyError, TypeError, ValueError):  # not of a recipe
        return {}
    return metadata


def _public(name):
    """Keep the folders of this machine out of the card."""
    return os.path.basename(name) if os.path.isabs(name) else name


def _commit(path):
    """Return the commit of the repository that contains the model, or None."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=os.path.dirname(os.path.abspath(path)),
            capture_output=True,
            text=True,
        )
    except OSError:  # no git here
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
