"""A model of a task, which holds what its outputs mean."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from keras_vit import layers
from keras_vit._arguments import Count, check_class_names, checked
from keras_vit.data import pillow
from keras_vit.models.image_model import ImageModel
from keras_vit.ops.dtypes import wide_policy
from keras_vit.weights.rules import heads


def find_in(
    model: "TaskModel",
    image: np.ndarray,
    image_size: tuple[int, int],
    **options: Any,
) -> dict[str, Any]:
    """Return what the model finds in an image; see `TaskModel.find_in`."""
    image = pillow.resize(model.prepare(image), model.image_shape[:2])
    outputs = model.predict_on_batch(image[None].astype("float32"))
    (found,) = model.interpret(outputs, [image_size], **options)
    return found


@dataclasses.dataclass(frozen=True)
class Head:
    """The parts of a head that `TaskModel` and files use.

    Attributes:
        name: Its name, such as "yolos"; that of the rules of its files.
        interpret: Returns what a user wants of one image, given the model, the
            outputs of the image as NumPy arrays, the image's (height, width)
            and options.
        prepare: Returns an image as it is to be resized, given the model and
            its pixels.
        find_in: Does what `TaskModel.find_in` says, given the model and its
            arguments.
    """

    name: str
    interpret: Callable
    prepare: Callable = lambda model, image: image
    find_in: Callable = find_in


HEADS: dict[str, Head] = {}


def register(head: Head) -> Head:
    """Add a head to `HEADS`, and return it."""
    HEADS[head.name] = head
    return head


@keras.saving.register_keras_serializable(package="keras_vit")
class Task(keras.layers.Layer):
    """Returns its input, and holds the metadata of a task.

    It is the last layer of a model, and casts its outputs to float32.

    Args:
        head: A key of `HEADS`, such as "yolos".
        task: "detection", "segmentation", "depth", "pose", "actions", or
            "masked_images".
        options: The arguments of the head's function. Of `unused_weights`, the
            names and shapes of what a released file holds and no layer reads,
            it has variables that are not trained, so that it is written back.
        class_names: Names of the classes, or of the keypoints; None if unknown.
    """

    @checked
    def __init__(
        self,
        head: str,
        task: str,
        options: dict,
        class_names: tuple[str, ...] | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.head = head
        self.task = task
        self.options = dict(options)
        self.class_names = None if class_names is None else tuple(class_names)

    def build(self, input_shape):
        unused = self.options.get("unused_weights") or {}
        self.unused = [
            self.add_weight(
                name=heads.name_of_unused(name),
                shape=tuple(shape),
                initializer="zeros",
                trainable=False,
            )
            for name, shape in unused.items()
        ]

    def call(self, inputs):
        return inputs

    def compute_output_shape(self, input_shape):
        return input_shape


# Names of the input of pixels where a model takes more.
PIXELS = ("images", "videos")


@keras.saving.register_keras_serializable(package="keras_vit")
class TaskModel(ImageModel):
    """An `ImageModel` with a head for a dense task.

    Its outputs are a dictionary; the functions of `keras_vit.heads` say what
    they are. `interpret` turns them into boxes, masks, depth or keypoints.
    """

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(height, width, channels) of its images, or of a video's frames."""
        return self._pixels.shape[-3:]

    @property
    def num_frames(self) -> int | None:
        """Frames of its videos; None where it takes images."""
        shape = self._pixels.shape
        return shape[1] if len(shape) == 5 else None

    @property
    def task(self) -> str:
        """Its task; see `Task`."""
        return self._task.task

    @property
    def options(self) -> dict:
        """The arguments of the head's function."""
        return dict(self._task.options)

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of its classes, or of its keypoints, by index; None unknown."""
        return self._task.class_names

    @property
    def file_family(self) -> str:
        """Name of the rules of its files, a key of `weights.rules.FAMILIES`."""
        return self._task.head

    @property
    def metadata(self) -> dict:
        """All of these, as the metadata of a checkpoint (`weights.rules`)."""
        own = dict(class_names=self.class_names, task=self.task)
        return super().metadata | dict(classes=None) | self.options | own

    def interpret(
        self,
        outputs: dict,
        image_sizes: Sequence[tuple[int, int]] | None = None,
        **options,
    ) -> list[dict[str, Any]]:
        """Return what the outputs say of each image.

        Args:
            outputs: Of the model, on a batch of images that were resized to
                its `image_shape`.
            image_sizes: (height, width) of each image before, in pixels; None
                for those of the model's input.
            **options: Those of the task. Detection and actions: `threshold`,
                the least score of a box, 0.5, of OWL-ViT and OWLv2 0.1.
                Segmentation by queries: those of
                `keras_vit.heads.segments.interpret`. Pose: `threshold`, 0.

        Returns:
            For each image a dictionary of NumPy arrays. Detection: "boxes",
            `[n, 4]`, left, top, right and bottom in pixels of the image;
            "scores", "labels" and "names". Segmentation: "classes", `[H, W]`,
            the class of each pixel; or "segments", `[H, W]`, and a list
            "segments_info". Depth: "depth", `[H, W]`: in metres, or larger for
            what is near where "is_relative" is true; without it (DPT) what the
            model was trained for, in `Intel/dpt-large` larger for what is near.
            Pose: "keypoints", `[n, 2]`, x and y in pixels; "scores", "labels"
            and "names".

        Raises:
            ValueError: If the outputs are no dictionary, there is not a size
                for each image, or an option is out of range.
            TypeError: If the task has no such option.

        Example:
            detector = keras_vit.heads.yolos(
                keras_vit.ViTTi16(input_shape=(224, 224, 3)), classes=80)
            outputs = detector.predict(images)
            for found in detector.interpret(outputs, [(480, 640)] * 4):
                print(found["boxes"], found["names"])
        """
        if not isinstance(outputs, dict) or not outputs:
            raise ValueError(
                "`outputs` must be the dictionary that the model gives. "
                f"Received: {str(outputs)[:80]}"
            )
        arrays = {
            name: keras.ops.convert_to_numpy(x) for name, x in outputs.items()
        }
        count = len(next(iter(arrays.values())))
        if image_sizes is None:
            image_sizes = [self.image_shape[:2]] * count
        sizes = np.asarray(image_sizes)
        are_sizes = sizes.shape == (count, 2) and sizes.dtype.kind in "ui"
        if not are_sizes or (sizes < 1).any():
            raise ValueError(
                "`image_sizes` must be (height, width) of each image. Received:"
                f" {len(sizes)} sizes for {count} images, {image_sizes}"
            )
        interpret = HEADS[self._task.head].interpret
        return [
            interpret(
                self,
                {name: x[i] for name, x in arrays.items()},
                tuple(map(int, size)),
                **options,
            )
            for i, size in enumerate(sizes)
        ]

    @checked
    def find_in(
        self,
        image: np.ndarray,
        image_size: tuple[Count, Count] | None = None,
        **options,
    ) -> dict[str, Any]:
        """Return what the model finds in one image of any size.

        The image gets the size of the model as in its training: stretched,
        padded (OWLv2), or as `view` of `keras_vit.heads.eomt` says.

        Args:
            image: Pixels, `[H, W, C]`, as the model takes them.
            image_size: (height, width) of what is returned; None for that of
                the image.
            **options: See `interpret`.

        Raises:
            ValueError: If an argument is out of range.
            TypeError: If the model takes more than images.
        """
        if isinstance(self.input, dict):
            raise TypeError(
                "`find_in` needs a model that takes images alone. Received: "
                f"{self.name!r}, which takes {sorted(self.input)}"
            )
        head = HEADS[self._task.head]
        size = image_size or image.shape[:2]
        return head.find_in(self, image, size, **options)

    def prepare(self, image: np.ndarray) -> np.ndarray:
        """Return an image that is ready to be resized to `image_shape`.

        Args:
            image: Pixels, `[H, W, C]`.
        """
        return HEADS[self._task.head].prepare(self, image)

    def names_of(self, labels: np.ndarray) -> list[str]:
        """Return the names of classes; their numbers where they have none."""
        names = self.class_names
        return [str(i) if names is None else names[i] for i in labels]

    @property
    def _pixels(self):
        if not isinstance(self.input, dict):
            return self.input
        (pixels,) = (x for k, x in self.input.items() if k in PIXELS)
        return pixels

    @property
    def _task(self):
        # The last, of a head that stands on another's outputs.
        return [x for x in self.layers if isinstance(x, Task)][-1]


def finish(
    inner: ImageModel,
    outputs: dict,
    head: str,
    task: str,
    options: dict,
    class_names: Sequence[str] | None = None,
    name: str | None = None,
    more_inputs: dict | None = None,
    kind: type[TaskModel] = TaskModel,
) -> TaskModel:
    """Return the model of a head's outputs.

    Args:
        inner: The backbone.
        outputs: Name -> symbolic tensor, on a graph with the mark of `inner`.
        head, task, options, class_names: See `Task`.
        name: Name of the model; that of the backbone and the head.
        more_inputs: Symbolic inputs by name beside the backbone's.
        kind: The class of the model.
    """
    dtype = wide_policy()
    outputs = Task(
        head,
        task,
        options,
        None if class_names is None else tuple(class_names),
        name="task",
        dtype=dtype,
    )(outputs)
    inputs = inner.input
    if more_inputs:
        inputs = {inputs.name: inputs} | more_inputs
    return kind(inputs, outputs, name=name or f"{inner.name}_{head}")


def boxes_of_image(
    model: TaskModel, boxes, scores, labels, image_size: tuple[int, int]
) -> dict[str, Any]:
    """Return the boxes of one image; see `TaskModel.interpret`.

    Args:
        model: The model.
        boxes: `[n, 4]`: centre x, centre y, width and height, in shares of the
            image.
        scores, labels: Of the boxes, `[n]`.
        image_size: (height, width) of the image, in pixels.
    """
    centre, size = np.split(boxes, 2, axis=1)
    corners = np.concatenate([centre - size / 2, centre + size / 2], axis=1)
    height, width = image_size
    return dict(
        boxes=corners * np.array([width, height, width, height], "float32"),
        scores=scores,
        labels=labels,
        names=model.names_of(labels),
    )


def mark(inner: ImageModel, x):
    """Return a tensor of the graph, after the backbone's metadata."""
    config = inner._metadata.get_config()
    return layers.Metadata.from_config(config)(x)


def number_of_classes(
    classes: int | None, class_names: Sequence[str] | None
) -> int:
    """Return the number of classes, of either argument.

    Raises:
        ValueError: If neither is given, or they contradict one another.
    """
    check_class_names(class_names, classes)
    if class_names is not None:
        return len(class_names)
    if classes is None:
        raise ValueError(
            "`classes` or `class_names` must be given. Received: None for both"
        )
    return classes
