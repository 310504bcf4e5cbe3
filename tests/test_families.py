"""What every family's files hold, and no other file knows."""

import dataclasses
import inspect
import pathlib
import re

import pytest

import keras_vit
from keras_vit.models import families

pytestmark = pytest.mark.backend_independent
PACKAGE = pathlib.Path(keras_vit.__file__).parent
# Paths that only one family has, of its layers and of its checkpoints.
NAMES = {
    "vit": r"encoderblock|posembed_|encoder_norm|embeddings\.cls_token"
    r"|Transformer/|class_token/|vit_encoder",
    "mixer": r"MixerBlock_|(token|channel)_mixing/|mlp_(tokens|channels)\b"
    r"|pre_head_layer_norm",
    "mvit": r"pos_encoding|pos_embed_(spatial|temporal)|mlp_fc|attn/pool_",
    "bit": r"standardized_conv2d|root_block|group_norm/",
    "raft_mlp": r"ser_pm|level\{i\}_|levels\.\{i\}|levels\\\.",
    "axial_vit": r"axial_block_|encoder_block_row",
    "axial_resnet": r"hight_block|AxialSelfAttention_|bn_similarity",
}
# The authors of Axial-ViT call its parts as those of ViT.
SHARE_NAMES = {
    "vit": ("models/axial_vit.py", "weights/rules/axial_vit.py"),
    "axial_vit": ("weights/rules/vit/",),
}


@pytest.mark.parametrize("family", NAMES)
def test_only_a_familys_own_files_know_its_names(family):
    own = (
        f"models/{family}.py",
        f"weights/rules/{family}.py",
        f"weights/rules/{family}/",
        "layers/",  # which define the names
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
    # A flag of the recipes, --config.architecture.FIELD, has one type: call
    # what each stage of a pyramid has `depths`, not `num_layers`.
    found = {}
    for family in families.FAMILIES.values():
        for field in dataclasses.fields(family.config):
            kind = str(field.type).split(" | ")[0]
            found.setdefault(field.name, set()).add(kind)
    assert [name for name, kinds in found.items() if len(kinds) > 1] == []
