"""Scores of several views of one example."""

import keras
import numpy as np

from keras_vit import evaluation


def test_scores_are_averaged_over_views_after_the_activation():
    inputs = keras.Input((2, 3))
    head = keras.layers.Dense(4)
    model = keras.Model(inputs, head(keras.layers.Flatten()(inputs)))
    x = np.random.default_rng(0).normal(size=(3, 5, 2, 3)).astype("float32")
    scores = model.predict(x.reshape(15, 2, 3), verbose=0).reshape(3, 5, 4)
    for activation, of_views in (
        (None, scores),
        ("softmax", keras.ops.convert_to_numpy(keras.ops.softmax(scores))),
    ):
        averaged = evaluation.average_scores(model, 5, activation)
        np.testing.assert_allclose(
            averaged.predict(x, verbose=0), of_views.mean(axis=1), rtol=1e-5
        )
    highest = evaluation.highest_scores(model, 5)
    np.testing.assert_allclose(
        highest.predict(x, verbose=0), scores.max(axis=1), rtol=1e-5
    )
