"""MLP-Mixer: the authors' numbers, Table 1, its layers."""

import keras
import numpy as np
import pytest
from functional import classifier, difference, golden, load
from keras import ops
from operations import count_macs

from keras_vit.models import mixer
from keras_vit.weights.rules import mixer as rules
from keras_vit.weights.rules import table

# With 1000 classes at 224 x 224: parameters, billions of multiply-accumulates,
# and the paper's millions of parameters without a head.
SIZES = {
    "MixerS32": (19_104_624, 1.002, 19),
    "MixerS16": (18_528_264, 3.777, 18),
    "MixerB32": (60_293_428, 3.238, 60),
    "MixerB16": (59_880_472, 12.60, 59),
    "MixerL32": (206_939_264, 11.25, 206),
    "MixerL16": (208_196_168, 44.55, 207),
    "MixerH14": (432_350_952, 121.0, 431),
}


def authors_model(**architecture):
    data, config, arrays = golden("mixer")
    config = mixer.MixerConfig(
        patch_size=tuple(config["patches"]["size"]),
        num_layers=config["num_blocks"],
        hidden_size=config["hidden_dim"],
        tokens_mlp_dim=config["tokens_mlp_dim"],
        channels_mlp_dim=config["channels_mlp_dim"],
        **architecture,
    )
    images, logits = data["input"], data["logits"]
    model = classifier(mixer, config, images.shape[1:], logits.shape[1])
    layout = table.Layout(num_layers=config.num_layers, num_heads=0)
    load(model, arrays, table.expand(rules.authors(), layout))
    return model, images, logits


def test_logits_are_the_authors():
    # A wrong epsilon moves them by 4e-6 only.
    assert difference(*authors_model()) <= 2e-6


def test_the_exact_gelu_is_not_the_authors():
    assert difference(*authors_model(gelu_approximate=False)) > 1e-4


@pytest.mark.backend("jax")
@pytest.mark.parametrize("variant", mixer.VARIANTS)
def test_parameters_and_operations_are_those_of_table_1(variant):
    parameters, macs, millions = SIZES[variant]
    config = mixer.MixerConfig(**mixer.VARIANTS[variant])
    with keras.StatelessScope(initialize_variables=False):
        model = classifier(mixer, config, (224, 224, 3), 1000)
    found = model.count_params()
    assert found == parameters
    head = 1001 * config.hidden_size + 1000 - config.hidden_size
    assert int((found - head) / 1e6) in (millions, millions - 1)
    assert count_macs(model) == pytest.approx(macs * 1e9, rel=5e-4)


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


def test_stochastic_depth_grows_linearly_and_drops_whole_examples():
    config = dict(mixer.VARIANTS["MixerB16"], num_layers=3, hidden_size=4)
    config |= dict(tokens_mlp_dim=2, channels_mlp_dim=2, drop_path_rate=0.2)
    model = classifier(mixer, mixer.MixerConfig(**config), (32, 32, 3), 2)
    rates = [
        model.get_layer(f"MixerBlock_{i}").drop_path_rate for i in range(3)
    ]
    np.testing.assert_allclose(rates, [0.0, 0.1, 0.2])
    block = make_block(drop_path_rate=0.5)
    x = np.random.default_rng(0).normal(size=(64, 4, 5)).astype("float32")
    y = ops.convert_to_numpy(block(x, training=True))
    unchanged = np.isclose(y, x, atol=1e-6).all(axis=(1, 2))
    assert 4 <= unchanged.sum() <= 32


def test_a_block_refuses_another_number_of_tokens():
    with pytest.raises(ValueError, match="was built for inputs of shape"):
        make_block()(np.zeros((1, 9, 5), "float32"))
