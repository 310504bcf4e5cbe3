"""Axial-ViT: scenic's numbers, other sizes of images."""

import catalogue
import numpy as np
import pytest
from functional import difference, golden
from keras import ops

import keras_vit
from keras_vit.models import axial_vit
from keras_vit.ops import xla


def authors_model(**kwargs):
    data, path = golden("axial_vit")
    model = keras_vit.AxialViT(
        weights=path,
        include_preprocessing=False,
        pooling="gap",
        **kwargs,
    )
    return model, data["input"], data["logits"]


def test_logits_are_the_authors():
    assert difference(*authors_model()) <= 1e-5


@pytest.mark.backend("jax")
def test_the_form_for_tpus_has_the_authors_numbers(monkeypatch):
    model, *images_and_logits = authors_model()
    monkeypatch.setattr(xla, "targets_tpu", lambda: True)
    for block in model.blocks:  # the other form is not used
        monkeypatch.setattr(block.row.attention.qkv, "call", None)
        monkeypatch.setattr(block.col.attention.out, "call", None)
    assert difference(model, *images_and_logits) <= 1e-5


@pytest.mark.backend("torch")
def test_a_row_block_mixes_along_the_height():
    block = axial_vit.AxialTransformerBlock(2, 8)
    block.build((None, 4, 3, 6))
    x = np.random.default_rng(0).normal(size=(1, 4, 3, 6)).astype("float32")
    changed = x.copy()
    changed[0, 2, 1] += np.arange(6)
    # Without the other attention, nothing leaves the column that changed.
    block.col.attention.out.kernel.assign(np.zeros((6, 6)))
    moved = ops.convert_to_numpy(block(changed) - block(x))
    moved = np.abs(moved).max(axis=(0, 3)) > 1e-6
    np.testing.assert_array_equal(moved, [[False, True, False]] * 4)


@pytest.mark.backend("torch")
def test_positions_are_resampled_along_each_axis():
    small, *_ = authors_model()
    large, *_ = authors_model(input_shape=(120, 48, 3))
    before, after = (
        [
            ops.convert_to_numpy(w)
            for w in model.get_layer("posembed_input").weights
        ]
        for model in (small, large)
    )
    np.testing.assert_array_equal(after[0], before[0])
    assert after[1].shape == (15, 24)
    np.testing.assert_allclose(after[1][::2], before[1], atol=1e-6)
    middle = (before[1][:-1] + before[1][1:]) / 2
    np.testing.assert_allclose(after[1][1::2], middle, atol=1e-6)


@pytest.mark.backend("torch")
def test_arguments_are_checked():
    with pytest.raises(ValueError, match="`pooling` must be one of"):
        catalogue.make_model("axial vit", pooling="gap_norm")
    with pytest.raises(ValueError, match="multiple of `num_heads`"):
        catalogue.make_model("axial vit", num_heads=3)
