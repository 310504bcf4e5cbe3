"""Images and clips that are arrays in memory."""

import os
import zipfile
import zlib

import numpy as np

from keras_vit.data.optional_imports import optional
from keras_vit.data.split import hold_out


def digits(eval_fraction: float, seed: int) -> tuple[dict, dict]:
    """Scikit-learn's 1,797 handwritten digits, 8x8 pixels in grey.

    Args:
        eval_fraction: Share of each class held out.
        seed: Seed of that choice.

    Returns:
        The fields of a training and an evaluation `Source`.
    """
    images, labels = optional("sklearn.datasets").load_digits(return_X_y=True)
    # The set has 17 shades, 0 to 16.
    images = np.round(images.reshape(-1, 8, 8, 1) * (255 / 16)).astype("uint8")
    names = tuple(str(digit) for digit in range(10))
    return _held_out("digits", images, labels, names, eval_fraction, seed)


def read_npz(path: str, eval_fraction: float, seed: int) -> tuple[dict, dict]:
    """Reads x_train and y_train, and x_test and y_test if present.

    Args:
        path: An npz file; x `[N, H, W]` or `[N, H, W, C]`, or for clips
            `[N, T, H, W, C]`; y `[N]` or `[N, 1]`, classes counted from 0, or
            `[N, K]`, 0 or 1 for each of K classes.
        eval_fraction: Share of each class held out if there is no x_test.
        seed: Seed of that choice.

    Returns:
        The fields of a training and an evaluation `Source`.

    Raises:
        ValueError: If the file is damaged, lacks an array, contains pickles, or
            shapes or labels are wrong.
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
    several = labels.ndim == 2
    classes = labels.shape[1] if several else int(labels.max()) + 1
    names = tuple(str(label) for label in range(classes))
    if classes < 2:
        raise ValueError(
            f"`y_train` of {path!r} must have at least 2 classes. Received: "
            f"{classes}"
        )
    if "x_test" not in data:
        return _held_out(path, images, labels, names, eval_fraction, seed)
    test_images = _images(path, "x_test", data["x_test"])
    if test_images.ndim != images.ndim:
        raise ValueError(
            f"`x_train` and `x_test` of {path!r} must both hold images or both "
            f"clips. Received: shapes {images.shape} and {test_images.shape}"
        )
    test_labels = _labels(path, "y_test", data["y_test"], len(test_images))
    if test_labels.shape[1:] != labels.shape[1:]:
        raise ValueError(
            f"`y_train` and `y_test` of {path!r} must have the same form. "
            f"Received: shapes {labels.shape} and {test_labels.shape}"
        )
    if not several and test_labels.max() >= classes:
        raise ValueError(
            f"`y_test` of {path!r} must hold classes of `y_train`, 0 to "
            f"{classes - 1}. Received: {int(test_labels.max())}"
        )
    return (
        _fields(path, images, labels, names),
        _fields(path, test_images, test_labels, names),
    )


def _read(path):
    try:
        with open(path, "rb") as file:
            archive = np.load(file, allow_pickle=False)
            return {key: archive[key] for key in archive.files}
    except (
        AttributeError,
        EOFError,
        OSError,
        ValueError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
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
    return images if images.dtype == np.uint8 else images.astype("float32")


def _labels(path, key, labels, count):
    """Returns `[N]`, int64, or of several labels an image `[N, K]`, uint8."""
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
    if labels.dtype.kind not in "ui" or labels.min() < 0:
        wrong = labels[labels < 0] if labels.dtype.kind == "i" else labels
        raise ValueError(
            f"`{key}` of {path!r} must hold classes counted from 0 as "
            f"integers. Received: {labels.dtype}, such as {wrong[:5].tolist()}"
        )
    return labels.astype("int64")


def _held_out(name, images, labels, class_names, fraction, seed):
    return tuple(
        _fields(name, images[part], labels[part], class_names)
        for part in hold_out(
            labels, fraction, seed, name=name, class_names=class_names
        )
    )


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
