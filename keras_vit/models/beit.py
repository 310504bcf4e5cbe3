"""BEiT, BEiT v2 and other ViTs with relative positions.

Bao et al. 2022, "BEiT: BERT Pre-Training of Image Transformers" (2106.08254);
Peng et al. 2022, "BEiT v2" (2208.06366). Checked against timm/models/beit.py,
vision_transformer_relpos.py there, and beit of transformers. A ViT with
LayerScale, in whose blocks the distance between two patches biases their
attention.
"""

from typing import Literal, Unpack

import keras
import numpy as np
from keras import ops

from keras_vit import layers
from keras_vit._arguments import Count, Natural, Rate, checked
from keras_vit.layers.core import Dense
from keras_vit.layers.mlp_block import Activation
from keras_vit.layers.multi_head_self_attention import Bias
from keras_vit.models import encoder
from keras_vit.models.construct import construct
from keras_vit.models.families import architecture
from keras_vit.models.image_model import ImageModel
from keras_vit.ops.common import at_least_float32, constant

__all__ = ["BEiT", "BEiTB16", "BEiTL16"]


def distances(grid: tuple[int, int]) -> np.ndarray:
    """Return the row of a table of distances for each pair, `[N, N]`.

    The table has the rows of [-(H - 1), H - 1] x [-(W - 1), W - 1].

    Args:
        grid: (rows, columns) of the patches, H and W.
    """
    rows, columns = grid
    places = np.stack(np.meshgrid(*map(np.arange, grid), indexing="ij"))
    places = places.reshape(2, -1)
    across = places[:, :, None] - places[:, None]  # [2, N, N]
    index = (across[0] + rows - 1) * (2 * columns - 1)
    return index + across[1] + columns - 1


def with_class_token(grid: tuple[int, int]) -> np.ndarray:
    """Return `distances` of a class token and patches, `[N + 1, N + 1]`.

    The last three rows of the table are those of the class token: to patches,
    from patches, to itself.
    """
    rows, columns = grid
    last = (2 * rows - 1) * (2 * columns - 1)
    index = np.pad(distances(grid), ((1, 0), (1, 0)))
    index[0, :], index[:, 0], index[0, 0] = last, last + 1, last + 2
    return index


def log_distances(grid: tuple[int, int]) -> np.ndarray:
    """Return sign(d) log(1 + |d|) of each row of the table, on both axes."""
    rows, columns = (np.arange(1.0 - n, n) for n in grid)
    table = np.stack(np.meshgrid(rows, columns, indexing="ij"), axis=-1)
    logs = np.sign(table) * np.log1p(np.abs(table))
    return logs.reshape(-1, 2).astype("float32")


@keras.saving.register_keras_serializable(package="keras_vit")
class BEiTAttention(layers.MultiHeadSelfAttention):
    """Self-attention whose scores have a bias by the distance of patches.

    Each head has its own, which is learned (BEiT), or computed by an MLP (Liu
    et al. 2022, 2111.09883).

    Args:
        num_heads: Number of heads A; divides the token width D.
        grid_size: (rows, columns) of the patches, which are the last tokens.
        relative_dim: Hidden units of the MLP, whose bias is 0 for other tokens
            than patches; 0 for a learned table, of a class token and patches.
        **kwargs: Further arguments of `MultiHeadSelfAttention`.

    Input shape: `[B, T, D]`
    Output shape: `[B, T, D]`

    Raises:
        ValueError: If other tokens than one precede the patches of a table.

    Reference:
        Checked against `Attention` in timm/models/beit.py and `RelPosMlp` in
        timm/layers/pos_embed_rel.py.
    """

    adds_to_scores = True

    @checked
    def __init__(
        self,
        num_heads: Count,
        grid_size: tuple[Count, Count],
        relative_dim: Natural = 0,
        **kwargs,
    ):
        super().__init__(num_heads, **kwargs)
        rows, columns = grid_size
        self.grid_size = (rows, columns)
        self.relative_dim = relative_dim

    def build(self, input_shape):
        super().build(input_shape)
        self._token_shape = tuple(input_shape[1:])
        self._sequence_length = input_shape[1]
        if self.relative_dim:
            self._build_mlp()
        else:
            self._build_table(input_shape[1])

    def _build_mlp(self):
        self._distances = distances(self.grid_size)
        self._logs = log_distances(self.grid_size)
        self.relative_0, self.relative_1 = (
            self.make(
                Dense,
                units,
                activation=function,
                kernel_initializer=keras.initializers.RandomNormal(stddev=0.02),
                name=name,
            )
            for units, function, name in (
                (self.relative_dim, "relu", "relative_0"),
                (self.num_heads, None, "relative_1"),
            )
        )
        self.relative_0.build((None, 2))
        self.relative_1.build((None, self.relative_dim))

    def _build_table(self, tokens):
        rows, columns = self.grid_size
        if tokens != rows * columns + 1:
            raise ValueError(
                "`relative_dim` must be positive unless one class token "
                f"precedes the patches. Received: {tokens} tokens, of a grid "
                f"of {self.grid_size}"
            )
        self._distances = with_class_token(self.grid_size)
        self.relative_bias = self.add_weight(
            name="relative_bias",
            shape=((2 * rows - 1) * (2 * columns - 1) + 3, self.num_heads),
            initializer="zeros",
        )

    def _scores(self, query, key):
        logits = at_least_float32(super()._scores(query, key))
        return logits + self._bias(logits.dtype)

    def _bias(self, dtype):
        """Return the bias of the scores by distance, `[A, T, T]`."""
        if self.relative_dim:
            logs = constant(self._logs, self.compute_dtype)
            table = self.relative_1(self.relative_0(logs))
        else:
            table = self.relative_bias
        places = constant(self._distances.reshape(-1))
        bias = ops.take(ops.cast(table, dtype), places, axis=0)
        bias = ops.reshape(bias, (*self._distances.shape, self.num_heads))
        prefix = (self._sequence_length - len(self._distances), 0)
        return ops.pad(ops.transpose(bias, (2, 0, 1)), ((0, 0), prefix, prefix))


@architecture
class BEiTConfig(encoder.EncoderConfig):
    """The architecture of a BEiT.

    Args:
        pooling: What the head reads: "gap_norm", the mean of the patches,
            before the last LayerNorm; "gap", the mean after it; "token", the
            class token. "gap_norm".
        class_token: Whether there is a class token; True. BEiT needs it.
        relative_dim: Hidden units of the MLPs that compute the bias by
            distance (vit_relpos of timm); 0 for learned tables (BEiT); 0.
        post_norm: Whether the norms of a block follow its branches; False.
        activation: Of the MLPs: "gelu", "gelu_tanh", "quick_gelu" or "swiglu";
            "gelu".
        layer_scale: First value of LayerScale; 0 without it; 0.1.
        qkv_bias: Biases of the projections: "qkv", "qv" or "none"; "qv".
    """

    pooling: Literal["token", "gap", "gap_norm"] = "gap_norm"
    class_token: bool = True
    relative_dim: Natural = 0
    post_norm: bool = False
    activation: Activation = "gelu"
    layer_scale: Rate = 0.1
    qkv_bias: Bias = "qv"

    def __post_init__(self):  # noqa: D105
        super().__post_init__()
        encoder.check_prefix(self)
        if not (self.class_token or self.relative_dim):
            raise ValueError(
                "`class_token` must be True with relative_dim=0, since learned "
                "tables have rows of the class token. Received: "
                "class_token=False"
            )


class BEiTArguments(encoder.EncoderArguments, total=False):
    """The fields of `BEiTConfig`, as arguments."""

    pooling: Literal["token", "gap", "gap_norm"] | None
    class_token: bool | None
    relative_dim: Natural | None
    post_norm: bool | None
    activation: Activation | None
    layer_scale: Rate | None
    qkv_bias: Bias | None


def forward(config: BEiTConfig, x: keras.KerasTensor) -> keras.KerasTensor:
    """Return the representation, `[B, D]`."""
    x, grid_size = encoder.embed(config, x)  # [B, N, D]
    learned = not config.relative_dim  # BEiT's own
    if config.class_token:
        stddev = 0.02 if learned else 1e-6
        x = layers.ClassToken(stddev, name="class_token")(x)
    x = encoder.encode(
        config,
        x,
        rescaled=learned,
        attention=dict(
            layer="BEiTAttention",
            grid_size=grid_size,
            relative_dim=config.relative_dim,
        ),
    )
    return encoder.read_out(config, x, int(config.class_token))


VARIANTS = {
    "BEiTB16": dict(patch_size=16, **encoder.BASE),
    "BEiTL16": dict(patch_size=16, **encoder.LARGE),
}

FAMILY = encoder.family("beit", "BEiT", BEiTConfig, forward, variants=VARIANTS)


def BEiT(**kwargs: Unpack[BEiTArguments]) -> ImageModel:
    """Build a BEiT of any size."""
    return construct(FAMILY, "BEiT", kwargs)


def BEiTB16(**kwargs: Unpack[BEiTArguments]) -> ImageModel:
    """BEiT-B/16."""
    return construct(FAMILY, "BEiTB16", kwargs)


def BEiTL16(**kwargs: Unpack[BEiTArguments]) -> ImageModel:
    """BEiT-L/16."""
    return construct(FAMILY, "BEiTL16", kwargs)
