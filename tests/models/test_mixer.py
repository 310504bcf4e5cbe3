"""MLP-Mixer: the authors' numbers, Table 1, its layers."""

import numpy as np
import pytest
from functional import difference, golden
from keras import ops

import keras_vit
from keras_vit.inspection import costs
from keras_vit.models import mixer

# With 1000 classes at 224 x 224: parameters, billions of multiply-accumulates,
# and the paper's millions of parameters without a head.
SIZES = {
    "MixerS32": (19_104_624, 1.002, 19),
    "MixerB16": (59_880_472, 12.60, 59),
    "MixerL16": (208_196_168, 44.55, 207),
    "MixerH14": (432_350_952, 121.0, 431),
}


def authors_model(**architecture):
    data, path = golden("mixer")
    model = keras_vit.MLPMixer(
        weights=path, include_preprocessing=False, **architecture
    )
    return model, data["input"], data["logits"]


def test_logits_are_the_authors():
    # A wrong epsilon moves them by 4e-6 only.
    assert difference(*authors_model()) <= 2e-6


def test_larger_images_are_mixed_in_parts_at_first():
    # Appendix C: block-diagonal token matrices. Each part of the image is
    # mixed by itself, so the logits are the mean of those of the parts.
    model, images, logits = authors_model(input_shape=(128, 192, 3))
    assert model.architecture.tokens_mlp_dim == 6 * 24
    parts = np.concatenate([images[:1], images[1:]], axis=1)
    tiled = np.concatenate([parts] * 3, axis=2)
    expected = logits.mean(axis=0, keepdims=True)
    found = model.predict(tiled, verbose=0)
    assert np.abs(found - expected).max() <= 2e-6 * np.abs(logits).max()


@pytest.mark.backend_independent
@pytest.mark.parametrize("shape", [(96, 64, 3), (32, 64, 3)])
def test_sides_that_are_no_multiples_are_refused(shape):
    with pytest.raises(ValueError) as error:
        authors_model(input_shape=shape)
    for words in ("`input_shape`", "64 x 64", "(128, 128, 3)", f"{shape[0]}"):
        assert words in str(error.value)


@pytest.mark.backend("jax")
@pytest.mark.parametrize(
    "variant",
    [
        pytest.param(name, marks=[pytest.mark.thorough] * (name[5] in "LH"))
        for name in SIZES
    ],
)
def test_parameters_and_operations_are_those_of_table_1(variant):
    parameters, macs, millions = SIZES[variant]
    with costs.shapes_alone():
        model = getattr(keras_vit, variant)()
    assert model.count_params() == parameters
    head = 1000 * (mixer.VARIANTS[variant]["hidden_size"] + 1)
    assert round((parameters - head) / 1e6) == millions
    assert keras_vit.cost(model).macs == pytest.approx(macs * 1e9, rel=5e-4)


def make_block(**kwargs):
    block = mixer.MixerBlock(3, 7, **kwargs)
    block.build((None, 4, 5))
    rng = np.random.default_rng(0)
    for weight in block.weights:
        weight.assign(rng.normal(size=weight.shape))
    return block


def test_a_token_is_mixed_in_its_channel_before_channels_mix():
    block = make_block()
    x = np.random.default_rng(0).normal(size=(1, 4, 5)).astype("float32")
    # Without the branch of channels what reaches channel 0 is of channel 0,
    # but for the statistics of LayerNorm.
    block.channel_mixing.dense_1.kernel.assign(np.zeros((7, 5)))
    block.channel_mixing.dense_1.bias.assign(np.zeros(5))
    y = ops.convert_to_numpy(block(x)) - x
    norm = ops.convert_to_numpy(block.norm_0(x))
    expected = ops.convert_to_numpy(block.token_mixing(norm[:, :, 0]))
    np.testing.assert_allclose(y[:, :, 0], expected, rtol=1e-5, atol=1e-6)
