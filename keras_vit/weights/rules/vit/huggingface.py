"""Names of ViTModel and ViTForImageClassification of transformers.

In the form that `save_pretrained` writes; checked against transformers 5.23.
"""

import re
import warnings

import numpy as np

from keras_vit.weights.rules import configs, table
from keras_vit.weights.rules.vit.architecture import (
    Architecture,
    expand,
    fuse_heads,
    part_heads,
)
from keras_vit.weights.stored import Stored

# Of ViTMAEForPreTraining.
MAE_DECODER = re.compile(r"decoder\.(decoder_\w+|mask_token)(\..*)?")
_BLOCK = re.compile(r"encoder\.layer\.(\d+)\.")
# Defaults of `ViTConfig`, which published files omit.
_DEFAULTS = dict(
    hidden_act="gelu", layer_norm_eps=1e-12, num_attention_heads=12
)
# model_type: epsilon of LayerNorm that published files omit.
_EPSILONS = dict(vit=1e-12, vit_mae=1e-12, vit_msn=1e-6)
# Processors whose default mean and std are 0.5.
_HALVES = ("ViTImageProcessor", "ViTImageProcessorFast", "ViTFeatureExtractor")
_GELU = {
    "gelu": False,
    "gelu_python": False,
    "gelu_new": True,
    "gelu_fast": True,
    "gelu_pytorch_tanh": True,
}


def flatten(
    arrays: dict[str, Stored], metadata: dict
) -> tuple[dict[str, Stored], bool]:
    """Remove the `vit.` of the names of ViTForImageClassification.

    The decoder of ViTMAEForPreTraining is left out, with a warning.

    Returns:
        The arrays, and whether names had it.
    """
    decoder = {name for name in arrays if MAE_DECODER.fullmatch(name)}
    if decoder:
        warnings.warn(
            f"{len(decoder)} arrays `decoder.*` of the masked autoencoder are "
            "not loaded: the model is its encoder, without masking.",
            stacklevel=2,
        )
        arrays = {n: a for n, a in arrays.items() if n not in decoder}
    prefixed = any(name.startswith("vit.") for name in arrays)
    plain = table.rename(arrays, lambda name: name.removeprefix("vit."))
    return plain, prefixed


def restore(
    arrays: dict[str, np.ndarray], prefixed: bool
) -> dict[str, np.ndarray]:
    """Invert `flatten`."""
    if not prefixed:
        return arrays
    return {
        name if name.startswith("classifier.") else f"vit.{name}": array
        for name, array in arrays.items()
    }


def read_architecture(arrays: dict[str, Stored], config: dict) -> Architecture:
    """Return the metadata that names and config show."""
    return Architecture(
        num_layers=table.count(arrays, _BLOCK),
        num_heads=0,  # specified by the config
        representation="pooler.dense.bias" in arrays,
        head="classifier.bias" in arrays,
    )


def settings(config: dict) -> dict:
    """Return the metadata in config.json and preprocessor_config.json."""
    # The defaults only apply to a config that is marked as one of ViT, or of
    # an encoder of MAE or MSN, which has the same arrays.
    kind = configs.choice(config, "model_type", _EPSILONS)
    if kind:
        default = _DEFAULTS | dict(layer_norm_eps=_EPSILONS[kind])
        config = default | configs.known(**config)
    activation = configs.choice(config, "hidden_act", _GELU)
    configs.choice(config, "pooler_act", ("tanh",))
    class_names = configs.names(config, "id2label")
    # Names such as "LABEL_0" only number the classes.
    if class_names == tuple(
        f"LABEL_{i}" for i in range(len(class_names or ()))
    ):
        class_names = None
    return configs.known(
        gelu_approximate=activation and _GELU[activation],
        layer_norm_epsilon=configs.epsilon(config, "layer_norm_eps"),
        num_heads=configs.integer(config, "num_attention_heads"),
        hidden_size=configs.integer(config, "hidden_size"),
        num_layers=configs.integer(config, "num_hidden_layers"),
        mlp_dim=configs.integer(config, "intermediate_size"),
        patch_size=configs.pair(config, "patch_size"),
        channels=configs.integer(config, "num_channels"),
        image_size=configs.pair(config, "image_size"),
        class_names=class_names,
        **read_pixels(configs.section(config, "preprocessor")),
    )


def read_pixels(processor: dict) -> dict:
    """Return a processor's mean and std, for pixels in [0, 255]."""
    if not processor:
        return {}
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


def config_of(metadata: dict) -> dict:
    """Return the config of transformers for a model; inverts `settings`."""
    architecture = Architecture.of(metadata)
    height, width = metadata["image_size"]
    (patch_size,) = set(metadata["patch_size"])
    class_names = metadata["class_names"] or [
        f"LABEL_{i}" for i in range(metadata["classes"] or 0)
    ]
    config = dict(
        architectures=[
            "ViTForImageClassification" if architecture.head else "ViTModel"
        ],
        model_type="vit",
        hidden_size=metadata["hidden_size"],
        num_hidden_layers=architecture.num_layers,
        num_attention_heads=architecture.num_heads,
        intermediate_size=metadata["mlp_dim"],
        hidden_act="gelu_pytorch_tanh"
        if metadata["gelu_approximate"]
        else "gelu",
        layer_norm_eps=metadata["layer_norm_epsilon"],
        image_size=height if height == width else [height, width],
        patch_size=patch_size,
        num_channels=metadata["channels"],
        qkv_bias=True,
        id2label={str(i): name for i, name in enumerate(class_names)},
        label2id={name: i for i, name in enumerate(class_names)},
    )
    if metadata.get("pixel_mean") is not None:
        config["preprocessor"] = dict(
            image_processor_type="ViTImageProcessor",
            do_resize=True,
            size=dict(height=height, width=width),
            resample=2,
            do_rescale=True,
            rescale_factor=1 / 255,
            do_normalize=True,
            image_mean=[n / 255 for n in metadata["pixel_mean"]],
            image_std=[n / 255 for n in metadata["pixel_std"]],
        )
    return config


def rules(architecture: Architecture) -> list[table.Rule]:
    """Return the expanded table of an architecture."""
    ours, theirs = "encoderblock_{i}/", "encoder.layer.{i}."
    attention = f"{ours}MultiHeadDotProductAttention_0"
    their_attention = f"{theirs}attention.attention."
    parts = ("query", "key", "value")
    heads = architecture.num_heads

    def join(*parts):
        columns = [part.T for part in parts]  # [..., D]
        return fuse_heads(
            *(part.reshape(*part.shape[:-1], heads, -1) for part in columns)
        )

    def split(fused):
        parts = part_heads(fused, heads)  # [..., A, E]
        return tuple(part.reshape(*part.shape[:-2], -1).T for part in parts)

    qkv = table.Transform(join, split)
    dense = {
        "pre_logits": "pooler.dense",
        "head": "classifier",
        f"{attention}/out": f"{theirs}attention.output.dense",
        f"{ours}MlpBlock_0/Dense_0": f"{theirs}intermediate.dense",
        f"{ours}MlpBlock_0/Dense_1": f"{theirs}output.dense",
    }
    norms = {
        "encoder_norm": "layernorm",
        f"{ours}LayerNorm_0": f"{theirs}layernorm_before",
        f"{ours}LayerNorm_1": f"{theirs}layernorm_after",
    }
    patches = "embeddings.patch_embeddings.projection."
    rows = [
        ("class_token/cls", "embeddings.cls_token"),
        ("posembed_input/pos_embedding", "embeddings.position_embeddings"),
        ("embedding/kernel", f"{patches}weight", table.CONVOLUTION),
        ("embedding/bias", f"{patches}bias"),
        (
            f"{attention}/qkv/kernel",
            tuple(f"{their_attention}{part}.weight" for part in parts),
            qkv,
        ),
        (
            f"{attention}/qkv/bias",
            tuple(f"{their_attention}{part}.bias" for part in parts),
            qkv,
        ),
    ]
    for layer, name in dense.items():
        rows.append((f"{layer}/kernel", f"{name}.weight", table.TRANSPOSED))
        rows.append((f"{layer}/bias", f"{name}.bias"))
    for layer, name in norms.items():
        rows.append((f"{layer}/gamma", f"{name}.weight"))
        rows.append((f"{layer}/beta", f"{name}.bias"))
    return expand(rows, architecture)


def refused(metadata: dict, format: str) -> list[str]:
    """List the parts of a model that transformers cannot store."""
    pooled = metadata["classifier"]
    head = metadata.get("classes") is not None
    has = dict(
        resnet_stem=metadata.get("resnet_units") is not None,
        pre_logits_and_head=metadata.get("representation_size") and head,
        patch_of_unequal_sides=len(set(metadata["patch_size"])) > 1,
    )
    found = [name for name, value in has.items() if value]
    return found + ([] if pooled == "token" else [pooled])
