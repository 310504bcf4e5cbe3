"""The image tower of SigLIP 2 for images of any shape (NaFlex).

Tschannen et al. 2025, "SigLIP 2" (2502.14786), section 2.4.2. Checked against
siglip2 of transformers 5.24. An image keeps its shape: it is resized to at most
so many patches, whose positions are resampled to its grid, and the rest of the
sequence is padding, which a mask hides.
"""

import dataclasses
import math
from collections.abc import Sequence

import keras
import numpy as np
from keras import ops

from keras_vit import layers
from keras_vit._arguments import Count, as_pair, checked
from keras_vit.models import encoder
from keras_vit.models.image_model import QuantizableModel
from keras_vit.models.siglip import SigLIPConfig
from keras_vit.ops.dtypes import at_least_float32
from keras_vit.weights import resize

INPUTS = ("patches", "mask", "grids")


@keras.saving.register_keras_serializable(package="keras_vit")
class FlexiblePatches(keras.layers.Layer):
    """Projects the pixels of patches to tokens.

    Args:
        patch_size: (height, width) of a patch.
        channels: Channels C of a pixel.
        hidden_size: Width D of a token.

    Input shape: `[B, N, height x width x C]`
    Output shape: `[B, N, D]`
    """

    @checked
    def __init__(
        self,
        patch_size: tuple[Count, Count],
        channels: Count,
        hidden_size: Count,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.patch_size = tuple(patch_size)
        self.channels = channels
        self.hidden_size = hidden_size

    def build(self, input_shape):
        shape = (*self.patch_size, self.channels, self.hidden_size)
        fan_in = math.prod(shape[:-1])
        normal = keras.initializers.RandomNormal(stddev=fan_in**-0.5)
        self.kernel = self.add_weight(
            name="kernel", shape=shape, initializer=normal
        )
        self.bias = self.add_weight(
            name="bias", shape=shape[-1:], initializer="zeros"
        )

    def call(self, inputs):
        kernel = ops.reshape(self.kernel, (-1, self.hidden_size))
        return ops.matmul(inputs, kernel) + self.bias

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.hidden_size)


@keras.saving.register_keras_serializable(package="keras_vit")
class FlexiblePositions(keras.layers.Layer):
    """Adds positions that are resampled to the grid of each image.

    They are resampled bilinearly, with antialiasing, as PyTorch does: each is a
    mean of the table, with weights that fall linearly in rows and columns.

    Args:
        grid_size: (rows, columns) of the table.

    Call arguments:
        inputs: `[B, N, D]`
        grids: (rows, columns) of each image, `[B, 2]`

    Output shape: `[B, N, D]`
    """

    @checked
    def __init__(self, grid_size: tuple[Count, Count], **kwargs):
        super().__init__(**kwargs)
        self.grid_size = tuple(grid_size)

    def build(self, inputs_shape, grids_shape=None):
        self.pos_embedding = self.add_weight(
            name="pos_embedding",
            shape=(1, math.prod(self.grid_size), inputs_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
        )

    def call(self, inputs, grids):
        grids = ops.cast(grids, "float32")
        number = ops.arange(inputs.shape[1], dtype="float32")[None]  # [1, N]
        rows, columns = grids[:, :1], grids[:, 1:]
        # The centre of a patch is a half, so that no rounding moves a row.
        row = ops.floor((number + 0.5) / columns)  # [B, N]
        column = number - row * columns
        by_row = _weights(row, rows, self.grid_size[0])
        by_column = _weights(column, columns, self.grid_size[1])
        weights = by_row[..., :, None] * by_column[..., None, :]
        size = math.prod(self.grid_size)
        weights = ops.reshape(weights, (-1, inputs.shape[1], size))
        table = at_least_float32(self.pos_embedding[0])
        return inputs + ops.cast(ops.matmul(weights, table), inputs.dtype)

    def compute_output_shape(self, inputs_shape, grids_shape=None):
        return inputs_shape


def _weights(place, sizes, source):
    """Return the weight of each of `source` places, `[B, N, source]`.

    Args:
        place: Of a patch, `[B, N]`.
        sizes: The number of places in an image, `[B, 1]`.
        source: That of the table.
    """
    scale = source / sizes
    reach = ops.maximum(scale, 1.0)[..., None]
    # Padding is behind the last place: it takes that.
    place = ops.minimum(place, sizes - 1.0)
    centre = ((place + 0.5) * scale - 0.5)[..., None]
    there = ops.arange(source, dtype="float32")
    x = ops.maximum(1.0 - ops.abs(there - centre) / reach, 0.0)
    return x / ops.sum(x, axis=-1, keepdims=True)


@keras.saving.register_keras_serializable(package="keras_vit")
class HidePadding(keras.layers.Layer):
    """Returns what hides padding, added to the logits of attention.

    Input shape: `[B, N]`, 1 of patches and 0 of padding
    Output shape: `[B, 1, 1, N]`
    """

    def call(self, inputs):
        hidden = 1.0 - ops.cast(inputs, self.compute_dtype)
        return hidden[:, None, None] * -3e4  # which float16 can hold

    def compute_output_shape(self, input_shape):
        return (input_shape[0], 1, 1, input_shape[1])

    def compute_output_spec(self, inputs):
        shape = self.compute_output_shape(inputs.shape)
        return keras.KerasTensor(shape, self.compute_dtype)


@keras.saving.register_keras_serializable(package="keras_vit")
class NaFlexModel(QuantizableModel):
    """A functional model from the patches of images of any shape.

    Its inputs are "patches", `[B, N, P x P x C]`, of scaled pixels; "mask",
    `[B, N]`, 1 of patches and 0 of padding; and "grids", `[B, 2]`, (rows,
    columns) of each image. `patches` makes them of images.
    """

    @property
    def max_patches(self) -> int:
        """The most patches N of an image."""
        return self.input["patches"].shape[1]

    @property
    def blocks(self) -> list[keras.layers.Layer]:
        """Its blocks, from the input on."""
        return [x for x in self.layers if isinstance(x, encoder.EncoderBlock)]

    @property
    def file_family(self) -> str:
        """Name of the rules of its files, a key of `weights.rules.FAMILIES`."""
        return "siglip2"

    @property
    def metadata(self) -> dict:
        """Its architecture, as the metadata of a checkpoint."""
        embedding = self.get_layer("embedding")
        grid = self.get_layer("posembed_input").grid_size
        patch = embedding.patch_size
        return dict(self._metadata.architecture) | dict(
            classes=None,
            image_size=(grid[0] * patch[0], grid[1] * patch[1]),
            grid=grid,
            max_patches=self.max_patches,
            channels=embedding.channels,
            pixel_mean=self._metadata.pixel_mean,
            pixel_std=self._metadata.pixel_std,
        )

    def patches(self, images: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Return the inputs of images of any shape.

        Each is resized, in its shape, to as many patches as are allowed.

        Args:
            images: Pixels in [0, 255], each `[H, W, C]`.

        Raises:
            ValueError: If one is no such array.
        """
        found = [self._patches_of(image) for image in images]
        length = self.max_patches
        patches = np.zeros((len(found), *self.input["patches"].shape[1:]))
        mask = np.zeros((len(found), length), "int32")
        for i, (pixels, _) in enumerate(found):
            patches[i, : len(pixels)] = pixels
            mask[i, : len(pixels)] = 1
        grids = np.array([grid for _, grid in found], "int32")
        return dict(patches=patches.astype("float32"), mask=mask, grids=grids)

    def _patches_of(self, image):
        embedding = self.get_layer("embedding")
        (height, width), channels = embedding.patch_size, embedding.channels
        image = np.asarray(image, "float32")
        right = image.ndim == 3 and image.shape[-1] == channels
        if not right or not image.size:
            raise ValueError(
                f"`images` must be of shape [H, W, {channels}] each, and have "
                f"pixels. Received: shape {image.shape}"
            )
        size = size_of(image.shape[:2], (height, width), self.max_patches)
        # As Pillow, by columns and then by rows, of whole numbers.
        pixels = _whole(resize.resize_pixels(image, (len(image), size[1])))
        pixels = _whole(resize.resize_pixels(pixels, size))
        pixels = (pixels - self._metadata.pixel_mean) / self._metadata.pixel_std
        rows, columns = size[0] // height, size[1] // width
        x = pixels.reshape(rows, height, columns, width, channels)
        x = x.transpose(0, 2, 1, 3, 4).reshape(rows * columns, -1)
        return x, (rows, columns)

    @property
    def _metadata(self):
        return self.get_layer("metadata")


def _whole(pixels):
    """Return the nearest whole numbers, halves rounded up."""
    return np.floor(pixels + 0.5)


def size_of(
    size: tuple[int, int], patch_size: tuple[int, int], max_patches: int
) -> tuple[int, int]:
    """Return the largest size of an image with so many patches.

    Its sides are multiples of the patch, nearly in the shape of the image.

    Args:
        size: (height, width) of the image.
        patch_size: (height, width) of a patch.
        max_patches: The most patches.

    Reference:
        `get_image_size_for_max_num_patches` of transformers, whose search for
        the scale this repeats, since its last digits decide.
    """

    def grid(scale):
        pairs = zip(size, patch_size, strict=True)
        return [math.ceil(n * scale / p) for n, p in pairs]

    low, high = 1e-6, 100.0
    while high - low >= 1e-5:
        middle = (low + high) / 2
        if math.prod(grid(middle)) <= max_patches:
            low = middle
        else:
            high = middle
    rows, columns = grid(low)
    return rows * patch_size[0], columns * patch_size[1]


@checked
def naflex_tower(
    config: SigLIPConfig,
    grid_size: tuple[int, int],
    *,
    max_patches: Count | None = None,
    channels: Count = 3,
    pixel_mean: float | Sequence[float] = 127.5,
    pixel_std: float | Sequence[float] = 127.5,
    provenance: str | None = None,
) -> NaFlexModel:
    """Build the image tower of a SigLIP 2 for images of any shape.

    Args:
        config: The architecture.
        grid_size: (rows, columns) of its table of positions.
        max_patches: The most patches of an image; as many as the table has.
        channels: Channels of a pixel.
        pixel_mean, pixel_std: What pixels are scaled by.
        provenance: Where the weights come from.
    """
    height, width = as_pair(config.patch_size)
    length = max_patches or math.prod(grid_size)
    patches = keras.Input((length, height * width * channels), name="patches")
    mask = keras.Input((length,), name="mask", dtype="int32")
    grids = keras.Input((2,), name="grids", dtype="int32")
    x = FlexiblePatches(
        (height, width), channels, config.hidden_size, name="embedding"
    )(patches)
    x = FlexiblePositions(grid_size, name="posembed_input")(x, grids)
    hidden = HidePadding(name="hide_padding", dtype="float32")(mask)
    x = encoder.encode(config, x, attention_bias=hidden)
    x = encoder.norm(config, "encoder_norm")(x)
    x = layers.AttentionPooling(
        config.num_heads,
        config.mlp_dim,
        activation=config.activation,
        layer_norm_epsilon=config.layer_norm_epsilon,
        name="attention_pooling",
    )(x, bias=hidden)
    x = layers.Metadata(
        "siglip",
        dataclasses.asdict(config),
        pixel_mean,
        pixel_std,
        provenance=provenance,
        name="metadata",
    )(x)
    inputs = dict(zip(INPUTS, (patches, mask, grids), strict=True))
    return NaFlexModel(inputs, x, name="image_tower")
