"""RaftMLP: the authors' numbers, Table 1, other sizes of images, its maps."""

import catalogue
import keras
import numpy as np
import pytest
from functional import GOLDENS, difference, golden
from keras import ops

import keras_vit
from keras_vit.inspection import costs
from keras_vit.models import raft_mlp, raft_mlp_embedding

CASES = {"raft_mlp": (2, 2, 2), "raft_mlp_flat": (4,)}
FLAT = dict(depths=(12,), hidden_sizes=(768,), patch_sizes=(16,))
# Architecture, parameters with 1000 classes, billions of multiply-accumulates
# at 224 x 224.
SIZES = {
    "S": (raft_mlp.VARIANTS["RaftMLPS"], 9_868_768, 2.087),
    "Mixer": (FLAT | dict(token_mixing_type="original_tm"), 59_918_200, 12.63),
    "hierarchy M": (
        raft_mlp.VARIANTS["RaftMLPM"]
        | dict(embedding_type="emb_mixer", embedding_kernels=None),
        19_920_640,
        3.747,
    ),
    "flat, two scales": (
        FLAT
        | dict(
            raft_sizes=(2,),
            embedding_type="emb_cross_mlp",
            embedding_kernels=((16, 32),),
        ),
        60_522_184,
        12.08,
    ),
}


def authors_model(case="raft_mlp", **kwargs):
    data, path = golden(case)
    arguments = dict(
        weights=path,
        raft_sizes=CASES[case],
        include_preprocessing=False,
        input_shape=data["input"].shape[1:],
    )
    model = keras_vit.RaftMLP(**arguments | kwargs)
    return model, data["input"], data["logits"]


def resized_images():
    with np.load(GOLDENS / "raft_mlp_resized.io.npz") as archive:
        return archive["input"], archive["logits"]


@pytest.mark.parametrize("case", CASES)
def test_logits_are_the_authors(case):
    assert difference(*authors_model(case)) <= 1e-5


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param((80, 72, 3), marks=pytest.mark.backend("torch")),
        (None, None, 3),
    ],
)
def test_logits_of_images_of_another_size_are_the_authors(shape):
    model, *_ = authors_model(input_shape=shape)
    assert model.architecture.pretrained_image_size == (64, 64)
    assert difference(model, *resized_images()) <= 1e-5


@pytest.mark.backend("jax")
@pytest.mark.parametrize("name", SIZES)
def test_parameters_and_operations_are_those_published(name):
    architecture, parameters, macs = SIZES[name]
    with costs.shapes_alone():
        model = keras_vit.RaftMLP(**architecture)
    assert model.count_params() == parameters
    assert keras_vit.cost(model).macs == pytest.approx(macs * 1e9, rel=5e-4)


@pytest.mark.backend("torch")
@pytest.mark.parametrize("size", [(7, 5), (3, 9), (6, 4)])
def test_bicubic_resizing_is_pytorchs(size):
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).normal(size=(2, 6, 4, 3)).astype("float32")
    expected = torch.nn.functional.interpolate(
        torch.tensor(x).permute(0, 3, 1, 2), size, mode="bicubic"
    ).permute(0, 2, 3, 1)
    found = ops.convert_to_numpy(raft_mlp_embedding.resize_bicubic(x, size))
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)


@pytest.mark.backend("torch")
def test_what_is_mixed_along_an_axis_is_a_channel_of_all_rafts():
    block = raft_mlp.RaftMLPBlock((3, 2), raft_size=2)
    block.build((None, 3, 2, 4))
    # Without the other branches; channels 0 and 2 are a channel's two rafts.
    for mlp in (block.token_mlps[1], block.channel_mlp):
        mlp.dense_1.kernel.assign(ops.zeros_like(mlp.dense_1.kernel))
        mlp.dense_1.bias.assign(ops.zeros_like(mlp.dense_1.bias))
    x = np.random.default_rng(0).normal(size=(1, 3, 2, 4)).astype("float32")
    y = ops.convert_to_numpy(block(x)) - x
    norm = ops.convert_to_numpy(block.token_norms[0](x))
    vector = np.concatenate([norm[0, :, 1, 0], norm[0, :, 1, 2]])
    mixed = ops.convert_to_numpy(block.token_mlps[0](vector[None]))[0]
    found = np.concatenate([y[0, :, 1, 0], y[0, :, 1, 2]])
    np.testing.assert_allclose(found, mixed, rtol=1e-5, atol=1e-6)


@pytest.mark.backend("torch")
def test_each_level_scales_and_shifts_the_features_of_the_head():
    model = catalogue.make_model("raft shortcut", include_top=False)
    rng = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(rng.normal(size=weight.shape))
    x = rng.uniform(0, 255, (2, 16, 8, 3)).astype("float32")
    names = ["level0_shortcut", "level1_norm"]
    taps = [model.get_layer(name).output for name in names]
    first, last = keras.Model(model.input, taps).predict(x, verbose=0)
    expected = first[:, :12] * last.mean(axis=(1, 2)) + first[:, 12:]
    np.testing.assert_allclose(
        model.predict(x, verbose=0), expected, rtol=1e-4, atol=1e-4
    )


@pytest.mark.backend("torch")
@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("raft", [(4, 2, 8), (2, 1, 12)]),
        ("bit", [(8, 6, 128), (4, 3, 256)]),
        ("mvit", [(2, 4, 6, 16), (2, 2, 3, 16)]),
        ("mvit image", [(8, 6, 16), (4, 3, 16)]),
    ],
)
def test_levels_give_the_map_of_each(name, shapes, tmp_path):
    keras.utils.set_random_seed(0)
    body = catalogue.make_model(name, include_top=False)
    keras.utils.set_random_seed(0)
    model = catalogue.make_model(name, include_top=False, feature_maps=True)
    assert (model.family, model.architecture) == (
        body.family,
        body.architecture,
    )
    x = np.random.default_rng(0).uniform(0, 255, (3, *body.input_shape[1:]))
    maps = model.predict(x, verbose=0)
    assert [y.shape[1:] for y in maps] == shapes
    model.save(tmp_path / "maps.keras")
    again = keras.saving.load_model(tmp_path / "maps.keras")
    assert again.image_shape == model.image_shape
    for y, loaded in zip(maps, again.predict(x, verbose=0), strict=True):
        np.testing.assert_array_equal(y, loaded)


@pytest.mark.backend("torch")
def test_maps_of_released_weights_fit_any_image():
    model, *_ = authors_model(
        include_top=False, feature_maps=True, input_shape=(None, None, 3)
    )
    images, logits = resized_images()
    maps = model.predict(images, verbose=0)
    assert [y.shape[1:] for y in maps] == [
        (20, 18, 16), (10, 9, 24), (5, 5, 32),
    ]  # fmt: skip
    whole, *_ = authors_model(input_shape=(80, 72, 3))
    y = whole.get_layer("level2_norm")(maps[-1])
    y = whole.head(ops.mean(y, axis=(1, 2)))
    np.testing.assert_allclose(ops.convert_to_numpy(y), logits, atol=1e-5)


@pytest.mark.backend("torch")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(raft_sizes=None), "`raft_sizes` must be given with token_mixing"),
        (dict(embedding_kernels=None), "`embedding_kernels` must be given"),
        (dict(raft_sizes=(2,)), "`raft_sizes` must have a value for each"),
        (dict(raft_sizes=(2, 5)), "multiple of `raft_size`"),
        (dict(embedding_kernels=((4, 7), (2,))), "larger by an even number"),
        (dict(input_shape=(None, None, 3)), "`pretrained_image_size` must be"),
        (dict(feature_maps=True), "True with include_top=False"),
    ],
)
def test_arguments_are_checked(changes, message):
    with pytest.raises(ValueError, match=message):
        catalogue.make_model("raft", **changes)


@pytest.mark.backend("torch")
def test_weights_require_what_they_do_not_specify():
    with pytest.raises(ValueError, match="`raft_sizes` must be given, since"):
        authors_model(raft_sizes=None)
    with pytest.raises(ValueError, match="`patch_sizes`, `raft_sizes` and"):
        authors_model(pretrained_image_size=96)
