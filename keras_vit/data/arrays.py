"""Images and clips that are arrays in memory."""

import os
import warnings
import zipfile

import numpy as np

from keras_vit._paths import NPZ_ERRORS, require_file
from keras_vit.data.optional_imports import optional
from keras_vit.data.split import split


def digits(eval_fraction: float, seed: int) -> tuple[dict, dict]:
    """Return scikit-learn's 1,797 handwritten digits, 8x8 pixels in grey."""
    images, labels = optional("sklearn.datasets").load_digits(return_X_y=True)
    # The set has 17 shades, 0 to 16.
    images = np.round(images.reshape(-1, 8, 8, 1) * (255 / 16)).astype("uint8")
    names = tuple(str(digit) for digit in range(10))
    return split(_fields("digits", images, labels, names), eval_fraction, seed)


def read_npz(path: str, eval_fraction: float, seed: int) -> tuple[dict, dict]:
    """Read x_train and y_train, and x_test and y_test if present.

    Warns if the images seem to have their channels first.

    Args:
        path: An npz file; x `[N, H, W]` or `[N, H, W, C]`, or for clips
            `[N, T, H, W, C]`; y `[N]` or `[N, 1]`, classes counted from 0, or
            `[N, K]`, 0 or 1 for each of K classes. The file may hold
            class_names, strings `[K]`; without them there must be at most as
            many classes as training images.
        eval_fraction: Share of each class held out if there is no x_test.
        seed: Seed of that choice.

    Returns:
        The fields of a training and an evaluation `Source`.

    Raises:
        ValueError: If the file is damaged, lacks an array, contains pickles,
            a number is not finite, or shapes, labels or class names are wrong.
    """
    data = _read(path)
    for key in ("x_train", "y_train"):
        if key not in data:
            raise ValueError(
                f"{path!r} must hold `x_train` and `y_train`. "
                f"Received: {sorted(data)}"
            )
    if ("x_test" in data) != ("y_test" in data):
        raise ValueError(
            f"{path!r} must hold both `x_test` and `y_test` or neither. "
            f"Received: {sorted(data)}"
        )
    images = _images(path, "x_train", data["x_train"])
    labels = _labels(path, "y_train", data["y_train"], len(images))
    names = _class_names(path, data.get("class_names"), labels)
    if "x_test" not in data:
        return split(_fields(path, images, labels, names), eval_fraction, seed)
    test_images = _images(path, "x_test", data["x_test"])
    if (test_images.ndim, test_images.shape[-1]) != (
        images.ndim,
        images.shape[-1],
    ):
        raise ValueError(
            f"`x_train` and `x_test` of {path!r} must both hold images or both "
            "clips, of as many channels. Received: shapes "
            f"{images.shape} and {test_images.shape}"
        )
    test_labels = _labels(path, "y_test", data["y_test"], len(test_images))
    if test_labels.shape[1:] != labels.shape[1:]:
        raise ValueError(
            f"`y_train` and `y_test` of {path!r} must have the same form. "
            f"Received: shapes {labels.shape} and {test_labels.shape}"
        )
    if labels.ndim == 1 and test_labels.max() >= len(names):
        raise ValueError(
            f"`y_test` of {path!r} must hold classes of `y_train`, 0 to "
            f"{len(names) - 1}. Received: {int(test_labels.max())}"
        )
    return (
        _fields(path, images, labels, names),
        _fields(path, test_images, test_labels, names),
    )


def warn_if_channels_first(
    shape: tuple[int, ...], what: str, stacklevel: int
) -> None:
    """Warn of the shape of images `[N, C, H, W]`, or of such clips."""
    for axis in range(len(shape) - 3, 0, -1):
        if shape[axis] <= 4 < min(shape[-2:]):
            order = [i for i in range(len(shape)) if i != axis] + [axis]
            warnings.warn(
                f"{what} have the shape {shape}, which means {shape[-1]} "
                f"channels. If their channels are axis {axis}, move them to "
                f"the end: np.transpose(images, {order}).",
                stacklevel=stacklevel,
            )
            return


def _read(path):
    try:
        require_file(path)
        with open(path, "rb") as file:
            archive = np.load(file, allow_pickle=False)
            return {key: archive[key] for key in archive.files}
    except NPZ_ERRORS as error:
        if "allow_pickle" in str(error) and zipfile.is_zipfile(path):
            raise ValueError(
                f"{path!r} holds pickled Python objects, which could run "
                "code; only plain arrays are read."
            ) from None
        raise ValueError(
            f"`dataset` must be a complete npz file of arrays. Received: "
            f"{os.fspath(path)!r}, which does not read as one: {error}"
        ) from error


def _images(path, key, images):
    if images.ndim == 3:
        images = images[..., np.newaxis]
    is_empty = images.size == 0
    if images.ndim not in (4, 5) or is_empty or images.dtype.kind not in "uif":
        raise ValueError(
            f"`{key}` of {path!r} must hold images as numbers [N, H, W] or "
            "[N, H, W, C], or clips [N, T, H, W, C], at least one. Received: "
            f"shape {images.shape}, {images.dtype}"
        )
    warn_if_channels_first(
        images.shape, f"The images `{key}` of {path!r}", stacklevel=5
    )
    if images.dtype == np.uint8:
        return images
    with np.errstate(over="ignore"):
        images = images.astype("float32")
    for i, image in enumerate(images):
        if not np.isfinite(image).all():
            raise ValueError(
                f"`{key}` of {path!r} must hold finite numbers in float32. "
                f"Received: NaN or infinity, first in {key}[{i}]"
            )
    return images


def _class_names(path, given, labels):
    """Return the names that the file gives to the classes, or numbers."""
    several = labels.ndim == 2
    classes = labels.shape[1] if several else int(labels.max()) + 1
    if given is None:
        if not 2 <= classes <= len(labels):
            raise ValueError(
                f"`y_train` of {path!r} must have at least 2 classes and, "
                "unless the file holds their `class_names`, at most as many as "
                f"images. Received: {classes:,} classes, {len(labels):,} images"
            )
        return tuple(map(str, range(classes)))
    names = tuple(given.reshape(-1).tolist())
    if (
        given.ndim != 1
        or given.dtype.kind != "U"
        or len(names) < 2
        or len(set(names)) != len(names)
        or (len(names) != classes if several else len(names) < classes)
    ):
        raise ValueError(
            f"`class_names` of {path!r} must be different strings, one for "
            f"each of the {classes:,} classes of `y_train`. Received: shape "
            f"{given.shape}, {given.dtype}, such as {list(names[:5])}"
        )
    return names


def _labels(path, key, labels, count):
    """Return `[N]`, int64, or of several labels an image `[N, K]`, uint8."""
    if labels.ndim == 2 and labels.shape[1] > 1 and len(labels) == count:
        if not np.isin(labels, (0, 1)).all():
            raise ValueError(
                f"`{key}` of {path!r} must hold 0 or 1 for each image and "
                f"class. Received: shape {labels.shape}, {labels.dtype}, such "
                f"as {np.unique(labels)[:5].tolist()}"
            )
        return labels.astype("uint8")
    if labels.shape not in ((count,), (count, 1)):
        raise ValueError(
            f"`{key}` of {path!r} must hold one label for each of {count} "
            "images, or 0 or 1 for each image and class. Received: shape "
            f"{labels.shape}"
        )
    labels = labels.reshape(-1)
    if labels.dtype.kind not in "ui" or labels.astype("int64").min() < 0:
        wrong = labels[labels < 0] if labels.dtype.kind == "i" else labels
        raise ValueError(
            f"`{key}` of {path!r} must hold classes counted from 0 as "
            f"integers. Received: {labels.dtype}, such as {wrong[:5].tolist()}"
        )
    return labels.astype("int64")


def _fields(name, images, labels, class_names):
    return dict(
        name=name,
        class_names=class_names,
        num_examples=len(images),
        image_shape=images.shape[-3:],
        is_video=images.ndim == 5,
        num_frames=images.shape[1] if images.ndim == 5 else None,
        images=images,
        labels=labels,
        multi_label=labels.ndim == 2,
    )
