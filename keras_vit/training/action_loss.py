"""The loss of what persons do, each in a box of a video."""

from keras import ops

from keras_vit.training import task_loss


class ActionLoss(task_loss.TaskLoss):
    """Binary cross-entropy, the mean over the actions of all persons.

    Call arguments:
        targets: "actions", `[B, N, K]`, 0 or 1; "labels", `[B, N]`, -1 for
            padding.
        outputs: "logits", `[B, N, K]`, of `keras_vit.heads.actions`.

    Raises:
        ValueError: If a target or the output is missing or of another shape.
    """

    def terms(self, targets: dict, outputs: dict) -> dict:
        """Return "actions", the loss."""
        logits = task_loss.output(outputs, "logits", (None, None, None))
        actions = task_loss.target(targets, "actions", tuple(logits.shape))
        actions = ops.cast(actions, logits.dtype)
        persons = task_loss.target(targets, "labels", logits.shape[:2]) >= 0
        persons = ops.cast(persons, logits.dtype)
        # -(t log p + (1 - t) log (1 - p)), for logits of any size.
        losses = ops.softplus(logits) - actions * logits
        losses = ops.mean(losses, axis=-1) * persons
        return dict(actions=task_loss.share(losses, ops.sum(persons)))
