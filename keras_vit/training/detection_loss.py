"""DETR's losses for detection (Carion et al. 2020, 2005.12872), as in YOLOS."""

import dataclasses

import numpy as np
from keras import ops

from keras_vit._arguments import NotNegative, checked
from keras_vit.training import task_loss
from keras_vit.training.matching import linear_assignment

# A patch has the class of a box in its middle, this share of its size.
_MIDDLE = 0.7
# Weight of the patches outside.
_OUTSIDE_WEIGHT = 0.2


@checked
@dataclasses.dataclass(eq=False)
class SetDetectionLoss(task_loss.TaskLoss):
    """Cross-entropy of classes, L1 and generalized IoU of matched boxes.

    Each target is matched to one prediction by the least sum of costs, -p of
    its class, L1 distance and -GIoU. Predictions without a target have the
    class "no object". The boxes' losses are divided by the number of boxes in
    the batches of all replicas. Outputs of intermediate blocks, "logits_4" and
    "pred_boxes_4" and so on, are matched and counted in the same way. Where
    the model has "patch_logits", their cross-entropy is added: patches in the
    middle of a box have its class, of several boxes that of the smallest.

    Args:
        class_cost, l1_cost, giou_cost: Weights of the costs.
        no_object_weight: Weight of "no object" in the cross-entropy.
        l1_weight, giou_weight: Weights in the loss; the class has 1.
        patch_weight: Weight of the classes of patches.

    Call arguments:
        targets: "boxes", `[B, M, 4]`: centre x, centre y, width and height in
            shares of the image; "labels", `[B, M]`: integers, -1 for padding,
            whose boxes are not used. With one of K or more the loss is NaN.
        outputs: "logits", `[B, N, K + 1]`, the last of "no object";
            "pred_boxes", `[B, N, 4]`. N is at least M. "patch_logits", `[B, H,
            W, K + 1]`, if the model has them.

    Raises:
        ValueError: If a target or an output is missing or of another shape, or
            M exceeds N.

    Example:
        keras_vit.training.SetDetectionLoss()(
            {"boxes": [[[0.5, 0.5, 0.2, 0.2]]], "labels": [[1]]},
            {"logits": keras.ops.zeros((1, 3, 5)),
             "pred_boxes": keras.ops.ones((1, 3, 4)) / 2})

    Reference:
        Carion et al. 2020, section 3.1 and appendix A.4; checked against
        `loss/loss_for_object_detection.py` of transformers.
    """

    class_cost: NotNegative = 1.0
    l1_cost: NotNegative = 5.0
    giou_cost: NotNegative = 2.0
    no_object_weight: NotNegative = 0.1
    l1_weight: NotNegative = 5.0
    giou_weight: NotNegative = 2.0
    patch_weight: NotNegative = 2.0

    def terms(self, targets: dict, outputs: dict) -> dict:
        """Return "class", "l1", "giou", with suffixes of blocks, "patches"."""
        labels = task_loss.target(targets, "labels", (None, None))
        labels = ops.cast(labels, "int32")
        batch, objects = labels.shape
        boxes = task_loss.target(targets, "boxes", (batch, objects, 4))
        boxes = ops.cast(boxes, "float32")
        valid = labels >= 0
        # A box with an area in place of padding, which may be anything.
        padding = ops.convert_to_tensor([0.5, 0.5, 1.0, 1.0], "float32")
        boxes = ops.where(valid[:, :, None], boxes, padding)
        counted = task_loss.counted(targets)
        found = {}
        for suffix in task_loss.suffixes(outputs, "logits"):
            logits = task_loss.output(
                outputs, f"logits{suffix}", (batch, None, None)
            )
            predicted = task_loss.output(
                outputs, f"pred_boxes{suffix}", (batch, logits.shape[1], 4)
            )
            terms = self._terms(
                labels, boxes, valid, counted, logits, predicted
            )
            found |= {name + suffix: term for name, term in terms.items()}
        if "patch_logits" in outputs:
            logits = task_loss.output(
                outputs, "patch_logits", (batch, None, None, logits.shape[2])
            )
            found["patches"] = self.patch_weight * _patch_loss(
                labels, boxes, valid, counted, logits
            )
        return found

    def _terms(self, labels, boxes, valid, counted, logits, predicted):
        cost = self.cost(labels, boxes, logits, predicted)
        assignment = linear_assignment(cost, valid)
        matched = task_loss.take_queries(predicted, assignment)
        weights = ops.cast(valid, "float32")
        count = ops.sum(weights)
        l1 = weights * ops.sum(ops.abs(matched - boxes), axis=-1)
        giou = weights * (1 - generalized_iou(matched, boxes))
        return {
            "class": task_loss.classification(
                logits, labels, assignment, self.no_object_weight, counted
            ),
            "l1": self.l1_weight * task_loss.share(l1, count),
            "giou": self.giou_weight * task_loss.share(giou, count),
        }

    def cost(self, labels, boxes, logits, predicted):
        """Return the cost of each pair: `[B, M, N]`."""
        one, other = boxes[:, :, None], predicted[:, None]
        return (
            self.l1_cost * ops.sum(ops.abs(one - other), axis=-1)
            - self.class_cost * task_loss.probabilities_of(logits, labels)
            - self.giou_cost * generalized_iou(one, other)
        )


def _patch_loss(labels, boxes, valid, counted, logits):
    """Return the cross-entropy of the classes of patches (`_MIDDLE`)."""
    _, rows, columns, outputs = logits.shape
    logits = ops.reshape(logits, (-1, rows * columns, outputs))
    y, x = np.divmod(np.arange(rows * columns), columns)
    centres = np.stack([(x + 0.5) / columns, (y + 0.5) / rows], axis=1)
    centres = ops.convert_to_tensor(centres[:, None], "float32")
    away = ops.abs(centres - boxes[:, None, :, :2])  # [B, H * W, M, 2]
    inside = ops.all(away < _MIDDLE / 2 * boxes[:, None, :, 2:], axis=-1)
    inside = inside & valid[:, None]
    areas = ops.where(inside, _area(boxes[..., 2:])[:, None], np.inf)
    classes = ops.take_along_axis(labels, ops.argmin(areas, axis=-1), axis=1)
    inside = ops.any(inside, axis=-1)  # [B, H * W]
    classes = ops.where(inside, classes, outputs - 1)
    chosen = task_loss.one_hot(classes, outputs, logits.dtype)
    weights = counted * ops.where(inside, 1.0, _OUTSIDE_WEIGHT)
    losses = -ops.sum(chosen * ops.log_softmax(logits), axis=-1)
    return task_loss.weighted_mean(losses, weights)


def generalized_iou(one, other):
    """Return the generalized IoU of boxes given as centre and size.

    Args:
        one, other: `[..., 4]`, at least one of each pair with an area.

    Returns:
        `[...]`, from -1 to 1.

    Raises:
        ValueError: If the last axis has no four values.

    Reference:
        Rezatofighi et al. 2019 (1902.09630).
    """
    one, other = ops.convert_to_tensor(one), ops.convert_to_tensor(other)
    if one.shape[-1] != 4 or other.shape[-1] != 4:
        raise ValueError(
            "`one` and `other` must be boxes, [..., 4]. Received: shapes "
            f"{tuple(one.shape)} and {tuple(other.shape)}"
        )
    one_size, other_size = one[..., 2:], other[..., 2:]
    one_start, other_start = (x[..., :2] - x[..., 2:] / 2 for x in (one, other))
    one_end, other_end = one_start + one_size, other_start + other_size
    common = ops.minimum(one_end, other_end) - ops.maximum(
        one_start, other_start
    )
    common = _area(ops.maximum(common, 0.0))
    union = _area(one_size) + _area(other_size) - common
    around = _area(
        ops.maximum(one_end, other_end) - ops.minimum(one_start, other_start)
    )
    return common / union - (around - union) / around


def _area(size):
    return size[..., 0] * size[..., 1]
