"""DeiT III: a ViT with LayerScale, whose class token has no position.

Touvron et al. 2022, "DeiT III" (2204.07118). Checked against
timm/models/vision_transformer.py. It has the parts of DINOv2
(`models/dinov2.py`).
"""

from typing import Unpack

from keras_vit._arguments import Natural
from keras_vit.models import dinov2, encoder
from keras_vit.models.construct import construct
from keras_vit.models.families import architecture
from keras_vit.models.image_model import ImageModel

__all__ = ["DeiT3", "DeiT3S16", "DeiT3M16", "DeiT3B16", "DeiT3L16", "DeiT3H14"]


@architecture
class DeiT3Config(dinov2.DINOv2Config):
    """The architecture of a DeiT III: as `DINOv2Config`, with this default.

    Args:
        position_prefix: Number of tokens before the patches that have a
            position; 0.
    """

    position_prefix: Natural = 0


# Table 1, and its ViT-M/16 and ViT-H/14.
VARIANTS = {
    "DeiT3S16": dict(patch_size=16, **encoder.SMALL),
    "DeiT3M16": dict(
        patch_size=16, hidden_size=512, num_layers=12, num_heads=8, mlp_dim=2048
    ),
    "DeiT3B16": dict(patch_size=16, **encoder.BASE),
    "DeiT3L16": dict(patch_size=16, **encoder.LARGE),
    "DeiT3H14": dict(patch_size=14, **encoder.HUGE),
}

FAMILY = encoder.family(
    "deit3", "DeiT3", DeiT3Config, dinov2.forward, variants=VARIANTS
)


def DeiT3(**kwargs: Unpack[dinov2.DINOv2Arguments]) -> ImageModel:
    """Build a DeiT III of any size."""
    return construct(FAMILY, "DeiT3", kwargs)


def DeiT3S16(**kwargs: Unpack[dinov2.DINOv2Arguments]) -> ImageModel:
    """ViT-S/16 of DeiT III."""
    return construct(FAMILY, "DeiT3S16", kwargs)


def DeiT3M16(**kwargs: Unpack[dinov2.DINOv2Arguments]) -> ImageModel:
    """ViT-M/16 of DeiT III."""
    return construct(FAMILY, "DeiT3M16", kwargs)


def DeiT3B16(**kwargs: Unpack[dinov2.DINOv2Arguments]) -> ImageModel:
    """ViT-B/16 of DeiT III."""
    return construct(FAMILY, "DeiT3B16", kwargs)


def DeiT3L16(**kwargs: Unpack[dinov2.DINOv2Arguments]) -> ImageModel:
    """ViT-L/16 of DeiT III."""
    return construct(FAMILY, "DeiT3L16", kwargs)


def DeiT3H14(**kwargs: Unpack[dinov2.DINOv2Arguments]) -> ImageModel:
    """ViT-H/14 of DeiT III."""
    return construct(FAMILY, "DeiT3H14", kwargs)
