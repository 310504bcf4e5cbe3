"""Model families, one file each."""

from keras_vit.models import (
    axial_resnet,
    axial_vit,
    bit,
    mixer,
    mvit,
    raft_mlp,
    vit,
)
from keras_vit.models.axial_resnet import (
    AxialResNet,
    AxialResNet26S,
    AxialResNet50,
    AxialResNet50L,
    AxialResNet50M,
    AxialResNet50S,
)
from keras_vit.models.axial_vit import AxialViT, AxialViTB16, AxialViTB32
from keras_vit.models.bit import (
    BiT,
    BiTR50x1,
    BiTR50x2,
    BiTR50x3,
    BiTR101x1,
    BiTR101x3,
    BiTR152x1,
    BiTR152x2,
    BiTR152x4,
    BiTR200x3,
)
from keras_vit.models.constructors import from_pretrained
from keras_vit.models.families import FAMILIES
from keras_vit.models.image_model import ImageModel
from keras_vit.models.mixer import (
    MixerB16,
    MixerB32,
    MixerH14,
    MixerL16,
    MixerL32,
    MixerS16,
    MixerS32,
    MLPMixer,
)
from keras_vit.models.mvit import (
    MViT,
    MViTB16,
    MViTB16x4,
    MViTB24,
    MViTB24_32x3,
    MViTB24Wide,
    MViTB32x3,
    MViTB64x3,
    VideoViTB16,
)
from keras_vit.models.raft_mlp import (
    RaftMLP,
    RaftMLPL,
    RaftMLPM,
    RaftMLPS,
)
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

__all__ = [
    "AxialResNet",
    "AxialViT",
    "BiT",
    "ImageModel",
    "MLPMixer",
    "RaftMLP",
    "MViT",
    "ViT",
    "from_pretrained",
    "list_models",
    *axial_resnet.VARIANTS,
    *axial_vit.VARIANTS,
    *bit.VARIANTS,
    *mixer.VARIANTS,
    *raft_mlp.VARIANTS,
    *mvit.VARIANTS,
    *vit.VARIANTS,
]


def list_models(family: str | None = None) -> list[str]:
    """Returns the names of all constructors of a fixed size.

    Args:
        family: Name of a family, such as "vit"; None lists all.

    Raises:
        ValueError: If there is no such family.
    """
    if family is not None and family not in FAMILIES:
        raise ValueError(
            f"`family` must be one of {tuple(FAMILIES)}. Received: "
            f"family={family!r}"
        )
    return [
        name
        for row in FAMILIES.values()
        if family in (None, row.name)
        for name in row.variants
    ]
