"""Files of OpenCLIP: two towers under its names, read as those of others.

Checked against open_clip 3.3. The towers of CLIP are read as transformers', an
image tower of timm as timm's, and the text tower as transformers'.
"""

import re
from typing import Any

from keras_vit.weights.formats.guard import Stored
from keras_vit.weights.rules import clip_text, configs, table

_IMAGE = "visual."
# After the prefix of a tower of timm.
_PATCHES = "patch_embed.proj.weight"
# Parts of names -> those of transformers; of both towers, in this order.
_PARTS = {
    r"^transformer\.resblocks\.": "encoder.layers.",
    r"\.ln_([12])\.": r".layer_norm\1.",
    r"\.attn\.": ".self_attn.",
    r"\.mlp\.c_fc\.": ".mlp.fc1.",
    r"\.mlp\.c_proj\.": ".mlp.fc2.",
    r"^token_embedding\.": "embeddings.token_embedding.",
    r"^positional_embedding$": "embeddings.position_embedding.weight",
    r"^class_embedding$": "embeddings.class_embedding",
    r"^conv1\.": "embeddings.patch_embedding.",
    r"^ln_pre\.": "pre_" + "layrnorm.",  # as transformers spells it
    r"^ln_post\.": "post_layernorm.",
    r"^ln_final\.": "final_layer_norm.",
}
_SCALARS = ("logit_scale", "logit_bias")
# What both kinds of towers may have that is not read, and its one value.
_PLAIN = dict(
    ls_init_value=None,
    global_average_pool=False,
    input_patchnorm=False,
    attentional_pool=False,
    no_ln_pre=False,
    final_ln_after_pool=False,
    pos_embed_type="learnable",
    block_type=None,
    qk_norm=False,
    scaled_cosine_attn=False,
    scale_heads=False,
    scale_attn_inner=False,
    scale_attn=False,
    scale_fc=False,
    embed_cls=False,
    hf_model_name=None,
    proj_type="linear",
    use_pad_mask=False,
)


def image_tower(arrays: dict[str, Stored], config: dict) -> tuple[dict, dict]:
    """Return the image tower's arrays and config, of another library.

    Raises:
        ValueError: If the tower is of a kind that is not known.
    """
    model, processor = _sections(config)
    vision = configs.section(model, "vision_cfg")
    size = configs.pair(vision, "image_size") or (224, 224)
    name = vision.get("timm_model_name")
    if name:
        outer = _prefix_of_timm(arrays, name)
        own = {
            key.removeprefix(outer): array
            for key, array in arrays.items()
            if key.startswith(outer)
        }
        if any(key.startswith(f"{_IMAGE}head.") for key in arrays):
            raise ValueError(
                f"a projection after timm's {name!r} is not supported"
            )
        return own, dict(
            architecture=name,
            pretrained_cfg=configs.known(
                input_size=[3, *size],
                mean=processor.get("mean"),
                std=processor.get("std"),
            ),
            model_args=configs.section(vision, "timm_model_kwargs"),
            **configs.known(global_pool=vision.get("timm_pool", "avg") or None),
        )
    _refuse_others(vision)
    own = _translate(arrays, _IMAGE, "visual_projection.weight")
    width = configs.integer(vision, "width") or 768
    head_width = configs.integer(vision, "head_width") or 64
    tower: dict[str, Any] = dict(
        model_type="clip_vision_model",
        num_attention_heads=width // head_width,
        patch_size=configs.integer(vision, "patch_size") or 16,
        image_size=size[0] if size[0] == size[1] else list(size),
        **_numerics(model, vision),
    )
    if processor.get("mean") and processor.get("std"):
        tower["preprocessor"] = dict(
            image_mean=processor["mean"],
            image_std=processor["std"],
            rescale_factor=1 / 255,
        )
    return own, tower


def text_tower(
    arrays: dict[str, Stored], config: dict
) -> tuple[str, dict, dict]:
    """Return the text tower's family, arrays and config, of transformers.

    Raises:
        ValueError: If the tower is of a kind that is not known.
    """
    model, _ = _sections(config)
    text = configs.section(model, "text_cfg")
    _refuse_others(text)
    pool = text.get("pool_type", "argmax")
    causal = not text.get("no_causal_mask", False)
    kinds = {("argmax", True): "clip", ("eos", True): "clip"}
    kind = (kinds | {("last", False): "siglip"}).get((pool, causal))
    if kind is None:
        raise ValueError(
            f"a text tower with pool_type={pool!r}, no_causal_mask="
            f"{not causal} is not supported"
        )
    outer = "text." if "text.token_embedding.weight" in arrays else ""
    projection = "text_projection" if kind == "clip" else "head"
    own = _translate(arrays, outer, f"{projection}.weight")
    biased = {
        f"{projection}.{part}": arrays[f"{outer}text_projection.{part}"]
        for part in ("weight", "bias")
        if f"{outer}text_projection.{part}" in arrays
    }
    # Transformers' SigLIP has both in arrays of one number.
    shape = () if kind == "clip" else (1,)
    own |= biased | {
        key: arrays[key].map(lambda a: a.reshape(shape), shape)
        for key in _SCALARS
        if key in arrays
    }
    eos = configs.integer(text, "eos_id", 0)
    if pool == "argmax" or eos is None:
        eos = 2  # OpenCLIP's default
    tower = dict(
        num_attention_heads=configs.integer(text, "heads") or 8,
        eos_token_id=eos,
        **_numerics(model, text),
    )
    if pool == "eos":  # whose id 2 is not a sign for the largest
        tower["model_type"] = clip_text.MODEL_TYPES[1]
    return f"{kind}_text", own, tower


def _numerics(model, tower):
    """Return the activation and the epsilon of a tower, of transformers."""
    gelu = "quick_gelu" if model.get("quick_gelu") else "gelu"
    if configs.section(tower, "act_kwargs").get("approximate") == "tanh":
        gelu = "gelu_pytorch_tanh"
    epsilon = configs.epsilon(configs.section(tower, "norm_kwargs"), "eps")
    return dict(hidden_act=gelu, layer_norm_eps=epsilon or 1e-5)


def _sections(config):
    model = configs.section(config, "model_cfg")
    if not model:
        raise ValueError("expected `model_cfg` in open_clip_config.json")
    return model, configs.section(config, "preprocess_cfg")


def _refuse_others(tower):
    """Refuse a tower whose config asks for what is not read, by its name."""
    for key, plain in _PLAIN.items():
        if tower.get(key, plain) != plain:
            raise ValueError(
                f"a tower of OpenCLIP with {key}={tower[key]!r} is not "
                "supported"
            )
    if isinstance(tower.get("layers"), list):
        raise ValueError("a ResNet of OpenCLIP is not supported")
    if tower.get("pool_type", "tok") not in ("tok", "argmax", "eos", "last"):
        raise ValueError(
            f"a tower of OpenCLIP with pool_type={tower['pool_type']!r} is not "
            "supported"
        )


def _prefix_of_timm(arrays, name):
    """Return what stands before timm's names of the image tower."""
    for key in arrays:
        if key.startswith(_IMAGE) and key.endswith(_PATCHES):
            return key.removesuffix(_PATCHES)
    raise ValueError(f"expected {_IMAGE}*.{_PATCHES} of timm's {name!r}")


def _translate(arrays, outer, projection):
    """Return a tower's arrays under the names of transformers."""
    found: dict[str, Stored] = {}
    for key, array in arrays.items():
        if not key.startswith(outer) or (
            not outer and "." in key and (key.startswith((_IMAGE, "text.")))
        ):
            continue
        name = key.removeprefix(outer)
        if name in ("proj", "text_projection"):
            found[projection] = array.map(lambda a: a.T, array.shape[::-1])
            continue
        if name in (*_SCALARS, "attn_mask") or name.startswith(
            "text_projection."
        ):
            continue
        for pattern, part in _PARTS.items():
            name = re.sub(pattern, part, name)
        fused = re.fullmatch(r"(.*self_attn\.)in_proj_(weight|bias)", name)
        found[name] = array
        if fused:
            third = array.shape[0] // 3
            parts = {f"{fused[1]}{p}_proj.{fused[2]}": third for p in "qkv"}
            table.cut(found, name, parts)
    return found
