"""The arrays of a ViT, and the fusion of its three projections."""

import dataclasses

import numpy as np

from keras_vit.weights.rules import table

# Width -> layers of the published ViTs.
_PUBLISHED = {
    192: 12,
    384: 12,
    768: 12,
    1024: 24,
    1280: 32,
    1408: 40,
    1664: 48,
}


def is_published(width: int, num_layers: int) -> bool:
    """Whether a published ViT has these sizes."""
    return _PUBLISHED.get(width) == num_layers


def fuse_heads(
    query: np.ndarray, key: np.ndarray, value: np.ndarray
) -> np.ndarray:
    """Return the columns of `MultiHeadSelfAttention`'s fused projection.

    Args:
        query, key, value: `[..., A, E]`, for each of A heads.

    Returns:
        `[..., 3 D]`, in the order [A, 3, E].
    """
    fused = np.stack([query, key, value], axis=-2)  # [..., A, 3, E]
    return fused.reshape(*fused.shape[:-3], -1)


def part_heads(fused: np.ndarray, num_heads: int) -> tuple[np.ndarray, ...]:
    """Invert `fuse_heads`."""
    heads = fused.reshape(*fused.shape[:-1], num_heads, 3, -1)
    return tuple(np.moveaxis(heads, -2, 0))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Architecture:
    """The properties that determine the arrays of a ViT.

    Attributes:
        num_layers: Transformer blocks.
        num_heads: Attention heads, 0 if unknown.
        resnet_units: Units per stage of a hybrid's stem, or None.
        classifier: "token", "token_gap", "gap" or "gap_norm"; None if there is
            no class token and the pooling is unknown.
        representation: Whether there is a `pre_logits`.
        head: Whether there is a head.
    """

    num_layers: int
    num_heads: int
    resnet_units: tuple[int, ...] | None = None
    classifier: str | None = "token"
    representation: bool = False
    head: bool = True

    @classmethod
    def of(cls, metadata: dict) -> "Architecture":
        """Return the architecture of a model or checkpoint."""
        return cls(
            num_layers=metadata["num_layers"],
            num_heads=metadata.get("num_heads") or 0,
            resnet_units=metadata.get("resnet_units"),
            classifier=metadata.get("classifier"),
            representation=bool(metadata.get("representation_size")),
            head=metadata.get("classes") is not None,
        )

    @property
    def has_class_token(self) -> bool:
        """Whether a class token precedes the patches."""
        return self.classifier in ("token", "token_gap")

    @property
    def _absent(self) -> tuple[str, ...]:
        """Prefixes of the paths that the model does not have."""
        present = {
            "class_token/": self.has_class_token,
            "pre_logits/": self.representation,
            "head/": self.head,
            "resnet/": self.resnet_units is not None,
        }
        return tuple(path for path, has in present.items() if not has)

    def expand(self, rows: list) -> list[table.Rule]:
        """Expand a table; see `table.expand`."""
        return table.expand(
            rows,
            num_layers=self.num_layers,
            units=self.resnet_units,
            absent=self._absent,
        )

    @property
    def fields(self) -> dict:
        """Metadata of the model, as `encoder.rows.rules` takes them."""
        return dict(
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            resnet_units=self.resnet_units,
            class_token=self.has_class_token,
            classifier=self.classifier or "gap",
            representation_size=self.representation,
            classes=self.head,
        )
