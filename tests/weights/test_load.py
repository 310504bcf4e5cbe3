"""Checkpoints into models: other sizes, other heads, and everything broken."""

import pathlib
import warnings

import numpy as np
import pytest
import small_checkpoints as small
from functional import arrays_of
from keras import ops

import keras_vit
from keras_vit.weights import checkpoint, load
from keras_vit.weights.rules.vit import jax

pytestmark = pytest.mark.backend("torch")

GOLDENS = pathlib.Path(__file__).parents[1] / "goldens" / "numerics"
TOKEN = GOLDENS / "vit_token.ckpt.npz"
SINES = GOLDENS / "big_vision_sincos.ckpt.npz"
PRE_LOGITS = GOLDENS / "vit_token_pre_logits.ckpt_2020.npz"


def build(weights, **kwargs):
    arguments = dict(
        patch_size=16, hidden_size=48, num_layers=2, num_heads=3, mlp_dim=96
    )
    return keras_vit.ViT(weights=weights, **{**arguments, **kwargs})


def save(path, arrays):
    np.savez(path, **arrays)
    return path


def value(model, path):
    (variable,) = [w for w in model.weights if w.path == path]
    return ops.convert_to_numpy(variable)


@pytest.mark.backend("tensorflow", "jax", "torch")
def test_another_resolution_resamples_the_positions():
    model = build(TOKEN, input_shape=(32, 96, 3))
    assert model.output_shape == (None, 7)
    found = value(model, "posembed_input/pos_embedding")
    source = arrays_of(TOKEN)[jax.POSITIONS]
    np.testing.assert_array_equal(found[:, 0], source[:, 0])
    grid = source[0, 1:].reshape(4, 4, 48)
    found = found[0, 1:].reshape(2, 6, 48)
    np.testing.assert_allclose(found[:, 0], grid[[0, 3], 0], atol=1e-6)
    np.testing.assert_allclose(found[:, -1], grid[[0, 3], 3], atol=1e-6)


class TestSines:
    """Positions of big_vision's plain ViT, which are not in its files."""

    def test_the_numbers_are_those_of_the_authors_at_any_size(self, tmp_path):
        with pytest.raises(ValueError, match="`position_embedding` must be g"):
            keras_vit.from_pretrained(SINES)
        golden = np.load(GOLDENS / "big_vision_sincos.io.npz")
        pixels = 127.5 * (golden["input"] + 1)
        sines = dict(position_embedding="sincos_2d")
        model = keras_vit.from_pretrained(
            SINES, input_shape=pixels.shape[1:], **sines
        )
        limit = 1e-6 * np.abs(golden["logits"]).max()
        self.check(model, pixels, golden["logits"], limit)
        larger = keras_vit.from_pretrained(SINES, **sines)
        assert larger.input_shape == (None, 224, 224, 3)
        larger.save(tmp_path / "a.keras")
        keras_vit.save_checkpoint(larger, tmp_path / "a.npz", "big_vision")
        same = arrays_of(SINES)
        found = arrays_of(tmp_path / "a.npz")
        assert found.keys() == same.keys()
        assert all((found[name] == same[name]).all() for name in same)
        for name, shape in (("a.keras", pixels.shape[1:]), ("a.npz", None)):
            again = keras_vit.from_pretrained(
                tmp_path / name, input_shape=shape
            )
            assert again.input_shape[1:] == (shape or (224, 224, 3))
            if shape:
                self.check(again, pixels, golden["logits"], limit)
        with pytest.raises(ValueError, match="sincos_2d.*not learned"):
            keras_vit.save_checkpoint(larger, tmp_path / "b.npz", "jax")

    @staticmethod
    def check(model, pixels, expected, limit):
        found = ops.convert_to_numpy(model(pixels))
        np.testing.assert_allclose(found, expected, rtol=0, atol=limit)

    def test_a_file_with_positions_has_no_sines(self):
        with pytest.raises(ValueError, match="unused by the model"):
            build(TOKEN, position_embedding="sincos_2d")


def test_positions_may_stand_in_the_encoder(tmp_path):
    # As big_vision wrote them before 2022.
    arrays = arrays_of(TOKEN)
    arrays["Transformer/pos_embedding"] = arrays.pop(jax.POSITIONS)
    model = build(save(tmp_path / "a.npz", arrays))
    name = "posembed_input/pos_embedding"
    np.testing.assert_array_equal(value(model, name), value(build(TOKEN), name))


def test_weights_of_three_channels_fold_to_others():
    scale = dict(pixel_mean=127.5, pixel_std=127.5)
    model = build(TOKEN, input_shape=(64, 64, 13), **scale)
    grey = np.random.default_rng(0).uniform(0, 255, (2, 64, 64, 1))
    found, expected = (
        x.predict(grey.repeat(x.input_shape[-1], axis=-1), verbose=0)
        for x in (model, build(TOKEN))
    )
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_other_classes_get_a_zero_head_without_pre_logits():
    model = build(PRE_LOGITS, classes=3)
    assert "pre_logits" not in [layer.name for layer in model.layers]
    assert not value(model, "head/kernel").any()
    assert value(model, "head/kernel").shape == (48, 3)


def test_the_same_classes_keep_head_and_pre_logits():
    model = build(PRE_LOGITS, classes=11)
    assert value(model, "head/kernel").any()
    assert value(model, "pre_logits/kernel").shape == (48, 40)


def test_a_zero_head_warns_once(tmp_path):
    arrays = arrays_of(TOKEN)
    arrays["head/kernel"] = np.zeros_like(arrays["head/kernel"])
    path = save(tmp_path / "zero.npz", arrays)
    with pytest.warns(UserWarning, match="all zeros.*augreg"):
        build(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build(path, classes=3)
        build(path, include_top=False)


def test_a_missing_an_unused_and_a_misshapen_array_are_all_listed(tmp_path):
    arrays = arrays_of(TOKEN)
    del arrays["Transformer/encoderblock_1/MlpBlock_0/Dense_0/bias"]
    arrays["decoder/kernel"] = np.zeros(3, "float32")
    name = "Transformer/encoder_norm/scale"
    arrays[name] = arrays[name][:5]
    path = save(tmp_path / "odd.npz", arrays)
    with pytest.raises(ValueError) as error:
        build(path)
    text = str(error.value)
    assert "- Transformer/encoderblock_1/MlpBlock_0/Dense_0/bias" in text
    assert "+ decoder/kernel" in text
    assert f"~ {name}: model (48,), checkpoint (5,)" in text
    assert "odd.npz" in text


def test_nothing_is_assigned_where_something_does_not_fit(tmp_path):
    model = build(None, input_shape=(64, 64, 3), classes=7)
    before = [w.copy() for w in model.get_weights()]
    arrays = arrays_of(TOKEN)
    del arrays["Transformer/encoder_norm/scale"]
    source = checkpoint.open_checkpoint(save(tmp_path / "x.npz", arrays))
    with pytest.raises(ValueError, match="- Transformer/encoder_norm/scale"):
        load.fill(model, source, model.metadata)
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (dict(num_layers=3), ["- Transformer/encoderblock_2/LayerNorm_0"]),
        (dict(num_layers=1), ["+ Transformer/encoderblock_1/LayerNorm_0"]),
        (
            dict(hidden_size=24),
            ["LayerNorm_0/bias: model (24,), checkpoint (48,)"],
        ),
        # As many values in all, cut into other heads.
        (dict(num_heads=2), ["query/kernel: model (48, 2, 24)"]),
        (dict(pooling="gap"), ["+ cls"]),
        (
            dict(position_embedding="learned_2d"),
            ["posembed_input/row_embedding (no checkpoint has it)"],
        ),
        (dict(representation_size=9), ["- pre_logits/kernel"]),
    ],
)
def test_another_architecture_gives_the_difference(arguments, words):
    with pytest.raises(ValueError, match="does not fit the model") as error:
        build(TOKEN, **arguments)
    for word in words:
        assert word in str(error.value)


class TestPositions:
    def saved(self, tmp_path, grid=(2, 6)):
        model = build(TOKEN, input_shape=(16 * grid[0], 16 * grid[1], 3))
        keras_vit.save_checkpoint(model, tmp_path / "wide.npz")
        return model, tmp_path / "wide.npz"

    def test_a_grid_that_the_file_does_not_specify_must_be_given(
        self, tmp_path
    ):
        model, path = self.saved(tmp_path)
        bare = save(tmp_path / "bare.npz", arrays_of(path))
        with pytest.raises(ValueError, match="12 position.*`position_grid="):
            build(bare)
        again = build(bare, position_grid=(2, 6))
        assert again.input_shape == (None, 32, 96, 3)
        x = np.random.default_rng(0).uniform(0, 255, (1, 32, 96, 3))
        np.testing.assert_array_equal(
            again.predict(x, verbose=0), model.predict(x, verbose=0)
        )

    def test_a_grid_of_another_number_is_refused(self, tmp_path):
        _, path = self.saved(tmp_path)
        with pytest.raises(ValueError, match=r"cover no grid of \(3, 5\)"):
            build(path, position_grid=(3, 5))

    def test_our_own_npz_specifies_its_grid(self, tmp_path):
        model, path = self.saved(tmp_path, (1, 16))  # as many as 4x4
        again = build(path, input_shape=(16, 256, 3))
        x = np.random.default_rng(0).uniform(0, 255, (1, 16, 256, 3))
        np.testing.assert_array_equal(
            again.predict(x, verbose=0), model.predict(x, verbose=0)
        )

    @pytest.mark.parametrize("layer_scale", [False, True])
    def test_a_grid_is_not_taken_for_the_square_of_as_many_rows(
        self, tmp_path, layer_scale
    ):
        # 9 rows are 3 x 3 patches, or 2 x 4 patches and a class token.
        arrays = small.timm()[0]
        gelu = dict(gelu_approximate=False)
        if layer_scale:
            gelu = dict(activation="gelu", post_norm=False)
        scale = np.ones(small.WIDTH, "float32")
        for i in range(small.LAYERS if layer_scale else 0):
            arrays |= {f"blocks.{i}.ls{n}.gamma": scale for n in (1, 2)}
        rows = np.random.default_rng(0).normal(size=(1, 9, small.WIDTH))
        arrays["pos_embed"] = rows.astype("float32")
        path = small.write(tmp_path / "bare", arrays)

        def opened(*grid, **kwargs):
            shape = (grid[0] * small.PATCH, grid[1] * small.PATCH, 3)
            given = dict(
                num_heads=small.HEADS, layer_norm_epsilon=1e-6, pixel_mean=0,
                pixel_std=255, input_shape=shape, **kwargs,
            )  # fmt: skip
            given |= gelu
            return keras_vit.from_pretrained(path, **given)

        for grid in ((2, 4), (1, 9)):
            with pytest.raises(ValueError, match="`position_grid`.*3, 3.*or"):
                opened(*grid)
            assert opened(*grid, position_grid=(3, 3)).metadata["grid"] == grid
        table = value(
            opened(2, 4, position_grid=(2, 4)), "posembed_input/pos_embedding"
        )
        np.testing.assert_array_equal(table, arrays["pos_embed"])
        assert opened(3, 3).metadata["grid"] == (3, 3)
        assert opened(5, 6).metadata["grid"] == (5, 6)

    def test_a_lost_class_token_is_named(self, tmp_path):
        arrays = arrays_of(TOKEN)
        del arrays["cls"]
        with pytest.raises(ValueError, match="a class token, which is missing"):
            build(save(tmp_path / "lost.npz", arrays))


class TestPatches:
    def test_another_patch_size_is_refused_by_default(self):
        with pytest.raises(ValueError, match="~ embedding/kernel"):
            build(TOKEN, patch_size=8)
        model = build(TOKEN, patch_size=8, resize_patches=True)
        assert model.input_shape == (None, 64, 64, 3)
        assert value(model, "embedding/kernel").shape == (8, 8, 3, 48)

    def test_upscaled_images_give_the_same_tokens(self):
        # Growing patches lose nothing: images resized as the patches are.
        small = build(TOKEN, patch_size=16)
        large = build(
            TOKEN, patch_size=32, resize_patches=True,
            input_shape=(128, 128, 3),
        )  # fmt: skip
        rng = np.random.default_rng(0)
        patches = rng.uniform(0, 255, (16, 16, 16, 3)).astype("float32")
        grown = ops.convert_to_numpy(
            ops.image.resize(patches, (32, 32), "bilinear")
        )

        def image(patches):
            rows = patches.reshape(4, 4, *patches.shape[1:])
            return np.concatenate(np.concatenate(rows, axis=1), axis=1)[None]

        expected = small.predict(image(patches), verbose=0)
        found = large.predict(image(grown), verbose=0)
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_sizes_must_come_from_somewhere():
    with pytest.raises(ValueError, match="`patch_size` must be given"):
        keras_vit.ViT()
