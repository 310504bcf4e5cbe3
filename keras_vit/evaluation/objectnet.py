"""ObjectNet, measured with classifiers of ImageNet."""

import json
import os
import pathlib

import numpy as np

from keras_vit import data
from keras_vit._arguments import checked
from keras_vit._paths import is_hidden
from keras_vit.data.optional_imports import tensorflow
from keras_vit.weights.class_names import imagenet_classes

BORDER = 2  # pixels on each side, red


@checked
def load_objectnet(
    folder: str | os.PathLike,
) -> tuple[data.Source, np.ndarray]:
    """Find the images of ObjectNet whose classes ImageNet has, too.

    These are 113 of its 313 classes. The red border of the images is cropped. A
    class of ObjectNet may be several of ImageNet's, all of which are right: a
    chair is a barber chair, a folding chair or a rocking chair.

    Args:
        folder: The unpacked archive, objectnet-1.0, with `images/` and
            `mappings/`.

    Returns:
        The images, labelled with the first of their ImageNet classes, and for
        each of ImageNet's 1,000 classes the one that it counts as.

    Raises:
        ValueError: If a part of the archive is missing, or a class of
            `mappings/` is not one of ImageNet's.

    Reference:
        Barbu et al. 2019, "ObjectNet" (NeurIPS), and the instructions of
        objectnet.dev; Dosovitskiy et al. 2021, appendix D.9, which measures as
        Kolesnikov et al. 2020 (1912.11370).
    """
    root = pathlib.Path(os.path.expanduser(folder))
    label_of = _read(root, "folder_to_objectnet_label.json")
    names = imagenet_classes("imagenet2012")
    counts_as = np.arange(len(names))
    first = {}
    for label, text in _read(root, "objectnet_to_imagenet_1k.json").items():
        found = text.split("; ")
        unknown = sorted(set(found) - set(names))
        if unknown:
            raise ValueError(
                "`mappings/objectnet_to_imagenet_1k.json` must name classes of "
                f"`keras_vit.imagenet_classes()`. Received also: {unknown}"
            )
        indices = [names.index(name) for name in found]
        first[label] = counts_as[indices] = indices[0]
    paths, labels = [], []
    for name, label in sorted(label_of.items()):
        if label in first:
            there = sorted((root / "images" / name).glob("*.png"))
            files = [file for file in there if not is_hidden(file.name)]
            paths += map(str, files)
            labels += [first[label]] * len(files)
    if not paths:
        raise ValueError(
            "`folder` must have PNG images in folders of `images/`, as "
            f"objectnet-1.0 has. Received: {str(folder)!r}"
        )
    return (
        data.Source(
            name="objectnet",
            class_names=names,
            num_examples=len(paths),
            stream=_stream(paths, labels),
            ranges=((os.path.realpath(root), 0, len(paths)),),
        ),
        counts_as,
    )


def _read(root, name):
    path = root / "mappings" / name
    if not path.is_file():
        raise ValueError(
            "`folder` must be the unpacked archive of objectnet.dev, with "
            f"`images/` and `mappings/`. There is no file {str(path)!r}"
        )
    return json.loads(path.read_text(encoding="utf-8"))


def _stream(paths, labels):
    """Return the `stream` of a source of files without their border."""

    def without_border(path, label):
        tf = tensorflow()
        image = tf.io.decode_png(tf.io.read_file(path), channels=3)
        image = image[BORDER:-BORDER, BORDER:-BORDER]
        return tf.io.encode_png(image, compression=0), label

    def stream(start, stop, seed=None, cache=False):
        tf = tensorflow()
        part = paths[start:stop], labels[start:stop]
        return tf.data.Dataset.from_tensor_slices(part).map(
            without_border, num_parallel_calls=tf.data.AUTOTUNE
        )

    return stream
