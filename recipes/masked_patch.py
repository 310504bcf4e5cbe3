"""Masked patch prediction (B.1.2 of the ViT paper), of recipes.unlabelled."""

import sys

if __name__ == "__main__":
    sys.exit(
        "`python -m recipes.masked_patch` is now an objective of "
        "recipes.unlabelled:\n  python -m recipes.unlabelled "
        "--config=recipes/configs/masked_patch.py"
    )

import dataclasses

import keras

from keras_vit.training import masked_patch
from recipes import method, training_step


@dataclasses.dataclass(kw_only=True, slots=True)
class MaskedPatch:
    """What is corrupted, and what is predicted.

    Attributes:
        target: The prediction target of a corrupted patch: "mean_colour" (3
            bits a channel), "downsized" (the same of 4 x 4 parts) or "pixels".
        corrupted: Share of the patches to corrupt.
    """

    target: str = "mean_colour"
    corrupted: float = 0.5


def objective(config, info) -> training_step.Objective:
    """Return the predictor of a config, and its loss."""
    target = config.masked_patch.target
    return training_step.Objective(
        predictor=lambda model: masked_patch.predictor(model, target),
        loss=masked_patch.loss(target),
        metrics=lambda: masked_patch.metrics(target),
        include_top=False,
        best_by="loss",
    )


def batches(config, images, built) -> method.Batches:
    """Return corrupted images and their targets."""
    settings = config.masked_patch
    return method.wrapped(
        config,
        images,
        masked_patch.batches,
        grid_size=built.model.metadata["grid"],
        target=settings.target,
        fraction=settings.corrupted,
        seed=config.seed,
    )


def describe(config, built) -> str:
    """Return how many patches are corrupted."""
    rows, columns = built.model.metadata["grid"]
    share = config.masked_patch.corrupted
    return f"{share:.0%} of {rows}x{columns} patches corrupted"


def planned(config, trainer) -> tuple:
    """Return the symbolic inputs and targets: colours, or pixels."""
    shape, dtype = trainer.output.shape[1:], "float32"
    if config.masked_patch.target != "pixels":
        shape, dtype = shape[:-1], "int32"
    return trainer.input, keras.Input(shape, dtype=dtype)


METHOD = method.Method(
    objective=objective, batches=batches, describe=describe, planned=planned
)
