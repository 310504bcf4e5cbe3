"""Names and configs of the vision models of transformers, as saved in files.

Checked against transformers 5.23.
"""

import re

from keras_vit.weights.formats.guard import Stored
from keras_vit.weights.rules import configs, table

_LAYER = "encoder.layer.{i}."
_SELF = f"{_LAYER}attention.attention."
# DeiT and BEiT; DINOv2 differs in a few of these names.
BERT_NAMES = dict(
    embedding="embeddings.patch_embeddings.projection",
    class_token="embeddings.cls_token",
    positions="embeddings.position_embeddings",
    norm1=f"{_LAYER}layernorm_before",
    norm2=f"{_LAYER}layernorm_after",
    qkv=tuple(f"{_SELF}{part}" for part in ("query", "key", "value")),
    q_bias=f"{_SELF}query.bias",
    v_bias=f"{_SELF}value.bias",
    out=f"{_LAYER}attention.output.dense",
    fc1=f"{_LAYER}intermediate.dense",
    fc2=f"{_LAYER}output.dense",
    norm="layernorm",
    head="classifier",
)
DINOV2_NAMES = BERT_NAMES | dict(
    registers="embeddings.register_tokens",
    norm1=f"{_LAYER}norm1",
    norm2=f"{_LAYER}norm2",
    scale1=f"{_LAYER}layer_scale1.lambda1",
    scale2=f"{_LAYER}layer_scale2.lambda1",
    fc1=f"{_LAYER}mlp.fc1",
    gate=f"{_LAYER}mlp.gate",
    fc2=f"{_LAYER}mlp.fc2",
)
# Transformers 4 requires this prefix, 5 reads both forms.
TOWER = "vision_model."
_TOWER = "encoder.layers.{i}."
TOWER_NAMES = dict(
    embedding="embeddings.patch_embedding",
    positions="embeddings.position_embedding.weight",
    norm1=f"{_TOWER}layer_norm1",
    norm2=f"{_TOWER}layer_norm2",
    qkv=tuple(f"{_TOWER}self_attn.{part}_proj" for part in "qkv"),
    out=f"{_TOWER}self_attn.out_proj",
    fc1=f"{_TOWER}mlp.fc1",
    fc2=f"{_TOWER}mlp.fc2",
    norm="post_layernorm",
)
_POOLING = [
    [f"head.attention.{name}{x}" for name in ("in_proj_", "q.", "kv.")]
    for x in ("weight", "bias")
]
_TEXT = re.compile(
    r"text_model\..*|text_projection\..*|logit_(scale|bias)|.*\.position_ids"
)
# Metadata -> key of a config, and how its value is read; of any encoder.
FIELDS = dict(
    layer_norm_epsilon=("layer_norm_eps", configs.epsilon),
    num_heads=("num_attention_heads", configs.integer),
    hidden_size=("hidden_size", configs.integer),
    num_layers=("num_hidden_layers", configs.integer),
    mlp_dim=("intermediate_size", configs.integer),
)
_FIELDS = FIELDS | dict(channels=("num_channels", configs.integer))
# Processors whose default mean and std are 0.5.
_HALVES = ("ViTImageProcessor", "ViTImageProcessorFast", "ViTFeatureExtractor")
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "silu": "swiglu",
}
# The last of several names is the one that is written, but for "gelu".
NAMES_OF = {v: k for k, v in ACTIVATIONS.items()} | {"gelu": "gelu"}


def flatten(
    arrays: dict[str, Stored],
    prefixes: tuple[str, ...],
    ignored: str = r".*embeddings\.mask_token",
) -> tuple[dict[str, Stored], str]:
    """Remove a prefix of names, and the arrays whose names are `ignored`.

    Returns:
        The arrays, and the prefix.
    """
    arrays = {n: a for n, a in arrays.items() if not re.fullmatch(ignored, n)}
    found = [p for p in prefixes if any(n.startswith(p) for n in arrays)]
    prefix = found[0] if found else ""
    return table.rename(arrays, lambda n: n.removeprefix(prefix)), prefix


def restore(arrays: dict, prefix: str, heads: tuple[str, ...]) -> dict:
    """Put a prefix before all names but those of heads."""
    return {
        name if name.startswith(heads) else f"{prefix}{name}": array
        for name, array in arrays.items()
    }


def defaults(
    epsilon: float, activation: str = "gelu", heads: int = 12, **others
) -> dict:
    """Return what the published files of a `model_type` omit."""
    return dict(
        hidden_act=activation,
        layer_norm_eps=epsilon,
        num_attention_heads=heads,
        **others,
    )


def settings(config: dict, defaults: dict[str, dict]) -> dict:
    """Return the metadata in config.json and preprocessor_config.json.

    Args:
        config: The config.json, with that of the processor.
        defaults: For each `model_type` the values that published files omit.

    Raises:
        ValueError: If the config belongs to another model, or has an
            impossible value.
    """
    processor = configs.section(config, "preprocessor")
    kind = configs.choice(config, "model_type", tuple(defaults))
    class_names = configs.names(config, "id2label")
    # Names such as "LABEL_0" only number the classes.
    if class_names == _numbered(class_names):
        class_names = None
    config = tower_config(config, "vision", defaults.get(kind or "", {}))
    activation = configs.choice(config, "hidden_act", ACTIVATIONS)
    return configs.known(
        activation=activation and ACTIVATIONS[activation],
        patch_size=configs.pair(config, "patch_size"),
        image_size=configs.pair(config, "image_size"),
        class_names=class_names,
        **{n: read(config, key) for n, (key, read) in _FIELDS.items()},
        **_pixels(processor),
    )


def tower_config(config: dict, tower: str, defaults: dict) -> dict:
    """Return the config of a tower, "vision" or "text", of a whole config.

    Args:
        config: The config, of both towers or of one.
        tower: The tower.
        defaults: What files may omit.
    """
    section = configs.section(config, f"{tower}_config") or config
    # Old files of CLIP have another, which overrides it, with what it omits.
    older = configs.known(**configs.section(config, f"{tower}_config_dict"))
    if older:
        names = ("hidden_act", "layer_norm_eps", "num_attention_heads")
        older = {n: defaults[n] for n in names if n in defaults} | older
    return defaults | configs.known(**section) | older


def _numbered(names):
    return tuple(f"LABEL_{i}" for i in range(len(names or ())))


def _pixels(processor):
    """Return a processor's mean and std, for pixels in [0, 255]."""
    if not processor:
        return {}
    for name in ("do_flip_channel_order", "offset", "rescale_offset"):
        if configs.flag(processor, name):
            raise ValueError(f"{name}=True of a processor is not supported")
    factor = 1.0
    if configs.flag(processor, "do_rescale") is not False:
        factor = configs.number(processor, "rescale_factor", 0.0, 1.0)
        factor = 1 / 255 if factor is None else factor
    mean, std = (0.0,) * 3, (1.0,) * 3
    if configs.flag(processor, "do_normalize") is not False:
        kinds = {
            str(processor.get("image_processor_type")),
            str(processor.get("feature_extractor_type")),
        }
        default = (0.5,) * 3 if kinds & set(_HALVES) else None
        mean = configs.numbers(processor, "image_mean") or default
        std = configs.numbers(processor, "image_std") or default
    if mean is None or std is None:
        return {}
    return dict(
        pixel_mean=tuple(n / factor for n in mean),
        pixel_std=tuple(n / factor for n in std),
    )


def config_of(
    metadata: dict, model_type: str, architecture: str, **fields
) -> dict:
    """Return the config of transformers for a model; inverts `settings`."""
    height, width = metadata["image_size"]
    patch_size, *_ = metadata["patch_size"]
    config = dict(
        architectures=[architecture],
        model_type=model_type,
        hidden_act=NAMES_OF[metadata["activation"]],
        image_size=height if height == width else [height, width],
        patch_size=patch_size,
        **{key: metadata[name] for name, (key, _) in _FIELDS.items()},
        **fields,
    )
    if metadata.get("pixel_mean") is not None:
        config["preprocessor"] = dict(
            image_processor_type="BitImageProcessor",
            do_resize=True,
            size=dict(height=height, width=width),
            resample=3,
            do_center_crop=False,
            do_rescale=True,
            rescale_factor=1 / 255,
            do_normalize=True,
            image_mean=[n / 255 for n in metadata["pixel_mean"]],
            image_std=[n / 255 for n in metadata["pixel_std"]],
        )
    return config


def labels(metadata: dict) -> dict:
    """Return the fields of a config that name the classes."""
    names = metadata["class_names"] or _numbered(
        range(metadata["classes"] or 0)
    )
    return dict(
        id2label={str(i): name for i, name in enumerate(names)},
        label2id={name: i for i, name in enumerate(names)},
    )


def refused(metadata: dict, format: str, any_shape: bool = False) -> list[str]:
    """List the parts of a model that no model of transformers can store.

    Args:
        metadata: Of the model.
        format: Not used; as `table.Format.refused` takes it.
        any_shape: Whether positions need not be of a square grid.
    """
    height, width = metadata["image_size"]
    return table.refuse_pre_logits(metadata) + table.listed(
        {
            "patches of unequal sides": len(set(metadata["patch_size"])) > 1,
            "images that are not square": height != width and not any_shape,
        }
    )


def tower(arrays: dict[str, Stored], metadata: dict):
    """Flatten an image tower: as `flatten`, of a file with or without texts.

    The fused projection of attention pooling becomes that of the query, and
    that of keys and values.
    """
    arrays, prefix = flatten(arrays, (TOWER,), _TEXT.pattern)
    for fused, query, others in _POOLING:
        if fused in arrays:
            third = arrays[fused].shape[0] // 3
            rest = arrays[fused].shape[0] - third
            table.cut(arrays, fused, {query: third, others: rest})
    return arrays, prefix


def restore_tower(arrays: dict, prefix: str) -> dict:
    """Invert `tower`."""
    arrays = dict(arrays)
    for fused, *parts in _POOLING:
        if parts[0] in arrays:
            table.join(arrays, parts, fused)
    return restore(arrays, prefix, ("visual_projection.", "classifier."))
