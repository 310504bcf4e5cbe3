"""Directories of OpenCLIP, whose names those of transformers become."""

import json
import re

import numpy as np
import pytest
from modern_cases import open_case

import keras_vit
from keras_vit.weights import checkpoint
from tests.text.test_two_towers import GOLDENS, golden, near

pytestmark = pytest.mark.backend("torch")
safetensors = pytest.importorskip("safetensors.numpy")
PARTS = {
    r"^text_model\.": "text.",
    r"^vision_model\.": "visual.",
    r"encoder\.layers\.": "transformer.resblocks.",
    r"layer_norm([12])": r"ln_\1",
    r"self_attn": "attn",
    r"mlp\.fc1": "mlp.c_fc",
    r"mlp\.fc2": "mlp.c_proj",
    r"embeddings\.position_embedding\.weight": "positional_embedding",
    r"embeddings\.patch_embedding": "conv1",
    r"embeddings\.": "",
    "pre_lay" + "rnorm": "ln_pre",
    "post_layernorm": "ln_post",
    "final_layer_norm": "ln_final",
}
CONFIG = dict(
    model_cfg=dict(
        embed_dim=24,
        quick_gelu=True,
        custom_text=True,
        vision_cfg=dict(image_size=32, patch_size=8, width=32, head_width=16),
        text_cfg=dict(context_length=12, vocab_size=49, width=32, heads=2),
    ),
    preprocess_cfg=dict(
        mean=[0.48145466, 0.4578275, 0.40821073],
        std=[0.26862954, 0.26130258, 0.27577711],
    ),
)


def write(folder, config=CONFIG, text="text."):
    arrays = safetensors.load_file(GOLDENS / "clip" / "model.safetensors")
    arrays["visual.proj"] = arrays.pop("visual_projection.weight").T.copy()
    arrays["text.text_projection"] = arrays.pop(
        "text_projection.weight"
    ).T.copy()
    found = {}
    for name, array in arrays.items():
        for pattern, part in PARTS.items():
            name = re.sub(pattern, part, name)
        found[re.sub(r"^text\.", text, name)] = array
    for name in [name for name in found if ".q_proj." in name]:
        parts = (name.replace(".q_", f".{part}_") for part in "qkv")
        fused = name.replace("q_proj.", "in_proj_")
        found[fused] = np.concatenate([found.pop(part) for part in parts])
    path = folder / "open_clip_model.safetensors"
    safetensors.save_file(found, path)
    (folder / "open_clip_config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("text", ["text.", ""])  # with custom_text, without
def test_towers_are_those_of_the_same_weights(text, tmp_path):
    write(tmp_path, text=text)
    data, images, ids = golden("clip")
    model = keras_vit.from_pretrained(tmp_path)
    near(model.encode_images(images), data["out/image_embeds"])
    near(
        model.logits(images, np.minimum(ids, 48)), data["out/logits_per_image"]
    )
    alone = keras_vit.from_pretrained(tmp_path, classes=3)
    assert alone.output_shape == (None, 3)


def test_positions_are_resampled_as_open_clip_does(tmp_path):
    torch = pytest.importorskip("torch")
    write(tmp_path)
    model = keras_vit.from_pretrained(tmp_path, input_shape=(24, 56, 3))
    arrays = safetensors.load_file(tmp_path / "open_clip_model.safetensors")
    table = arrays["visual.positional_embedding"]
    grid = torch.from_numpy(table[1:]).reshape(1, 4, 4, -1)
    # What `open_clip.model.resize_pos_embed` calls.
    grid = torch.nn.functional.interpolate(
        grid.permute(0, 3, 1, 2),
        size=(3, 7),
        mode="bicubic",
        antialias=True,
        align_corners=False,
    )
    expected = grid.permute(0, 2, 3, 1).reshape(21, -1).numpy()
    layer = model.image_tower.get_layer("posembed_input")
    found = layer.get_weights()[0][0]
    near(found[0], table[0])
    near(found[1:], expected)


def test_a_perception_encoder_has_its_texts(tmp_path):
    case, images = open_case("timm_pe_core", tmp_path / "timm")
    write(tmp_path)
    file = tmp_path / "open_clip_model.safetensors"
    arrays = safetensors.load_file(file)
    arrays = {n: a for n, a in arrays.items() if not n.startswith("visual.")}
    arrays |= {f"visual.timm.{name}": a for name, a in images.items()}
    safetensors.save_file(arrays, file)
    config = json.loads(json.dumps(CONFIG))
    settings = case["config"]
    config["model_cfg"]["vision_cfg"] = dict(
        timm_model_name=settings["architecture"],
        timm_pool="map",
        timm_model_kwargs=dict(act_layer="gelu_tanh"),
        image_size=case["size"],
    )
    (tmp_path / "open_clip_config.json").write_text(json.dumps(config))
    source = checkpoint.open_checkpoint(tmp_path)
    assert source.format_name == "timm_pe_core"
    assert source.metadata["activation"] == "gelu_tanh"
    model = keras_vit.from_pretrained(tmp_path, towers="text")
    data, _, ids = golden("clip")
    texts = model.predict(np.minimum(ids, 48), verbose=0)
    texts /= np.linalg.norm(texts, axis=-1, keepdims=True)
    near(texts, data["out/text_embeds"])


def test_other_towers_are_refused_by_name(tmp_path):
    for part, key, value, message in (
        ("text_cfg", "hf_model_name", "roberta-base", "'roberta-base'"),
        ("text_cfg", "pool_type", "first", "pool_type='first'"),
        ("text_cfg", "pool_type", "last", "'last', no_causal_mask=False"),
        ("vision_cfg", "timm_model_name", "vit_b", r"expected visual\.\*"),
        ("vision_cfg", "attentional_pool", True, "attentional_pool=True"),
        ("vision_cfg", "global_average_pool", True, "average_pool=True"),
        ("vision_cfg", "layers", [3, 4, 6, 3], "a ResNet of OpenCLIP"),
    ):
        config = json.loads(json.dumps(CONFIG))
        config["model_cfg"][part][key] = value
        write(tmp_path, config)
        message = f"{re.escape(str(tmp_path))}.*{message}"
        with pytest.raises(ValueError, match=message):
            keras_vit.from_pretrained(tmp_path)


def test_the_numerics_of_the_image_tower_are_read(tmp_path):
    config = json.loads(json.dumps(CONFIG))
    config["model_cfg"]["quick_gelu"] = False
    config["model_cfg"]["vision_cfg"] |= dict(
        norm_kwargs=dict(eps=1e-2), act_kwargs=dict(approximate="tanh")
    )
    write(tmp_path, config)
    metadata = checkpoint.open_checkpoint(tmp_path).metadata
    assert metadata["layer_norm_epsilon"] == 1e-2
    assert metadata["activation"] == "gelu_tanh"


@pytest.mark.parametrize(
    "given, expected",
    [
        ({}, ("end", 2)),
        (dict(eos_id=2), ("end", 2)),
        (dict(eos_id=3), ("end", 3)),
    ],
)
def test_the_end_of_a_text_is_the_token_that_is_named(
    given, expected, tmp_path
):
    config = json.loads(json.dumps(CONFIG))
    config["model_cfg"]["text_cfg"] |= dict(pool_type="eos", **given)
    write(tmp_path, config)
    source = checkpoint.open_checkpoint(tmp_path)
    metadata = checkpoint.open_text(source).metadata
    assert (metadata["pooling"], metadata["end_token"]) == expected
