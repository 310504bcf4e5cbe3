"""Model families, one file each."""

from keras_vit.models import vit
from keras_vit.models.vit import (
    R26ViTB32,
    R26ViTS32,
    R50ViTB16,
    R50ViTB32,
    R50ViTL16,
    R50ViTL32,
    RViTTi16,
    ViT,
    ViTB8,
    ViTB16,
    ViTB32,
    ViTH14,
    ViTL16,
    ViTL32,
    ViTS16,
    ViTS32,
    ViTTi16,
)

__all__ = ["ViT", "list_models", *vit.VARIANTS]


def list_models() -> list[str]:
    """Returns the names of all constructors of a fixed size."""
    return list(vit.VARIANTS)
