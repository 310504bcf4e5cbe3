"""Checkpoints that are not supported: each is refused with its reason."""

import numpy as np
import pytest

from keras_vit.weights import checkpoint

safetensors = pytest.importorskip("safetensors.numpy")
pytestmark = pytest.mark.backend_independent

TIMM = ("patch_embed.proj.weight", "blocks.0.norm1.weight", "cls_token")
TRANSFORMERS = (
    "embeddings.patch_embeddings.projection.weight",
    "embeddings.cls_token",
)
# What only that architecture has, and what the refusal says.
RELATIVES = {
    "MViT": ("blocks.0.attn.pool_k.weight", "MViTv2: relative positions"),
    "MViT v2": ("stages.0.blocks.0.attn.pool_q.weight", "MViT"),
    "CaiT": ("blocks_token_only.0.attn.q.weight", "CaiT: class attention"),
    "SAM": ("blocks.0.attn.rel_pos_h", "SAM: decomposed relative positions"),
    # Norms of queries are what another family reads.
    "SAM's neck": ("neck.0.weight", "SAM", "blocks.0.attn.q_norm.weight"),
    # LayerScale is what the closest family reads.
    "differential attention": (
        "blocks.0.attn.lambda_q1",
        "differential attention is not supported. The closest format, 'timm' "
        "of DINOv2",
        *("blocks.0.ls1.gamma", "pos_embed"),
    ),
    "MAE with decoder": ("decoder_blocks.0.norm1.weight", "decoder"),
}
OF_TRANSFORMERS = {
    "YOLOS": ("embeddings.detection_tokens", "detection tokens"),
}


def refusal_of(names, folder):
    arrays = {name: np.zeros((1, 1), "float32") for name in names}
    safetensors.save_file(arrays, folder / "model.safetensors")
    with pytest.raises(ValueError) as error:
        checkpoint.open_checkpoint(folder / "model.safetensors")
    return str(error.value)


@pytest.mark.parametrize("name", RELATIVES)
def test_a_relative_of_timm_is_refused_with_its_reason(name, tmp_path):
    own, words, *others = RELATIVES[name]
    text = refusal_of((*TIMM, own, *others), tmp_path)
    assert words in text
    assert f"has no place for `{own}`." in text
    assert "not supported" in text
    assert "damaged" not in text and "grid" not in text


@pytest.mark.parametrize("name", OF_TRANSFORMERS)
def test_a_relative_of_transformers_is_refused_alike(name, tmp_path):
    own, words = OF_TRANSFORMERS[name]
    text = refusal_of((*TRANSFORMERS, own), tmp_path)
    assert words in text
    assert "not supported" in text


def test_another_network_is_of_no_known_family(tmp_path):
    text = refusal_of(("conv1.weight", "fc.weight"), tmp_path)
    assert "its names are of none" in text


# Names in files of authors' code -> the copy that the refusal names.
OF_AUTHORS = {
    "CLIP": (
        "hf://openai/clip-vit-base-patch32",
        *("conv1.weight", "visual.transformer.resblocks.0.ln_1.weight"),
    ),
    "Perception Encoder": (
        "hf://timm/vit_pe_core_base_patch16_224.fb",
        *("attn_pool.probe", "transformer.resblocks.0.ln_1.weight"),
    ),
    "SigLIP": (
        "hf://google/siglip-",
        *("params/img/embedding/kernel", "params/t"),
        "params/img/Transformer/encoder_norm/scale",
    ),
    "BEiT-3": (
        "hf://timm/beit3_",
        *("beit3.vision_embed.cls_token", "head.weight"),
    ),
    "EoMT": (
        "hf://tue-mps/",
        *("network.attn_mask_probs", "network.q.weight"),
        *(f"network.encoder.backbone.{name}" for name in TIMM),
        "network.encoder.backbone.blocks.0.ls1.gamma",
    ),
    "Depth Anything": (
        "hf://depth-anything/",
        *(f"pretrained.{name}" for name in TIMM),
        *("pretrained.blocks.0.ls1.gamma", "depth_head.scratch.layer1_rn.bias"),
    ),
    "DPT": (
        "hf://Intel/dpt-large",
        *(f"pretrained.model.{name}" for name in TIMM),
        "scratch.refinenet1.out_conv.weight",
    ),
    "ViTPose": (
        "hf://usyd-community/",
        *(f"backbone.{name}" for name in TIMM),
        "keypoint_head.final_layer.weight",
    ),
    "YOLOS": (
        "hf://hustvl/",
        *(f"backbone.{name}" for name in TIMM),
        *("backbone.det_token", "class_embed.layers.0.weight"),
    ),
}


@pytest.mark.parametrize("name", OF_AUTHORS)
def test_a_file_of_the_authors_names_a_copy_that_is_read(name, tmp_path):
    copy, *names = OF_AUTHORS[name]
    text = refusal_of(names, tmp_path)
    assert "the authors' code of" in text and name in text
    assert copy in text


@pytest.mark.parametrize(
    ("prefix", "own"),
    [
        ("", "blocks.0.attn.q_bias"),
        ("encoder.", "encoder.blocks.0.attn.q_bias"),
        # Without qkv_bias.
        ("", "fc_norm.weight"),
        ("encoder.", "encoder_to_decoder.weight"),
    ],
)
def test_videomae_of_its_authors_is_no_mvit(prefix, own, tmp_path):
    arrays = {
        "patch_embed.proj.weight": np.zeros((4, 3, 2, 2, 2), "float32"),
        **{
            f"blocks.0.{name}": np.zeros((4, 4), "float32")
            for name in ("norm1.weight", "attn.qkv.weight")
        },
        "norm.weight": np.zeros(4, "float32"),
    }
    arrays = {f"{prefix}{name}": array for name, array in arrays.items()}
    arrays[own] = np.zeros(4, "float32")
    path = tmp_path / "model.safetensors"
    safetensors.save_file(arrays, path)
    with pytest.raises(ValueError, match="the authors' code of VideoMAE"):
        checkpoint.open_checkpoint(path)
