"""Losses for depth: relative, up to scale and shift, and in metres."""

import dataclasses

from keras import ops

from keras_vit._arguments import Natural, NotNegative, Portion, checked
from keras_vit.training import task_loss

# Depths below it, and spreads, count as so much.
_LEAST = 1e-6


@checked
@dataclasses.dataclass(eq=False)
class RelativeDepthLoss(task_loss.TaskLoss):
    """A loss that scale and shift of either map leave unchanged.

    Both maps are less their median and divided by their mean absolute
    deviation from it, image by image; then

        l = mean |d| + w sum_k mean (|dx d_k| + |dy d_k|),

    where d is their difference, d_k every 2^k-th of its pixels, k = 0 to 3.
    Means are over the valid pixels of all replicas.

    Args:
        gradient_weight: w: 0.5 in MiDaS, 2 in Depth Anything v2.
        num_scales: Number of the scales k.
        inverse: Whether the targets are depths. The released relative models
            give inverse depth, and so do their targets with False.

    Call arguments:
        targets: "depth", `[B, H, W]`; what is not finite or not above 0 is
            left out.
        outputs: "predicted_depth", `[B, h, w]` or `[B, h, w, 1]`, resized to
            the target (bilinear, half-pixel centres).

    Raises:
        ValueError: If the target or the output is missing or of another shape.

    Reference:
        Ranftl et al. 2020 (1907.01341), equations 5, 6 and 11; Yang et al. 2024
        (2401.10891, 2406.09414).
    """

    gradient_weight: NotNegative = 0.5
    num_scales: Natural = 4
    inverse: bool = False

    def terms(self, targets: dict, outputs: dict) -> dict:
        """Return "depth" and "gradient"."""
        depth, valid, predicted = _maps(targets, outputs)
        if self.inverse:
            depth = 1.0 / depth
        weights = ops.cast(valid, "float32")
        difference = weights * (
            _normalized(predicted, valid) - _normalized(depth, valid)
        )
        found = task_loss.share(ops.abs(difference), ops.sum(weights))
        gradient = 0.0
        for scale in range(self.num_scales):
            step = 2**scale
            kept = weights[:, ::step, ::step]
            d = difference[:, ::step, ::step]
            across = ops.abs(d[:, :, 1:] - d[:, :, :-1])
            across = across * kept[:, :, 1:] * kept[:, :, :-1]
            down = ops.abs(d[:, 1:] - d[:, :-1])
            down = down * kept[:, 1:] * kept[:, :-1]
            count = ops.sum(kept)
            gradient += task_loss.share(across, count)
            gradient += task_loss.share(down, count)
        return {"depth": found, "gradient": self.gradient_weight * gradient}


@checked
@dataclasses.dataclass(eq=False)
class MetricDepthLoss(task_loss.TaskLoss):
    """Scale-invariant logarithmic loss.

        l = sqrt(mean g^2 - w (mean g)^2),  g = log d* - log d,

    of each image with a valid pixel, and its mean over those images.

    Args:
        variance_focus: w, from 0 to 1. With 1, scale does not matter; 0.5 in
            the paper and in Depth Anything.

    Call arguments:
        targets: "depth", `[B, H, W]`, in metres; what is not finite or not
            above 0 is left out.
        outputs: "predicted_depth", `[B, h, w]` or `[B, h, w, 1]`, resized to
            the target (bilinear, half-pixel centres).

    Raises:
        ValueError: If the target or the output is missing or of another shape.

    Reference:
        Eigen et al. 2014 (1406.2283), section 3.2, and the square root of
        metric_depth/util/loss.py of Depth-Anything-V2, which takes the means
        over all images of a batch.
    """

    variance_focus: Portion = 0.5

    def terms(self, targets: dict, outputs: dict) -> dict:
        """Return "depth"."""
        depth, valid, predicted = _maps(targets, outputs)
        weights = ops.cast(valid, "float32")
        count = ops.sum(weights, axis=(1, 2))
        g = ops.log(depth) - ops.log(ops.maximum(predicted, _LEAST))
        g = weights * g
        divisor = ops.maximum(count, 1.0)
        mean = ops.sum(g, axis=(1, 2)) / divisor
        square = ops.sum(g * g, axis=(1, 2)) / divisor
        value = square - self.variance_focus * mean * mean
        # The square root has no gradient at 0.
        value = ops.sqrt(ops.maximum(value, _LEAST**2))
        present = ops.cast(count > 0, "float32")
        return {"depth": task_loss.share(value * present, ops.sum(present))}


def _maps(targets, outputs):
    """Return depth (1 where invalid), where it is valid, and prediction."""
    depth = task_loss.target(targets, "depth", (None, None, None))
    depth = ops.cast(depth, "float32")
    valid = ops.isfinite(depth) & (depth > 0)
    depth = ops.where(valid, depth, 1.0)
    predicted = task_loss.output(outputs, "predicted_depth")
    if len(predicted.shape) == 3:
        predicted = predicted[..., None]
    shape = (depth.shape[0], None, None, 1)
    task_loss.check_shape("output 'predicted_depth'", predicted, shape)
    if predicted.shape[1:3] != depth.shape[1:3]:
        predicted = ops.image.resize(
            predicted,
            depth.shape[1:3],
            interpolation="bilinear",
            data_format="channels_last",
        )
    return depth, valid, predicted[..., 0]


def _normalized(depth, valid):
    """Return (depth - median) / mean absolute deviation, over valid pixels."""
    pixels = depth.shape[1] * depth.shape[2]
    weights = ops.cast(valid, "float32")
    count = ops.sum(weights, axis=(1, 2))
    values = ops.reshape(ops.where(valid, depth, float("inf")), (-1, pixels))
    middle = ops.cast(ops.maximum(count - 1, 0.0), "int32") // 2
    median = ops.take_along_axis(
        ops.sort(values, axis=1), middle[:, None], axis=1
    )
    median = ops.where(count[:, None] > 0, median, 0.0)[:, :, None]
    shifted = depth - median
    spread = ops.sum(weights * ops.abs(shifted), axis=(1, 2))
    spread = spread / ops.maximum(count, 1.0)
    return shifted / ops.maximum(spread, _LEAST)[:, None, None]
