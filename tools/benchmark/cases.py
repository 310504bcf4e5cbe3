"""What is measured: a model, a size, a task and a precision."""

import dataclasses
import itertools

TASKS = ("inference", "training")
PRECISIONS = ("float32", "bfloat16")
# In the order of the tables. A name with "_compiled" is the same model under
# XLA (TensorFlow) or torch.compile (PyTorch).
IMPLEMENTATIONS = (
    "keras_vit",
    "keras_vit_compiled",
    "keras_hub",
    "timm",
    "timm_compiled",
    "transformers",
    "torchvision",
)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One comparison.

    Attributes:
        model: Name of a constructor, such as "ViTB16".
        image_size: Pixels per side; 0 takes the model's own.
        batch_size: Images per call.
        task: "inference" (`predict_on_batch`) or "training"
            (`train_on_batch` with AdamW).
        precision: "float32" or "bfloat16": all of inference in bfloat16;
            training with float32 variables (mixed precision).
    """

    model: str
    image_size: int
    batch_size: int
    task: str
    precision: str

    @property
    def dtype_policy(self) -> str:
        """Keras' name of the precision."""
        is_mixed = self.task == "training" and self.precision == "bfloat16"
        return "mixed_bfloat16" if is_mixed else self.precision

    def __str__(self) -> str:  # noqa: D105
        size = f", {self.image_size} px" if self.image_size else ""
        return (
            f"{self.model}{size}, batch {self.batch_size}, {self.task}, "
            f"{self.precision}"
        )


def combinations(
    models: list[str],
    image_sizes: list[int],
    batch_sizes: list[int],
    tasks: list[str],
    precisions: list[str],
) -> list[Case]:
    """Returns a case for each combination."""
    return [
        Case(
            model=model,
            image_size=image_size,
            batch_size=batch_size,
            task=task,
            precision=precision,
        )
        for model, image_size, batch_size, task, precision in itertools.product(
            models, image_sizes, batch_sizes, tasks, precisions
        )
    ]


def library(implementation: str) -> str:
    """Returns the package of an implementation.

    Args:
        implementation: One of `IMPLEMENTATIONS`.
    """
    return implementation.removesuffix("_compiled")
