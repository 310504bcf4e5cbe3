"""The description of a model in a file for another runtime.

- `class_names`: names by index, if the model has them
- `input`: height, width, channels, for a video also frames; how images are
  resized; and the pixels that the model takes, whose `range` is null where a
  layer before a model of this package scales them. Of a text tower `ids` and
  `vocabulary`, the numbers of tokens of a text and in all
- `outputs`: the activation that gives probabilities: "softmax", "sigmoid" or
  "none", also of features
- `task`: of a model with a head, such as "detection"
- `architecture`: name of the model
- `keras_vit`: version of this package, if it is installed
"""

import datetime
import importlib.metadata
import json

import keras
import numpy as np

from keras_vit.export.scores import activation_of, class_names_of
from keras_vit.heads import TaskModel
from keras_vit.models import ImageModel
from keras_vit.text import TextModel


def describe(model: keras.Model) -> dict:
    """Return the fields above.

    Args:
        model: A model of this package, or one that contains it.
    """
    version = package_version()
    common = {} if version is None else dict(keras_vit=version)
    common["architecture"] = model.name
    if isinstance(model, TextModel):
        config = model.architecture
        ids = dict(ids=config.context_length, vocabulary=config.vocab_size)
        return common | dict(input=ids, outputs="none")
    inner = ImageModel.find(model)
    *frames, height, width, channels = model.input_shape[1:]
    size = dict(height=height, width=width, channels=channels)
    if frames:
        size |= dict(frames=frames[0])
    pixels: dict = dict(
        pixels="RGB" if channels == 3 else "as trained", range=[0, 255]
    )
    if _scales_before(model, inner):
        pixels["range"] = None
    elif not inner.includes_preprocessing:
        # None if unknown.
        pixels |= dict(
            mean=_plain(inner.pixel_mean), std=_plain(inner.pixel_std)
        )
    fields = common | dict(
        input=size | pixels | dict(resize=_resize(inner)),
        outputs=activation_of(model),
    )
    if model is inner and inner.head is None:
        fields["outputs"] = "none"
    names = class_names_of(model)
    is_task = isinstance(inner, TaskModel)
    if is_task:
        fields["task"] = inner.task
    if names is not None and (is_task or len(names) == model.output_shape[-1]):
        fields["class_names"] = list(names)
    return fields


def model_card(model: keras.Model, class_names) -> dict:
    """Return what a model specifies of the model card of a SavedModel."""
    *frames, height, width, channels = model.input_shape[1:]
    return dict(
        architecture=model.name,
        task=getattr(model, "task", "classification"),
        classes=len(class_names),
        class_names=list(class_names[:10]),
        input=dict(
            **({"frames": frames[0]} if frames else {}),
            height=height,
            width=width,
            channels=channels,
            scaling="in the model, from pixels in [0, 255]",
        ),
        num_parameters=model.count_params(),
        precision=ImageModel.find(model).blocks[0].dtype_policy.name,
        keras=keras.__version__,
        keras_vit=package_version(),
        backend=keras.backend.backend(),
        exported_at=datetime.datetime.now(datetime.UTC).isoformat(
            "T", "seconds"
        ),
    )


def package_version() -> str | None:
    """Return the version of this package, or None if it is not installed."""
    try:
        return importlib.metadata.version("keras-vision-transformer")
    except importlib.metadata.PackageNotFoundError:  # used from a checkout
        return None


def as_json(fields: dict) -> dict[str, str]:
    """Return each field as JSON."""
    return {
        name: json.dumps(value, ensure_ascii=False)
        for name, value in fields.items()
    }


def as_files(fields: dict) -> dict[str, str]:
    """Return the contents of `description.json` and of `labels.txt`.

    The latter has one class name per line, and is absent without class names.

    Raises:
        ValueError: If a class name has a line break.
    """
    text = json.dumps(fields, indent=2, ensure_ascii=False) + "\n"
    files = {"description.json": text}
    if "class_names" in fields:
        names = fields["class_names"]
        if wrong := [x for x in names if "".join(x.splitlines()) != x]:
            raise ValueError(
                "`class_names` must be names without line breaks, each a line "
                f"of labels.txt. Received: {wrong[:3]}"
            )
        files["labels.txt"] = "".join(f"{name}\n" for name in names)
    return files


def _scales_before(model, inner):
    """Return whether an outer model scales pixels that reach the inner one."""
    if inner is model or inner.input is getattr(model, "input", None):
        return False
    grey = np.full((1, *model.input_shape[1:]), 100.0, "float32")
    with inner.watched() as seen:
        model(grey, training=False)
    found = [keras.ops.convert_to_numpy(pixels) for pixels, _ in seen]
    return not all(np.allclose(pixels, 100.0) for pixels in found)


def _resize(model):
    """Return how images come to the size of the input."""
    way = "bilinear to this size, no crop"
    options = model.options if isinstance(model, TaskModel) else {}
    if options.get("pads"):
        return f"padded with 0 below or on the right to a square, then {way}"
    return {
        "padded": "bilinear to fit into this size, the ratio kept, then padded "
        "with 0 below or on the right",
        "windows": "bilinear until the shorter side has this size, then cut "
        "into windows of it, whose scores are averaged",
    }.get(options.get("view", ""), way)


def _plain(value):
    return list(value) if isinstance(value, tuple) else value
