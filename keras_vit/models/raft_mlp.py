"""RaftMLP: a pyramid of MLPs along columns, rows and channels.

Tatsunami and Taki 2021, "RaftMLP: How Much Can Be Done Without Attention and
with Less Spatial Locality?" (2108.04384), checked against libs/modules.py of
okojoalg/raft-mlp. Differences: maps are channels-last, and the embeddings of
several scales are convolutions that share one bias.
"""

from typing import Literal, Unpack

import keras
from keras import ops

from keras_vit import layers
from keras_vit._arguments import Count, Pair, Positive, Rate, as_pair, checked
from keras_vit.layers import mlp_block
from keras_vit.layers.base import ResidualBlock
from keras_vit.layers.keras_layers import uniform
from keras_vit.layers.mlp_block import Activation
from keras_vit.models.arguments import ModelArguments
from keras_vit.models.construct import construct
from keras_vit.models.families import architecture, check_levels, register
from keras_vit.models.image_model import ImageModel
from keras_vit.models.raft_mlp_embedding import (
    MultiScaleEmbedding,
    is_size,
    resize_bicubic,
)

__all__ = ["RaftMLP", "RaftMLPS", "RaftMLPM", "RaftMLPL"]

EPSILON = 1e-5  # of every LayerNorm, PyTorch's default


@keras.saving.register_keras_serializable(package="keras_vit")
class RaftMLPMlp(layers.MlpBlock):
    """The MLP of ViT with exact GELU and the initialisers of PyTorch.

    Args:
        mlp_dim: Width of the hidden layer.
        dropout_rate: Share of activations set to zero in training.
        activation: See `MlpBlock`.

    Input shape: `[..., D]`
    Output shape: `[..., D]`

    Reference:
        `Block` in libs/modules.py.
    """

    @checked
    def __init__(
        self,
        mlp_dim: Count,
        dropout_rate: Rate = 0.0,
        activation: Activation = "gelu",
        **kwargs,
    ):
        super().__init__(mlp_dim, dropout_rate, activation, **kwargs)

    def initializers(self, fan_in, stddev):
        return dict(
            kernel_initializer=uniform(fan_in), bias_initializer=uniform(fan_in)
        )


@keras.saving.register_keras_serializable(package="keras_vit")
class RaftMLPBlock(ResidualBlock):
    """Mixes tokens along columns, then along rows, then mixes channels.

        u = x + MLP_vertical(LN(x))
        v = u + MLP_horizontal(LN(u))
        y = v + MLP_channels(LN(v))

    The D channels form r rafts of D / r channels. Along an axis of n tokens,
    the MLP mixes the r n values of a channel in all rafts. The MLPs along axes
    have a fixed number of tokens; a map of another size, its residual included,
    is resized before and after them.

    Args:
        grid_size: (height, width) in tokens for which the MLPs are built.
        raft_size: Number of rafts r; None mixes all tokens of a channel at
            once, as MLP-Mixer does.
        tokens_mlp_ratio: Hidden width of the MLPs over tokens, as a
            multiple of their input.
        mlp_ratio: The same for the MLP over channels.
        dropout_rate: Dropout after each dense layer.
        **kwargs: Arguments of `ResidualBlock`, and of layers.

    Input shape: `[B, H, W, D]`
    Output shape: `[B, H, W, D]`

    Raises:
        ValueError: If D is not a multiple of `raft_size`.

    Reference:
        Tatsunami and Taki 2021, section 3.2; checked against
        `SerialPermutedLevel` and `OriginalLevel` in libs/modules.py.
    """

    SHARDED = mlp_block.sharded("channels")

    @checked
    def __init__(
        self,
        grid_size: Pair,
        raft_size: Count | None = 2,
        tokens_mlp_ratio: Positive = 2,
        mlp_ratio: Positive = 4,
        dropout_rate: Rate = 0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.grid_size = as_pair(grid_size)
        self.raft_size = raft_size
        self.tokens_mlp_ratio = tokens_mlp_ratio
        self.mlp_ratio = mlp_ratio
        self.dropout_rate = dropout_rate

    def build(self, input_shape):
        width = input_shape[-1]
        if self.raft_size and width % self.raft_size:
            raise ValueError(
                f"RaftMLPBlock `{self.name}` needs a width that is a multiple "
                f"of `raft_size`. Received: width={width}, "
                f"raft_size={self.raft_size}"
            )

        def branch(name, length, factor):
            norm = self.make_norm(f"{name}_norm", input_shape, EPSILON)
            mlp = self.make(
                RaftMLPMlp,
                int(factor * length),
                self.dropout_rate,
                name=name,
                shape=(None, length),
            )
            return norm, mlp

        rows, columns = self.grid_size
        lengths = {"tokens": rows * columns}
        if self.raft_size:
            lengths = dict(
                vertical=self.raft_size * rows,
                horizontal=self.raft_size * columns,
            )
        factor = self.tokens_mlp_ratio
        branches = [branch(*item, factor) for item in lengths.items()]
        self.token_norms, self.token_mlps = map(
            list, zip(*branches, strict=True)
        )
        self.channel_norm, self.channel_mlp = branch(
            "channels", width, self.mlp_ratio
        )
        self.mlp_dim = self.channel_mlp.mlp_dim
        self.drop_path = self.make_drop_path(self.drop_path_rate, 4)

    def _forward(self, x, training):
        size = ops.shape(x)[1:3]
        fits = is_size(size, self.grid_size)
        if not fits:
            x = resize_bicubic(x, self.grid_size)
        for norm, mlp in zip(self.token_norms, self.token_mlps, strict=True):
            y = self._mix(norm(x), mlp, training)
            x = x + self.drop_path(y, training=training)
        if not fits:
            x = resize_bicubic(x, size)
        y = self.channel_mlp(self.channel_norm(x), training=training)
        return x + self.drop_path(y, training=training)

    def token_kernels(self) -> dict:
        """Return MLP -> (kernel over tokens, the shape of its inputs)."""
        rows, columns = self.grid_size
        shapes = {
            "tokens": (rows, columns),
            "vertical": (self.raft_size, rows),
            "horizontal": (self.raft_size, columns),
        }
        return {
            mlp.name: (mlp.dense_0.kernel, shapes[mlp.name])
            for mlp in self.token_mlps
        }

    def _mix(self, x, mlp, training):
        """Apply an MLP to the vectors along an axis, across all rafts."""
        (rows, columns), width = self.grid_size, x.shape[-1]
        rafts = self.raft_size or 1
        x = ops.reshape(x, (-1, rows, columns, rafts, width // rafts))
        # The mixed axes come last: rafts and rows, rafts and columns, or all.
        order = {
            "vertical": (0, 2, 4, 3, 1),
            "horizontal": (0, 1, 4, 3, 2),
            "tokens": (0, 3, 4, 1, 2),
        }[mlp.name]
        x = ops.transpose(x, order)
        shape = x.shape[1:]
        x = ops.reshape(x, (-1, *shape[:2], shape[2] * shape[3]))
        x = ops.reshape(mlp(x, training=training), (-1, *shape))
        x = ops.transpose(x, [order.index(axis) for axis in range(5)])
        return ops.reshape(x, (-1, rows, columns, width))


@architecture
class RaftMLPConfig:
    """The architecture of a RaftMLP, in the terms of the authors' configs.

    Args:
        depths: Number of blocks in each level.
        hidden_sizes: Width D of each level.
        patch_sizes: Side P of each level's patches, in cells of the map before
            it.
        raft_sizes: Number of rafts r in each level; none with "original_tm".
        embedding_type: "emb_mixer" embeds only the patches, "emb_cross_mlp"
            windows of several sizes around them; "emb_mixer".
        embedding_kernels: Sides of these windows in each level, from P on.
        token_mixing_type: "ser_pm" mixes rafts along columns and then along
            rows; "original_tm" all tokens, as MLP-Mixer; "ser_pm".
        shortcut: Whether each level scales and shifts the features that the
            next one passes to the head; False.
        pretrained_image_size: Side, or (height, width), of the images for whose
            token grids the MLPs are built; maps of other images are resized to
            these grids. Default: the input shape.
        tokens_mlp_ratio: Hidden width of the MLPs over tokens, as a
            multiple of their input; 2.
        mlp_ratio: The same for the MLPs over channels; 4.
        dropout_rate: Dropout after each dense layer of the blocks.
        drop_path_rate: Stochastic depth, the same in all blocks.
    """

    depths: tuple[Count, ...]
    hidden_sizes: tuple[Count, ...]
    patch_sizes: tuple[Count, ...]
    raft_sizes: tuple[Count, ...] | None = None
    embedding_type: Literal["emb_mixer", "emb_cross_mlp"] = "emb_mixer"
    embedding_kernels: tuple[tuple[Count, ...], ...] | None = None
    token_mixing_type: Literal["ser_pm", "original_tm"] = "ser_pm"
    shortcut: bool = False
    pretrained_image_size: Pair | None = None
    tokens_mlp_ratio: Positive = 2
    mlp_ratio: Positive = 4
    dropout_rate: Rate = 0.0
    drop_path_rate: Rate = 0.0

    def __post_init__(self):  # noqa: D105
        if isinstance(self.embedding_kernels, (list, tuple)):  # JSON's lists
            kernels = tuple(
                tuple(k) if isinstance(k, list) else k
                for k in self.embedding_kernels
            )
            object.__setattr__(self, "embedding_kernels", kernels)
        self._check_levels()

    def _check_levels(self):
        given = {"hidden_sizes": True, "patch_sizes": True}
        for name, field, value in (
            ("raft_sizes", "token_mixing_type", "ser_pm"),
            ("embedding_kernels", "embedding_type", "emb_cross_mlp"),
        ):
            given[name] = getattr(self, name) is not None
            if given[name] != (getattr(self, field) == value):
                raise ValueError(
                    f"`{name}` must be given with {field}={value!r}, and only "
                    f"with it. Received: {name}={getattr(self, name)}, "
                    f"{field}={getattr(self, field)!r}"
                )
        check_levels(self, *filter(given.get, given))
        for kernels, patch in zip(self.kernels, self.patch_sizes, strict=True):
            odd = any(k < patch or (k - patch) % 2 for k in kernels)
            if odd or not kernels:
                raise ValueError(
                    "`embedding_kernels` must be the patch of the level, or "
                    "larger by an even number. Received: embedding_kernels="
                    f"{self.embedding_kernels}, patch_sizes={self.patch_sizes}"
                )

    @property
    def kernels(self) -> tuple[tuple[int, ...], ...]:
        """The sides of the windows that each level embeds."""
        return self.embedding_kernels or tuple((p,) for p in self.patch_sizes)


class RaftMLPArguments(ModelArguments, total=False):
    """The fields of `RaftMLPConfig`, as arguments."""

    depths: tuple[Count, ...] | None
    hidden_sizes: tuple[Count, ...] | None
    patch_sizes: tuple[Count, ...] | None
    raft_sizes: tuple[Count, ...] | None
    embedding_type: Literal["emb_mixer", "emb_cross_mlp"] | None
    embedding_kernels: tuple[tuple[Count, ...], ...] | None
    token_mixing_type: Literal["ser_pm", "original_tm"] | None
    shortcut: bool | None
    pretrained_image_size: Pair | None
    tokens_mlp_ratio: Positive | None
    mlp_ratio: Positive | None
    dropout_rate: Rate | None
    drop_path_rate: Rate | None


def forward(config: RaftMLPConfig, x: keras.KerasTensor) -> keras.KerasTensor:
    """Return the representation, `[B, D]` of the last level."""
    size = config.pretrained_image_size or tuple(x.shape[1:3])
    if size == tuple(x.shape[1:3]) and None in size:
        raise ValueError(
            "`pretrained_image_size` must be given where `input_shape` leaves "
            f"height or width open. Received: input_shape={tuple(x.shape[1:])}"
        )
    size, heads = as_pair(size), []
    for i, (depth, width, patch, kernels) in enumerate(
        zip(
            config.depths,
            config.hidden_sizes,
            config.patch_sizes,
            config.kernels,
            strict=True,
        )
    ):
        x = MultiScaleEmbedding(
            patch, width, kernels, name=f"level{i}_embedding"
        )(x)  # [B, ceil(H / P), ceil(W / P), D]
        size = (-(-size[0] // patch), -(-size[1] // patch))
        for j in range(depth):
            x = RaftMLPBlock(
                size,
                config.raft_sizes[i] if config.raft_sizes else None,
                config.tokens_mlp_ratio,
                config.mlp_ratio,
                config.dropout_rate,
                drop_path_rate=config.drop_path_rate,
                name=f"level{i}_block{j}",
            )(x)
        is_last = i + 1 == len(config.depths)
        if config.shortcut or is_last:
            head = keras.layers.LayerNormalization(
                epsilon=EPSILON, name=f"level{i}_norm"
            )(x)
            head = ops.mean(head, axis=(1, 2))
            if not is_last:
                head = keras.layers.Dense(
                    2 * config.hidden_sizes[-1],
                    kernel_initializer=uniform(width),
                    bias_initializer=uniform(width),
                    name=f"level{i}_shortcut",
                )(head)
            heads.append(head)
    y = heads.pop()
    for head in reversed(heads):
        scale, shift = ops.split(head, 2, axis=-1)
        y = scale * y + shift
    return y  # [B, D]


_PYRAMID = dict(
    depths=(2, 2, 6, 2),
    patch_sizes=(4, 2, 2, 2),
    raft_sizes=(2, 2, 2, 2),
    embedding_type="emb_cross_mlp",
    embedding_kernels=((4, 8), (2, 4), (2, 4), (2,)),
)
# Table 1; L's second width is not twice the first.
VARIANTS = {
    "RaftMLPS": dict(hidden_sizes=(64, 128, 256, 512), **_PYRAMID),
    "RaftMLPM": dict(hidden_sizes=(96, 192, 384, 768), **_PYRAMID),
    "RaftMLPL": dict(hidden_sizes=(128, 192, 512, 1024), **_PYRAMID),
}
FAMILY = register(
    "raft_mlp",
    "RaftMLP",
    RaftMLPConfig,
    forward,
    RaftMLPBlock,
    VARIANTS,
    layers=r"level\d+_(?:embedding|norm|shortcut|block\d+(?:/[^/]+)?)",
    small=dict(
        depths=(2, 2),
        hidden_sizes=(64, 112),
        patch_sizes=(4, 2),
        raft_sizes=(2, 2),
        embedding_type="emb_cross_mlp",
        embedding_kernels=((4, 8), (2, 4)),
    ),
)


def RaftMLP(**kwargs: Unpack[RaftMLPArguments]) -> ImageModel:
    """Build a RaftMLP of any size."""
    return construct(FAMILY, "RaftMLP", kwargs)


def RaftMLPS(**kwargs: Unpack[RaftMLPArguments]) -> ImageModel:
    """RaftMLP-S of Table 1."""
    return construct(FAMILY, "RaftMLPS", kwargs)


def RaftMLPM(**kwargs: Unpack[RaftMLPArguments]) -> ImageModel:
    """RaftMLP-M of Table 1."""
    return construct(FAMILY, "RaftMLPM", kwargs)


def RaftMLPL(**kwargs: Unpack[RaftMLPArguments]) -> ImageModel:
    """RaftMLP-L of Table 1."""
    return construct(FAMILY, "RaftMLPL", kwargs)
