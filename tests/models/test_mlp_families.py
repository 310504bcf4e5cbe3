"""Families of MLPs: the authors' numbers, their layers."""

import catalogue
import numpy as np
import pytest
from functional import arrays_of, difference, golden
from keras import ops

import keras_vit
from keras_vit import inspection
from keras_vit.layers.sine import sines_1d
from keras_vit.models import cycle_mlp, ff_only, gmlp, res_mlp
from keras_vit.weights import resize

# Golden: the constructor of any size.
CASES = {
    "res_mlp": keras_vit.ResMLP,
    "gmlp": keras_vit.GMLP,
    "ff_only": keras_vit.FFOnly,
    "eamlp": keras_vit.EAMLP,
    "cycle_mlp": keras_vit.CycleMLP,
}


def authors_model(case, **kwargs):
    data, path = golden(case)
    arguments = dict(
        weights=path,
        include_preprocessing=False,
        input_shape=data["input"].shape[1:],
    )
    model = CASES[case](**arguments | kwargs)
    return model, data["input"], data["logits"]


@pytest.mark.parametrize("case", CASES)
def test_logits_are_the_authors(case):
    # 2.5e-6 of EAMLP with TensorFlow on a processor with AVX2 alone.
    assert difference(*authors_model(case)) <= 3e-6


@pytest.mark.backend("torch")
@pytest.mark.parametrize("case", ["res_mlp", "gmlp", "ff_only"])
def test_the_weights_of_a_number_of_patches_refuse_another(case):
    pixels = 224 if case == "ff_only" else 64
    for shape in ((2 * pixels, 2 * pixels, 3), (32, 128, 3)):
        with pytest.raises(ValueError) as error:
            authors_model(case, input_shape=shape)
        for words in (
            "`input_shape`",
            f"{pixels} x {pixels}",
            f"height={shape[0]}",
        ):
            assert words in str(error.value)


@pytest.mark.backend("torch")
@pytest.mark.parametrize(
    ("case", "name", "units", "side"),
    [
        ("res_mlp", "attn", 64, 8),
        ("gmlp", "gate", 64, 8),
        ("ff_only", "mlp2", 200, 7),
    ],
)
def test_the_weights_of_a_unit_over_tokens_form_a_map(case, name, units, side):
    model, *_ = authors_model(case)
    found = inspection.token_mixing(model)
    assert len(found) == model.architecture.num_layers
    assert found[f"blocks_0/{name}"].shape == (units, side, side)


@pytest.mark.backend("torch")
def test_a_resmlp_mixes_patches_linearly_and_in_each_channel():
    block = res_mlp.ResMLPBlock(mlp_dim=8, layer_scale=0.5)
    block.build((None, 4, 3))
    rng = np.random.default_rng(0)
    block.attn.kernel.assign(rng.normal(size=(4, 4)))
    block.gamma_2.assign(np.zeros(3))  # without the channel MLP
    x = rng.normal(size=(1, 4, 3)).astype("float32")
    kernel = ops.convert_to_numpy(block.attn.kernel)
    expected = x[0] + 0.5 * kernel.T @ x[0]
    found = ops.convert_to_numpy(block(x))[0]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.backend("torch")
def test_a_new_block_of_gmlp_does_not_mix_tokens():
    block = gmlp.GMLPBlock(mlp_dim=8)
    block.build((None, 4, 3))
    x = np.random.default_rng(0).normal(size=(1, 4, 3)).astype("float32")
    y = ops.convert_to_numpy(block(x))
    other = x.copy()
    other[0, 2] = 0
    changed = np.abs(ops.convert_to_numpy(block(other)) - y) > 1e-4
    assert changed.any(axis=(0, 2)).tolist() == [False, False, True, False]


@pytest.mark.backend("torch")
def test_an_odd_width_has_no_gate():
    with pytest.raises(ValueError, match="`mlp_dim` must be even"):
        keras_vit.GMLP(patch_size=4, hidden_size=8, num_layers=1, mlp_dim=7)


def test_positions_are_resized_between_the_centres_of_pixels():
    layer = ff_only.ResizedPositions((3, 7), (5, 4))
    layer.build((None, 21, 2))
    table = np.random.default_rng(0).normal(size=(5, 4, 2))
    layer.pos_embed.assign(table)
    rows, columns = resize.bilinear(5, 3), resize.bilinear(4, 7)
    expected = np.einsum("ih,jw,hwd->ijd", rows, columns, table)
    found = ops.convert_to_numpy(layer.position_tables()[""][0])
    np.testing.assert_allclose(found, expected.reshape(21, 2), atol=1e-6)


@pytest.mark.backend("torch")
@pytest.mark.parametrize("stored", ["sinusoid", "table"])
def test_an_eamlp_takes_other_sizes_of_images(stored, tmp_path):
    _, path = golden("eamlp")
    arrays = arrays_of(path)
    if stored == "sinusoid":
        arrays["pos_embed"] = sines_1d(17, 32)
    np.savez(tmp_path / "eamlp.npz", **arrays)
    model = keras_vit.EAMLP(
        weights=tmp_path / "eamlp.npz", input_shape=(96, 64, 3)
    )
    assert model.architecture.position_embedding == stored
    positions = model.get_layer("positions")
    table = ops.convert_to_numpy(positions.position_tables()[""][0])
    if stored == "sinusoid":
        assert len(model.non_trainable_weights) == 0
        expected = sines_1d(25, 32)[0, 1:]
    else:
        expected = resize.resample_positions(
            arrays["pos_embed"], (4, 4), (6, 4)
        )[0, 1:]
    np.testing.assert_allclose(table, expected, atol=1e-6)
    with pytest.raises(ValueError, match="known height and width"):
        keras_vit.EAMLP7(input_shape=(None, None, 3))


@pytest.mark.backend("torch")
def test_a_cycle_reads_channels_by_turns_at_both_neighbours():
    x = np.random.default_rng(0).normal(size=(1, 3, 4, 5)).astype("float32")
    found = ops.convert_to_numpy(cycle_mlp.displaced(x, 2))[0, 1, :, :]
    row = x[0, 1]
    zero = [0.0]
    np.testing.assert_array_equal(found[:, 0], row[:, 0])
    np.testing.assert_array_equal(found[:, 1], [*row[1:, 1], *zero])
    np.testing.assert_array_equal(found[:, 2], [*zero, *row[:-1, 2]])
    np.testing.assert_array_equal(found[:, 3], row[:, 3])
    found = ops.convert_to_numpy(cycle_mlp.displaced(x, 1))[0, :, 2, 1]
    np.testing.assert_array_equal(found, [*x[0, 1:, 2, 1], *zero])


@pytest.mark.backend("torch")
def test_a_cycle_mlp_gives_maps_of_images_of_any_size():
    model, images, logits = authors_model(
        "cycle_mlp", input_shape=(None, None, 3)
    )
    assert difference(model, images, logits) <= 2e-6
    body, *_ = authors_model(
        "cycle_mlp",
        input_shape=(None, None, 3),
        include_top=False,
        feature_maps=True,
    )
    maps = body.predict(images[:, :48], verbose=0)
    assert [y.shape for y in maps] == [(1, 12, 16, 16), (1, 6, 8, 24)]
    with pytest.raises(ValueError, match="must have MLPs over tokens"):
        inspection.token_mixing(model)


@pytest.mark.backend("torch")
def test_a_resmlp_recomputes_in_mixed_precision():
    """PyTorch recomputes outside the scope in which Keras casts variables."""
    model = catalogue.make_model("res_mlp", dtype="mixed_bfloat16")
    model.compile("sgd", "mse")
    x = np.ones((2, *model.input_shape[1:]), "float32")
    assert np.isfinite(model.train_on_batch(x, np.ones((2, 5))))
