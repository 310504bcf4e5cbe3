"""The settings of timm's architectures, by name.

A config of timm has the name of an architecture and the arguments that differ
from it; the number of heads and the form of GELU of the architecture are only
in timm's code. Taken from timm 1.0.31, in which all of these add 1e-6 in
LayerNorm. `encoder.timm.TANH` has those whose GELU is the tanh form.
"""

import re

# (heads, width): architectures.
_SIZES = {
    (2, 64): "test_vit",
    (3, 192): """
        vit_tiny_patch16_224 vit_tiny_patch16_384 vit_tiny_r_s16_p8_224
        vit_tiny_r_s16_p8_384 deit_tiny_patch16_224""",
    (6, 384): """
        vit_small_patch8_224 vit_small_patch16_224 vit_small_patch16_384
        vit_small_patch32_224 vit_small_patch32_384 vit_small_r26_s32_224
        vit_small_r26_s32_384 deit_small_patch16_224 flexivit_small""",
    (8, 768): "vit_small_resnet26d_224 vit_small_resnet50d_s16_224",
    (12, 768): """
        vit_base_patch8_224 vit_base_patch16_224 vit_base_patch16_384
        vit_base_patch32_224 vit_base_patch32_384 vit_base_r26_s32_224
        vit_base_r50_s16_224 vit_base_r50_s16_384 vit_base_resnet26d_224
        vit_base_resnet50d_224 deit_base_patch16_224 deit_base_patch16_384
        flexivit_base vit_base_mci_224 vit_base_patch16_siglip_gap_224
        vit_base_patch16_siglip_gap_256 vit_base_patch16_siglip_gap_384
        vit_base_patch16_siglip_gap_512 vit_base_patch32_siglip_gap_256""",
    (16, 768): "vit_base_patch16_gap_224",
    (16, 1024): """
        vit_large_patch14_224 vit_large_patch16_224 vit_large_patch16_384
        vit_large_patch32_224 vit_large_patch32_384 vit_large_r50_s32_224
        vit_large_r50_s32_384 flexivit_large eva_large_patch14_196
        eva_large_patch14_336 vit_large_patch16_siglip_gap_256
        vit_large_patch16_siglip_gap_384 vit_large_patch16_siglip_gap_512""",
    (16, 1152): """
        vit_so400m_patch14_siglip_gap_224 vit_so400m_patch14_siglip_gap_378
        vit_so400m_patch14_siglip_gap_384 vit_so400m_patch14_siglip_gap_448
        vit_so400m_patch14_siglip_gap_896 vit_so400m_patch16_siglip_gap_256
        vit_so400m_patch16_siglip_gap_384 vit_so400m_patch16_siglip_gap_512""",
    (16, 1280): """
        vit_huge_patch14_224 vit_huge_patch14_gap_224
        vit_huge_patch16_gap_448""",
    (16, 1408): "vit_giant_patch14_224 vit_giant_patch16_gap_224",
    (16, 1536): """
        vit_giantopt_patch16_siglip_gap_256
        vit_giantopt_patch16_siglip_gap_384""",
    (16, 1664): "vit_gigantic_patch14_224",
}
HEADS_AND_WIDTH = {
    name: size for size, names in _SIZES.items() for name in names.split()
}
# Their position embeddings have no row for the class token.
NO_EMBED_CLASS = re.compile(r"flexivit_(small|base|large)|vit_base_mci_224")
