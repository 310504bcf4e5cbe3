"""Writes the embeddings of images into a file, for `keras-vit search`."""

import dataclasses
import os
import sys

import keras

from keras_vit._paths import can_be_written, digest
from keras_vit.evaluation import ImageIndex, index_images
from keras_vit.text import NaFlexModel, TwoTowers, WordDetector
from keras_vit_cli import files, opening


def run(options) -> int:
    """Embed the images of the command line; return 1 if one is not read."""
    is_npz = options.index.endswith(".npz")
    if not (is_npz and can_be_written(options.index)):
        raise ValueError(
            "INDEX must be a file .npz in an existing folder that can be "
            f"written. Received: {options.index!r}"
        )
    if os.path.exists(options.index):  # no other file is replaced
        ImageIndex.load(options.index)
    paths = files.find(options.images)
    name = options.model
    if os.path.exists(name):
        name = os.path.abspath(name)
    index = index_images(
        two_towers(options.model),
        # Each once, if a file is also in a folder that is named.
        list(dict.fromkeys(os.path.abspath(path) for path in paths)),
        batch_size=options.batch_size,
        name=name,
    )
    for path, reason in index.skipped.items():
        print(f"Left out: {path}: {reason}", file=sys.stderr)
    index = dataclasses.replace(index, model_sha256=digest(name) or "")
    index.save(options.index)
    print(f"{len(index.paths)} images: {options.index}")
    return 1 if index.skipped else 0


def two_towers(name: str) -> keras.Model:
    """Load a model of two towers by what the command line calls it."""
    model = opening.load(name)
    if not isinstance(model, TwoTowers):
        raise ValueError(
            "MODEL must have an image tower and a text tower, such as CLIP. "
            f"Received: {name!r}"
        )
    check_embeds(name, model)
    return model


def check_embeds(name: str, model: keras.Model) -> None:
    """Refuse a model that does not embed pixels of entire images of one shape.

    Args:
        name: What the command line calls the model.
        model: The model, or two towers.
    """
    tower = model.image_tower if isinstance(model, TwoTowers) else model
    shape = tower.input_shape
    if isinstance(tower, NaFlexModel):
        what = "takes any shape (NaFlex): save it as keras_vit.from_pretrained("
        what += "..., input_shape=(256, 256, 3)) opens it"
    elif isinstance(model, WordDetector):
        what = "finds objects by words"
    elif not isinstance(shape, tuple) or len(shape) != 4:
        what = f"takes {shape}"
    else:
        opening.check_pixels(name, tower)
        return
    raise ValueError(
        "MODEL must embed entire images of one shape. Received: "
        f"{name!r}, which {what}"
    )
