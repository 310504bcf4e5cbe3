"""RaftMLP and axial models in every format: read, and written back."""

import json

import catalogue
import numpy as np
import pytest
from functional import arrays_of, golden, values_of
from keras import ops

import keras_vit
from keras_vit.weights import checkpoint, registry, released

# Golden: constructor, what the file does not show, its format.
CASES = {
    "raft_mlp": (keras_vit.RaftMLP, dict(raft_sizes=(2, 2, 2)), "authors"),
    "raft_mlp_flat": (keras_vit.RaftMLP, dict(raft_sizes=(4,)), "authors"),
    "axial_vit": (keras_vit.AxialViT, dict(classifier="gap"), "jax"),
    "axial_resnet": (keras_vit.AxialResNet, {}, "authors"),
    "axial_resnet_groupnorm": (keras_vit.AxialResNet, {}, "jax"),
}
# Where models are built the fastest.
pytestmark = pytest.mark.backend("torch")


def open_case(case, **kwargs):
    constructor, arguments, _ = CASES[case]
    data, path = golden(case)
    own = dict(weights=path, input_shape=data["input"].shape[1:])
    return constructor(**own | arguments | kwargs)


@pytest.mark.parametrize("case", CASES)
class TestFormats:
    def test_the_authors_file_is_written_back_bitwise(self, case, tmp_path):
        model = open_case(case)
        name = CASES[case][2]
        expected = arrays_of(golden(case)[1])
        if name == "jax":
            keras_vit.save_checkpoint(model, tmp_path / "out.npz", name)
            found = arrays_of(tmp_path / "out.npz")
            source = checkpoint.open_checkpoint(tmp_path / "out.npz")
            assert not checkpoint.require(source, {})
        else:
            torch = pytest.importorskip("torch")
            keras_vit.save_checkpoint(model, tmp_path / "out.pth", name)
            state = torch.load(tmp_path / "out.pth", weights_only=True)
            found = {key: value.numpy() for key, value in state.items()}
        floats = {k for k, v in found.items() if v.dtype.kind == "f"}
        assert floats == expected.keys()
        for key, array in expected.items():
            np.testing.assert_array_equal(found[key], array)

    def test_a_directory_specifies_all_that_the_model_has(self, case, tmp_path):
        constructor, _, name = CASES[case]
        if name == "jax":
            pytest.skip("an npz file")
        model = open_case(case)
        keras_vit.save_checkpoint(model, tmp_path / "out", name)
        again = constructor(weights=str(tmp_path / "out"))
        assert again.architecture == model.architecture
        assert again.image_shape == model.image_shape
        for key, value in values_of(again).items():
            np.testing.assert_array_equal(value, values_of(model)[key])

    def test_our_own_files_are_read(self, case, tmp_path):
        model = open_case(case, class_names=None)
        model.save(tmp_path / "model.keras")
        again = keras_vit.from_pretrained(tmp_path / "model.keras")
        assert again.architecture == model.architecture
        for key, value in values_of(again).items():
            np.testing.assert_array_equal(value, values_of(model)[key])

    def test_one_channel_folds_the_first_kernel(self, case):
        data, _ = golden(case)
        arguments = dict(include_preprocessing=False)
        shape = data["input"].shape[1:3]
        grey = data["input"][:1, ..., :1]
        one = open_case(case, input_shape=(*shape, 1), **arguments)
        three = open_case(case, input_shape=(*shape, 3), **arguments)
        found = one.predict(grey, verbose=0)
        if case == "axial_resnet_groupnorm":  # standardised kernels
            assert np.isfinite(found).all()
            return
        expected = three.predict(np.repeat(grey, 3, axis=-1), verbose=0)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)

    def test_other_classes_start_a_head_from_zeros(self, case):
        model = open_case(case, classes=3)
        assert model.output_shape == (None, 3)
        assert not ops.convert_to_numpy(model.head.kernel).any()

    def test_a_missing_array_is_named(self, case, tmp_path):
        constructor, arguments, _ = CASES[case]
        arrays = arrays_of(golden(case)[1])
        name = [name for name in sorted(arrays) if name.endswith("bias")][3]
        del arrays[name]
        np.savez(tmp_path / "damaged.npz", **arrays)
        with pytest.raises(ValueError, match=name):
            constructor(weights=str(tmp_path / "damaged.npz"), **arguments)


def test_the_state_dict_of_the_axial_authors_is_opened(tmp_path):
    # As their training saves it: under "net", of DataParallel, with integers
    # that modules count or derive.
    torch = pytest.importorskip("torch")
    model = open_case("axial_resnet")
    keras_vit.save_checkpoint(model, tmp_path / "out.pth", "authors")
    state = torch.load(tmp_path / "out.pth", weights_only=True)
    index = state["layer1.0.hight_block.flatten_index"].reshape(16, 16)
    assert (index[3, 1], index[0, 15]) == (17, 0)
    assert state["bn1.num_batches_tracked"] == 0
    net = {f"module.{name}": value for name, value in state.items()}
    torch.save(dict(net=net, epoch=3), tmp_path / "axial26s.pth")
    again = keras_vit.AxialResNet(weights=tmp_path / "axial26s.pth")
    for key, value in values_of(again).items():
        np.testing.assert_array_equal(value, values_of(model)[key])
    released.check(tmp_path / "axial26s.pth")
    entry = registry.find("imagenet2012", "AxialResNet26S")
    assert entry.url == "http://www.cs.jhu.edu/~hwang157/axial26s.pth"


def test_a_raft_config_holds_the_arguments_of_the_authors(tmp_path):
    keras_vit.save_checkpoint(open_case("raft_mlp"), tmp_path / "m", "authors")
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    theirs = json.loads(str(golden("raft_mlp")[0]["config"]))
    assert config["layers"] == theirs["layers"]
    for key in ("token_mixing_type", "embedding_type", "shortcut"):
        assert config[key] == theirs[key]
    assert config["pretrained_image_size"] == [64, 64]


@pytest.mark.parametrize("case", ["raft_mlp", "raft_mlp_flat"])
def test_a_raft_model_takes_images_of_the_weights_size(case):
    model = open_case(case, input_shape=None)
    assert model.image_shape == golden(case)[0]["input"].shape[1:]
    assert model.image_shape[:2] == model.architecture.pretrained_image_size


def test_a_raft_model_that_mixes_all_tokens_takes_a_square(tmp_path):
    mixing = dict(token_mixing_type="original_tm", raft_sizes=None)
    model = catalogue.make_model("raft", input_shape=(16, 16, 3), **mixing)
    path = tmp_path / "out.pth"
    keras_vit.save_checkpoint(model, path, "authors", allow_differences=True)
    again = keras_vit.RaftMLP(weights=path, include_top=False)
    assert again.image_shape == (16, 16, 3)


def test_published_windows_are_read_off_the_shapes():
    source = checkpoint.open_checkpoint(golden("raft_mlp")[1])
    assert source.metadata["patch_sizes"] == (4, 2, 2)
    assert source.metadata["embedding_kernels"] == ((4, 8), (2, 4), (2,))
    assert source.metadata["channels"] == 3
