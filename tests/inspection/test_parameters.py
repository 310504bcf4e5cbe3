"""Filters, similarity of positions, and the mixing of tokens."""

import numpy as np
import pytest
from catalogue import make_model

from keras_vit import inspection
from keras_vit.inspection import pictures
from tools import inspect as inspect_tool

pytestmark = pytest.mark.backend("torch")


def test_components_are_the_factors_of_a_kernel():
    model = make_model("token")
    kernel = model.get_layer("embedding").kernel  # [4, 4, 3, 16]
    rng = np.random.default_rng(0)
    pixels, _ = np.linalg.qr(rng.normal(size=(48, 3)))
    filters, _ = np.linalg.qr(
        np.c_[np.ones(16), rng.normal(size=(16, 3))]  # of mean 0, after the 1st
    )
    strength = np.diag([5.0, 3.0, 2.0])
    mean = rng.normal(size=(48, 1))
    kernel.assign(
        (mean + pixels @ strength @ filters[:, 1:].T).reshape(kernel.shape)
    )
    found = inspection.filter_components(model, 3)
    assert found.shape == (3, 4, 4, 3)
    products = found.reshape(3, -1) @ pixels
    np.testing.assert_allclose(np.abs(products), np.eye(3), atol=1e-5)
    assert inspection.filter_components(model).shape == (15, 4, 4, 3)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("mixer", (4, 4, 3)),
        ("hybrid", (7, 7, 3)),
        ("bit", (7, 7, 3)),
        ("axial resnet", (7, 7, 3)),
        ("raft", (8, 8, 3)),
        ("mvit", (3, 7, 7, 3)),
        ("mvit image", (7, 7, 3)),
        ("videomae", (2, 4, 4, 3)),
    ],
)
def test_every_family_has_filters(name, shape):
    found = inspection.filter_components(make_model(name), 2)
    assert found.shape == (2, *shape)
    np.testing.assert_allclose(
        np.linalg.norm(found.reshape(2, -1), axis=1), 1, rtol=1e-5
    )


def test_frames_of_a_tubelet_are_not_channels():
    model = make_model("videomae")
    kernel = np.zeros((4, 4, 6, 16))
    kernel[1, 2, 3 + 2, 0] = 1  # the third channel of the second frame
    model.get_layer("embedding").kernel.assign(kernel)
    (found,) = inspection.filter_components(model, 1)
    assert np.argwhere(found > 0.5).tolist() == [[1, 1, 2, 2]]


def test_a_kernel_that_sees_no_pixels_is_not_shown():
    with pytest.raises(ValueError, match="whose filters see the pixels"):
        inspection.filter_components(make_model("eamlp"))


def test_parameters_in_half_precision_are_computed_in_single():
    model = make_model("token", dtype="float16")
    assert inspection.filter_components(model, 2).dtype == "float32"
    (found,) = inspection.position_similarity(model).values()
    diagonal = found.reshape(8, 8).diagonal()
    np.testing.assert_allclose(diagonal, 1, atol=1e-6)


def test_embeddings_of_several_scales_are_one_kernel():
    model = make_model("raft")
    embedding = model.get_layer("level0_embedding")  # windows of 4 and 8
    kernel = np.zeros(embedding.kernel.shape)
    kernel[:16, 0, 0] = 1  # the inner window of one filter
    embedding.kernel.assign(kernel)
    (found,) = inspection.filter_components(model, 1)
    expected = np.zeros((8, 8, 3))
    expected[2:6, 2:6, 0] = 1 / 4
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_similarity_is_the_cosine_of_the_embeddings():
    model = make_model("token")  # 4 x 2 patches and a class token
    table = np.zeros((1, 9, 16))
    table[0, 0] = 7  # the class token's is left out
    table[0, 1:, 0] = [1, 2, -1, 0, 0, 0, 0, 3]
    table[0, 1:, 1] = [0, 0, 0, 1, -2, 1, 1, 3]
    layer = model.get_layer("posembed_input")
    layer.pos_embedding.assign(table)
    found = inspection.position_similarity(model)
    assert list(found) == ["posembed_input"]
    (similarity,) = found.values()
    assert similarity.shape == (4, 2, 4, 2)
    expected = [[1, 1], [-1, 0], [0, 0], [0, 0.5**0.5]]
    np.testing.assert_allclose(similarity[0, 0], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("2-D", {"posembed_input": (4, 2, 4, 2)}),
        ("1-D every layer", {f"posembed_{i}": (4, 2, 4, 2) for i in range(2)}),
        ("axial vit", {"posembed_input": (4, 2, 4, 2)}),
        ("mvit", {"pos_encoding": (4, 6, 4, 6), "temporal": (2, 2)}),
        ("mvit image", {"pos_encoding": (8, 6, 8, 6)}),
    ],
)
def test_all_tables_of_positions_are_compared(name, shapes):
    found = inspection.position_similarity(make_model(name))
    assert {key: value.shape for key, value in found.items()} == shapes
    for value in found.values():
        size = round(value.size**0.5)
        np.testing.assert_allclose(
            np.diag(value.reshape(size, size)), 1, rtol=1e-5
        )


@pytest.mark.parametrize("name", ["relative", "no positions", "mixer", "bit"])
def test_a_model_without_embeddings_of_positions_is_refused(name):
    with pytest.raises(ValueError, match="must add embeddings.*Received"):
        inspection.position_similarity(make_model(name))


def test_units_over_tokens_are_shown_on_the_grid():
    model = make_model("mixer")  # 4 x 2 tokens, 12 units
    block = model.get_layer("MixerBlock_1")
    kernel = np.arange(8 * 12, dtype="float32").reshape(8, 12)
    block.token_mixing.dense_0.kernel.assign(kernel)
    found = inspection.token_mixing(model)
    assert list(found) == [
        "MixerBlock_0/token_mixing",
        "MixerBlock_1/token_mixing",
    ]
    units = found["MixerBlock_1/token_mixing"]
    assert units.shape == (12, 4, 2)
    np.testing.assert_array_equal(units[3], kernel[:, 3].reshape(4, 2))


def test_units_of_rafts_are_shown_by_raft():
    shapes = {
        name: value.shape
        for name, value in inspection.token_mixing(make_model("raft")).items()
    }
    assert shapes["level0_block0/vertical"][1:] == (2, 4)
    assert shapes["level0_block0/horizontal"][1:] == (2, 2)
    (tokens, *_) = inspection.token_mixing(make_model("raft shortcut")).items()
    assert tokens[0] == "level0_block0/tokens"
    assert tokens[1].shape[1:] == (3, 3)
    with pytest.raises(ValueError, match="MLPs over tokens.*a 'vit'"):
        inspection.token_mixing(make_model("token"))


def test_the_command_draws_the_figures_of_a_model(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    model = make_model("token")
    model.save(tmp_path / "model.keras")
    image = np.random.default_rng(0).integers(0, 256, (20, 20, 3), "uint8")
    import tensorflow as tf

    tf.io.write_file(str(tmp_path / "a.png"), tf.io.encode_png(image))
    out = tmp_path / "out"
    words = [str(tmp_path / "a.png"), f"--out={out}"]
    assert inspect_tool.main([str(tmp_path / "model.keras"), *words]) == 0
    assert sorted(path.name for path in out.iterdir()) == [
        "arrays.npz",
        "attended_distances.png",
        "filters.png",
        "heads_0.png",
        "positions_posembed_input.png",
        "rollouts.png",
    ]
    assert "no mixing: `model` must have MLPs" in capsys.readouterr().out
    with np.load(out / "arrays.npz") as arrays:
        assert arrays["rollouts"].shape == (2, 1, 4, 2)
        assert arrays["distances/1"].shape == (2,)


def test_the_mixing_of_tokens_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    for name in ("mixer", "raft"):
        arrays, model = {}, make_model(name)
        inspect_tool.attempt(inspect_tool.mixing, arrays, model, tmp_path)
        assert len(arrays) == len(inspection.token_mixing(model))
        path = tmp_path / "token_mixing.png"
        assert path.read_bytes()[:4] == b"\x89PNG"


def test_videos_and_grey_images_have_pictures_too(tmp_path):
    pytest.importorskip("matplotlib")
    rng = np.random.default_rng(0)
    pictures.plot_filters(rng.normal(size=(9, 2, 3, 4, 3)), tmp_path / "v.png")
    pictures.plot_filters(rng.normal(size=(2, 3, 4, 1)), tmp_path / "g.png")
    for ndim in (2, 6):
        similarity = rng.uniform(-1, 1, (2, 3, 4) * 2 if ndim == 6 else (3, 3))
        path = tmp_path / f"{ndim}.png"
        pictures.plot_position_similarity(similarity, "title", path)
        assert path.read_bytes()[:4] == b"\x89PNG"
