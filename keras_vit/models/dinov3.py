"""DINOv3, and other ViTs with rotary positions and LayerScale.

Heo et al. 2024, "Rotary Position Embedding for Vision Transformer"
(2403.13298); Simeoni et al. 2025, "DINOv3" (2508.10104). Checked against
timm/models/eva.py, which has all of them, and dinov3_vit of transformers.
"""

import math
from typing import Literal, Unpack

import keras
import numpy as np
from keras import ops

from keras_vit import layers
from keras_vit._arguments import (
    Count,
    Epsilon,
    Natural,
    Positive,
    Rate,
    checked,
)
from keras_vit.layers.keras_layers import Norm
from keras_vit.layers.mlp_block import Activation
from keras_vit.layers.multi_head_self_attention import Bias
from keras_vit.models import encoder
from keras_vit.models.construct import construct
from keras_vit.models.families import architecture
from keras_vit.models.image_model import ImageModel
from keras_vit.ops import rotary
from keras_vit.ops.dtypes import at_least_float32, constant
from keras_vit.ops.rotary import Order

__all__ = [
    "DINOv3",
    "DINOv3S16",
    "DINOv3S16Plus",
    "DINOv3B16",
    "DINOv3L16",
    "DINOv3H16Plus",
]


def _check_groups(num_kv_heads: int, num_heads: int, qkv_bias: str) -> None:
    """Check the number of heads of keys and values, 0 for `num_heads`."""
    shared = num_kv_heads not in (0, num_heads)
    if shared and (num_heads % num_kv_heads or qkv_bias == "qv"):
        raise ValueError(
            "`num_kv_heads` must divide `num_heads`, and needs "
            "qkv_bias='qkv' or 'none'. Received: num_kv_heads="
            f"{num_kv_heads}, num_heads={num_heads}, qkv_bias={qkv_bias!r}"
        )


def mixed_frequencies(shape, dtype=None):
    """Return first frequencies of the kind "mixed", `[2, A, E / 2]`.

    Those of the other kinds with theta = 10, of two axes that are turned by a
    random angle for each head.
    """
    _, heads, half = shape
    size = 10.0 ** (-np.arange(half // 2) / (half // 2))
    size = ops.convert_to_tensor(np.tile(size, 2), dtype)
    angle = keras.random.uniform((heads, 1), 0, 2 * math.pi, dtype)
    angle = ops.concatenate(
        [ops.tile(angle + turn, (1, half // 2)) for turn in (0, math.pi / 2)],
        axis=1,
    )
    return ops.stack([size * ops.cos(angle), size * ops.sin(angle)])


def indices(grid: tuple[int, int]) -> np.ndarray:
    """Return the (column, row) of each patch, `[2, N]`."""
    rows, columns = np.meshgrid(*map(np.arange, grid), indexing="ij")
    return np.stack([columns.ravel(), rows.ravel()]).astype("float32")


@keras.saving.register_keras_serializable(package="keras_vit")
class DINOv3Attention(layers.MultiHeadSelfAttention):
    """Self-attention with groups of heads, or learned rotary positions.

    The heads of a group share keys and values (Ainslie et al. 2023,
    2305.13245). With G groups the columns of the projection are
    [G, A / G + 2, E].

    Args:
        num_heads: Number of heads A; divides the token width D.
        num_kv_heads: Number of groups G; divides `num_heads`. 0 for as many.
        mixed_grid: (rows, columns) of the patches, which are the last tokens,
            whose rotary positions have frequencies that are learned for each
            head; None without.
        **kwargs: Further arguments of `MultiHeadSelfAttention`.

    Input shape: `[B, T, D]`
    Output shape: `[B, T, D]`

    Raises:
        ValueError: If `num_heads` is no multiple of `num_kv_heads`, or E none
            of 4 with rotary positions.

    Reference:
        Checked against `EvaAttention` and `RotaryEmbeddingMixed` of timm, and
        Sapiens 2 of transformers.
    """

    @checked
    def __init__(
        self,
        num_heads: Count,
        num_kv_heads: Natural = 0,
        mixed_grid: tuple[Count, Count] | None = None,
        **kwargs,
    ):
        super().__init__(num_heads, **kwargs)
        _check_groups(num_kv_heads, num_heads, self.qkv_bias)
        self.num_kv_heads = num_kv_heads
        self.mixed_grid = None if mixed_grid is None else tuple(mixed_grid)

    def build(self, input_shape):
        super().build(input_shape)
        if self.mixed_grid is None:
            return
        if self.head_size % 4:
            raise ValueError(
                "`hidden_size` must be a multiple of 4 `num_heads` with rotary "
                f"positions. Received: hidden_size={input_shape[-1]}, "
                f"num_heads={self.num_heads}"
            )
        tokens = input_shape[1]
        self._token_shape = tuple(input_shape[1:])
        self.frequencies = self.add_weight(
            name="frequencies",
            shape=(2, self.num_heads, self.head_size // 2),
            initializer=mixed_frequencies,
        )
        rows, columns = self.mixed_grid
        places = indices((rows, columns))  # [2, N]
        self._places = np.pad(places, ((0, 0), (tokens - places.shape[1], 0)))

    def _num_columns(self):
        return self.num_heads + 2 * (self.num_kv_heads or self.num_heads)

    def _project(self, inputs):
        if self.num_kv_heads in (0, self.num_heads):
            return super()._project(inputs)
        groups, tokens = self.num_kv_heads, inputs.shape[1]
        shared = self.num_heads // groups  # heads of a group, R
        shape = (-1, tokens, groups, shared + 2, self.head_size)
        qkv = ops.reshape(self.qkv(inputs), shape)
        qkv = ops.transpose(qkv, (3, 0, 2, 1, 4))  # [R + 2, B, G, T, E]
        *query, key, value = ops.unstack(qkv, axis=0)

        def join(heads):  # R times [B, G, T, E]
            x = ops.stack(heads, axis=2)
            return ops.reshape(x, (-1, self.num_heads, tokens, self.head_size))

        return join(query), join([key] * shared), join([value] * shared)

    def _turn(self, query, key):
        if self.mixed_grid is None:
            return super()._turn(query, key)
        frequencies = at_least_float32(self.frequencies)
        places = constant(self._places, frequencies.dtype)
        angles = ops.einsum("pt,pae->ate", places, frequencies)
        angles = ops.repeat(angles, 2, axis=-1)  # [A, T, E]
        cos = ops.cast(ops.cos(angles), query.dtype)
        sin = ops.cast(ops.sin(angles), query.dtype)
        return tuple(rotary.rotate(x, cos, sin, "index") for x in (query, key))


@architecture
class DINOv3Config(encoder.EncoderConfig):
    """The architecture of DINOv3 or another ViT with rotary positions.

    Args:
        pooling: What the head reads: "token", the class token; "gap", the
            mean of the patches; "gap_norm", the same before the last
            LayerNorm. "token".
        class_token: Whether there is a class token; True.
        num_registers: Number of register tokens; 4.
        rotary: Rotary positions: "centered" (DINOv3), "index" or "mixed"
            (learned frequencies); "centered".
        rotary_theta: Base of their frequencies; 100.
        rotary_reference: Grid onto which indices are stretched, such as (16,
            16); None.
        rotary_offset: Added to indices; 0.
        rotary_order: "ij" for rows first, or "xy"; "ij".
        positions: Whether there are learned positions as well; False.
        position_prefix: Number of tokens before the patches that have a
            learned position; 0.
        activation: Of the MLPs: "gelu", "gelu_tanh", "quick_gelu" or "swiglu";
            "gelu".
        layer_scale: First value of LayerScale; 0 without it; 1e-5.
        qkv_bias: Biases of the projections: "qkv", "qv" or "none"; "qv".
        norm: Kind of the norms, "layer" or "rms" (Sapiens 2); "layer".
        query_key_norm: Whether a norm follows each query and each key; False.
        mlp_scale: Whether LayerScale is that of the MLPs as well; True.
        num_kv_heads: Heads of keys and values, each shared by a group of
            heads; 0 for `num_heads`; 0.
        num_full_blocks: Number of blocks at the beginning, and at the end,
            whose heads share none; 0.
        layer_norm_epsilon: Epsilon of every LayerNorm; 1e-5.
    """

    pooling: Literal["token", "gap", "gap_norm"] = "token"
    class_token: bool = True
    num_registers: Natural = 4
    rotary: Literal["centered", "index", "mixed"] = "centered"
    rotary_theta: Positive = 100.0
    rotary_reference: tuple[Count, Count] | None = None
    rotary_offset: float = 0.0
    rotary_order: Order = "ij"
    positions: bool = False
    position_prefix: Natural = 0
    activation: Activation = "gelu"
    layer_scale: Rate = 1e-5
    qkv_bias: Bias = "qv"
    norm: Norm = "layer"
    query_key_norm: bool = False
    mlp_scale: bool = True
    num_kv_heads: Natural = 0
    num_full_blocks: Natural = 0
    layer_norm_epsilon: Epsilon = 1e-5

    def __post_init__(self):  # noqa: D105
        super().__post_init__()
        encoder.check_prefix(self)
        _check_groups(self.num_kv_heads, self.num_heads, self.qkv_bias)


class DINOv3Arguments(encoder.EncoderArguments, total=False):
    """The fields of `DINOv3Config`, as arguments."""

    pooling: Literal["token", "gap", "gap_norm"] | None
    class_token: bool | None
    num_registers: Natural | None
    rotary: Literal["centered", "index", "mixed"] | None
    rotary_theta: Positive | None
    rotary_reference: tuple[Count, Count] | None
    rotary_offset: float | None
    rotary_order: Order | None
    positions: bool | None
    position_prefix: Natural | None
    activation: Activation | None
    layer_scale: Rate | None
    qkv_bias: Bias | None
    norm: Norm | None
    query_key_norm: bool | None
    mlp_scale: bool | None
    num_kv_heads: Natural | None
    num_full_blocks: Natural | None


def forward(config: DINOv3Config, x: keras.KerasTensor) -> keras.KerasTensor:
    """Return the representation, `[B, D]`."""
    x, grid_size = encoder.embed(config, x)  # [B, N, D]
    x = encoder.add_prefix(config, x, grid_size, stddev=0.02)
    if config.rotary == "mixed":
        positions = dict(mixed_grid=grid_size)
    else:
        positions = dict(rotary=encoder.rotary(config, grid_size))
    num_full, num_layers = config.num_full_blocks, config.num_layers
    grouped = range(num_full, num_layers - num_full)
    x = encoder.encode(
        config,
        x,
        rescaled=True,
        attention=lambda i: dict(
            positions,
            layer="DINOv3Attention",
            num_kv_heads=config.num_kv_heads if i in grouped else 0,
        ),
    )
    return encoder.read_out(
        config, x, config.class_token + config.num_registers
    )


VARIANTS: dict[str, dict] = {
    # Distilled from the model of 7B parameters.
    "DINOv3S16": dict(patch_size=16, **encoder.SMALL),
    "DINOv3S16Plus": dict(patch_size=16, activation="swiglu", **encoder.SMALL),
    "DINOv3B16": dict(patch_size=16, **encoder.BASE),
    "DINOv3L16": dict(patch_size=16, **encoder.LARGE),
    "DINOv3H16Plus": dict(
        patch_size=16,
        hidden_size=1280,
        num_layers=32,
        num_heads=20,
        mlp_dim=5120,
        activation="swiglu",
    ),
}

FAMILY = encoder.family(
    "dinov3", "DINOv3", DINOv3Config, forward, variants=VARIANTS
)


def DINOv3(**kwargs: Unpack[DINOv3Arguments]) -> ImageModel:
    """Build a DINOv3, or ViT with rotary positions, of any size."""
    return construct(FAMILY, "DINOv3", kwargs)


def DINOv3S16(**kwargs: Unpack[DINOv3Arguments]) -> ImageModel:
    """ViT-S/16 of DINOv3."""
    return construct(FAMILY, "DINOv3S16", kwargs)


def DINOv3S16Plus(**kwargs: Unpack[DINOv3Arguments]) -> ImageModel:
    """ViT-S+/16 of DINOv3."""
    return construct(FAMILY, "DINOv3S16Plus", kwargs)


def DINOv3B16(**kwargs: Unpack[DINOv3Arguments]) -> ImageModel:
    """ViT-B/16 of DINOv3."""
    return construct(FAMILY, "DINOv3B16", kwargs)


def DINOv3L16(**kwargs: Unpack[DINOv3Arguments]) -> ImageModel:
    """ViT-L/16 of DINOv3."""
    return construct(FAMILY, "DINOv3L16", kwargs)


def DINOv3H16Plus(**kwargs: Unpack[DINOv3Arguments]) -> ImageModel:
    """ViT-H+/16 of DINOv3."""
    return construct(FAMILY, "DINOv3H16Plus", kwargs)
