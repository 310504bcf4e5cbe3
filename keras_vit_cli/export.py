"""Exports a model for TF Serving, or as one file for another runtime."""

import csv
import json
import os
import subprocess

import keras
import numpy as np

import keras_vit
from keras_vit import data
from keras_vit.export import formats, precision, savedmodel

# Ending of a file -> what writes it.
FILES = dict(
    onnx=formats.export_onnx,
    tflite=formats.export_litert,
    keras=lambda model, path: model.save(path),
)


def run(options) -> int:
    """Exports as the command line asks; returns 0."""
    _export(options)
    return 0


def _export(options):
    model = _load(options)
    *size, channels = model.input_shape[-3:]
    images = [data.read_image(path, size, channels) for path in options.images]
    metadata = {}
    workdir, name = os.path.split(os.path.abspath(options.model))
    if name in ("best.keras", "last.keras"):
        metadata = _of_the_run(workdir, name)
    metadata |= dict(licence=options.licence)
    metadata |= dict(weights=options.weights or metadata.get("weights"))
    metadata |= dict(commit=_commit(options.model))
    # A copy has no loss to derive this from.
    activation = options.activation or savedmodel.activation_of(model)
    if options.precision != "float32":
        metadata["precision"] = options.precision
        other = precision.in_precision(model, options.precision)
        if images:
            comparison = precision.compare(model, other, np.stack(images))
            metadata["comparison"] = comparison
            print(precision.report_text(options.precision, comparison))
        model = other
    kind = os.path.splitext(options.path)[1].removeprefix(".")
    if kind in FILES:
        _export_file(model, options, kind)
    else:
        _export_version(model, options, activation, metadata)


def _load(options):
    if not os.path.isfile(options.model):
        raise ValueError(
            f"MODEL.keras must be a file. Received: {options.model!r}"
        )
    try:
        model = keras.models.load_model(options.model)
    except (TypeError, ValueError):
        # A loss of one's own: then nothing specifies what the outputs mean.
        try:
            model = keras.models.load_model(options.model, compile=False)
        except TypeError as error:  # of layers that are not registered
            raise ValueError(
                "MODEL.keras must be a model that keras_vit can load. "
                f"Received: {options.model!r}: {error}"
            ) from error
        if not options.activation:
            raise ValueError(
                "--activation must be given for a model whose loss does not "
                f"load. Received: {options.model!r}"
            ) from None
    rank = len(model.input_shape)
    if rank not in (4, 5):
        raise ValueError(
            "MODEL.keras must take images or video. Received: one that takes "
            f"{model.input_shape}"
        )
    if rank == 5 and options.images:
        raise ValueError(
            "--images must be absent for a model of video. Received: "
            f"{len(options.images)} images"
        )
    return model


def _export_file(model, options, kind):
    if os.path.exists(options.path) and not options.overwrite:
        raise ValueError(
            f"{options.path!r} exists. Pass --overwrite to replace it."
        )
    FILES[kind](model, options.path)
    size = os.path.getsize(options.path)
    print(f"{options.path}  {size:,} bytes, in {options.precision}")
    if kind != "keras":
        print(formats.LIMITS["litert" if kind == "tflite" else kind])


def _export_version(model, options, activation, metadata):
    class_names = options.class_names and savedmodel.read_class_names(
        options.class_names
    )
    warmup = []
    for path in options.images:
        with open(path, "rb") as file:
            warmup.append(file.read())
    keras_vit.export_savedmodel(
        model,
        options.path,
        class_names=class_names,
        top_k=options.top_k,
        activation=activation,
        warmup_images=tuple(warmup),
        metadata=metadata,
        overwrite=options.overwrite,
    )
    print(f"{options.path}: a SavedModel in {options.precision}, {activation}")
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
    if len(model.input_shape) == 4:
        print(
            "Ask it:\n  keras-vit classify --server localhost:8501 "
            f"--model {name} image.jpg"
        )


def _of_the_run(workdir, name):
    """What a recipe's workdir says about the model of that name."""
    metadata = {}
    config = os.path.join(workdir, "config.json")
    metrics = os.path.join(workdir, "metrics.csv")
    if not (os.path.isfile(config) and os.path.isfile(metrics)):
        return {}
    try:
        with open(config, encoding="utf-8") as file:
            config = json.load(file)["config"]
        metadata["weights"] = (
            _public(config["weights"]) or "trained from scratch"
        )
        metadata["dataset"] = _public(config["dataset"])
        with open(metrics, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        row = rows[-1]
        if name == "best.keras":
            row = max(rows, key=lambda row: float(row["val_accuracy"]))
        metadata["metrics"] = {
            column: float(row[column])
            for column in ("val_accuracy", "val_loss", "step")
        }
    except (IndexError, KeyError, TypeError, ValueError):  # not of a recipe
        return {}
    return metadata


def _public(name):
    """Leaves the folders of this machine out of the card."""
    return os.path.basename(name) if os.path.isabs(name) else name


def _commit(path):
    """The commit of the repository that the model lies in, or None."""
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
