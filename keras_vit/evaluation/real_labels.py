"""ImageNet's validation images with reassessed labels."""

import os
from collections.abc import Sequence

import numpy as np

from keras_vit import data
from keras_vit._arguments import checked
from keras_vit.data import tfds
from keras_vit.data.optional_imports import optional

NAME = "imagenet2012_real"


@checked
def load_real(
    split: str = "validation",
    *,
    name: str = NAME,
    data_dir: str | os.PathLike = "",
    manual_dir: str | os.PathLike = "",
    try_gcs: bool = False,
) -> tuple[data.Source, list[np.ndarray]]:
    """Prepare `imagenet2012_real` of TFDS and return it with its labels.

    Args:
        split: TFDS split.
        name: TFDS name; a version or a set of the same features.
        data_dir: Where TFDS keeps prepared data; "" is its default.
        manual_dir: Directory that contains ILSVRC2012_img_val.tar.
        try_gcs: Whether TFDS reads prepared data from Google Cloud.

    Returns:
        The images with their original label, and the ReaL labels of each in
        the same order: none, one or several.

    Raises:
        ValueError: If there is no such split.

    Reference:
        Beyer et al. 2020, "Are we done with ImageNet?" (2006.07159).
    """
    builder = tfds.prepare(
        name,
        data_dir=os.fspath(data_dir),
        manual_dir=os.fspath(manual_dir),
        try_gcs=try_gcs,
    )
    decode = optional("tensorflow_datasets").decode
    reads = {"original_label": True, "real_label": True}
    _, found = tfds.parts(
        builder,
        name,
        train_split=split,
        eval_split=split,
        keys=("image", lambda example: example["original_label"]),
        class_names=tuple(builder.info.features["original_label"].names),
        reads=reads,
    )
    # A second pass in the same order, without decoding the images.
    examples = builder.as_dataset(
        split=split,
        decoders=decode.PartialDecoding(
            {"image": True, **reads},
            decoders={"image": decode.SkipDecoding()},
        ),
        read_config=optional("tensorflow_datasets").ReadConfig(
            interleave_cycle_length=1, try_autocache=False
        ),
    )
    labels = [x["real_label"] for x in examples.as_numpy_iterator()]
    return data.Source(**found), labels


def real_accuracy(
    predicted: np.ndarray, labels: Sequence[np.ndarray]
) -> tuple[float, int]:
    """Return the share of images whose prediction is among their labels.

    Args:
        predicted: The best class of each image, `[N]`.
        labels: The labels of each image; an image without labels is not
            counted.

    Returns:
        The share, and the number of images counted.

    Raises:
        ValueError: If the number of label sets differs from that of
            predictions, these are not one number for each image, or no image
            has a label.
    """
    predicted = np.asarray(predicted)
    if predicted.ndim != 1 or predicted.dtype.kind not in "uif":
        raise ValueError(
            "`predicted` must be one class for each image, [N]. Received: "
            f"shape {predicted.shape} of {predicted.dtype}"
        )
    if len(predicted) != len(labels):
        raise ValueError(
            "`labels` must hold the labels of each prediction. Received: "
            f"{len(predicted)} predictions, labels of {len(labels)} images"
        )
    right = [
        guess in found
        for guess, found in zip(predicted, labels, strict=True)
        if len(found)
    ]
    if not right:
        raise ValueError(
            "`labels` must hold a label for one image at least. Received: "
            f"none for {len(labels)} images"
        )
    return float(np.mean(right)), len(right)
