"""Data sets of TensorFlow Datasets with boxes or with classes of pixels."""

import functools

import numpy as np

from keras_vit.data import tfds as classification
from keras_vit.data.optional_imports import optional
from keras_vit.data.task_files import IGNORED, check_classes


def find(
    name: str,
    task: str,
    train_split: str,
    eval_split: str,
    data_dir,
    broken: str,
) -> tuple[dict, ...]:
    """Return the fields of a training and an evaluation `TaskSource`.

    Examples are read by index, so the data set must be prepared in the format
    array_record.

    Raises:
        ValueError: If there is no such data set or split, or it has no such
            targets.
    """
    tfds = optional("tensorflow_datasets")
    if not classification.exists(name):
        raise ValueError(
            "`dataset` must be 'digit_scenes', a folder or a name of TFDS. "
            f"Received: dataset={name!r}"
        )
    arguments = dict(data_dir=str(data_dir)) if data_dir else {}
    builder = tfds.builder(name, file_format="array_record", **arguments)
    read, class_names = _reader(builder.info.features, task, broken)
    if not class_names:
        raise ValueError(
            f"`dataset` must have targets for task={task!r}. Received: "
            f"dataset={name!r} with {sorted(builder.info.features)}"
        )
    builder.download_and_prepare()
    splits = builder.info.splits
    names = (
        train_split or "train",
        eval_split or ("validation" if "validation" in splits else "test"),
    )
    return tuple(
        _fields(builder, name, split, read, class_names) for split in names
    )


def _fields(builder, name, split, read, class_names):
    examples = builder.as_data_source(split=split)

    def load(index):
        return read(examples[index], f"example {index} of {name}, {split}")

    return dict(
        name=f"{name}, {split}",
        class_names=class_names,
        num_examples=len(examples),
        load=load,
        digest=f"{builder.info.full_name} {split} {len(examples)}",
    )


def _reader(features, task, broken):
    """Return a function of (example, name), and class names, () without."""
    if task == "detection" and "objects" in features:
        read = functools.partial(_boxes, broken=broken)
        return read, tuple(features["objects"]["label"].names)
    if task == "segmentation" and "annotation" in features:
        # ADE20K's scene parsing, 150 classes from 1, 0 for others.
        names = tuple(map(str, range(1, 151)))

        def classes(example, name):
            pixels = example["annotation"][..., 0].astype("int64")
            pixels = np.where(pixels == 0, IGNORED, pixels - 1)
            found = check_classes(pixels, len(names), name)
            return dict(images=example["image"], classes=found)

        return classes, names
    return None, ()


def _boxes(example, name, broken):
    objects = example["objects"]
    top, left, bottom, right = np.reshape(objects["bbox"], (-1, 4)).T
    boxes = np.stack(
        [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top], 1
    )
    kept = np.isfinite(boxes).all(axis=1) & (boxes[:, 2:] > 0).all(axis=1)
    if broken == "error" and not kept.all():
        number = np.flatnonzero(~kept)[0]
        raise ValueError(
            f"Each box must have an area. Received: {objects['bbox'][number]} "
            f"of object {number} in {name}; broken='skip' leaves it out"
        )
    labels = np.reshape(objects["label"], -1).astype("int64")
    # Difficult objects of VOC count neither in training nor in scores, as its
    # development kit leaves them out.
    flags = ("is_crowd", "is_difficult")
    crowd = next((objects[x] for x in flags if x in objects), labels < 0)
    crowd = np.reshape(crowd, -1)
    found = dict(
        images=example["image"],
        boxes=boxes[kept].astype("float32"),
        labels=labels[kept],
        crowd=crowd[kept].astype(bool),
    )
    if "area" in objects:  # of COCO's masks, by which it groups objects by size
        areas = np.reshape(objects["area"], -1)
        found["areas"] = areas[kept].astype("float32")
    return found
