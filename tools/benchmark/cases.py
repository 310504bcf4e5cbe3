"""What is measured: a model, a size, a task and a precision."""

import dataclasses

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
    "big_vision",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """One comparison.

    Attributes:
        model: Name of a constructor, such as "ViTB16".
        image_size: Pixels per side; 0 takes the model's own.
        batch_size: Images per call; 0 where it is looked for.
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

    @property
    def sizes(self) -> str:
        """The model and its sizes, as the tables call them."""
        size = f", {self.image_size} px" if self.image_size else ""
        batch = f", batch {self.batch_size}" if self.batch_size else ""
        return f"{self.model}{size}{batch}"

    def __str__(self) -> str:  # noqa: D105
        return f"{self.sizes}, {self.task}, {self.precision}"


def of_row(row: dict) -> Case:
    """Return the case of a row of the file of a backend."""
    return Case(**{name: row[name] for name in Case.__slots__})


def library(implementation: str) -> str:
    """Return the package of an implementation."""
    return implementation.removesuffix("_compiled")
