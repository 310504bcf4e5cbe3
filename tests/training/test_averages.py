"""Evaluation with averages of the weights."""

import keras
import numpy as np
import pytest

from keras_vit import training


def test_averages_are_evaluated_and_the_weights_return():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(
        keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5), "mse"
    )
    swap, seen = training.SwapAverages(), []

    class Record(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            seen.append(("own", self.model.get_weights()))

        def on_test_begin(self, logs=None):
            seen.append(("average", self.model.get_weights()))

    x, y = np.ones((4, 2), "float32"), np.ones((4, 1), "float32")
    fit = dict(validation_data=(x, y), batch_size=4, epochs=2, verbose=0)
    model.fit(x, y, callbacks=[swap, Record()], **fit)
    assert [kind for kind, _ in seen] == ["own", "average"] * 2
    first, average, second, last = (weights[0] for _, weights in seen)
    np.testing.assert_allclose(average, first)  # of one step
    np.testing.assert_allclose(last, (first + second) / 2, rtol=1e-6)
    assert np.abs(second - first).max() > 1e-3
    np.testing.assert_array_equal(model.get_weights()[0], last)
    # Those that stay after an epoch are what further training begins with.
    swap = training.SwapAverages(swap_on_epoch=True)
    fit = dict(callbacks=[swap], batch_size=4, verbose=0)
    model.fit(x, y, **fit)
    before = model.get_weights()[0]
    model.optimizer.learning_rate = 0.0
    model.fit(x, y, **fit)
    np.testing.assert_allclose(model.get_weights()[0], before, rtol=1e-6)


def test_before_the_first_step_the_weights_are_evaluated():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1, use_ema=True), "mse")
    x, y = np.ones((4, 2), "float32"), np.ones((4, 1), "float32")
    expected = model.evaluate(x, y, verbose=0)
    swap = training.SwapAverages()
    assert model.evaluate(x, y, callbacks=[swap], verbose=0) == expected


def test_averages_that_are_not_there_are_refused():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), "mse")
    x, y = np.ones((4, 2), "float32"), np.ones((4, 1), "float32")
    with pytest.raises(ValueError, match="use_ema=True"):
        model.evaluate(x, y, callbacks=[training.SwapAverages()], verbose=0)
