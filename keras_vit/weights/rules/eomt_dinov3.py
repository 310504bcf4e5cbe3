"""EoMT on DINOv3, in transformers."""

from keras_vit.weights.rules import configs, dinov3, eomt, heads, patches
from keras_vit.weights.rules.encoder import formats, transformers

TITLE = "EoMT on DINOv3"
MODEL_TYPES = ("eomt_dinov3",)
grid = patches.grid
RESIZES = formats.RESIZES
# Of its files, which do not state it.
UNSTATED = dict(position_prefix=0)
_DEFAULTS = transformers.defaults(
    1e-6, heads=16, rope_theta=100.0, image_size=640
)


def _in_layers(name):
    """Return a name of DINOv3 as EoMT has it."""
    if isinstance(name, tuple):
        return tuple(map(_in_layers, name))
    return name and name.replace("layer.{i}.", "layers.{i}.")


_NAMES = {key: _in_layers(name) for key, name in dinov3.NAMES.items()}
_NAMES["norm"] = "layernorm"


def _settings(config):
    found = eomt.settings(config, dict(eomt_dinov3=_DEFAULTS))
    rope = configs.section(config, "rope_parameters")
    heads.refuse(rope, rope_type="default")
    if configs.flag(config, "use_gated_mlp"):
        heads.refuse(config, hidden_act="silu")
    theta = configs.number(_DEFAULTS | config | rope, "rope_theta", 0.0, 1e9)
    return found | dict(rotary="centered", rotary_theta=theta)


def _config_of(metadata):
    biases = metadata["qkv_bias"]
    return eomt.config_of(
        metadata,
        "eomt_dinov3",
        "EomtDinov3ForUniversalSegmentation",
        rope_parameters=dict(
            rope_theta=metadata["rotary_theta"], rope_type="default"
        ),
        use_gated_mlp=metadata["activation"] == "swiglu",
        query_bias=biases != "none",
        key_bias=biases == "qkv",
        value_bias=biases != "none",
    )


FORMATS = {
    "huggingface": eomt.make(
        _NAMES,
        states_qv=True,
        read_config=_settings,
        config_of=_config_of,
        fields=("activation", "num_registers", "qkv_bias"),
        fixed=dict(
            layer_scale=1e-5,
            position_prefix=0,
            positions=False,
            rotary="centered",
            rotary_order="ij",
        ),
    )
}
