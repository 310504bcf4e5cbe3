"""Data sets for detection, segmentation and depth."""

import dataclasses
import os
import typing
from collections.abc import Callable
from typing import Literal

from keras_vit._arguments import Positive, Share, checked
from keras_vit.data import digit_scenes, panoptic, task_files, task_tfds

Task = Literal["detection", "instances", "panoptic", "segmentation", "depth"]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class TaskSource:
    """Images with targets of a task, which are read one by one.

    Attributes:
        name: Its name in messages.
        task: "detection" (boxes), "instances" (boxes and masks), "panoptic"
            (the same, without overlaps, of regions too), "segmentation"
            (classes of pixels), "depth", or "actions" (`load_actions`).
        class_names: Class names by index; () of depth.
        num_examples: Number of images.
        load: Function of an index that returns an example of NumPy arrays:
            "images", uint8 `[H, W, C]`, or the bytes of a file, perhaps with
            its "path", which messages name; for objects
            "boxes", float32 `[n, 4]`, centre x, centre y, width and height in
            shares of the image, and "labels", int64 `[n]`; their "masks", bool
            `[n, H, W]`; or "classes", uint8 `[H, W]`, 255 where a pixel does
            not count; or "depth", float32 `[H, W]`, 0 where it is unknown. For
            scores perhaps "crowd", bool `[n]`, and "areas", `[n]` in pixels.
        targets: Function of an index that returns what scores compare with,
            without images; None for `load`.
        stuff_classes: Classes of "panoptic" that are regions, not objects.
        unscored_classes: Classes of "actions" that scores leave out.
        num_frames: Frames of a clip; 0 of images.
        image_shape: (height, width, channels) if all images share it, or None.
        most_objects: Most objects of an image, crowds not counted; 0 unknown.
        digest: A text that changes if the examples do.
    """

    name: str
    task: Task | Literal["actions"]
    class_names: tuple[str, ...]
    num_examples: int
    load: Callable[[int], dict]
    targets: Callable[[int], dict] | None = None
    stuff_classes: tuple[int, ...] = ()
    unscored_classes: tuple[int, ...] = ()
    num_frames: int = 0
    image_shape: tuple[int, int, int] | None = None
    most_objects: int = 0
    digest: str = ""


@checked
def load_task(
    dataset: str,
    task: Task,
    *,
    train_split: str = "",
    eval_split: str = "",
    eval_fraction: Share = 0.2,
    seed: int = 0,
    data_dir: str | os.PathLike = "",
    broken: Literal["error", "skip"] = "error",
    zero_is_ignored: bool = False,
    depth_unit: Positive = 0.001,
) -> tuple[TaskSource, TaskSource]:
    """Find a data set of a task; return its training and evaluation part.

    Args:
        dataset: "digit_scenes" (`keras_vit.data.digit_scenes.find`); a folder
            of COCO's form, or of images and masks, or of images and depth
            (`keras_vit.data.task_files`); or "coco/2017", "voc/2012" or
            "scene_parse150" of TensorFlow Datasets, prepared as array_record.
        task: Which targets to read.
        train_split: TFDS split to train on; "" is "train". Other data sets
            have no splits by name.
        eval_split: TFDS split to evaluate on; "" is "validation", or "test".
        eval_fraction: Share of the digits held out for "digit_scenes".
        seed: Seed of that choice.
        data_dir: Directory of TFDS for prepared data; "" is its default.
        broken: "error", or "skip" to leave out boxes that are malformed or lie
            outside of their image.
        zero_is_ignored: Whether masks of classes count from 1, as ADE20K's
            does, with 0 where a pixel does not count.
        depth_unit: Metres of 1 in a PNG of 16 bits; 0.001.

    Raises:
        ValueError: If there is no such data set, it has no such targets, or a
            file is missing or wrong.
    """
    path = os.path.expanduser(dataset)
    has_no_names = dataset == "digit_scenes" or os.path.isdir(path)
    if has_no_names and (train_split or eval_split):
        raise ValueError(
            "`train_split` and `eval_split` must be left out for a data set "
            "that is not of TFDS, whose parts have no other names. Received: "
            f"train_split={train_split!r}, eval_split={eval_split!r} for "
            f"dataset={dataset!r}"
        )
    if dataset == "digit_scenes":
        parts = digit_scenes.find(eval_fraction, seed)
    elif os.path.isdir(path):
        parts = task_files.find(path, task, broken, zero_is_ignored, depth_unit)
    elif os.path.isabs(path) or dataset.startswith(".") or path != dataset:
        raise ValueError(
            "`dataset` must be an existing folder. Received: "
            f"dataset={dataset!r}, which is not there"
        )
    else:
        parts = task_tfds.find(
            dataset, task, train_split, eval_split, data_dir, broken
        )
    train, evaluation = (TaskSource(**part, task=task) for part in parts)
    if task == "panoptic" and dataset == "digit_scenes":
        number = len(train.class_names)
        return tuple(  # type: ignore[return-value]
            dataclasses.replace(
                part,
                class_names=(*part.class_names, "ground"),
                stuff_classes=(number,),
                load=panoptic.with_ground(part.load, number),
            )
            for part in (train, evaluation)
        )
    if task == "segmentation" and dataset == "digit_scenes":
        names = ("background", *train.class_names)
        return tuple(  # type: ignore[return-value]
            dataclasses.replace(part, class_names=names)
            for part in (train, evaluation)
        )
    return train, evaluation


TASKS = typing.get_args(Task)
