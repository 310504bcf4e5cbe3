"""MLP-Mixer and BiT in the names of other libraries, and as in timm."""

import re

import numpy as np
import pytest
import realistic
from functional import arrays_of, difference, golden, values_of
from keras import ops

import keras_vit
from keras_vit.weights import checkpoint

pytestmark = pytest.mark.backend("torch")

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
        depths=(1, 2),
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

    # big_vision's names: other epsilons belong to them, and what its training
    # saves beside is not read.
    theirs = {
        f"params/{name.replace('output_projection', 'head')}": array
        for name, array in arrays.items()
    }
    theirs |= {"opt/0/count": np.int32(3), "chrono/seen": np.float32(1)}
    np.savez(tmp_path / "big_vision.npz", **theirs)
    again = keras_vit.from_pretrained(
        tmp_path / "big_vision.npz", pixel_mean=127.5, pixel_std=127.5
    )
    assert again.architecture.numerics == "authors"
    for name, value in values_of(again).items():
        np.testing.assert_array_equal(value, values_of(model)[name])


def test_a_mixer_of_big_vision_is_that_of_the_authors(tmp_path):
    data, path = golden("mixer")
    arrays = arrays_of(path)
    theirs = {f"params/{name}": array for name, array in arrays.items()}
    theirs["opt/0/count"] = np.int32(3)
    np.savez(tmp_path / "big_vision.npz", **theirs)
    model = keras_vit.from_pretrained(tmp_path / "big_vision.npz")
    expected = keras_vit.from_pretrained(path)
    assert model.architecture == expected.architecture
    for name, value in values_of(model).items():
        np.testing.assert_array_equal(value, values_of(expected)[name])


def test_a_gated_mixer_is_refused(tmp_path):
    _, path = golden("mixer")
    arrays = arrays_of(path)
    name = "MixerBlock_0/token_mixing/Dense_1/kernel"
    arrays[name] = arrays[name][:12]
    np.savez(tmp_path / "gated.npz", **arrays)
    with pytest.raises(ValueError, match="gated MLPs"):
        checkpoint.open_checkpoint(str(tmp_path / "gated.npz"))


def make_timm(timm, case):
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
    return realistic.fill_torch(model)


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
        checkpoint.complete(source, {})
    model = constructor(
        weights=source,
        **unseen,
        include_preprocessing=False,
        input_shape=(32, 32, 3),
    )
    found = model.predict(images, verbose=0)
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
