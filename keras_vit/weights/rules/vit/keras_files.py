"""Names of this package's `.weights.h5` and `.keras` files.

Keras numbers the variables of a layer; `flatten` maps the numbers to names, and
the table is the identity.
"""

import re

import numpy as np

from keras_vit.weights.formats.guard import Stored
from keras_vit.weights.rules import configs, keras_format, table

_BLOCK = re.compile(r"encoderblock_(\d+)/")
_UNIT = re.compile(r"resnet/block(\d+)_unit(\d+)/")


def flatten(
    arrays: dict[str, Stored], metadata: dict
) -> tuple[dict[str, Stored], None]:
    """Map the numbers of variables to names."""
    named = {}
    for name, array in arrays.items():
        layer, _, index = name.rpartition("/")
        if not layer:  # of the metrics
            continue
        parts, number = _variables(layer, array.shape), int(index)
        # A quantized layer has more.
        last = parts[number] if number < len(parts) else index
        named[f"{layer}/{last}"] = array
    return named, None


def _variables(layer, shape):
    """Return the names of a layer's variables in the order of their
    creation."""
    last = layer.split("/")[-1]
    if re.match(r"LayerNorm_\d|encoder_norm|gn", last):
        return "gamma", "beta"
    if last == "class_token":
        return ("cls",)
    if last == "attention_pooling":
        return ("probe",)
    if last.startswith("posembed_"):
        if len(shape) == 3:
            return ("pos_embedding",)
        return "row_embedding", "column_embedding", "class_embedding"
    if last.startswith("MultiHead"):
        # A vector for each distance, or a number.
        name = "relative_embedding" if len(shape) == 3 else "relative_bias"
        return (name,)
    return "kernel", "bias"


def read_architecture(arrays: dict[str, Stored], config: dict) -> dict:
    """Return the metadata that names and config show."""
    return dict(
        num_layers=table.count(arrays, _BLOCK),
        resnet_depths=(
            table.depths(arrays, _UNIT)
            if "resnet/conv_root/kernel" in arrays
            else None
        ),
        **_pooling(arrays, config),
        representation_size="pre_logits/bias" in arrays,
        classes="head/bias" in arrays,
    )


def _pooling(arrays, config):
    """Return the pooling in the graph; weights show a token and a probe."""
    if "attention_pooling/probe" in arrays:
        return dict(pooling="map")
    norm = keras_format.layer_of(config, "LayerNormalization")
    shape = norm.get("build_config", {}).get("input_shape", [None] * 3)
    averaged = len(shape) == 2
    if "class_token/cls" in arrays:
        if averaged:
            return dict(pooling="gap_norm", class_token=True)
        return dict(pooling="token")
    if not config:
        return dict(pooling=None)
    if keras_format.layer_of(config, "Reshape"):
        return dict(pooling="unpooled")
    return dict(pooling="gap_norm" if averaged else "gap")


def settings(config: dict) -> dict:
    """Return the metadata in the config.json of a `.keras` file.

    A `.weights.h5` file has no config and specifies nothing.
    """

    def of(name):
        return configs.section(keras_format.layer_of(config, name), "config")

    block, embedding = of("TransformerBlock"), of("PatchEmbedding")
    positions = keras_format.layer_of(config, "SincosPositionEmbs")
    positions = positions or keras_format.layer_of(config, "AddPositionEmbs")
    blocks = [
        layer
        for layer in keras_format.layers_of(config)
        if layer.get("class_name") == "TransformerBlock"
    ]
    images = of("InputLayer").get("batch_shape", [None] * 4)
    found = configs.known(
        image_size=configs.pair(dict(batch_shape=images[1:3]), "batch_shape")
        if None not in images[1:3]
        else None,
        channels=configs.integer(dict(batch_shape=images[3]), "batch_shape"),
        patch_size=configs.pair(embedding, "patch_size"),
        hidden_size=configs.integer(embedding, "hidden_size"),
        num_layers=len(blocks) or None,
        num_heads=configs.integer(block, "num_heads"),
        mlp_dim=configs.integer(block, "mlp_dim"),
        gelu_approximate=_gelu_approximate(block),
        layer_norm_epsilon=configs.epsilon(block, "layer_norm_epsilon"),
        resnet_numerics=configs.choice(
            of("ResNetV2Stem"), "numerics", ("authors", "timm")
        ),
        class_names=keras_format.class_names(of("ClassificationHead")),
        **_pixels(of("Rescaling")),
        **_positions(positions, block),
    )
    saved = keras_format.saved_metadata(config)
    names = {"pixel_mean", "pixel_std", "resampling", "similarity_head"}
    names |= {"classifier_activation", "include_preprocessing", "loss"}
    names |= {"has_feature_maps"}
    names |= {"class_names"} if "similarity_head" in saved else set()
    names &= set(saved)
    return {name: saved[name] for name in names} | found


def _gelu_approximate(block):
    """Return whether GELU has its tanh form; version 0.2 wrote a flag."""
    options = configs.section(block, "mlp_options")
    forms = ("gelu", "gelu_tanh")
    activation = configs.choice(options, "activation", forms)
    if activation is None:
        return configs.flag(block, "gelu_approximate")
    return activation == "gelu_tanh"


def _pixels(scaling):
    scale = configs.numbers(scaling, "scale")
    offset = configs.numbers(scaling, "offset")
    if scale is None or offset is None:
        return {}
    if 0 in scale:
        raise ValueError("expected `scale` of Rescaling not to be 0")
    scale, offset = np.array(scale), np.array(offset)
    return dict(
        pixel_mean=(-offset / scale).tolist(), pixel_std=(1 / scale).tolist()
    )


def _positions(layer, block):
    """Return the kind, grid and placement of the position embeddings."""
    if not block:
        return {}
    options = configs.section(block, "attention_options")
    if not layer:
        relative = options.get("layer") == "RelativeAttention"
        relative = relative or configs.flag(block, "relative_positions")
        return dict(position_embedding="relative" if relative else "none")
    config = configs.section(layer, "config")
    placement = "stem"
    if config.get("name") != "posembed_input":
        placement = "every_layer"
    elif len(layer.get("inbound_nodes", ())) > 1:
        placement = "every_layer_shared"
    kind = configs.choice(config, "kind", ("learned_1d", "learned_2d"))
    if options.get("layer") == "BEiTAttention":
        kind = "local"
    elif layer.get("class_name") == "SincosPositionEmbs":
        kind = "sincos_2d"
    return dict(
        grid=configs.pair(config, "grid_size"),
        position_embedding=kind,
        position_placement=placement,
    )
