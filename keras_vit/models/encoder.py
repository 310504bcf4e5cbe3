"""What the families of ViTs after the paper share: blocks and the readout.

Their layers are named as those of ViT.
"""

import keras
from keras import ops

from keras_vit import layers

# The paths of layers, for `Family.layers`.
LAYERS = (
    r"embedding|class_token|distillation_token|register_tokens"
    r"|posembed_input|pre_norm"
    r"|encoderblock_\d+(?:/[^/]+)?|encoder_norm|attention_pooling"
)
SMALL = dict(hidden_size=96, num_layers=4, num_heads=6, mlp_dim=192)


# Arguments of blocks that are fields of some families.
_OF_BLOCKS = (
    *("layer_scale", "mlp_scale", "qkv_bias", "relative_dim", "parallel"),
    *("norm", "query_key_norm", "attention_norm", "mlp_norm", "post_norm"),
)


def check_prefix(config) -> None:
    """Checks the fields about tokens before the patches.

    Args:
        config: The architecture, which may lack a class token.

    Raises:
        ValueError: If a field has an impossible value.
    """
    num_registers = getattr(config, "num_registers", 0)
    first = int(config.class_token)
    prefixes = (0, first, first + num_registers)
    if getattr(config, "position_prefix", first) not in prefixes:
        raise ValueError(
            f"`position_prefix` must be one of {prefixes}, of class_token="
            f"{config.class_token} and num_registers={num_registers}. "
            f"Received: position_prefix={config.position_prefix}"
        )
    if "token" in config.classifier and not config.class_token:
        raise ValueError(
            "`classifier` must not read the class token of a model without "
            f"one. Received: classifier={config.classifier!r}, "
            "class_token=False"
        )


def norm(config, name: str) -> keras.layers.Layer:
    """Returns a norm over tokens, of the kind of `config.norm`."""
    kind = layers.encoder_attention.NORMS[getattr(config, "norm", "layer")]
    return kind(epsilon=config.layer_norm_epsilon, name=name)


def add_prefix(config, x, grid_size: tuple[int, int], stddev: float):
    """Adds the class token, registers and learned positions, if any.

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
            grid_size, class_token=places, name="posembed_input"
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


def rotary(config) -> dict | None:
    """Returns the arguments of `layers.rotary.angles`, kind included."""
    if config.rotary == "none":
        return None
    return dict(
        kind=config.rotary,
        theta=config.rotary_theta,
        reference=config.rotary_reference,
        offset=config.rotary_offset,
        order=config.rotary_order,
    )


def encode(config, x, rescaled: bool = False, **arguments):
    """Applies the blocks.

    Args:
        config: The architecture.
        x: Tokens, `[B, T, D]`.
        rescaled: Whether the first kernels of the outputs of block l, counted
            from 1, are divided by sqrt(2 l) (BEiT, EVA).
        **arguments: Arguments of `layers.EncoderBlock` that are no fields.
    """
    for name in _OF_BLOCKS:
        if hasattr(config, name):
            arguments[name] = getattr(config, name)
    num_kv_heads = getattr(config, "num_kv_heads", 0)
    full = getattr(config, "num_full_blocks", 0)
    grouped = range(full, config.num_layers - full)
    for i in range(config.num_layers):
        x = layers.EncoderBlock(
            config.num_heads,
            config.mlp_dim,
            num_kv_heads=num_kv_heads if i in grouped else 0,
            activation=config.activation,
            layer_norm_epsilon=config.layer_norm_epsilon,
            drop_path_rate=config.drop_path_rate
            * i
            / max(1, config.num_layers - 1),
            output_scale=(2 * i + 2) ** -0.5 if rescaled else 1.0,
            name=f"encoderblock_{i}",
            **arguments,
        )(x)
    return x


def read_out(config, x, num_prefix_tokens: int):
    """Returns the representation, `[B, D]`.

    Args:
        config: The architecture. Its `classifier` is "token": the class token
            after the last norm; "gap": the mean of the patches after it;
            "gap_norm": the norm of their mean; "token_and_gap": the first two
            joined, `[B, 2 D]`; "map": attention from a learned probe;
            "token_unnormed", "gap_unnormed": as "token" and "gap", without a
            last norm.
        x: Tokens, `[B, T, D]`.
        num_prefix_tokens: Number of tokens before the patches.
    """
    kind, unnormed = config.classifier, "_unnormed"
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
