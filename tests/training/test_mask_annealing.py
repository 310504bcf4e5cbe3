"""The probability of masked attention at the steps of the authors' configs."""

import types

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


@pytest.mark.backend("tensorflow")
def test_steps_are_counted_on_mirrored_devices():
    import tensorflow as tf

    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        optimizer = keras.optimizers.SGD()
        optimizer.build([keras.Variable([1.0])])
        optimizer.iterations.assign(1)
        probability = keras.Variable([1.0])
    mask = types.SimpleNamespace(name="query_mask_0", probability=probability)
    model = types.SimpleNamespace(optimizer=optimizer, layers=[mask])
    annealing = training.MaskAnnealing(10)
    annealing.set_model(model)
    annealing.on_train_begin()
    annealing.on_epoch_begin(0)
    annealing.on_train_batch_begin(1)
    expected = mask_probability(2, 10, 0, 1)
    assert 0 < expected < 1
    assert float(probability.numpy()[0]) == pytest.approx(expected)


def test_steps_are_the_updates_of_an_optimizer_that_accumulates():
    optimizer = keras.optimizers.SGD(gradient_accumulation_steps=2)
    weight = keras.Variable([1.0])
    optimizer.build([weight])
    probability = keras.Variable([1.0])
    mask = types.SimpleNamespace(name="query_mask_0", probability=probability)
    annealing = training.MaskAnnealing(10)
    annealing.set_model(
        types.SimpleNamespace(optimizer=optimizer, layers=[mask])
    )
    annealing.on_train_begin()
    found = []
    for epoch in range(2):
        annealing.on_epoch_begin(epoch)
        for batch in range(4):
            annealing.on_train_batch_begin(batch)
            found.append(float(probability.numpy()[0]))
            optimizer.apply([keras.ops.ones((1,))], [weight])
    expected = [mask_probability(i // 2, 10, 0, 1) for i in range(8)]
    assert expected[2] > expected[4] > expected[6]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
