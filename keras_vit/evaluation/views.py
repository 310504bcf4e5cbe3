"""One prediction from several views: frames, clips and crops."""

import keras
from keras import ops

from keras_vit import layers
from keras_vit._arguments import Count, KerasActivation, checked


@checked
def average_scores(
    model: keras.Model,
    num_views: Count,
    activation: KerasActivation | None = None,
) -> keras.Model:
    """Return a model that averages the scores of several inputs.

    Args:
        model: A functional classifier, from `[B, ...]` to `[B, K]`.
        num_views: Inputs V of an example: the frames of a clip for a model of
            images; the clips and crops of a video.
        activation: Applied to the scores of each view first, such as
            "softmax" for the mean of probabilities.

    Returns:
        A model that shares the variables, from `[B, V, ...]` to `[B, K]`.

    Example:
        model = keras_vit.ViTB16(classes=8, input_shape=(32, 32, 3))
        of_clips = keras_vit.evaluation.average_scores(model, num_views=16)
    """
    return _over_views(model, num_views, activation, ops.mean)


@checked
def highest_scores(model: keras.Model, num_views: Count) -> keras.Model:
    """Return a model of the highest score that any of several inputs has.

    For videos in which a class is seen for some of the time.

    Args:
        model: A functional classifier, from `[B, ...]` to `[B, K]`.
        num_views: Inputs V of an example, such as the clips of a video.

    Returns:
        A model that shares the variables, from `[B, V, ...]` to `[B, K]`.

    Example:
        model = keras_vit.ViTB16(classes=8, input_shape=(32, 32, 3))
        of_clips = keras_vit.evaluation.highest_scores(model, num_views=16)
    """
    return _over_views(model, num_views, None, ops.max)


def _over_views(model, num_views, activation, reduce):
    shape = model.input_shape[1:]
    views = keras.Input((num_views, *shape), dtype=model.input.dtype)
    x = layers.EnsureShape(dtype=views.dtype)(views)
    scores = model(ops.reshape(x, (-1, *shape)))  # [B V, K]
    if activation is not None:
        scores = keras.activations.get(activation)(scores)
    scores = ops.reshape(scores, (-1, num_views, scores.shape[-1]))
    return keras.Model(views, reduce(scores, axis=1), name=model.name)
