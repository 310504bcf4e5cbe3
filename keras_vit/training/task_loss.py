"""Losses of several outputs together, in `model.fit`."""

import functools
import types

import keras
import numpy as np
from keras import ops

from keras_vit.ops.replicas import of_part, sum_over_replicas

# What stands for no object, class or depth in a target, and its dtype.
_NOTHING = {
    "labels": (-1, "int32"),
    "classes": (-1, "int32"),
    "depth": (0.0, "float32"),
}


class TaskLoss:
    """A loss of dictionaries of targets and of a model's raw outputs.

    A loss of Keras sees one output. The subclasses need several, and divide by
    a number (of boxes, masks or pixels) that is counted over all replicas. So
    that their gradients add up, each replica returns its part of the loss.
    """

    # Of the random choices; in the checkpoints of the model.
    seed_generator: keras.random.SeedGenerator | None = None

    def __call__(self, targets: dict, outputs: dict):
        """Return the loss, a scalar."""
        return sum(self.terms(targets, outputs).values())

    def prepare(self, model: keras.Model) -> None:
        """Take from a model what the loss needs beside its outputs."""

    def terms(self, targets: dict, outputs: dict) -> dict:
        """Return the weighted terms of the loss by name, scalars."""
        raise NotImplementedError


def set_loss(model: keras.Model, loss: TaskLoss) -> None:
    """Train a model with a loss of its dictionary of outputs.

    Compile the model without a loss. `fit` and `evaluate` take batches of
    (images, dictionary of targets). Where that has "weights", `[B]`, as those
    of `data.task_eval_batches`, examples of 0 do not count, and a batch counts
    as much as its examples.

    Args:
        model: A model with a dictionary of outputs.
        loss: `SetDetectionLoss`, `SetSegmentationLoss`, `PixelCrossentropy`,
            `RelativeDepthLoss`, `MetricDepthLoss`, `ActionLoss` or
            `ContrastiveLoss`.

    Raises:
        ValueError: If the loss is none of these, or it is contrastive, and the
            model accumulates gradients or has no two towers.

    Example:
        keras_vit.training.set_loss(
            model, keras_vit.training.SetDetectionLoss())
        model.compile("adamw")
    """
    if not isinstance(loss, TaskLoss):
        raise ValueError(
            "`loss` must be a loss of several outputs, such as "
            f"`SetDetectionLoss()`. Received: {loss!r}; `model.compile` takes "
            "those of Keras"
        )
    loss.prepare(model)

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        if sample_weight is not None:
            raise ValueError(
                "The losses of tasks take no `sample_weight`; leave targets "
                "out with the label -1, or pixels with the ignored label"
            )
        found = of_part(loss(y, y_pred))
        if isinstance(y, dict) and "weights" in y:
            # Keras takes the mean over batches: one with padding counts less.
            found = found * _mean_over_replicas(y["weights"])
        # Of regularizers and layers, on each replica.
        return functools.reduce(
            lambda total, one: total + ops.sum(one), self.losses, found
        )

    if loss.seed_generator is not None:
        model.loss_seed_generator = loss.seed_generator
    bound = types.MethodType(compute_loss, model)
    model.compute_loss = bound  # type: ignore[method-assign]
    clear_all_gradients(model)


def clear_all_gradients(model: keras.Model) -> None:
    """Let a training step of PyTorch begin with no gradient of any variable.

    Keras' own clears one variable of each path, and the blocks of two models
    have the same paths: the gradients of one would add up over the steps.

    Args:
        model: The model that is trained.
    """
    if keras.backend.backend() == "torch":
        model.zero_grad = types.MethodType(clear_gradients, model)


def clear_gradients(model: keras.Model, set_to_none: bool = True) -> None:
    """Clear the gradient of each variable of a model, under PyTorch."""
    for variable in model.trainable_variables:
        variable.value.grad = None


def _mean_over_replicas(values):
    """Return the mean of the examples of all replicas, a scalar."""
    replicas = sum_over_replicas(ops.ones((), "float32"))
    return sum_over_replicas(ops.mean(values)) / replicas


def counted(targets: dict):
    """Return 1 for examples, and 0 for what fills a batch: `[B, 1]`."""
    if "weights" not in targets:
        return 1.0
    weights = target(targets, "weights", (None,))
    return ops.cast(weights[:, None] > 0, "float32")


def weighted_mean(values, weights):
    """Return this replica's part of a mean over all replicas.

    Args:
        values, weights: `[B, ...]`. Without any weight the mean is 0.
    """
    # Not `share`: these weights may add up to less than 1.
    total = sum_over_replicas(ops.sum(weights))
    return ops.sum(weights * values) / ops.where(total > 0, total, 1.0)


def share(values, count):
    """Return this replica's part of a sum over a count of all replicas.

    Args:
        values: Of any shape.
        count: Scalar; of this replica. A total below 1 counts as 1.
    """
    total = sum_over_replicas(ops.cast(count, values.dtype))
    return ops.sum(values) / ops.maximum(total, 1.0)


def suffixes(outputs: dict, name: str) -> list[str]:
    """Return "" and those of the auxiliary outputs, such as "_4".

    Raises:
        ValueError: If there is no such output.
    """
    output(outputs, name)
    return [
        key.removeprefix(name)
        for key in outputs
        if key == name or key.startswith(f"{name}_")
    ]


def target(targets: dict, name: str, shape: tuple):
    """Return a target, float32 or integers.

    Args:
        targets: The targets by name. Where they have "weights", objects and
            pixels of examples of 0 are left out.
        name: The name.
        shape: Its shape; None is any size.

    Raises:
        ValueError: If it is missing, or has another shape.
    """
    if not isinstance(targets, dict) or name not in targets:
        raise ValueError(
            f"The targets must be a dictionary with {name!r}. Received: "
            f"{_names(targets)}"
        )
    found = ops.convert_to_tensor(targets[name])
    check_shape(f"target {name!r}", found, shape)
    if "weights" in targets and name in _NOTHING:
        # Signed, since masks of classes may be of uint8.
        nothing, dtype = _NOTHING[name]
        weights = target(targets, "weights", tuple(found.shape)[:1])
        axes = tuple(range(1, len(found.shape)))
        counts = ops.expand_dims(weights > 0, axes)
        found = ops.where(counts, ops.cast(found, dtype), nothing)
    return found


def output(outputs: dict, name: str, shape: tuple | None = None):
    """Return an output in float32.

    Args:
        outputs: The outputs by name.
        name: The name.
        shape: Its shape, as of the targets; None, alone or as a size, is any.

    Raises:
        ValueError: If it is missing, or has another shape.
    """
    if not isinstance(outputs, dict) or name not in outputs:
        raise ValueError(
            f"The model must have the output {name!r}. Received: "
            f"{_names(outputs)}"
        )
    found = ops.cast(outputs[name], "float32")
    if shape is not None:
        check_shape(f"output {name!r}", found, shape)
    return found


def _names(values):
    return sorted(values) if isinstance(values, dict) else type(values)


def check_shape(what: str, found, shape: tuple) -> None:
    """Raise ValueError if a tensor has not a shape, of which None is any."""
    sizes = tuple(found.shape)
    if len(sizes) != len(shape) or any(
        size not in (None, wanted) and wanted is not None
        for size, wanted in zip(sizes, shape, strict=True)
    ):
        raise ValueError(
            f"The {what} must have the shape {tuple(shape)}, where None is any "
            f"size. Received: {sizes}"
        )


def classification(logits, labels, assignment, no_object_weight, counted=1.0):
    """Return DETR's cross-entropy, with "no object" as the last class.

    Args:
        logits: `[B, N, K + 1]`.
        labels: `[B, M]`.
        assignment: `[B, M]`, of `linear_assignment`.
        no_object_weight: Weight of predictions without a target.
        counted: Which examples count, of `counted`.

    Returns:
        A scalar; NaN if a label is K or more.
    """
    queries = ops.arange(logits.shape[1], dtype=assignment.dtype)
    matches = assignment[:, :, None] == queries  # [B, M, N]
    matched = ops.any(matches, axis=1)
    labels = ops.cast(labels, "int32")[:, :, None]
    classes = ops.sum(ops.where(matches, labels, 0), axis=1)
    no_object = logits.shape[-1] - 1
    classes = ops.where(matched, classes, no_object)  # [B, N]
    weights = counted * ops.where(matched, 1.0, no_object_weight)
    chosen = one_hot(classes, no_object + 1, logits.dtype)
    losses = -ops.sum(chosen * ops.log_softmax(logits), axis=-1)
    losses = of_known_classes(losses, labels < no_object)
    return weighted_mean(losses, weights)


def of_known_classes(losses, known):
    """Return losses, NaN if the model has not all classes of the labels.

    Compiled programs cannot raise. Without this, backends differ in what such a
    label does, and K would be taken for "no object".

    Args:
        losses: Of any shape.
        known: Of any shape; false where a label is K or more.
    """
    return ops.where(ops.all(known), losses, np.nan)


def probabilities_of(logits, labels):
    """Return the probability of each target's class: `[B, M, N]`."""
    chosen = one_hot(labels, logits.shape[-1], logits.dtype)
    return ops.einsum("bnk,bmk->bmn", ops.softmax(logits), chosen)


def one_hot(labels, num_classes: int, dtype: str):
    """Return 1 at each label and 0 elsewhere: `[..., num_classes]`.

    Other labels have zeros alone; `ops.one_hot` raises at them under PyTorch.
    """
    classes = ops.arange(num_classes, dtype=labels.dtype)
    return ops.cast(labels[..., None] == classes, dtype)


def take_queries(values, assignment):
    """Return the predictions of targets: `[B, N, D]` to `[B, M, D]`."""
    index = ops.maximum(assignment, 0)[:, :, None]
    return ops.take_along_axis(values, index, axis=1)
