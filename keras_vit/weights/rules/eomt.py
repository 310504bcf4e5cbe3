"""EoMT on DINOv2, in transformers; and what EoMT on DINOv3 shares with it."""

import re

import numpy as np

from keras_vit.weights.formats.guard import Stored
from keras_vit.weights.rules import configs, dinov2, heads, patches, table
from keras_vit.weights.rules.encoder import formats, rows, transformers
from keras_vit.weights.rules.torch_modules import norm, product

TITLE = "EoMT"
MODEL_TYPES = ("eomt",)
grid = patches.grid
RESIZES = formats.RESIZES
_LAYER = "layers.{i}."
_NAMES = transformers.DINOV2_NAMES | dict(
    positions="embeddings.position_embeddings.weight",
    norm1=f"{_LAYER}norm1",
    norm2=f"{_LAYER}norm2",
    qkv=tuple(f"{_LAYER}attention.{part}_proj" for part in "qkv"),
    q_bias=f"{_LAYER}attention.q_proj.bias",
    v_bias=f"{_LAYER}attention.v_proj.bias",
    out=f"{_LAYER}attention.out_proj",
    scale1=f"{_LAYER}layer_scale1.lambda1",
    scale2=f"{_LAYER}layer_scale2.lambda1",
    fc1=f"{_LAYER}mlp.fc1",
    gate=f"{_LAYER}mlp.gate",
    fc2=f"{_LAYER}mlp.fc2",
)
# Names of the layers of a gated MLP here, and in files.
_GATED = {
    ".mlp.gate.": ".mlp.gate_proj.",
    ".mlp.fc1.": ".mlp.up_proj.",
    ".mlp.fc2.": ".mlp.down_proj.",
}
_DEFAULTS = transformers.defaults(1e-6, heads=16, image_size=640)
# The probability with which each of the last blocks masks its queries.
_MASKS = "attn_mask_probs"
_UPSCALE = "upscale_block.block."


def settings(config: dict, defaults: dict) -> dict:
    """Return the metadata that the config specifies; see `transformers`."""
    processor = configs.section(config, "preprocessor")
    is_split = configs.flag(processor, "do_split_image")
    is_padded = configs.flag(processor, "do_pad")
    return transformers.settings(config, defaults) | configs.known(
        num_queries=configs.integer(config, "num_queries"),
        num_blocks=configs.integer(config, "num_blocks"),
        num_upscale_blocks=configs.integer(config, "num_upscale_blocks", 0),
        # Nothing says whether segments may overlap.
        kind="semantic" if is_split else "panoptic",
        view="windows" if is_split else "padded" if is_padded else "stretched",
    )


def _settings(config):
    found = settings(config, dict(eomt=_DEFAULTS))
    if configs.flag(config, "use_swiglu_ffn"):
        heads.refuse(config, hidden_act="gelu")
        found["activation"] = "swiglu"
    return found


def flatten(arrays: dict, metadata: dict):
    """Give each block its mask's probability; those of 0 are dropped."""
    arrays, _ = transformers.flatten(arrays, ())
    probabilities = arrays[_MASKS]
    (count,) = probabilities.shape
    if metadata.get("num_blocks", count) != count:
        raise ValueError(
            f"its config contradicts its arrays: num_blocks="
            f"{metadata['num_blocks']}, but the arrays have {count}"
        )
    metadata["num_blocks"] = count
    metadata["masked_attention"] = bool(probabilities.read().any())
    if metadata["masked_attention"]:
        table.cut(arrays, _MASKS, dict.fromkeys(_probabilities(count), 1))
    else:
        del arrays[_MASKS]
    return arrays, count


def restore(arrays: dict, count: int) -> dict:
    """Invert `flatten`."""
    arrays, names = dict(arrays), _probabilities(count)
    if names[0] in arrays:
        table.join(arrays, names, _MASKS)
    else:
        arrays[_MASKS] = np.zeros(count, "float32")
    return arrays


def _adapt(arrays, found, wanted):
    """Give a model with masks probabilities, or one without none."""
    names = _probabilities(found["num_blocks"])
    arrays = {name: a for name, a in arrays.items() if name not in names} | {
        name: arrays.get(name) or Stored((1,), lambda: np.zeros(1, "float32"))
        for name in (names if wanted["masked_attention"] else ())
    }
    return arrays


def _probabilities(count):
    return [f"{_MASKS}.{i}" for i in range(count)]


def _flatten(arrays, metadata):
    """Flatten, also the packed SwiGLU of files before transformers 5."""
    arrays, count = flatten(arrays, metadata)
    dinov2.cut_swiglu(arrays)
    arrays = table.rename(arrays, lambda name: _replace(name, inverse=True))
    return arrays, count


def _restore(arrays, count):
    if any(".mlp.gate." in name for name in arrays):
        arrays = table.rename(arrays, _replace)
    return restore(arrays, count)


def _replace(name, inverse=False):
    for plain, gated in _GATED.items():
        old, new = (gated, plain) if inverse else (plain, gated)
        name = name.replace(old, new)
    return name


def _head_rows(metadata):
    dense = {"head": "class_predictor"}
    dense |= {f"mask_mlp_{i}": f"mask_head.fc{i + 1}" for i in range(3)}
    found = table.layer_rows(dense, table.TORCH_DENSE) + [
        ("head/class_weights", "criterion.empty_weight"),
        ("queries/tokens", "query.weight", rows.EMBEDDINGS),
    ]
    for i in range(metadata["num_upscale_blocks"]):
        path, name = f"upscale_{i}", f"{_UPSCALE}{i}"
        # Kernels of both are [in, out, ...] in PyTorch, [..., out, in] here.
        found += product(f"{path}_transposed", f"{name}.conv1", "convolution")
        depthwise, second = f"{path}_depthwise", f"{name}.conv2"
        found += product(depthwise, second, "depthwise", bias=False)
        found += norm(f"{path}_norm", f"{name}.layernorm2d")
    if metadata["masked_attention"]:
        found += [
            (f"query_mask_{i}/probability", name)
            for i, name in enumerate(_probabilities(metadata["num_blocks"]))
        ]
    return found


def _read_head(arrays, found):
    return dict(
        classes=arrays["class_predictor.bias"].shape[0] - 1,
        num_queries=arrays["query.weight"].shape[0],
        num_upscale_blocks=table.count(
            arrays, re.compile(re.escape(_UPSCALE) + r"(\d+)\.")
        ),
    )


def _refused(metadata):
    return heads.not_square(metadata) | {
        "no registers": not metadata.get("num_registers"),
    }


def _refused_sizes(metadata):
    hidden = metadata["mlp_dim"]
    return _refused(metadata) | {
        f"mlp_dim={hidden}": hidden != dinov2.mlp_dim(metadata)
    }


def config_of(metadata: dict, model_type: str, name: str, **fields) -> dict:
    """Return a config; see `transformers.config_of`."""
    config = transformers.config_of(
        metadata,
        model_type,
        name,
        num_register_tokens=metadata["num_registers"],
        **{key: metadata[key] for key in ("num_queries", "num_blocks")},
        num_upscale_blocks=metadata["num_upscale_blocks"],
        **transformers.labels(metadata),
        **fields,
    )
    if "preprocessor" in config:
        is_semantic = metadata["kind"] == "semantic"
        side = metadata["image_size"][0]
        config["preprocessor"] |= dict(
            image_processor_type="EomtImageProcessor",
            size=dict(
                shortest_edge=side, longest_edge=None if is_semantic else side
            ),
            do_split_image=is_semantic,
            do_pad=not is_semantic,
            resample=2,
        )
    return config


def _config_of(metadata):
    config = config_of(metadata, "eomt", "EomtForUniversalSegmentation")
    return dinov2.with_ratio(config, metadata)


def make(names: dict, **kwargs) -> table.Format:
    """Return a format of EoMT."""
    common: dict = dict(
        head_rows=_head_rows,
        read_head=_read_head,
        flatten=flatten,
        restore=restore,
        adapt=_adapt,
        scheme=lambda metadata: metadata["num_blocks"],
        refused=_refused,
    )
    return heads.make(names, **(common | kwargs))


FORMATS = {
    "huggingface": make(
        _NAMES,
        read_config=_settings,
        config_of=_config_of,
        flatten=_flatten,
        restore=_restore,
        # transformers opens files at their own size only; the authors' code
        # resamples as timm.
        resampling=lambda metadata: "antialiased_bicubic",
        refused=_refused_sizes,
        fields=("activation", "num_registers"),
        fixed=dict(layer_scale=1e-5, position_prefix=0),
    )
}
