"""What ViTs share: fields, sizes, and after the paper tokens, blocks, readout.

Their layers are named as those of ViT.
"""

from collections.abc import Callable

import keras
from keras import ops

from keras_vit import layers
from keras_vit._arguments import Count, Epsilon, Pair, Rate
from keras_vit.layers.keras_layers import NORMS
from keras_vit.layers.transformer_block import NormPlacement
from keras_vit.models import earlier
from keras_vit.models.arguments import ModelArguments
from keras_vit.models.families import (
    Family,
    architecture,
    check_heads,
    drop_path_rates,
    register,
)

# The paths of layers, for `Family.layers`.
LAYERS = (
    r"embedding|class_token|distillation_token|register_tokens"
    r"|posembed_input|pre_norm"
    r"|encoderblock_\d+(?:/[^/]+)?|encoder_norm|attention_pooling"
)
# Table 1 of ViT, and the sizes that its release and DeiT add.
TINY = dict(hidden_size=192, num_layers=12, num_heads=3, mlp_dim=768)
SMALL = dict(hidden_size=384, num_layers=12, num_heads=6, mlp_dim=1536)
BASE = dict(hidden_size=768, num_layers=12, num_heads=12, mlp_dim=3072)
LARGE = dict(hidden_size=1024, num_layers=24, num_heads=16, mlp_dim=4096)
HUGE = dict(hidden_size=1280, num_layers=32, num_heads=16, mlp_dim=5120)
# Those of "Scaling Vision Transformers" (2106.04560), Table 2.
GIANT = dict(hidden_size=1408, num_layers=40, num_heads=16, mlp_dim=6144)
GIGANTIC = dict(hidden_size=1664, num_layers=48, num_heads=16, mlp_dim=8192)
# Of a model to train from scratch on a CPU.
FROM_SCRATCH = dict(hidden_size=96, num_layers=4, num_heads=6, mlp_dim=192)


@architecture
class EncoderConfig:
    """The fields that all ViTs have.

    Args:
        patch_size: Pixels per side of a patch, or (height, width).
        hidden_size: Width D of the tokens.
        num_layers: Number of blocks.
        num_heads: Attention heads; divides `hidden_size`.
        mlp_dim: Width of the MLPs' hidden layer.
        drop_path_rate: Stochastic depth of the last block; it grows linearly
            from 0 in the first.
        layer_norm_epsilon: Epsilon of every LayerNorm; 1e-6.
    """

    patch_size: Pair
    hidden_size: Count
    num_layers: Count
    num_heads: Count
    mlp_dim: Count
    drop_path_rate: Rate = 0.0
    layer_norm_epsilon: Epsilon = 1e-6

    def __post_init__(self):  # noqa: D105
        check_heads(self)


class EncoderArguments(ModelArguments, total=False):
    """The fields of `EncoderConfig`, as arguments."""

    patch_size: Pair | None
    hidden_size: Count | None
    num_layers: Count | None
    num_heads: Count | None
    mlp_dim: Count | None
    drop_path_rate: Rate | None
    layer_norm_epsilon: Epsilon | None


def family(
    name: str, title: str, config: type, forward: Callable, **kwargs
) -> Family:
    """Register a family whose blocks are `EncoderBlock`."""
    return register(
        name,
        title,
        config,
        forward,
        EncoderBlock,
        layers=LAYERS,
        last_norm="encoder_norm",
        small=FROM_SCRATCH,
        **kwargs,
    )


@keras.saving.register_keras_serializable(package="keras_vit")
class EncoderBlock(layers.TransformerBlock):
    """A `TransformerBlock` under the name that it has in files.

    Keras names the variables of a file by the classes of its layers.
    """

    @classmethod
    def from_config(cls, config):
        """Return a block; also of a config that version 0.2 wrote."""
        if "attention_options" not in config:
            config = earlier.block_config(config)
        return super().from_config(config)


def check_prefix(config) -> None:
    """Check the fields about tokens before the patches.

    Args:
        config: The architecture, which may lack a class token.
    """
    num_registers = getattr(config, "num_registers", 0)
    first = int(config.class_token)
    prefixes = sorted({0, first, first + num_registers})
    if getattr(config, "position_prefix", first) not in prefixes:
        raise ValueError(
            f"`position_prefix` must be one of {prefixes}, of class_token="
            f"{config.class_token} and num_registers={num_registers}. "
            f"Received: position_prefix={config.position_prefix}"
        )
    if "token" in config.pooling and not config.class_token:
        raise ValueError(
            "`pooling` must not read the class token of a model without "
            f"one. Received: pooling={config.pooling!r}, "
            "class_token=False"
        )


def norm(config, name: str) -> keras.layers.Layer:
    """Return a norm over tokens, of the kind of `config.norm`."""
    kind = NORMS[getattr(config, "norm", "layer")]
    return kind(epsilon=config.layer_norm_epsilon, name=name)


def embed(config, x, use_bias: bool = True):
    """Return the patches, `[B, N, D]`, and their (rows, columns)."""
    embedding = layers.PatchEmbedding(
        config.patch_size,
        config.hidden_size,
        use_bias=use_bias,
        initializer="uniform",
        name="embedding",
    )
    return embedding(x), embedding.grid_size


def add_prefix(config, x, grid_size: tuple[int, int], stddev: float):
    """Add the class token, registers and learned positions, if any.

    Args:
        config: The architecture. Its first `position_prefix` tokens before the
            patches have a position: none, the class token, or all.
        x: Patches, `[B, N, D]`.
        grid_size: Their (rows, columns).
        stddev: Standard deviation of the first values of the tokens.

    Returns:
        Class token, registers and patches, `[B, T, D]`.
    """
    num_prefix_tokens = config.class_token + config.num_registers
    places = config.position_prefix
    if not getattr(config, "positions", True):
        places = None

    def add_positions(x):
        return layers.AddPositionEmbs(
            grid_size, class_token=places or 0, name="posembed_input"
        )(x)

    if places == 0:
        x = add_positions(x)
    if config.class_token:
        x = layers.ClassToken(stddev, name="class_token")(x)
    if places and places < num_prefix_tokens:
        x = add_positions(x)
    if config.num_registers:
        x = layers.RegisterTokens(
            config.num_registers,
            after=int(config.class_token),
            stddev=stddev,
            name="register_tokens",
        )(x)
    if places and places == num_prefix_tokens:
        x = add_positions(x)
    return x


def rotary(config, grid_size: tuple[int, int]) -> dict | None:
    """Return the arguments of `ops.rotary.angles`, kind included."""
    if config.rotary == "none":
        return None
    return dict(
        kind=config.rotary,
        grid_size=grid_size,
        theta=config.rotary_theta,
        reference=config.rotary_reference,
        offset=config.rotary_offset,
        order=config.rotary_order,
    )


def encode(
    config,
    x,
    attention: dict | Callable[[int], dict] | None = None,
    mlp: dict | None = None,
    rescaled: bool = False,
    attention_bias=None,
):
    """Apply the blocks.

    Args:
        config: The architecture.
        x: Tokens, `[B, T, D]`.
        attention: Options of their attention that are no fields, or a function
            of a block's number that returns them.
        mlp: Those of their MLPs.
        rescaled: Whether the first kernels of the outputs of block l, counted
            from 1, are divided by sqrt(2 l) (BEiT, EVA).
        attention_bias: See `TransformerBlock`; None without.
    """

    def field(name, default):
        return getattr(config, name, default)

    norm, epsilon = field("norm", "layer"), config.layer_norm_epsilon
    placement: NormPlacement = "before"
    if field("parallel", False):
        placement = "shared"
    elif field("post_norm", False):
        placement = "after"
    scale = field("layer_scale", 0.0)
    bias = {}
    if attention_bias is not None:
        bias["attention_bias"] = attention_bias
    for i, rate in enumerate(drop_path_rates(config)):
        first = dict(
            kernel_stddev=0.02,
            output_stddev=0.02 * (2 * i + 2) ** -0.5 if rescaled else None,
        )
        own = attention(i) if callable(attention) else attention or {}
        x = EncoderBlock(
            config.num_heads,
            config.mlp_dim,
            drop_path_rate=rate,
            layer_norm_epsilon=epsilon,
            norm=norm,
            norm_placement=placement,
            layer_scale=(scale, scale if field("mlp_scale", True) else 0.0),
            attention_options=dict(
                first,
                qkv_bias=field("qkv_bias", "qkv"),
                query_key_norm=norm
                if field("query_key_norm", False)
                else "none",
                norm_epsilon=epsilon,
                **own,
            ),
            mlp_options=dict(
                first, activation=config.activation, **(mlp or {})
            ),
            name=f"encoderblock_{i}",
        )(x, **bias)
    return x


def read_out(config, x, num_prefix_tokens: int):
    """Return the representation, `[B, D]`.

    Args:
        config: The architecture. Its `pooling` is "token": the class token
            after the last norm; "gap": the mean of the patches after it;
            "gap_norm": the norm of their mean; "token_and_gap": the first two
            joined, `[B, 2 D]`; "map": attention from a learned probe;
            "token_unnormed", "gap_unnormed": as "token" and "gap", without a
            last norm.
        x: Tokens, `[B, T, D]`.
        num_prefix_tokens: Number of tokens before the patches.
    """
    kind, unnormed = config.pooling, "_unnormed"
    if kind == "gap_norm":
        x = ops.mean(x[:, num_prefix_tokens:], axis=1)
        return norm(config, "encoder_norm")(x)
    if not kind.endswith(unnormed):
        x = norm(config, "encoder_norm")(x)
    kind = kind.removesuffix(unnormed)
    if kind == "map":
        return layers.AttentionPooling(
            getattr(config, "pooling_heads", None) or config.num_heads,
            getattr(config, "pooling_mlp_dim", None) or config.mlp_dim,
            activation=config.activation,
            layer_norm_epsilon=config.layer_norm_epsilon,
            name="attention_pooling",
        )(x[:, num_prefix_tokens:])
    if kind == "token":
        return x[:, 0]
    mean = ops.mean(x[:, num_prefix_tokens:], axis=1)
    if kind == "gap":
        return mean
    return ops.concatenate([x[:, 0], mean], axis=-1)
