"""Checkpoints into models: other sizes, other heads, and everything broken."""

import pathlib
import warnings

import numpy as np
import pytest
from keras import ops

import keras_vit
from keras_vit.weights import load, registry
from keras_vit.weights.rules import vit as rules

GOLDENS = pathlib.Path(__file__).parents[1] / "goldens" / "numerics"
TOKEN = GOLDENS / "vit_token.ckpt.npz"
PRE_LOGITS = GOLDENS / "vit_token_pre_logits.ckpt_2020.npz"
HYBRID = GOLDENS / "hybrid_two_stages.ckpt_2020.npz"


def build(weights, **kwargs):
    arguments = dict(
        patch_size=16, hidden_size=48, num_layers=2, num_heads=3, mlp_dim=96
    )
    return keras_vit.ViT(weights=weights, **{**arguments, **kwargs})


def arrays_of(path):
    with np.load(path) as archive:
        return dict(archive)


def save(path, arrays):
    np.savez(path, **arrays)
    return path


def value(model, path):
    (variable,) = [w for w in model.weights if w.path == path]
    return ops.convert_to_numpy(variable)


@pytest.mark.parametrize("path", [TOKEN, PRE_LOGITS, HYBRID])
def test_rules_invert(path):
    arrays = rules.respell(arrays_of(path))
    num_heads = 2 if path == HYBRID else 3
    if path == HYBRID:
        model = build(
            path,
            hidden_size=32,
            num_heads=2,
            mlp_dim=64,
            patch_size=1,
            resnet_units=(1, 2),
            resnet_width=0.5,
        )
    else:
        model = build(path)
    table = rules.rules(num_heads)
    back = {}
    for variable in model.weights:
        rule, names = load._rule_of(variable.path, table)
        parts = rule.split(ops.convert_to_numpy(variable))
        back.update(zip(names, parts, strict=True))
    assert back.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)


def test_both_spellings_are_one():
    old = rules.respell(arrays_of(HYBRID))
    assert "Transformer/encoderblock_1/LayerNorm_1/scale" in old
    assert old["gn_root/scale"].shape == (32,)
    new = arrays_of(TOKEN)
    assert rules.respell(new) is new


def test_another_resolution_resamples_the_positions():
    model = build(TOKEN, input_shape=(32, 96, 3))
    assert model.output_shape == (None, 7)
    found = value(model, "posembed_input/pos_embedding")
    source = arrays_of(TOKEN)[rules.POSITIONS]
    np.testing.assert_array_equal(found[:, 0], source[:, 0])
    grid = source[0, 1:].reshape(4, 4, 48)
    found = found[0, 1:].reshape(2, 6, 48)
    np.testing.assert_allclose(found[:, 0], grid[[0, 3], 0], atol=1e-6)
    np.testing.assert_allclose(found[:, -1], grid[[0, 3], 3], atol=1e-6)


def test_the_grid_and_not_its_size_decides():
    model = build(TOKEN, input_shape=(32, 128, 3))  # 2x8, from 4x4
    found = value(model, "posembed_input/pos_embedding")
    assert not np.allclose(found, arrays_of(TOKEN)[rules.POSITIONS])


def test_other_classes_get_a_zero_head_without_pre_logits():
    model = build(PRE_LOGITS, classes=3)
    assert "pre_logits" not in [layer.name for layer in model.layers]
    assert not value(model, "head/kernel").any()
    assert value(model, "head/kernel").shape == (48, 3)


def test_the_same_classes_keep_head_and_pre_logits():
    model = build(PRE_LOGITS, classes=11)
    assert value(model, "head/kernel").any()
    assert value(model, "pre_logits/kernel").shape == (48, 40)


def test_pre_logits_can_be_kept_under_a_new_head():
    model = build(PRE_LOGITS, classes=3, representation_size=40)
    np.testing.assert_array_equal(
        value(model, "pre_logits/kernel"),
        arrays_of(PRE_LOGITS)["pre_logits/kernel"],
    )
    assert not value(model, "head/kernel").any()


def test_without_the_top_the_head_is_left_out():
    model = build(PRE_LOGITS, include_top=False)
    assert model.output_shape == (None, 48)


@pytest.mark.parametrize("channels", [1, 4])
def test_other_channels_see_grey_alike(channels):
    rgb = build(TOKEN)
    other = build(TOKEN, input_shape=(64, 64, channels))
    grey = np.random.default_rng(0).uniform(0, 255, (1, 64, 64, 1))
    np.testing.assert_allclose(
        other.predict(np.repeat(grey, channels, -1), verbose=0),
        rgb.predict(np.repeat(grey, 3, -1), verbose=0),
        rtol=1e-4,
        atol=1e-5,
    )


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


def test_nothing_is_assigned_where_something_does_not_fit():
    model = build(None, input_shape=(64, 64, 3), classes=7)
    before = [w.copy() for w in model.get_weights()]
    arrays = arrays_of(TOKEN)
    del arrays["cls"]
    with pytest.raises(ValueError, match="- cls"):
        load.assign(model.weights, arrays, rules.rules(3), source="x")
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
        (dict(classifier="gap"), ["+ cls"]),
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


class TestDamagedFiles:
    def check(self, path, *words):
        with pytest.raises(ValueError) as error:
            build(path)
        for word in (path.name, *words):
            assert word in str(error.value)

    def test_missing(self, tmp_path):
        self.check(tmp_path / "absent.npz", "no such file")

    def test_directory(self, tmp_path):
        self.check(tmp_path, "directory")

    @pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
    def test_truncated(self, tmp_path, share):
        data = TOKEN.read_bytes()
        path = tmp_path / "short.npz"
        path.write_bytes(data[: int(len(data) * share)])
        self.check(path, "truncated")

    def test_flipped_byte(self, tmp_path):
        data = bytearray(TOKEN.read_bytes())
        data[len(data) // 2] ^= 0xFF
        path = tmp_path / "flipped.npz"
        path.write_bytes(data)
        self.check(path, "damaged")

    def test_not_npz(self, tmp_path):
        path = tmp_path / "text.npz"
        path.write_text("weights")
        self.check(path, "no zip archive")

    def test_pickles_are_refused_and_not_run(self, tmp_path):
        ran = []

        class Bomb:
            def __reduce__(self):
                return (ran.append, (1,))

        path = tmp_path / "pickle.npz"
        np.savez(path, cls=np.array([Bomb()], dtype=object))
        self.check(path, "pickled")
        assert ran == []

    def test_integers(self, tmp_path):
        arrays = arrays_of(TOKEN)
        arrays["cls"] = arrays["cls"].astype("int32")
        self.check(save(tmp_path / "ints.npz", arrays), "`cls` of int32")

    def test_no_vit(self, tmp_path):
        path = save(tmp_path / "other.npz", {"a": np.zeros(2, "float32")})
        with pytest.raises(ValueError, match="no ViT of the authors"):
            build(path)

    def test_positions_of_no_square(self, tmp_path):
        arrays = arrays_of(TOKEN)
        arrays[rules.POSITIONS] = arrays[rules.POSITIONS][:, :14]
        path = save(tmp_path / "grid.npz", arrays)
        with pytest.raises(ValueError, match="square grid.*13 patches"):
            build(path)


class TestNames:
    def test_unknown_weights_give_the_nearest_names(self):
        with pytest.raises(ValueError) as error:
            keras_vit.ViTB16(weights="imagenet-21k")
        assert "imagenet21k" in str(error.value)
        assert "ViTB16" in str(error.value)

    def test_weights_of_another_variant_are_unknown(self):
        with pytest.raises(ValueError, match="no such file exists"):
            keras_vit.ViTB8(weights="imagenet21k")

    def test_a_named_checkpoint_is_fetched_once(self, tmp_path, monkeypatch):
        server, cache = tmp_path / "server", tmp_path / "cache"
        (server / "imagenet21k").mkdir(parents=True)
        file = server / "imagenet21k" / "ViT-B_16.npz"
        file.write_bytes(TOKEN.read_bytes())
        monkeypatch.setenv("KERAS_VIT_WEIGHTS_URL", server.as_uri())
        monkeypatch.setenv("KERAS_HOME", str(cache))
        small = dict(hidden_size=48, num_layers=2, num_heads=3, mlp_dim=96)
        model = keras_vit.ViTB16(weights="imagenet21k", **small)
        assert model.input_shape == (None, 64, 64, 3)
        assert model.output_shape == (None, 7)
        file.unlink()
        keras_vit.ViTB16(weights="imagenet21k", **small)

    def test_every_named_file_is_of_a_constructor(self):
        for files in registry.CHECKPOINTS.values():
            assert set(files) <= set(keras_vit.list_models())
