"""The 19 tasks of VTAB-1k, made from TensorFlow Datasets."""

import dataclasses
import difflib
from collections.abc import Callable

from keras_vit.data import tfds
from keras_vit.data.decode import decode_image
from keras_vit.data.optional_imports import tensorflow

PREFIX = "vtab/"
SPLITS = ("train800", "val200", "train800val200", "test")


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """The labels and the examples of a task.

    Attributes:
        dataset: Its name in TFDS.
        classes: Number of classes.
        val: TFDS split and the percentage of it where validation begins.
        test: The same for the test part.
        label: Feature that holds the class, or a function of an example.
        reads: Features that this function reads, as in
            `tfds.decode.PartialDecoding`.
        class_names: Names of the classes if TFDS has none.
        crop: Whether the label survives a random crop.
        flip: Whether the label survives a flip from left to right.
        scale: Factor that scales the pixels to [0, 255].
        group: One of `GROUPS`.
    """

    dataset: str
    classes: int
    val: str = "validation:0"
    test: str = "test:0"
    label: str | Callable = "label"
    reads: dict | None = None
    class_names: tuple[str, ...] = ()
    crop: bool = True
    flip: bool = True
    scale: int = 1
    group: str = ""


def _nearest_object(example):
    """Return the interval of the smallest distance from the camera."""
    distances = example["objects"]["pixel_coords"][:, 2]
    return _interval(distances, (8.0, 8.5, 9.0, 9.5, 10.0))


def _nearest_vehicle(example):
    """Do the same for cars, vans and trucks only, in metres."""
    tf, objects = tensorflow(), example["objects"]
    depths = tf.boolean_mask(objects["location"][:, 2], objects["type"] < 3)
    # Without a vehicle, the last interval.
    return _interval(tf.concat([depths, [1000.0]], 0), (8.0, 20.0, 999.0))


def _interval(values, thresholds):
    """Return the number of thresholds that the smallest value exceeds."""
    tf = tensorflow()
    return tf.reduce_sum(
        tf.cast(tf.reduce_min(values) > tf.constant(thresholds), "int64")
    )


def _num_objects(example):
    """Return the class of a scene of CLEVR, which has 3 to 10 objects."""
    tf = tensorflow()
    return tf.size(example["objects"]["size"], tf.int64) - 3


def _in_16(key, values):
    """Return a label function that groups a feature into 16 classes."""
    return lambda example: example[key] * 16 // values


# In the order of Table 9 of the ViT paper. Data sets, splits, labels and
# numbers of classes: github.com/google-research/task_adaptation,
# task_adaptation/data at ed9b417, and scripts/run_all_tasks.sh. Crops and
# flips: appendix F of BiT (arXiv 1912.11370), whose pre-processing the ViT
# paper follows.
_TASKS = {
    "natural": {
        "caltech101": Task("caltech101", 102, "train:90"),
        "cifar100": Task("cifar100", 100, "train:90"),
        "dtd": Task("dtd", 47),
        "oxford_flowers102": Task("oxford_flowers102", 102),
        "oxford_iiit_pet": Task("oxford_iiit_pet", 37, "train:80"),
        "sun397": Task("sun397/tfds", 397),
        "svhn_cropped": Task("svhn_cropped", 10, "train:90"),
    },
    "specialized": {
        "patch_camelyon": Task("patch_camelyon", 2),
        "eurosat": Task("eurosat/rgb", 10, "train:60", "train:80"),
        "resisc45": Task("resisc45", 45, "train:60", "train:80"),
        "diabetic_retinopathy": Task(
            "diabetic_retinopathy_detection/btgraham-300", 5
        ),
    },
    "structured": {
        "clevr_count": Task(
            "clevr",
            8,
            "train:90",
            "validation:0",
            _num_objects,
            reads={"objects": ["size"]},
            class_names=tuple(f"{n} objects" for n in range(3, 11)),
            crop=False,
        ),
        "clevr_distance": Task(
            "clevr",
            6,
            "train:90",
            "validation:0",
            _nearest_object,
            reads={"objects": ["pixel_coords"]},
            class_names=("0-8", "8-8.5", "8.5-9", "9-9.5", "9.5-10", "over 10"),
            crop=False,
        ),
        "dmlab": Task("dmlab", 6, crop=False),
        "dsprites_location": Task(
            "dsprites",
            16,
            "train:80",
            "train:90",
            label=_in_16("label_x_position", 32),
            reads={"label_x_position": True},
            crop=False,
            flip=False,
            scale=255,
        ),
        "dsprites_orientation": Task(
            "dsprites",
            16,
            "train:80",
            "train:90",
            label=_in_16("label_orientation", 40),
            reads={"label_orientation": True},
            flip=False,
            scale=255,
        ),
        "kitti_distance": Task(
            "kitti",
            4,
            label=_nearest_vehicle,
            reads={"objects": ["type", "location"]},
            class_names=("under 8 m", "8-20 m", "over 20 m", "no vehicle"),
            crop=False,
        ),
        "smallnorb_azimuth": Task(
            "smallnorb", 18, "test:0", "test:50", "label_azimuth", flip=False
        ),
        "smallnorb_elevation": Task(
            "smallnorb", 9, "test:0", "test:50", "label_elevation"
        ),
    },
}
TASKS = {
    name: dataclasses.replace(task, group=group)
    for group, tasks in _TASKS.items()
    for name, task in tasks.items()
}
GROUPS = tuple(_TASKS)


def task_of(name: str) -> Task:
    """Return the task of a name, with or without "vtab/"."""
    key = name.removeprefix(PREFIX)
    if key not in TASKS:
        near = difflib.get_close_matches(key, TASKS, n=3, cutoff=0.4)
        raise ValueError(
            "A task of VTAB must be one of the 19. "
            f"Received: {name!r}. Nearest names: {near or list(TASKS)}"
        )
    return TASKS[key]


def tfds_split(task: Task, split: str, sizes: dict[str, int]) -> str:
    """Return the TFDS split of a part of a task.

    Args:
        task: One of `TASKS`.
        split: One of `SPLITS`.
        sizes: Number of examples of each split of the TFDS data set; if one is
            not stated, the part is taken from its start.
    """

    def start(part):
        name, percent = part.split(":")
        return name, sizes.get(name, 0) * int(percent) // 100

    (val, first), (test, begin) = start(task.val), start(task.test)
    parts = {
        "train800": "train[:800]",
        "val200": f"{val}[{first}:{first + 200}]",
        "test": f"{test}[{begin}:]",
    }
    parts["train800val200"] = f"{parts['train800']}+{parts['val200']}"
    if split not in parts:
        raise ValueError(
            f"The split of a VTAB task must be one of {SPLITS}. "
            f"Received: {split!r}"
        )
    return parts[split]


def find(
    name: str, train_split: str, eval_split: str, **prepare
) -> tuple[dict, ...]:
    """Prepare the data set of a task and return two of its parts.

    Args:
        name: "vtab/" and a task of `TASKS`.
        train_split: One of `SPLITS`; "" is "train800val200".
        eval_split: One of `SPLITS`; "" is "test".
        **prepare: `data_dir`, `manual_dir` and `try_gcs` of `tfds.prepare`.

    Returns:
        The fields of a training and an evaluation `Source`.

    Reference:
        Zhai et al. 2019, "A Large-scale Study of Representation Learning with
        the Visual Task Adaptation Benchmark" (arXiv 1910.04867).
    """
    task = task_of(name)
    splits = (train_split or "train800val200", eval_split or "test")
    for split in splits:
        tfds_split(task, split, {})  # refused before anything is downloaded
    builder = tfds.prepare(task.dataset, **prepare)
    sizes = {key: it.num_examples for key, it in builder.info.splits.items()}
    train, evaluation = (tfds_split(task, split, sizes) for split in splits)
    parts = tfds.parts(
        builder,
        name,
        train_split=train,
        eval_split=evaluation,
        keys=("image", task.label),
        class_names=task.class_names or _class_names(task, builder),
        reads=task.reads,
    )
    for part, split in zip(parts, splits, strict=True):
        if len(part["class_names"]) != task.classes:
            raise ValueError(
                f"{name!r} must have {task.classes} classes. Received: "
                f"{len(part['class_names'])} in TFDS {builder.info.full_name}"
            )
        part["name"] = f"{name} {split}"
        if task.scale != 1:
            part["stream"] = _scaled(part["stream"], task.scale)
    return parts


def _class_names(task, builder):
    if isinstance(task.label, str):
        return tuple(builder.info.features[task.label].names)
    return tuple(str(i) for i in range(task.classes))


def _scaled(stream, scale):
    """Decode the images of a stream and multiplies their pixels."""

    def scaled(*arguments, **keywords):
        return stream(*arguments, **keywords).map(
            lambda image, label: (decode_image(image, 1) * scale, label)
        )

    return scaled
