"""Losses for segmentation: sets of masks, and classes of pixels."""

import dataclasses
from typing import Annotated

import keras
from keras import ops

from keras_vit._arguments import Count, NotNegative, Portion, checked
from keras_vit.ops.sampling import sample
from keras_vit.training import task_loss
from keras_vit.training.matching import linear_assignment

AtLeast1 = Annotated[float, "a number, at least 1", lambda x: x >= 1]


@checked
@dataclasses.dataclass(eq=False)
class SetSegmentationLoss(task_loss.TaskLoss):
    """Mask2Former's losses, as EoMT uses them.

    Each target is matched to one query by the least sum of costs, and their
    masks are compared at points: cross-entropy and dice. The points of the
    loss are chosen for each mask where the prediction is least certain, among
    more random ones, and the rest at random. All masks of a batch share the
    random points, so that devices that share a batch draw the same ones.
    Outputs of intermediate blocks, with names such as "class_queries_logits_4",
    are matched and counted in the same way.

    Args:
        class_weight, mask_weight, dice_weight: Weights of the terms, in the
            costs and in the loss.
        no_object_weight: Weight of "no object" in the cross-entropy of classes.
        num_points: Points of a mask.
        oversample: Random points, of which the least certain are chosen, for
            each of `num_points`; at least 1.
        importance_share: Share of the points chosen by uncertainty.
        seed: Of the points. The random state is in the model's checkpoints.

    Call arguments:
        targets: "masks", `[B, M, H, W]`: 0 or 1; "labels", `[B, M]`: integers,
            -1 for padding; with one of K or more the loss is NaN.
            `masks_of_classes` makes both of a map of classes.
        outputs: "class_queries_logits", `[B, Q, K + 1]`, the last of "no
            object"; "masks_queries_logits", `[B, h, w, Q]`. Q is at least M.

    Raises:
        ValueError: If a target or an output is missing or of another shape, or
            M exceeds Q.

    Reference:
        Cheng et al. 2021 (2112.01527), section 3.3; PointRend (1912.08193);
        checked against `models/eomt` of transformers, which draws points for
        each image and mask.
    """

    class_weight: NotNegative = 2.0
    mask_weight: NotNegative = 5.0
    dice_weight: NotNegative = 5.0
    no_object_weight: NotNegative = 0.1
    num_points: Count = 12_544
    oversample: AtLeast1 = 3.0
    importance_share: Portion = 0.75
    seed: dataclasses.InitVar[int] = 0

    def __post_init__(self, seed):
        """Make the generator of the points."""
        self.seed_generator = keras.random.SeedGenerator(seed)

    def terms(self, targets: dict, outputs: dict) -> dict:
        """Return "class", "mask" and "dice", with the suffix of the block."""
        labels = task_loss.target(targets, "labels", (None, None))
        labels = ops.cast(labels, "int32")
        batch, objects = labels.shape
        masks = task_loss.target(targets, "masks", (batch, objects, None, None))
        masks = ops.cast(masks, "float32")
        counted = task_loss.counted(targets)
        found = {}
        for suffix in task_loss.suffixes(outputs, "class_queries_logits"):
            logits = task_loss.output(
                outputs, f"class_queries_logits{suffix}", (batch, None, None)
            )
            predicted = task_loss.output(
                outputs,
                f"masks_queries_logits{suffix}",
                (batch, None, None, logits.shape[1]),
            )
            terms = self._terms(
                labels,
                masks,
                counted,
                logits,
                ops.transpose(predicted, (0, 3, 1, 2)),
            )
            found |= {name + suffix: term for name, term in terms.items()}
        return found

    def _terms(self, labels, masks, counted, logits, predicted):
        valid = labels >= 0
        cost = self.cost(labels, masks, logits, predicted)
        assignment = linear_assignment(cost, valid)
        shape = ops.shape(predicted)
        flat = ops.reshape(predicted, (*shape[:2], shape[2] * shape[3]))
        matched = ops.reshape(
            task_loss.take_queries(flat, assignment),
            (shape[0], masks.shape[1], *shape[2:]),
        )
        points = self._uncertain_points(matched)  # [B, M, P, 2]
        found = sample(matched, points)
        expected = ops.stop_gradient(sample(masks, points))
        weights = ops.cast(valid, "float32")
        count = ops.sum(weights)
        entropy = ops.mean(_entropy(expected, found), axis=-1)
        probability = ops.sigmoid(found)
        dice = 1 - (2 * ops.sum(probability * expected, axis=-1) + 1) / (
            ops.sum(probability, axis=-1) + ops.sum(expected, axis=-1) + 1
        )
        return {
            "class": self.class_weight
            * task_loss.classification(
                logits, labels, assignment, self.no_object_weight, counted
            ),
            "mask": self.mask_weight
            * task_loss.share(weights * entropy, count),
            "dice": self.dice_weight * task_loss.share(weights * dice, count),
        }

    def cost(self, labels, masks, logits, predicted):
        """Return the cost of each pair: `[B, M, Q]`."""
        points = self._random_points(self.num_points)[None, None]
        found = ops.stop_gradient(sample(predicted, points))  # [B, Q, P]
        expected = sample(masks, points)  # [B, M, P]

        def product(x, y):
            return ops.einsum("bmp,bqp->bmq", x, y)

        # -log p and -log (1 - p) differ by the logit.
        entropy = ops.sum(ops.softplus(found), axis=-1)[:, None] - product(
            expected, found
        )
        probability = ops.sigmoid(found)
        sums = (
            ops.sum(probability, axis=-1)[:, None]
            + ops.sum(expected, axis=-1)[:, :, None]
        )
        dice = 1 - (2 * product(expected, probability) + 1) / (sums + 1)
        return (
            self.mask_weight * entropy / self.num_points
            + self.dice_weight * dice
            - self.class_weight * task_loss.probabilities_of(logits, labels)
        )

    def _random_points(self, count):
        return keras.random.uniform(
            (count, 2), dtype="float32", seed=self.seed_generator
        )

    def _uncertain_points(self, logits):
        """Return points of each mask, as x and y from 0 to 1."""
        candidates = self._random_points(int(self.num_points * self.oversample))
        certainty = ops.abs(sample(logits, candidates[None, None]))
        count = int(self.importance_share * self.num_points)
        _, index = ops.top_k(-ops.stop_gradient(certainty), count)
        points = ops.take(candidates, index, axis=0)
        rest = self._random_points(self.num_points - count)[None, None]
        rest = ops.broadcast_to(
            rest, (*ops.shape(points)[:2], *ops.shape(rest)[2:])
        )
        return ops.concatenate([points, rest], axis=2)


@checked
@dataclasses.dataclass(eq=False)
class PixelCrossentropy(task_loss.TaskLoss):
    """Cross-entropy of the classes of pixels, without the ignored ones.

    The mean is over the counted pixels of all replicas. Logits of another size
    are resized to that of the labels (bilinear, half-pixel centres).

    Args:
        ignored: Label of the pixels to leave out; so are negative labels.
        output: Name of the logits.

    Call arguments:
        targets: "classes", `[B, H, W]`, integers. With one of K or more that is
            not ignored, the loss is NaN.
        outputs: "logits", `[B, h, w, K]`.

    Raises:
        ValueError: If the target or the output is missing or of another shape.
    """

    ignored: int = 255
    output: str = "logits"

    def terms(self, targets: dict, outputs: dict) -> dict:
        """Return "class", with the suffix of the block."""
        classes = task_loss.target(targets, "classes", (None, None, None))
        classes = ops.cast(classes, "int32")
        counted = (classes >= 0) & (classes != self.ignored)
        weights = ops.cast(counted, "float32")
        classes = ops.where(counted, classes, 0)
        found = {}
        for suffix in task_loss.suffixes(outputs, self.output):
            logits = task_loss.output(
                outputs,
                self.output + suffix,
                (classes.shape[0], None, None, None),
            )
            if logits.shape[1:3] != classes.shape[1:3]:
                logits = ops.image.resize(
                    logits,
                    classes.shape[1:3],
                    interpolation="bilinear",
                    data_format="channels_last",
                )
            known = classes < logits.shape[-1]
            losses = ops.sparse_categorical_crossentropy(
                ops.where(known, classes, 0), logits, from_logits=True
            )
            losses = ops.where(counted, losses, 0.0)
            losses = task_loss.of_known_classes(losses, known)
            found[f"class{suffix}"] = task_loss.share(losses, ops.sum(weights))
        return found


@checked
def masks_of_classes(classes, num_classes: Count):
    """Return the masks of a map of classes: targets of `SetSegmentationLoss`.

    Args:
        classes: `[B, H, W]`, integers; others than 0 to K - 1 are in no mask.
        num_classes: K.

    Returns:
        {"masks": `[B, K, H, W]`, "labels": `[B, K]`, -1 if there is none}.

    Raises:
        ValueError: If `classes` has another rank, or `num_classes` is below 1.
    """
    every = ops.arange(num_classes, dtype="int32")
    classes = ops.cast(classes, "int32")
    task_loss.check_shape("map `classes`", classes, (None, None, None))
    masks = classes[:, None] == every[:, None, None]
    present = ops.any(masks, axis=(2, 3))
    return {"masks": masks, "labels": ops.where(present, every, -1)}


def _entropy(expected, logits):
    """Return the binary cross-entropies of logits."""
    return ops.softplus(logits) - expected * logits
