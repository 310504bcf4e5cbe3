"""Losses of images with their texts, against the papers' formulas."""

import json

import keras
import numpy as np
import processes
import pytest
from keras import ops

from keras_vit import training
from tests.training import contrastive_devices


def expected(images, texts, scale, bias, valid):
    """Both losses, from the formulas, in float64."""
    kept = valid > 0
    x, y = (each[kept].astype("float64") for each in (images, texts))
    products = x @ y.T
    logits = scale * products

    def crossentropy(logits):
        top = logits.max(-1)
        rows = top + np.log(np.exp(logits - top[:, None]).sum(-1))
        return np.mean(rows - np.diag(logits))

    softmax = (crossentropy(logits) + crossentropy(logits.T)) / 2
    z = 2 * np.eye(len(x)) - 1
    sigmoid = np.log1p(np.exp(-z * (scale * products + bias))).sum() / len(x)
    return dict(softmax=softmax, sigmoid=sigmoid)


def test_the_losses_are_the_papers():
    images, texts, valid = contrastive_devices.embeddings()
    for scale, bias in ((1 / 0.07, 0.0), (10.0, -10.0)):
        found = contrastive_devices.losses_of(images, texts, scale, bias, valid)
        for name, value in expected(images, texts, scale, bias, valid).items():
            np.testing.assert_allclose(found[name], value, rtol=2e-6)
        found = contrastive_devices.losses_of(
            images, texts, scale, bias, 0 * valid
        )
        assert float(found["softmax"]) == float(found["sigmoid"]) == 0
    first = training.contrastive_loss
    starts = [first.SOFTMAX_LOG_SCALE, first.SIGMOID_LOG_SCALE]
    np.testing.assert_allclose(np.exp(starts), [1 / 0.07, 10])


class Similarity(keras.layers.Layer):
    """The variables of two towers."""

    def __init__(self, bias):
        super().__init__(name="similarity")
        self.logit_scale = self.add_weight(shape=(), initializer=constant(4.7))
        self.logit_bias = None
        if bias is not None:
            initializer = constant(bias)
            self.logit_bias = self.add_weight(shape=(), initializer=initializer)

    def call(self, images, texts):
        return ops.matmul(images, ops.transpose(texts))


constant = keras.initializers.Constant


def towers(similarity):
    inputs = {k: keras.Input((16,), name=k) for k in ("images", "texts")}
    images = keras.layers.Dense(16, kernel_initializer="identity")(
        inputs["images"]
    )
    return keras.Model(
        inputs,
        dict(
            image_embeddings=images,
            text_embeddings=inputs["texts"],
            logits=similarity(images, inputs["texts"]),
        ),
    )


@pytest.mark.parametrize("bias", [None, -10.0])
def test_a_step_of_fit_changes_scale_and_bias(bias):
    images, texts, valid = contrastive_devices.embeddings()
    similarity = Similarity(bias)
    model = towers(similarity)
    training.set_loss(model, training.ContrastiveLoss())
    model.compile(keras.optimizers.SGD(0.0))
    inputs = dict(images=images, texts=texts)
    history = model.fit(inputs, {"valid": valid}, batch_size=8, verbose=0)
    value = expected(images, texts, np.exp(4.7), bias or 0, valid)
    name = "softmax" if bias is None else "sigmoid"
    np.testing.assert_allclose(history.history["loss"], value[name], rtol=1e-5)
    # Clipped after the step, for CLIP alone.
    limit = np.log(100) if bias is None else 4.7
    np.testing.assert_allclose(similarity.logit_scale, limit, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.backend("tensorflow", "jax")
def test_several_devices_have_the_loss_of_one(tmp_path):
    processes.call(contrastive_devices.main, tmp_path / "losses.json")
    found = json.loads((tmp_path / "losses.json").read_text())
    rows = contrastive_devices.embeddings()
    values = expected(rows[0], rows[1], 12.0, -3.0, rows[2])
    for name, value in values.items():
        one = found[f"{name}_1"]
        several = found[f"{name}_{contrastive_devices.DEVICES}"]
        assert one["loss"] == pytest.approx(value, rel=1e-6)
        assert several["loss"] == pytest.approx(one["loss"], rel=1e-6)
        for a, b in zip(one["gradients"], several["gradients"], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    if keras.backend.backend() == "jax":
        # Embeddings travel, at most those of the batch; no logits do.
        b, d = contrastive_devices.B, contrastive_devices.D
        sent = found["sigmoid_4"]["sent"]
        assert "collective-permute" in {kind for kind, _ in sent}
        part = b // contrastive_devices.DEVICES
        assert all(np.prod(shape) <= part * d for _, shape in sent)
        assert [b, b] not in [s for _, s in found["softmax_4"]["sent"]]


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match=r"both be \[B, D\].*\(2, 3\)"):
        training.softmax_contrastive_loss(ops.ones((2, 3)), ops.ones((2, 4)), 1)
    model = towers(Similarity(None))
    loss = training.ContrastiveLoss()
    with pytest.raises(ValueError, match="leave pairs out.*micro_batches=2"):
        training.set_loss(training.accumulate(model, 2), loss)
    x = keras.Input((2,))
    with pytest.raises(ValueError, match="needs a model of `keras_vit.two_"):
        training.set_loss(keras.Model(x, x * 2), loss)
    training.set_loss(model, loss)
    with pytest.raises(ValueError, match="must have the output 'text_emb"):
        loss({}, {"image_embeddings": ops.ones((2, 2))})
    with pytest.raises(ValueError, match=r"`valid` must be \[B\].*\(2, 1\)"):
        training.softmax_contrastive_loss(
            *[np.eye(2)] * 2, 1.0, np.ones((2, 1))
        )
