"""MLP-Mixer and BiT in every format: read, written back, and as in timm."""

import re

import numpy as np
import pytest
from functional import arrays_of, difference, golden, values_of
from keras import ops

import keras_vit
from keras_vit.weights import checkpoint, rules

pytestmark = pytest.mark.backend("torch")

CONSTRUCTORS = {"mixer": keras_vit.MLPMixer, "bit_resnet": keras_vit.BiT}


@pytest.mark.parametrize("case", CONSTRUCTORS)
class TestFormats:
    @pytest.mark.backend("tensorflow", "jax", "torch")
    def test_the_authors_file_is_written_back_bitwise(self, case, tmp_path):
        _, path = golden(case)
        model = CONSTRUCTORS[case](weights=path)
        keras_vit.save_checkpoint(model, tmp_path / "out.npz")
        found, expected = arrays_of(tmp_path / "out.npz"), arrays_of(path)
        assert found.keys() == expected.keys()
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array)

    def test_timm_there_and_back_is_the_identity(
        self, case, tmp_path, monkeypatch
    ):
        _, path = golden(case)
        model = CONSTRUCTORS[case](weights=path)
        with pytest.raises(ValueError, match="none of its architectures"):
            keras_vit.save_checkpoint(model, tmp_path / "timm", "timm")
        # As if timm had one of these sizes.
        size = dict(mixer=(40, 16, 2), bit=((1, 1, 1, 1), 0.5))[model.family]
        name = dict(mixer="mixer_s16_224", bit="resnetv2_50x1_bit")
        module = rules.FAMILIES[model.family]
        monkeypatch.setitem(module._ARCHITECTURES, size, name[model.family])
        with pytest.raises(ValueError, match="would give other numbers"):
            keras_vit.save_checkpoint(model, tmp_path / "timm", "timm")
        keras_vit.save_checkpoint(
            model, tmp_path / "timm", "timm", allow_differences=True
        )
        again = CONSTRUCTORS[case](weights=str(tmp_path / "timm"))
        # What it computes with belongs to the file: GELU's form, epsilons.
        theirs = again.architecture
        if case == "mixer":
            assert theirs.gelu_approximate is False
        else:
            assert theirs.numerics == "timm"
        np.testing.assert_allclose(again.pixel_mean, 127.5, rtol=1e-6)
        for name, value in values_of(again).items():
            np.testing.assert_array_equal(value, values_of(model)[name])

    def test_our_own_files_are_read(self, case, tmp_path):
        _, path = golden(case)
        model = CONSTRUCTORS[case](weights=path)
        model.save(tmp_path / "model.keras")
        again = CONSTRUCTORS[case](weights=str(tmp_path / "model.keras"))
        assert again.architecture == model.architecture
        for name, value in values_of(again).items():
            np.testing.assert_array_equal(value, values_of(model)[name])
        model.save_weights(tmp_path / "model.weights.h5")
        with pytest.raises(ValueError, match="has no config"):
            CONSTRUCTORS[case](weights=str(tmp_path / "model.weights.h5"))

    def test_from_pretrained_finds_the_family(self, case):
        _, path = golden(case)
        model = keras_vit.from_pretrained(path)
        assert model.family == ("mixer" if case == "mixer" else "bit")

    def test_other_classes_start_a_head_from_zeros(self, case):
        _, path = golden(case)
        model = CONSTRUCTORS[case](weights=path, classes=3)
        assert model.output_shape == (None, 3)
        assert not ops.convert_to_numpy(model.head.kernel).any()

    def test_a_missing_array_is_named(self, case, tmp_path):
        _, path = golden(case)
        arrays = arrays_of(path)
        name = sorted(arrays)[3]
        del arrays[name]
        np.savez(tmp_path / "damaged.npz", **arrays)
        with pytest.raises(ValueError, match=name):
            CONSTRUCTORS[case](weights=str(tmp_path / "damaged.npz"))

    def test_another_family_is_refused(self, case):
        _, path = golden(case)
        with pytest.raises(ValueError, match="must be of the family 'vit'"):
            keras_vit.ViTB16(weights=path)


def test_one_channel_folds_the_first_kernel():
    for case, constructor in CONSTRUCTORS.items():
        data, path = golden(case)
        shape = (*data["input"].shape[1:3], 1)
        model = constructor(
            weights=path, input_shape=shape, include_preprocessing=False
        )
        grey = data["input"][..., :1]
        full = constructor(weights=path, input_shape=(*shape[:2], 3),
            include_preprocessing=False)  # fmt: skip
        expected = ops.convert_to_numpy(full(np.repeat(grey, 3, axis=-1)))
        found = ops.convert_to_numpy(model(grey))
        if case == "mixer":  # a standardised kernel has another scale
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        assert np.isfinite(found).all()


# Names of the release, as bit_pytorch's `load_from` has them.
BIT_PYTORCH = {
    r"resnet/root_block/.*": "root.conv.weight",
    r"resnet/group_norm/gamma": "head.gn.weight",
    r"resnet/group_norm/beta": "head.gn.bias",
    r"resnet/head/conv2d/kernel": "head.conv.weight",
    r"resnet/head/conv2d/bias": "head.conv.bias",
    r"resnet/(block\d)/(unit\d\d)/a/proj/.*": r"body.\1.\2.downsample.weight",
    r"resnet/(block\d)/(unit\d\d)/([abc])/stand.*": r"body.\1.\2.conv\3.weight",
    r"resnet/(block\d)/(unit\d\d)/([abc])/.*gamma": r"body.\1.\2.gn\3.weight",
    r"resnet/(block\d)/(unit\d\d)/([abc])/.*beta": r"body.\1.\2.gn\3.bias",
}


def bit_pytorch(arrays):
    """Returns the state dict of the authors' PyTorch code."""
    state = {}
    for name, array in arrays.items():
        ((pattern, new),) = [
            row for row in BIT_PYTORCH.items() if re.fullmatch(row[0], name)
        ]
        new = re.sub(r"(conv|gn)([abc])", _number, re.sub(pattern, new, name))
        axes = (3, 2, 0, 1) if array.ndim == 4 else (0,)
        state[new] = np.ascontiguousarray(array.transpose(axes))
    return state


def _number(match):
    return f"{match[1]}{'abc'.index(match[2]) + 1}"


def test_bit_pytorch_is_read_and_written(tmp_path):
    import torch

    data, path = golden("bit_resnet")
    state = bit_pytorch(arrays_of(path))
    saved = {f"module.{k}": torch.from_numpy(v) for k, v in state.items()}
    torch.save(dict(step=1, model=saved), tmp_path / "there.pth")
    shape = data["input"].shape[1:]
    model = keras_vit.from_pretrained(
        tmp_path / "there.pth", include_preprocessing=False, input_shape=shape
    )
    assert difference(model, data["input"], data["logits"]) <= 1e-5
    assert model.architecture.numerics == "bit"
    keras_vit.save_checkpoint(model, tmp_path / "back.pth", "authors")
    back = torch.load(tmp_path / "back.pth")
    assert back.keys() == state.keys()
    for name, array in state.items():
        np.testing.assert_array_equal(back[name].numpy(), array)


def test_scenics_post_activation_is_read_and_written(tmp_path):
    arguments = dict(
        num_units=(1, 2),
        width_factor=0.5,
        activation_order="post_activation",
        numerics="scenic",
        classes=3,
        input_shape=(32, 32, 3),
    )
    model = keras_vit.BiT(**arguments)
    model.head.kernel.assign(ops.ones(model.head.kernel.shape))
    # The authors' names: the units' blocks are not joined to them.
    arrays = {}
    for path, value in values_of(model).items():
        path = re.sub(r"block(\d)_unit(\d)/", r"block\1/unit\2/", path)
        path = path.replace("gamma", "scale").replace("beta", "bias")
        arrays[path.replace("head/", "output_projection/")] = value
    np.savez(tmp_path / "there.npz", **arrays)
    with pytest.raises(ValueError, match="`pixel_mean` and `pixel_std` must"):
        keras_vit.from_pretrained(tmp_path / "there.npz")
    again = keras_vit.from_pretrained(
        tmp_path / "there.npz", pixel_mean=127.5, pixel_std=127.5
    )
    assert again.architecture == model.architecture
    for name, value in values_of(again).items():
        np.testing.assert_array_equal(value, values_of(model)[name])
    keras_vit.save_checkpoint(again, tmp_path / "back.npz", "scenic")
    back = arrays_of(tmp_path / "back.npz")
    assert back.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)


def test_post_activation_has_no_place_in_the_release(tmp_path):
    model = keras_vit.BiT(
        num_units=(1,),
        width_factor=0.5,
        activation_order="post_activation",
        numerics="authors",
        input_shape=(32, 32, 3),
    )
    for format, name in (("jax", "a.npz"), ("timm", "a")):
        with pytest.raises(ValueError, match="post_activation"):
            keras_vit.save_checkpoint(model, tmp_path / name, format)


def test_a_gated_mixer_is_refused(tmp_path):
    _, path = golden("mixer")
    arrays = arrays_of(path)
    name = "MixerBlock_0/token_mixing/Dense_1/kernel"
    arrays[name] = arrays[name][:12]
    np.savez(tmp_path / "gated.npz", **arrays)
    with pytest.raises(ValueError, match="gated MLPs"):
        checkpoint.open_checkpoint(str(tmp_path / "gated.npz"))


def make_timm(timm, case):
    import torch

    if case == "mixer":
        model = timm.models.mlp_mixer.MlpMixer(
            num_classes=5,
            img_size=32,
            patch_size=8,
            num_blocks=2,
            embed_dim=24,
        )
    else:
        model = timm.models.resnetv2._create_resnetv2_bit(
            "resnetv2_50x1_bit",
            layers=[1, 2],
            channels=(256, 512),
            width_factor=1,
            num_classes=5,
        )
    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        with torch.no_grad():
            if parameter.ndim == 1:
                parameter += 0.3 * noise
            else:
                parameter.copy_(noise * 1.5 / parameter[0].numel() ** 0.5)
    return model.eval()


@pytest.mark.filterwarnings("ignore")  # what timm warns of is its own
@pytest.mark.parametrize("case", ["mixer", "bit"])
def test_logits_are_those_of_timm_in_float64(case, timm, tmp_path):
    import torch

    theirs = make_timm(timm, case)
    torch.save(theirs.state_dict(), tmp_path / "timm.pth")
    images = np.random.default_rng(0).uniform(-1, 1, (2, 32, 32, 3))
    images = images.astype("float32")
    with torch.no_grad():
        pixels = torch.from_numpy(images).permute(0, 3, 1, 2).double()
        expected = theirs.double()(pixels).numpy()
    constructor, unseen = keras_vit.MLPMixer, dict(gelu_approximate=False)
    if case == "bit":
        constructor, unseen = (
            keras_vit.BiT,
            dict(activation_order="pre_activation", numerics="timm"),
        )
    source = checkpoint.open_checkpoint(tmp_path / "timm.pth")
    with pytest.raises(ValueError, match=f"`{list(unseen)[0]}`.* must be giv"):
        checkpoint.require(source, {})
    model = constructor(
        weights=source,
        **unseen,
        include_preprocessing=False,
        input_shape=(32, 32, 3),
    )
    found = model.predict(images, verbose=0)
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
