"""The names of a family occur only in the files of that family."""

import inspect
import pathlib
import re
import typing

import pytest

import keras_vit
from keras_vit.models import families

pytestmark = pytest.mark.backend_independent
AFTER = ("deit", "dinov2", "dinov3", "eva02", "clip", "siglip", "beit")
AFTER += ("videomae",)
# "deit3" and "perception_encoder" have the names of "dinov2" and "eva02".
PACKAGE = pathlib.Path(keras_vit.__file__).parent
HEADS = sorted((PACKAGE / "heads").glob("*.py"))
# Paths that only one family has, of its layers and of its checkpoints.
NAMES = {
    "vit": r"encoderblock|posembed_|encoder_norm|embeddings\.cls_token"
    r"|Transformer/|class_token/|vit_encoder",
    "mixer": r"MixerBlock_|(token|channel)_mixing/|mlp_(tokens|channels)\b"
    r"|pre_head_layer_norm",
    "mvit": r"pos_encoding|pos_embed_(spatial|temporal)|mlp_fc|attn/pool_",
    "bit": r"standardized_conv2d|root_block|group_norm/",
    "raft_mlp": r"ser_pm|level\{i\}_|levels\.\{i\}|levels\\\.",
    "res_mlp": r"linear_tokens|norm1\\?\.alpha",
    "gmlp": r"gate_norm",
    "cycle_mlp": r"sfc_[hw]",
    "eamlp": r"trans_dims|tokens_to_token|q_linear/",
    "ff_only": r"cls_pos_embed|mlp2/",
    "deit": r"dist_token|cls_classifier",
    "dinov2": r"use_swiglu_ffn",
    "dinov3": r"dinov3_vit|gate_proj",
    "eva02": r"use_post_norm|scale_attn_inner",
    "beit": r"lambda_1",
    "clip": r"pre_layrnorm|visual_projection",
    "siglip": r"head\\.probe|siglip_vision_model",
    "videomae": r"tubelet_size|qv_bias",
    "axial_vit": r"axial_block_|encoder_block_row",
    "as_mlp": r"axial_shift",
    "s2_mlp": r"S2MLPBlock_|spatial_shift",
    "conv_mlp": r"tokenizer\d|connect_norm",
    "hire_mlp": r"mlp_[hw]\b|reweight_fc",
    "axial_resnet": r"hight_block|AxialSelfAttention_|bn_similarity",
}
# The authors of Axial-ViT use the names of ViT for its parts, and timm has one
# class for three families of MLPs.
SHARE_NAMES = {
    # So do the ViTs after the paper.
    "vit": (
        "models/axial_vit.py",
        "weights/rules/axial_vit.py",
        *("models/encoder.py", "weights/rules/encoder/"),
        *(f"models/{family}.py" for family in AFTER),
        *(f"weights/rules/{family}.py" for family in AFTER),
        "text/",  # whose blocks are the same
        "weights/rules/text_tower.py",
    ),
    "axial_vit": ("weights/rules/vit/",),
    "axial_resnet": ("models/axial_attention.py",),
    **dict.fromkeys(AFTER, ("weights/rules/encoder/",)),
    "clip": (
        "weights/rules/encoder/",
        "weights/rules/text_tower.py",
        "weights/rules/open_clip.py",
    ),
    # OpenCLIP's EVA-CLIP.
    "eva02": ("weights/rules/encoder/", "weights/rules/open_clip.py"),
    "deit": ("weights/rules/vit/",),  # refuses them
    "videomae": (
        "weights/rules/encoder/",
        "weights/rules/videomae_pretraining.py",
    ),
    "mvit": ("weights/rules/ff_only.py",),
    # Hire-MLP weights its branches as CycleMLP does.
    "hire_mlp": ("models/cycle_mlp.py", "weights/rules/cycle_mlp.py"),
    "mixer": ("weights/rules/res_mlp.py", "weights/rules/gmlp.py"),
}


@pytest.mark.parametrize("family", NAMES)
def test_only_a_familys_own_files_know_its_names(family):
    own = (
        f"models/{family}.py",
        f"models/{family}_",
        f"weights/rules/{family}.py",
        f"weights/rules/{family}/",
        "layers/",  # which define the names
        "heads/",  # which stand on a backbone's layers, as their rules do
        *(
            f"weights/rules/{path.stem}"
            for path in HEADS
            if path.stem[0] != "_"
        ),
        *SHARE_NAMES.get(family, ()),
    )
    knowing = [
        str(path.relative_to(PACKAGE))
        for path in sorted(PACKAGE.rglob("*.py"))
        if re.search(NAMES[family], path.read_text())
    ]
    assert [name for name in knowing if not name.startswith(own)] == []


@pytest.mark.parametrize("family", families.FAMILIES)
def test_forward_reads_on_one_page(family):
    lines, _ = inspect.getsourcelines(families.FAMILIES[family].forward)
    assert len(lines) < 80


def test_a_field_is_of_one_type_in_all_families():
    # A flag of the recipes, --config.model.architecture.FIELD, has one type:
    # call what each stage of a pyramid has `depths`, not `num_layers`.
    found = {}
    for family in families.FAMILIES.values():
        for name, kind in typing.get_type_hints(family.config).items():
            if kind == int | tuple[int, ...]:  # of each stage: the first
                kind = int
            if kind == bool | None:  # None: as the pooling needs
                kind = bool
            first = (typing.get_args(kind) or (kind,))[0]
            # The values of a choice may differ.
            kind = str if isinstance(first, str) else kind
            found.setdefault(name, set()).add(kind)
    assert [name for name, kinds in found.items() if len(kinds) > 1] == []


def test_a_constructor_has_a_family_and_sizes():
    for family in families.FAMILIES.values():
        assert families.of(family.title) is family
        assert families.sizes_of(family.title) == {}
        for name, sizes in family.variants.items():
            assert families.of(name) is family
            assert families.sizes_of(name) == sizes
    assert families.of("ResNet50") is None
    assert families.sizes_of("ResNet50") == {}
