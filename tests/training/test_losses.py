"""The sigmoid loss of the paper against NumPy."""

import keras
import numpy as np
import pytest

from keras_vit import training

LOGITS = np.array([[3.0, -40.0, 0.5], [-2.0, 60.0, 0.0]], "float32")
LABELS = np.array([[1, 0, 1], [0, 1, 1]], "float32")


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_cross_entropies_are_summed_over_classes(smoothing):
    labels = LABELS * (1 - smoothing) + smoothing / 2
    positive = np.logaddexp(0, -LOGITS)  # -log sigmoid(z)
    negative = np.logaddexp(0, LOGITS)
    expected = (labels * positive + (1 - labels) * negative).sum(axis=-1)
    loss = training.SigmoidCrossentropy(smoothing)
    np.testing.assert_allclose(
        float(loss(LABELS, LOGITS)), expected.mean(), rtol=1e-6
    )
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    assert float(again(LABELS, LOGITS)) == float(loss(LABELS, LOGITS))
    each = training.SigmoidCrossentropy(smoothing, reduction=None)
    np.testing.assert_allclose(
        keras.ops.convert_to_numpy(each(LABELS, LOGITS)), expected, rtol=1e-6
    )
