"""Finds images by a text, or by an image, in what `keras-vit index` wrote."""

import json
import os
import sys

import numpy as np

from keras_vit import data
from keras_vit._paths import digest
from keras_vit.data import pillow
from keras_vit.evaluation import ImageIndex
from keras_vit.inspection import figures
from keras_vit_cli.files import check_picture
from keras_vit_cli.index import two_towers

# Pixels of a side of an image in the contact sheet.
SIDE = 192


def run(options) -> int:
    """Print the images that fit best, and draw them; return 0.

    Raises:
        ValueError: If the file is no index, the model is another, or an
            argument is invalid.
    """
    if options.drawing is not None:
        check_picture("drawing", options.drawing)
    index = ImageIndex.load(options.index)
    name = options.model or index.model
    made_with = index.model_sha256
    if made_with and digest(name) not in (made_with, None):
        raise ValueError(
            "The model must be the one with which INDEX was made. Received: "
            f"{name!r}, which has another content. Run `keras-vit index` again."
        )
    model = two_towers(name)
    if os.path.isfile(options.query):
        height, width, channels = model.image_tower.image_shape
        image = data.read_image(options.query, (height, width), channels)
        query = model.encode_images(image[None])
    else:
        query = model.encode_texts([options.query])
    (indices,), (cosines,) = index.search(query, options.top_k)
    for i, cosine in zip(indices, cosines, strict=True):
        print(json.dumps(dict(image=index.paths[i], score=float(cosine))))
    if options.drawing:
        _draw(index, indices, cosines, options.drawing)
    return 0


def _draw(index, indices, cosines, path):
    """Draw a contact sheet; an image that is gone is left out."""
    images, titles = [], []
    for i, cosine in zip(indices, cosines, strict=True):
        try:
            images.append(_square(data.decode.read_pixels(index.paths[i])))
        except ValueError as error:
            print(error, file=sys.stderr)
            continue
        titles.append(f"{os.path.basename(index.paths[i])} {cosine:.3f}")
    if images:
        figures.plot_attention(np.stack(images), None, titles, path)
        print(f"What was found: {path}", file=sys.stderr)


def _square(image):
    """Return an image within a white square."""
    scale = SIDE / max(image.shape[:2])
    size = [max(1, round(side * scale)) for side in image.shape[:2]]
    resized = pillow.resize(image, (size[0], size[1]))
    square = np.full((SIDE, SIDE, 3), 255, "uint8")
    top, left = ((SIDE - side) // 2 for side in size)
    square[top : top + size[0], left : left + size[1]] = np.clip(
        resized, 0, 255
    )
    return square
