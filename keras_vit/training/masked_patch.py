"""Masked patch prediction: learning from images without labels (B.1.2).

The method of BERT for images: some patch embeddings are corrupted, and the
encoder must predict their content from the other patches. The data pipeline
draws which ones, and computes the targets; an element of `batches` is

    {"images": {"images", "sources"}, "labels": targets, "weights"}

and `sources` specifies for every position which embedding it gets: its own,
that of another patch, or the mask.
"""

import keras
from keras import ops

from keras_vit.data.optional_imports import tensorflow
from keras_vit.data.seeds import fold
from keras_vit.layers import PatchEmbedding
from keras_vit.models import ImageModel
from keras_vit.training.by_step import by_step

# Name -> colours per side of a patch that are predicted; 0 is each pixel.
TARGETS = {"mean_colour": 1, "downsized": 4, "pixels": 0}
# Shares of the corrupted patches that get the mask embedding, and that of
# another patch; the rest keep their own.
MASKED, REPLACED = 0.8, 0.1
# 3 bits a channel.
LEVELS = 8


@keras.saving.register_keras_serializable(package="keras_vit")
class MaskPatches(keras.layers.Layer):
    """Replaces some embeddings by others or by a learned one.

        y_i = x_{s_i},   x_N = the mask embedding

    Call arguments:
        inputs: Patch embeddings x, `[B, N, D]`.
        sources: Index s of the embedding that each patch gets, `[B, N]`,
            integers from 0 to N.

    Output shape: `[B, N, D]`

    Reference:
        Dosovitskiy et al. 2021, section B.1.2; Devlin et al. 2019, whose
        embeddings start as N(0, 0.02).
    """

    def build(self, inputs_shape, sources_shape):
        self.mask_embedding = self.add_weight(
            name="mask_embedding",
            shape=(1, 1, inputs_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
        )

    def call(self, inputs, sources):
        batch_size, _, width = ops.shape(inputs)
        mask = ops.broadcast_to(
            ops.cast(self.mask_embedding, inputs.dtype), (batch_size, 1, width)
        )
        x = ops.concatenate([inputs, mask], axis=1)  # [B, N + 1, D]
        return ops.take_along_axis(x, sources[..., None], axis=1)

    def compute_output_shape(self, inputs_shape, sources_shape):
        return inputs_shape


def predictor(model: keras.Model, target: str = "mean_colour") -> keras.Model:
    """Return a model to train, which predicts patches.

    It shares the layers of `model` up to the last norm. Training changes
    `model`, which is then saved; the mask embedding and the layer "patch_head"
    are used in training only.

    Args:
        model: A model of this package that takes pixels in [0, 255]. Build it
            with include_top=False: its head would not be trained.
        target: "mean_colour", the mean colour of a patch in 3 bits a channel;
            "downsized", the same of 4 x 4 parts of the patch, in parallel; or
            "pixels", scaled to [-1, 1].

    Input shape: {"images": `[B, H, W, C]`, "sources": `[B, N]`}, what
        `batches` gives.
    Output shape: `[B, N, 8**C]`, `[B, N, 16, 8**C]` logits, or
        `[B, N, P * P * C]` pixels.

    Raises:
        ValueError: If the target is unknown, if the model has no patches, or
            if it averages before its last LayerNorm.

    Example:
        vit = keras_vit.ViTB16(include_top=False)
        trained = masked_patch.predictor(vit)
        trained.compile("adam", masked_patch.loss("mean_colour"))
        images = data.train_batches(
            source, batch_size=64, image_size=(224, 224)
        )
        batches = masked_patch.batches(images, grid_size=(14, 14))
        trained.fit(data.as_pairs(batches), steps_per_epoch=1000)
        vit.save("pretrained.keras")

    Reference:
        Dosovitskiy et al. 2021, section B.1.2.
    """
    side = _side(target)
    encoder = masked_encoder(model)
    images, sources = (encoder.input[k] for k in ("images", "sources"))
    _, height, width, channels = images.shape
    patches = sources.shape[1]
    x = encoder.output
    classes = LEVELS**channels
    head = keras.layers.Dense(
        side**2 * classes if side else height * width * channels // patches,
        kernel_initializer="zeros",
        name="patch_head",
        dtype="float32",
    )
    x = head(x)
    if side > 1:
        x = keras.layers.Reshape((patches, side**2, classes), name="parts")(x)
    return keras.Model(encoder.input, x, name=model.name)


def masked_encoder(
    model: keras.Model, representation: bool = False
) -> keras.Model:
    """Return a model of patches of which some embeddings are replaced.

    It shares the layers of `model` up to the last norm.

    Args:
        model: See `predictor`.
        representation: Whether the output is the pair of the model's
            representation, `[B, D]`, and the patches.

    Input shape: See `predictor`.
    Output shape: `[B, N, D]`, the patches after the last norm.

    Raises:
        ValueError: If the model has no patches, or averages before its last
            LayerNorm.
    """
    inner = ImageModel.find(model)
    embedding, tokens = patches_of(inner)
    patches = embedding.output.shape[1]
    images = keras.Input(model.input_shape[1:], name="images")
    sources = keras.Input((patches,), dtype="int32", name="sources")
    x = keras.Model(model.input, embedding.output, name="stem")(images)
    x = MaskPatches(name="mask")(x, sources)
    outputs = [inner.representation, tokens] if representation else tokens
    x = keras.Model(embedding.output, outputs, name="encoder")(x)
    inputs = {"images": images, "sources": sources}
    return keras.Model(inputs, x, name=model.name)


def patches_of(model: ImageModel) -> tuple[PatchEmbedding, keras.KerasTensor]:
    """Return the layer that embeds patches, and the patches at the end.

    Args:
        model: A model of this package.

    Returns:
        The layer, and a symbolic tensor, `[B, N, D]`, after the last norm.

    Raises:
        ValueError: If it has no patches, or averages before its last LayerNorm.
    """
    pooling = getattr(model.architecture, "pooling", "gap")
    embeddings = [x for x in model.layers if isinstance(x, PatchEmbedding)]
    if pooling == "gap_norm" or not embeddings:
        raise ValueError(
            "`model` must embed patches and apply its last LayerNorm to every "
            "token, which pooling='gap_norm' does not. Received: "
            f"{model.name}, of the family {model.family!r}, with "
            f"pooling={pooling!r}"
        )
    # The last layer whose output is tokens.
    tokens = [x.output for x in model.layers if len(x.output.shape) == 3][-1]
    count = embeddings[0].output.shape[1]
    return embeddings[0], tokens[:, -count:]  # without the class token


def loss(target: str = "mean_colour") -> keras.losses.Loss:
    """Return the loss of a `predictor`.

    Args:
        target: See `predictor`; cross-entropy of colours, squared difference
            of pixels.

    Raises:
        ValueError: If it is unknown.
    """
    if _side(target):
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return keras.losses.MeanSquaredError()


def metrics(target: str = "mean_colour") -> list[keras.metrics.Metric]:
    """Return the weighted metrics of a `predictor`: accuracy of colours.

    Args:
        target: See `predictor`; for pixels there is only the loss.

    Raises:
        ValueError: If it is unknown.
    """
    if _side(target):
        return [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]
    return []


def batches(
    images,
    *,
    grid_size: tuple[int, int],
    target: str = "mean_colour",
    fraction: float = 0.5,
    seed: int = 0,
    start_step: int = 0,
    shard_index: int = 0,
    num_shards: int = 1,
    num_replicas: int = 1,
):
    """Turn batches of images into batches that train a `predictor`.

    The same number of patches of each image is corrupted: 80 % of these get the
    mask embedding, 10 % that of another patch of the image, 10 % keep their
    own. The loss is the mean over the corrupted patches only.

    The random choices depend only on (seed, step, position in the batch), so
    that a run that starts at any step sees the same batches as one that started
    at the beginning, and every evaluation is the same.

    Args:
        images: A tf.data.Dataset of {"images": `[B, H, W, C]`, pixels in
            [0, 255]}, with "weights" `[B]` or without, as
            `keras_vit.data.train_batches` and `eval_batches` have them with
            num_replicas=1; their labels are not used.
        grid_size: (rows, columns) of patches.
        target: See `predictor`.
        fraction: Share of the patches to corrupt, more than 0, at most 1.
        seed: Seed of the choice.
        start_step: Number of batches that `images` has skipped.
        shard_index: Index of the shard of this process, as for `images`.
        num_shards: Number of shards, as for `images`.
        num_replicas: Replicas of this process; each batch is split into as
            many consecutive elements.

    Returns:
        A tf.data.Dataset of {"images": {"images", "sources": int32 `[B, N]`},
        "labels": the targets, int32 `[B, N]` or `[B, N, 16]` or float32
        `[B, N, P * P * C]`, "weights": float32, of the shape of the targets
        without the axis of pixels, 0 where nothing is corrupted and 1 on
        average}.

    Raises:
        ValueError: If an argument is out of range.
    """
    tf = tensorflow()
    num_patches = grid_size[0] * grid_size[1]
    if not 0 < fraction <= 1 or num_patches < 2:
        raise ValueError(
            "`fraction` must be above 0 and at most 1, of a grid of at least "
            f"2 patches. Received: fraction={fraction}, grid_size={grid_size}"
        )
    _side(target)
    count = max(1, round(fraction * num_patches))

    def prepare(step, batch):
        pixels = batch["images"]
        size = pixels.shape[0]
        sources, corrupted = draw(
            (size * num_shards, num_patches), count, fold((seed, 1), step)
        )
        mine = slice(shard_index * size, (shard_index + 1) * size)
        weights = tf.cast(corrupted[mine], "float32") * (num_patches / count)
        if "weights" in batch:
            weights = weights * batch["weights"][:, None]
        labels = targets(pixels, grid_size, target)
        if target == "downsized":
            weights = tf.repeat(weights[..., None], labels.shape[-1], axis=-1)
        return {
            "images": {"images": pixels, "sources": sources[mine]},
            "labels": labels,
            "weights": weights,
        }

    return by_step(
        images, prepare, start_step=start_step, num_replicas=num_replicas
    )


def draw(shape, count, seed):
    """Choose the patches to corrupt and their replacements.

    Args:
        shape: (images B, patches N).
        count: Number of patches of each image to corrupt.
        seed: Two integers.

    Returns:
        Sources as `MaskPatches` takes them, int32 `[B, N]`, and which are
        corrupted, bool `[B, N]`.
    """
    tf = tensorflow()
    num_patches = shape[1]
    ranks, kinds = (
        tf.random.stateless_uniform(shape, fold(seed, i)) for i in range(2)
    )
    corrupted = tf.argsort(tf.argsort(ranks, stable=True)) < count
    own = tf.broadcast_to(tf.range(num_patches), shape)
    distance = tf.random.stateless_uniform(
        shape, fold(seed, 2), minval=1, maxval=num_patches, dtype="int32"
    )
    kept = tf.where(
        kinds < MASKED + REPLACED, (own + distance) % num_patches, own
    )
    sources = tf.where(kinds < MASKED, num_patches, kept)
    return tf.where(corrupted, sources, own), corrupted


def targets(images, grid_size: tuple[int, int], target: str = "mean_colour"):
    """Return the targets of every patch.

    A colour is a number in base 8 with a digit for each channel: RGB (255, 0,
    32) is 7 * 64 + 0 * 8 + 1.

    Args:
        images: A tf.Tensor `[B, H, W, C]`, pixels in [0, 255].
        grid_size: (rows, columns) of patches; they divide H and W.
        target: See `predictor`.

    Returns:
        Colours, int32 `[B, N]` or `[B, N, 16]`, or pixels in [-1, 1], float32
        `[B, N, P * P * C]`, each patch in raster order.

    Raises:
        ValueError: If the target is unknown.
    """
    tf = tensorflow()
    side = _side(target)
    rows, columns = grid_size
    if not side:
        return _cut(tf.cast(images, "float32") / 127.5 - 1, grid_size)
    small = tf.image.resize(
        images, (rows * side, columns * side), method="area"
    )
    levels = tf.cast(small, "int32") * LEVELS // 256
    levels = tf.clip_by_value(levels, 0, LEVELS - 1)
    places = [LEVELS**i for i in reversed(range(images.shape[-1]))]
    colours = tf.reduce_sum(levels * places, axis=-1, keepdims=True)
    colours = _cut(colours, grid_size)  # [B, N, side * side]
    return colours if side > 1 else colours[..., 0]


def _cut(values, grid_size):
    """Patches in raster order, `[B, H, W, C]` to `[B, N, P * P * C]`."""
    tf = tensorflow()
    rows, columns = grid_size
    _, height, width, channels = values.shape
    shape = (-1, rows, height // rows, columns, width // columns, channels)
    x = tf.transpose(tf.reshape(values, shape), (0, 1, 3, 2, 4, 5))
    size = height * width * channels // (rows * columns)
    return tf.reshape(x, (-1, rows * columns, size))


def _side(target):
    """Colour per side of a patch, after a check of the target's name."""
    if target not in TARGETS:
        raise ValueError(
            f"`target` must be one of {tuple(TARGETS)}. "
            f"Received: target={target!r}"
        )
    return TARGETS[target]
