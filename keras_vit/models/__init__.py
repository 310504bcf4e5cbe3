"""Model families, one file each."""

from keras_vit.models.as_mlp import (
    ASMLP,
    ASMLPB,
    ASMLPS,
    ASMLPT,
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
from keras_vit.models.beit import BEiT, BEiTB16, BEiTL16
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
from keras_vit.models.clip import (
    CLIP,
    CLIPB16,
    CLIPB32,
    CLIPG14,
    CLIPH14,
    CLIPL14,
    CLIPBigG14,
)
from keras_vit.models.constructors import from_pretrained
from keras_vit.models.conv_mlp import (
    ConvMLP,
    ConvMLPL,
    ConvMLPM,
    ConvMLPS,
)
from keras_vit.models.cycle_mlp import (
    CycleMLP,
    CycleMLPB1,
    CycleMLPB2,
    CycleMLPB3,
    CycleMLPB4,
    CycleMLPB5,
)
from keras_vit.models.deit import DeiT, DeiTB16, DeiTS16, DeiTTi16
from keras_vit.models.dinov2 import (
    DeiT3B16,
    DeiT3H14,
    DeiT3L16,
    DeiT3M16,
    DeiT3S16,
    DINOv2,
    DINOv2B14,
    DINOv2G14,
    DINOv2L14,
    DINOv2S14,
)
from keras_vit.models.dinov3 import (
    DINOv3,
    DINOv3B16,
    DINOv3H16Plus,
    DINOv3L16,
    DINOv3S16,
    DINOv3S16Plus,
)
from keras_vit.models.eamlp import (
    EAMLP,
    EAMLP7,
    EAMLP10,
    EAMLP12,
    EAMLP14,
    EAMLP19,
)
from keras_vit.models.eva02 import (
    EVA02,
    EVA02B14,
    EVA02L14,
    EVA02S14,
    EVA02Ti14,
    PECoreB16,
    PECoreL14,
    PECoreS16,
    PECoreTi16,
)
from keras_vit.models.families import FAMILIES
from keras_vit.models.ff_only import (
    FFOnly,
    FFOnlyB16,
    FFOnlyL32,
    FFOnlyTi16,
)
from keras_vit.models.gmlp import (
    GMLP,
    GMLPB16,
    GMLPS16,
    GMLPTi16,
)
from keras_vit.models.hire_mlp import (
    HireMLP,
    HireMLPBase,
    HireMLPLarge,
    HireMLPSmall,
    HireMLPTiny,
)
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
from keras_vit.models.res_mlp import (
    ResMLP,
    ResMLPB24,
    ResMLPS12,
    ResMLPS24,
    ResMLPS36,
)
from keras_vit.models.s2_mlp import (
    S2MLP,
    S2MLPDeep,
    S2MLPWide,
)
from keras_vit.models.siglip import (
    SigLIP,
    SigLIPB16,
    SigLIPB32,
    SigLIPGiantOpt16,
    SigLIPL16,
    SigLIPSo400m14,
    SigLIPSo400m16,
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
    "ASMLP",
    "ASMLPB",
    "ASMLPS",
    "ASMLPT",
    "AxialResNet",
    "AxialResNet26S",
    "AxialResNet50",
    "AxialResNet50L",
    "AxialResNet50M",
    "AxialResNet50S",
    "AxialViT",
    "AxialViTB16",
    "AxialViTB32",
    "BEiT",
    "BEiTB16",
    "BEiTL16",
    "BiT",
    "BiTR101x1",
    "BiTR101x3",
    "BiTR152x1",
    "BiTR152x2",
    "BiTR152x4",
    "BiTR200x3",
    "BiTR50x1",
    "BiTR50x2",
    "BiTR50x3",
    "CLIP",
    "CLIPB16",
    "CLIPB32",
    "CLIPBigG14",
    "CLIPG14",
    "CLIPH14",
    "CLIPL14",
    "ConvMLP",
    "ConvMLPL",
    "ConvMLPM",
    "ConvMLPS",
    "DINOv2",
    "DINOv2B14",
    "DINOv2G14",
    "DINOv2L14",
    "DINOv2S14",
    "DINOv3",
    "DINOv3B16",
    "DINOv3H16Plus",
    "DINOv3L16",
    "DINOv3S16",
    "DINOv3S16Plus",
    "DeiT",
    "DeiT3B16",
    "DeiT3H14",
    "DeiT3L16",
    "DeiT3M16",
    "DeiT3S16",
    "DeiTB16",
    "DeiTS16",
    "DeiTTi16",
    "EAMLP",
    "EAMLP10",
    "EAMLP12",
    "EAMLP14",
    "EAMLP19",
    "EAMLP7",
    "EVA02",
    "EVA02B14",
    "EVA02L14",
    "EVA02S14",
    "EVA02Ti14",
    "FFOnly",
    "FFOnlyB16",
    "FFOnlyL32",
    "FFOnlyTi16",
    "GMLP",
    "GMLPB16",
    "GMLPS16",
    "GMLPTi16",
    "HireMLP",
    "HireMLPBase",
    "HireMLPLarge",
    "HireMLPSmall",
    "HireMLPTiny",
    "ImageModel",
    "MLPMixer",
    "MViT",
    "MViTB16",
    "MViTB16x4",
    "MViTB24",
    "MViTB24Wide",
    "MViTB24_32x3",
    "MViTB32x3",
    "MViTB64x3",
    "PECoreB16",
    "PECoreL14",
    "PECoreS16",
    "PECoreTi16",
    "MixerB16",
    "MixerB32",
    "MixerH14",
    "MixerL16",
    "MixerL32",
    "MixerS16",
    "MixerS32",
    "R26ViTB32",
    "R26ViTS32",
    "R50ViTB16",
    "R50ViTB32",
    "R50ViTL16",
    "R50ViTL32",
    "RViTTi16",
    "RaftMLP",
    "RaftMLPL",
    "RaftMLPM",
    "RaftMLPS",
    "CycleMLP",
    "CycleMLPB1",
    "CycleMLPB2",
    "CycleMLPB3",
    "CycleMLPB4",
    "CycleMLPB5",
    "ResMLP",
    "ResMLPB24",
    "ResMLPS12",
    "ResMLPS24",
    "ResMLPS36",
    "S2MLP",
    "S2MLPDeep",
    "S2MLPWide",
    "SigLIP",
    "SigLIPB16",
    "SigLIPB32",
    "SigLIPGiantOpt16",
    "SigLIPL16",
    "SigLIPSo400m14",
    "SigLIPSo400m16",
    "ViT",
    "ViTB16",
    "ViTB32",
    "ViTB8",
    "ViTH14",
    "ViTL16",
    "ViTL32",
    "ViTS16",
    "ViTS32",
    "ViTTi16",
    "VideoViTB16",
    "from_pretrained",
    "list_models",
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
