"""Local attention and white patches at the start of training."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.layers import BEiTAttention
from keras_vit.layers.embedding import whitening

pytestmark = pytest.mark.backend("torch")

SMALL = dict(
    input_shape=(12, 16, 3),
    include_top=False,
    patch_size=4,
    hidden_size=8,
    num_layers=1,
    num_heads=4,
    mlp_dim=8,
)


@pytest.mark.backend("tensorflow", "jax", "torch")
def test_strong_locality_makes_attention_a_shift():
    layer = BEiTAttention(num_heads=4, grid_size=(3, 4), locality=100.0)
    layer.build((None, 13, 8))
    tokens = keras.random.normal((1, 13, 8), seed=0)
    weights = keras.ops.convert_to_numpy(layer.attention_weights(tokens))[0]
    patch = 1 + 1 * 4 + 2  # row 1, column 2, after the class token
    found = [np.unravel_index(w[patch, 1:].argmax(), (3, 4)) for w in weights]
    assert found == [(0, 2), (1, 1), (1, 3), (2, 2)]
    np.testing.assert_allclose(weights[:, patch].max(axis=-1), 1, atol=1e-6)
    # The class token reads all patches.
    assert weights[:, 0].max() < 0.5


def test_an_mlp_has_no_table_to_begin_local():
    with pytest.raises(ValueError, match="`locality` must be 0 with an MLP"):
        BEiTAttention(4, (3, 4), relative_dim=8, locality=1.0)


@pytest.mark.parametrize("pooling", ["gap", "token"])
def test_files_of_local_attention_are_read(tmp_path, pooling):
    local = dict(position_embedding="local", embedding_init="whitening")
    model = keras_vit.ViT(**SMALL, **local, pooling=pooling)
    model.save_weights(tmp_path / "model.weights.h5")
    model.save(tmp_path / "model.keras")
    loaded = keras_vit.ViT(**SMALL, weights=tmp_path / "model.keras")
    assert loaded.architecture.position_embedding == "local"
    assert loaded.architecture.embedding_init == "lecun_normal"
    images = np.random.default_rng(0).uniform(0, 255, (2, 12, 16, 3))
    expected = model.predict(images, verbose=0)
    np.testing.assert_array_equal(loaded.predict(images, verbose=0), expected)
    of_keras = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(of_keras.predict(images, verbose=0), expected)
    # Without a config: the caller says what the model is.
    plain = dict(SMALL, position_embedding="local", pooling=pooling)
    plain |= dict(
        position_grid=(3, 4),
        gelu_approximate=True,
        layer_norm_epsilon=1e-6,
        pixel_mean=127.5,
        pixel_std=127.5,
    )
    of_h5 = keras_vit.ViT(**plain, weights=tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(of_h5.predict(images, verbose=0), expected)


def test_bias_of_distance_is_resized(tmp_path):
    arguments = dict(SMALL, position_embedding="local", pooling="gap")
    smaller = keras_vit.ViT(**arguments)
    smaller.save(tmp_path / "model.keras")
    other = dict(arguments, input_shape=(16, 24, 3))
    model = keras_vit.ViT(**other, weights=tmp_path / "model.keras")
    old, new = (
        keras.ops.convert_to_numpy(v)
        for x in (smaller, model)
        for v in x.variables
        if v.name == "relative_bias"
    )
    assert old.shape == (5 * 7, 4) and new.shape == (7 * 11, 4)
    # Distance 0 is in the middle; a head still prefers its neighbour's side.
    np.testing.assert_allclose(new[38], old[17], atol=1e-5)
    new = new.reshape(7, 11, 4)
    assert (new[4, 5, 0] > new[2, 5, 0]) and (new[3, 6, 1] > new[3, 4, 1])


def test_embeddings_of_smooth_patches_are_white():
    kernel = whitening((4, 4, 3, 2000))
    kernel = keras.ops.convert_to_numpy(kernel).reshape(48, 2000)
    rng = np.random.default_rng(0)
    shared, own, noise = (
        rng.normal(size=(4000, 4, 4, channels)) for channels in (1, 3, 3)
    )
    x = np.sqrt(0.9) * shared + np.sqrt(0.1) * own
    for axis in (1, 2):  # each pixel is 0.95 of the one before, and a rest
        x = np.moveaxis(x, axis, 0)
        for i in range(1, 4):
            x[i] = 0.95 * x[i - 1] + np.sqrt(1 - 0.95**2) * x[i]
        x = np.moveaxis(x, 0, axis)
    patches = 0.5 * (x + 0.1 * noise).reshape(-1, 48)
    # Each value has its share; without whitening the mean has nearly all.
    variances = np.linalg.eigvalsh(np.cov(patches @ kernel, rowvar=False))[-48:]
    assert variances.max() < 3 * variances.min()
    np.testing.assert_allclose(np.var(patches @ kernel), 1, rtol=0.05)
