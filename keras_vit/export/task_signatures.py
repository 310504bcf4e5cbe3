"""The functions that a SavedModel of a model with a head serves."""

import warnings
from typing import Any

import keras
import numpy as np

from keras_vit.data import decode
from keras_vit.data.optional_imports import tensorflow
from keras_vit.export import limits, requests, signatures, task_maps
from keras_vit.heads import TaskModel, segments
from keras_vit.heads.vitpose import newton, smoothing

# Outputs at inference, by sorted names; others are of training.
_OUTPUTS = (
    ("logits", "pred_boxes"),
    ("class_queries_logits", "masks_queries_logits"),
    ("predicted_depth",),
    ("heatmaps",),
    ("logits",),
)


def outputs_of(model: TaskModel) -> keras.Model:
    """Return a model of the outputs at inference alone, by sorted names."""
    outputs = {name: model.output[name] for name in _names(model)}
    return keras.Model(model.input, outputs, name=model.name)


def _names(model):
    return next(x for x in _OUTPUTS if set(x) <= set(model.output))


def check_inputs(model: keras.Model) -> None:
    """Refuse a model with a head that takes more than images."""
    if isinstance(model, TaskModel) and isinstance(model.input, dict):
        raise ValueError(
            "`model` must take images alone, as files and requests have them. "
            f"Received: {model.name!r}, which takes {sorted(model.input)}"
        )


def plan(
    model: TaskModel, top_k: int | None, activation: str | None, interpret: dict
) -> dict:
    """Return the arguments of `TaskAnswers` that an export was given.

    Raises:
        ValueError: If the task has no such option, or it is invalid, or the
            model is an OWL-ViT or OWLv2.
    """
    if "pads" in model.options:
        raise ValueError(
            "`model` must be none of OWL-ViT or OWLv2: a SavedModel neither "
            "pads images nor compares boxes with queries. Received: "
            f"{model.name!r}. Write it as .keras, or with `export_onnx`"
        )
    if activation is not None:
        raise ValueError(
            "`activation` must be None for a model with a head. Received: "
            f"activation={activation!r} for a model of {model.task}"
        )
    if top_k is not None and model.task != "detection":
        raise ValueError(
            "`top_k` is of classifiers and of detectors, a number of boxes. "
            f"Received: top_k={top_k} for a model of {model.task}"
        )
    known: set[str] = set()
    if "masks_queries_logits" in model.output:
        known = {"kind", *segments.DEFAULTS}
    if unknown := set(interpret) - known:
        raise ValueError(
            "`interpret` must have options of segments that queries make, "
            f"for {model.name!r} {sorted(known) or 'none'}. Received: "
            f"{sorted(unknown)}"
        )
    # Whether values are right, `interpret` knows.
    zeros = {
        name: np.zeros((1, *x.shape[1:]), "float32")
        for name, x in model.output.items()
    }
    model.interpret(zeros, **interpret)
    if model.options.get("view") == "windows":
        warnings.warn(
            "The SavedModel stretches images, which `find_in` cuts into "
            "windows: it finds other classes for pixels of images that are "
            "not square.",
            stacklevel=4,
        )
    return dict(top_k=top_k, interpret=interpret)


class TaskAnswers(requests.Requests):
    """What signatures of a model with a head answer.

    Args:
        model: The model.
        forward: As of `Requests`; the outputs are those of `outputs_of`.
        class_names: Names by index, of classes or keypoints; none of depth.
        top_k: Number of boxes in an answer; None for all.
        max_images: Largest number of images in a request.
        interpret: The options of segments; see `RequestOptions`.
    """

    def __init__(
        self,
        model: TaskModel,
        forward,
        class_names: tuple[str, ...],
        top_k: int | None,
        max_images: int,
        interpret: dict,
    ):
        super().__init__(forward, max_images)
        self.names = _names(model)
        self.image_shape = model.image_shape
        self.padded = model.options.get("view") == "padded"
        self._class_names = self._tf.constant(list(class_names), "string")
        self._top_k = top_k
        if "masks_queries_logits" in self.names:
            self._kind = interpret.get("kind") or model.options["kind"]
            given: Any = segments.DEFAULTS | interpret
            self._limits = task_maps.Thresholds(
                given["threshold"],
                given["mask_threshold"],
                given["overlap_threshold"],
                tuple(given["stuff_classes"]),
            )
        self._answer = {
            "pred_boxes": self._detection,
            "masks_queries_logits": self._segments,
            "predicted_depth": self._depth,
            "heatmaps": self._pose,
            "logits": self._classes,
        }[self.names[-1]]
        if "masks_queries_logits" in self.names and self._kind == "semantic":
            self._answer = self._classes_of_queries

    def answer(self, *found):
        """Answer with what users want, of outputs, sizes and reasons."""
        *outputs, sizes, reasons = found
        answer = self._answer(outputs, sizes, reasons)
        answer["image_size"] = self.hide(sizes, reasons)
        return answer | self.validity(reasons)

    def raw(self, *found):
        """Answer with what the model gives."""
        *outputs, reasons = found
        answer = {
            name: self.hide(x, reasons)
            for name, x in zip(self.names, outputs, strict=True)
        }
        return answer | self.validity(reasons)

    def _named(self, indices):
        """Return indices and their classes; -1 has none."""
        names = self._tf.gather(self._class_names, self._tf.maximum(indices, 0))
        names = self._tf.where(indices >= 0, names, "")
        return dict(classes=names, indices=indices)

    def _detection(self, outputs, sizes, reasons):
        tf = self._tf
        logits, boxes = outputs
        scores = tf.nn.softmax(logits)[..., :-1]  # [N, Q, K]
        labels = tf.argmax(scores, -1, tf.int32)
        tokens = scores.shape[1]
        scores, order = tf.math.top_k(
            tf.reduce_max(scores, -1), min(self._top_k or tokens, tokens)
        )
        labels, boxes = (
            tf.gather(x, order, batch_dims=1) for x in (labels, boxes)
        )
        centre, side = boxes[..., :2], boxes[..., 2:]
        boxes = tf.concat([centre - side / 2, centre + side / 2], -1)
        scale = tf.cast(tf.reverse(sizes, [1]), tf.float32)
        boxes *= tf.concat([scale, scale], -1)[:, None]
        return dict(
            boxes=self.hide(boxes, reasons),
            scores=self.hide(scores, reasons),
            **self._named(self.hide(labels, reasons, -1)),
        )

    def _pose(self, outputs, sizes, reasons):
        tf = self._tf
        heat = self.hide(tf.cast(outputs[0], tf.float64), reasons)
        points, scores = _keypoints(heat, sizes)
        labels = tf.zeros_like(scores, tf.int32) + tf.range(heat.shape[-1])
        return dict(
            keypoints=self.hide(points, reasons),
            scores=self.hide(scores, reasons),
            **self._named(self.hide(labels, reasons, -1)),
        )

    def _depth(self, outputs, sizes, reasons):
        tf = self._tf

        def of_one(values, size):
            values, *ends = task_maps.depth(values, task_maps.size_of(size))
            return task_maps.to_png(values, 65_535), *ends

        nothing = tf.constant(b""), tf.constant(0.0), tf.constant(0.0)
        found = self._each(of_one, (outputs[0], sizes), reasons, nothing)
        return dict(
            zip(("depth_bytes", "least", "largest"), found, strict=True)
        )

    def _classes(self, outputs, sizes, reasons):
        return self._of_scores(lambda x, size: x, outputs, sizes, reasons)

    def _classes_of_queries(self, outputs, sizes, reasons):
        return self._of_scores(
            lambda logits, masks, size: task_maps.semantic(
                logits, masks, self._to_input(size)
            ),
            outputs,
            sizes,
            reasons,
        )

    def _of_scores(self, scores_of, outputs, sizes, reasons):
        """Answer with the class of each pixel, and the share of classes."""
        tf = self._tf
        count = self._class_names.shape[0]

        def of_one(*found):
            map_size = task_maps.size_of(found[-1])
            classes = task_maps.classes(scores_of(*found), map_size)
            pixels = tf.math.bincount(classes, minlength=count)
            shares = tf.cast(pixels / tf.size(classes), tf.float32)
            shares, order = tf.math.top_k(shares, count)
            order = tf.where(shares > 0, order, -1)
            return task_maps.to_png(classes, count - 1), shares, order

        nothing = tf.constant(b""), tf.zeros(count), -tf.ones(count, tf.int32)
        png, shares, order = self._each(
            of_one, (*outputs, sizes), reasons, nothing
        )
        return dict(mask_bytes=png, shares=shares, **self._named(order))

    def _segments(self, outputs, sizes, reasons):
        """Answer with the segment of each pixel, and their classes."""
        tf = self._tf
        queries = outputs[0].shape[1]
        function = dict(
            panoptic=task_maps.panoptic, instance=task_maps.instances
        )[self._kind]

        def of_one(logits, masks, size):
            found, labels, scores = function(
                logits,
                masks,
                self._to_input(size),
                task_maps.size_of(size),
                self._limits,
            )
            padding = [[0, queries - tf.size(scores)]]
            labels = tf.pad(labels, padding, constant_values=-1)
            return (
                task_maps.to_png(found, queries),
                tf.ensure_shape(tf.pad(scores, padding), (queries,)),
                tf.ensure_shape(labels, (queries,)),
            )

        nothing = (
            tf.constant(b""),
            tf.zeros(queries),
            -tf.ones(queries, tf.int32),
        )
        png, scores, labels = self._each(
            of_one, (*outputs, sizes), reasons, nothing
        )
        return dict(mask_bytes=png, scores=scores, **self._named(labels))

    def _to_input(self, size):
        """Return a function that resizes maps to the model's input, and leaves
        out what pads an image of this size."""
        input_size = self.image_shape[:2]

        def resize(maps):
            maps = self._tf.image.resize(maps, input_size)
            if not self.padded:
                return maps
            height, width = self._tf.unstack(decode.fitted(size, input_size))
            return maps[:height, :width]

        return resize

    def _each(self, function, values, reasons, nothing):
        """Apply a function to each image that is valid, one after the other."""
        tf = self._tf
        return tf.map_fn(
            lambda x: tf.cond(
                x[0] == limits.VALID, lambda: function(*x[1:]), lambda: nothing
            ),
            (reasons, *values),
            fn_output_signature=tuple(
                tf.TensorSpec(x.shape, x.dtype) for x in nothing
            ),
            parallel_iterations=1,
        )


def _keypoints(heat, sizes):
    """Do what `vitpose.interpret` does, of maps `[N, h, w, K]`, in float64."""
    tf = tensorflow()
    _, height, width, count = heat.shape
    flat = tf.reshape(heat, (-1, height * width, count))
    best = tf.argmax(flat, 1, tf.int32)  # [N, K]
    scores = tf.cast(tf.reduce_max(flat, 1), tf.float32)
    smoothed = tf.einsum(
        "ih,jw,nhwk->nijk", smoothing(height), smoothing(width), heat
    )
    logs = tf.math.log(tf.clip_by_value(smoothed, 0.001, 50))
    rows, columns = best // width, best % width
    numbers = tf.range(count)

    def at(y, x):
        y = tf.clip_by_value(rows + y, 0, height - 1)
        x = tf.clip_by_value(columns + x, 0, width - 1)
        places = tf.stack([y, x, tf.zeros_like(x) + numbers], -1)
        return tf.gather_nd(logs, places, batch_dims=1)

    steps = newton(at)
    points = tf.stack([columns, rows], -1)
    steps = [tf.where(tf.math.is_finite(x), x, 0) for x in steps]
    points = tf.cast(points, tf.float64) - tf.stack(steps, -1)
    ends = tf.constant([max(width - 1, 1), max(height - 1, 1)], tf.float64)
    scale = tf.cast(tf.reverse(sizes, [1]), tf.float64) / ends
    return tf.cast(points * scale[:, None], tf.float32), scores


def task_signatures(answers: TaskAnswers, budget: float) -> dict:
    """Return the functions that are served for a model with a head, by name."""
    tf = tensorflow()
    height, width, channels = answers.image_shape
    image_size = (height, width)
    any_size = (None, None, None, channels)
    resize = decode.resize_padded if answers.padded else decode.resize
    on_bytes = signatures.on_bytes_of(
        answers, image_size, channels, budget, resize
    )
    spec = tf.TensorSpec((None,), tf.string, "image_bytes")

    @tf.function(input_signature=[spec], autograph=False)
    def of_files(image_bytes):
        (*found, reasons), put_back, sizes = on_bytes(image_bytes, answers.run)
        return answers.answer(*put_back((*found, sizes, reasons)))

    def of_pixels(pixels):
        with answers.limited(pixels):
            pixels = tf.ensure_shape(pixels, any_size)
        images = tf.cast(resize(pixels, image_size), tf.float32)
        *found, reasons = answers.run_pixels(images)
        size = tf.shape(pixels)[1:3]
        sizes = tf.zeros((tf.shape(pixels)[0], 2), tf.int32) + size
        return answers.answer(*found, sizes, reasons)

    return dict(
        serving_default=of_files,
        pixels=signatures.of_tensor(of_pixels, any_size, "uint8", "pixels"),
        pixels_float=signatures.of_tensor(
            of_pixels, any_size, "float32", "pixels"
        ),
        outputs=signatures.of_inputs(
            answers, (None, *image_size, channels), "images"
        ),
    )
