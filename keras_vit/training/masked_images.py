"""Batches that train a masked autoencoder, `keras_vit.heads.mae`."""

import math

import keras

from keras_vit.data.optional_imports import tensorflow
from keras_vit.data.seeds import fold
from keras_vit.training.by_step import by_step


@keras.saving.register_keras_serializable(package="keras_vit")
class OutputLoss(keras.losses.Loss):
    """The loss of a model whose output is the loss of each example, `[B]`.

    Example:
        model.compile("adam", keras_vit.training.OutputLoss())
    """

    def call(self, y_true, y_pred):
        return y_pred


def batches(
    images,
    *,
    grid_size: tuple[int, ...],
    num_visible: int,
    seed: int = 0,
    start_step: int = 0,
    shard_index: int = 0,
    num_shards: int = 1,
    num_replicas: int = 1,
):
    """Turn batches of images or videos into those of a masked autoencoder.

    As many patches of each image are visible, which depends only on (seed,
    step, position in the batch); of a video, the same in all its frames.

    Args:
        images: A tf.data.Dataset of {"images": `[B, H, W, C]` or
            `[B, T, H, W, C]`}, with "weights" `[B]` or without, as
            `keras_vit.data.train_batches` and `eval_batches` have them with
            num_replicas=1; their labels are not used.
        grid_size: (rows, columns) of patches, or (frames, rows, columns).
        num_visible: Number V of visible patches, `MaskedModel.num_visible`.
        seed: Seed of the choice.
        start_step: Number of batches that `images` has skipped.
        shard_index: Index of the shard of this process, as for `images`.
        num_shards: Number of shards, as for `images`.
        num_replicas: Replicas of this process; each batch is split into as
            many consecutive elements.

    Returns:
        A tf.data.Dataset of {"images": {"images" or "videos", "visible": int32
        `[B, V]`}, "labels": zeros `[B]`, "weights": `[B]`}.
    """
    tf = tensorflow()
    frames = math.prod(grid_size[:-2])
    of_frame = math.prod(grid_size[-2:])
    count = num_visible // frames

    def prepare(step, batch):
        pixels = batch["images"]
        size = pixels.shape[0]
        noise = tf.random.stateless_uniform(
            (size * num_shards, of_frame), fold((seed, 2), step)
        )
        noise = noise[shard_index * size : (shard_index + 1) * size]
        visible = tf.argsort(noise, axis=1, stable=True)[:, :count]
        # Of all frames, one after the other.
        firsts = tf.range(frames, dtype="int32") * of_frame
        visible = tf.reshape(firsts[:, None] + visible[:, None], (size, -1))
        weights = batch.get("weights", tf.ones(size))
        name = "images" if len(pixels.shape) == 4 else "videos"
        return {
            "images": {name: pixels, "visible": visible},
            "labels": tf.zeros(size),
            "weights": tf.cast(weights, "float32"),
        }

    return by_step(
        images, prepare, start_step=start_step, num_replicas=num_replicas
    )
