"""The probability of masked attention at the steps of the authors' configs."""

import keras
import numpy as np
import pytest

from keras_vit import training
from keras_vit.training.mask_annealing import mask_probability

pytestmark = pytest.mark.backend("torch")
# configs/dinov2/coco/panoptic of tue-mps/eomt: eomt_small_640_2x, _large_640
# and _giant_640, of 7,391 steps in each epoch.
PUBLISHED = [
    (24, [29564, 73910, 118256], [59128, 103474, 147820]),
    (12, [14782, 29564, 44346, 59128], [29564, 44346, 59128, 73910]),
    (
        12,
        [14782, 25869, 36955, 48042, 59128],
        [29564, 40651, 51737, 62824, 73910],
    ),
]


@pytest.mark.parametrize(("epochs", "starts", "ends"), PUBLISHED)
def test_probabilities_are_those_of_the_authors(epochs, starts, ends):
    total_steps = epochs * 7391
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        for step in (0, start, start + 3000, (start + end) // 2, end, end + 1):
            progress = min(max(step - start, 0) / (end - start), 1)
            found = mask_probability(step, total_steps, i, len(starts))
            expected = (1 - progress) ** 0.9
            # Rounded to thousandths, and their steps to whole ones.
            assert found == pytest.approx(expected, abs=6e-4)


def test_a_model_without_masks_is_refused():
    inputs = keras.Input((2,))
    model = keras.Model(inputs, keras.layers.Dense(1)(inputs))
    model.compile(loss="mse")
    with pytest.raises(ValueError, match="mask_attention"):
        model.fit(
            *(np.ones((1, 2)), np.ones((1, 1))),
            callbacks=[training.MaskAnnealing(3)],
            verbose=0,
        )
