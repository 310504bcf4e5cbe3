"""Axial-ResNet: the authors' numbers in both forms, other images."""

import catalogue
import numpy as np
import pytest
from functional import difference, golden
from keras import ops

import keras_vit
from keras_vit.models import axial_attention, axial_resnet
from keras_vit.ops import xla


def authors_model(case, **kwargs):
    data, path = golden(case)
    model = keras_vit.AxialResNet(
        weights=path, include_preprocessing=False, **kwargs
    )
    return model, data["input"], data["logits"]


@pytest.mark.parametrize("case", ["axial_resnet", "axial_resnet_groupnorm"])
def test_logits_are_the_authors(case):
    assert difference(*authors_model(case)) <= 1e-5


@pytest.mark.backend("torch")
def test_the_form_for_tpus_has_the_authors_numbers(monkeypatch):
    assert xla.fill_lanes(64)
    assert not xla.fill_lanes(63) and not xla.fill_lanes(None)
    monkeypatch.setattr(xla, "targets_tpu", lambda: True)
    monkeypatch.setattr(xla, "fill_lanes", lambda batch_size: True)
    # The other form is not used.
    monkeypatch.delattr(axial_attention.AxialAttentionGN, "_each_sequence")
    assert difference(*authors_model("axial_resnet_groupnorm")) <= 1e-5


@pytest.mark.backend("torch")
def test_distances_are_resampled_for_other_images():
    model, *_ = authors_model("axial_resnet", input_shape=(96, 64, 3))
    small, *_ = authors_model("axial_resnet")
    name = "block1_unit1"
    tables = [
        [
            ops.convert_to_numpy(block.relative)
            for block in (
                m.get_layer(name).height_block,
                m.get_layer(name).width_block,
            )
        ]
        for m in (small, model)
    ]
    assert tables[1][0].shape == (4, 47)
    np.testing.assert_array_equal(tables[0][1], tables[1][1])
    # No distance, and the largest two, keep their values.
    np.testing.assert_allclose(
        tables[1][0][:, [0, 23, 46]], tables[0][0][:, [0, 15, 30]], atol=1e-6
    )


@pytest.mark.backend("torch")
@pytest.mark.parametrize(
    "layer_class",
    [axial_attention.AxialAttentionBN, axial_attention.AxialAttentionGN],
)
def test_attention_stays_on_its_axis(layer_class):
    layer = layer_class("height", 2)
    layer.build((None, 4, 3, 32))
    x = np.random.default_rng(0).normal(size=(1, 4, 3, 32)).astype("float32")
    changed = x.copy()
    changed[0, 2, 1] += np.arange(32)
    moved = ops.convert_to_numpy(layer(changed) - layer(x))
    moved = np.abs(moved).max(axis=(0, 3)) > 1e-6
    np.testing.assert_array_equal(moved, [[False, True, False]] * 4)


@pytest.mark.backend("torch")
def test_a_unit_starts_as_its_shortcut():
    x = np.random.default_rng(0).uniform(size=(1, 4, 4, 16)).astype("float32")
    unit = axial_resnet.AxialUnitBN(8, num_heads=2)
    np.testing.assert_allclose(ops.convert_to_numpy(unit(x)), x, atol=1e-6)


@pytest.mark.backend("torch")
def test_arguments_are_checked():
    with pytest.raises(ValueError, match="multiples of 32 pixels"):
        catalogue.make_model(
            "axial resnet", depths=(1, 1), input_shape=(20, 16, 3)
        )
    with pytest.raises(ValueError, match="multiple of 2 x num_heads"):
        catalogue.make_model("axial resnet", num_heads=5)
    with pytest.raises(ValueError, match="groups=32, 16 channels"):
        catalogue.make_model("axial resnet", normalization="group_norm")
    with pytest.raises(ValueError, match="`normalization` must be one of"):
        catalogue.make_model("axial resnet", normalization="layer_norm")
