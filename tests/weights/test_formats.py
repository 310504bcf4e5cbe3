"""Families other than ViTs in every format: read, and written back.

A case is a golden of tests/goldens/numerics, a file made by the authors' code.
"""

import argparse

import catalogue
import numpy as np
import pytest
from functional import arrays_of, golden, values_of
from keras import ops

import keras_vit
from keras_vit.weights import checkpoint, registry, released, rules

# Where models are built the fastest.
pytestmark = pytest.mark.backend("torch")
# Golden: the constructor of any size, the format of the file, and what the file
# does not show.
CASES = {
    "mixer": (keras_vit.MLPMixer, "jax", {}),
    "bit_resnet": (keras_vit.BiT, "jax", {}),
    "raft_mlp": (keras_vit.RaftMLP, "authors", dict(raft_sizes=(2, 2, 2))),
    "raft_mlp_flat": (keras_vit.RaftMLP, "authors", dict(raft_sizes=(4,))),
    "axial_vit": (keras_vit.AxialViT, "jax", dict(pooling="gap")),
    "axial_resnet": (keras_vit.AxialResNet, "authors", {}),
    "axial_resnet_groupnorm": (keras_vit.AxialResNet, "jax", {}),
    "res_mlp": (keras_vit.ResMLP, "timm", {}),
    "gmlp": (keras_vit.GMLP, "timm", {}),
    "ff_only": (keras_vit.FFOnly, "authors", {}),
    "eamlp": (keras_vit.EAMLP, "authors", {}),
    "cycle_mlp": (keras_vit.CycleMLP, "authors", {}),
}
# Each case in a format whose directory has a config.
DIRECTORIES = [
    ("mixer", "timm"),
    ("bit_resnet", "timm"),
    ("res_mlp", "authors"),
    *(
        (case, format)
        for case, (_, format, _) in CASES.items()
        if format != "jax"
    ),
]
# The sizes of goldens for which timm has no architecture.
SIZES_OF_TIMM = {
    "mixer": ((40, 16, 2), "mixer_s16_224"),
    "bit": (((1, 1, 1, 1), 0.5), "resnetv2_50x1_bit"),
    "res_mlp": ((32, 8, 3), "resmlp_12_224"),
    "gmlp": ((32, 8, 2), "gmlp_s16_224"),
}


def open_case(case, **kwargs):
    constructor, _, unseen = CASES[case]
    data, path = golden(case)
    own = dict(weights=path, input_shape=data["input"].shape[1:])
    return constructor(**own | unseen | kwargs)


def assert_same_values(model, other):
    expected = values_of(other)
    for key, value in values_of(model).items():
        np.testing.assert_array_equal(value, expected[key])


@pytest.fixture
def sizes_of_timm(monkeypatch):
    """Has timm know the architectures of the goldens."""
    for family, (size, name) in SIZES_OF_TIMM.items():
        known = rules.FAMILIES[family]._ARCHITECTURES
        monkeypatch.setitem(known, size, name)


@pytest.mark.parametrize("case", CASES)
class TestEveryFamily:
    def test_the_file_is_written_back_bitwise(
        self, case, tmp_path, sizes_of_timm
    ):
        torch = pytest.importorskip("torch")
        model, format = open_case(case), CASES[case][1]
        expected = arrays_of(golden(case)[1])
        path = tmp_path / ("out.npz" if format == "jax" else "out.pth")
        keras_vit.save_checkpoint(model, path, format)
        if format == "jax":
            found = arrays_of(path)
            source = checkpoint.open_checkpoint(path)
            assert checkpoint.complete(source, model.metadata) is source
        else:
            state = torch.load(path, weights_only=True)
            found = {key: value.numpy() for key, value in state.items()}
        floats = {k for k, v in found.items() if v.dtype.kind == "f"}
        assert floats == expected.keys()
        for key, array in expected.items():
            np.testing.assert_array_equal(found[key], array)

    def test_our_own_files_are_read(self, case, tmp_path):
        model = open_case(case)
        model.save(tmp_path / "model.keras")
        again = keras_vit.from_pretrained(tmp_path / "model.keras")
        assert again.architecture == model.architecture
        assert_same_values(again, model)
        model.save_weights(tmp_path / "model.weights.h5")
        with pytest.raises(ValueError, match="has no config|cannot be read"):
            CASES[case][0](weights=str(tmp_path / "model.weights.h5"))

    def test_one_channel_folds_the_first_kernel(self, case):
        if case == "eamlp":
            pytest.skip("a norm of the values of all channels precedes it")
        data, _ = golden(case)
        shape = data["input"].shape[1:3]
        arguments = dict(include_preprocessing=False)
        one = open_case(case, input_shape=(*shape, 1), **arguments)
        three = open_case(case, input_shape=(*shape, 3), **arguments)
        grey = data["input"][:1, ..., :1]
        found = one.predict(grey, verbose=0)
        if case in ("bit_resnet", "axial_resnet_groupnorm"):
            # A standardised kernel has another scale.
            assert np.isfinite(found).all()
            return
        expected = three.predict(np.repeat(grey, 3, axis=-1), verbose=0)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)

    def test_other_classes_start_a_head_from_zeros(self, case):
        model = open_case(case, classes=3)
        assert model.output_shape == (None, 3)
        assert not ops.convert_to_numpy(model.head.kernel).any()

    def test_a_missing_array_is_named(self, case, tmp_path):
        constructor, _, unseen = CASES[case]
        arrays = arrays_of(golden(case)[1])
        biases = [name for name in sorted(arrays) if name.endswith("bias")]
        name = biases[3] if len(biases) > 3 else sorted(arrays)[3]
        del arrays[name]
        np.savez(tmp_path / "damaged.npz", **arrays)
        with pytest.raises(ValueError, match=name):
            constructor(weights=str(tmp_path / "damaged.npz"), **unseen)


def test_another_constructor_refuses_a_family():
    with pytest.raises(ValueError, match="must be of the family 'vit'"):
        keras_vit.ViTB16(weights=golden("mixer")[1])


@pytest.mark.parametrize(("case", "format"), DIRECTORIES)
def test_a_directory_specifies_all_that_the_model_has(
    case, format, tmp_path, sizes_of_timm
):
    model = open_case(case)
    if case in ("mixer", "bit_resnet"):
        with pytest.raises(ValueError, match="would give other numbers"):
            keras_vit.save_checkpoint(model, tmp_path / "out", format)
    keras_vit.save_checkpoint(
        model, tmp_path / "out", format, allow_differences=True
    )
    source = checkpoint.open_checkpoint(str(tmp_path / "out"))
    assert (source.family, source.format_name) == (model.family, format)
    constructor, _, unseen = CASES[case]
    again = constructor(weights=str(tmp_path / "out"))
    # What it computes with belongs to the file: GELU's form, epsilons.
    if case == "mixer":
        assert again.architecture.gelu_approximate is False
    elif case == "bit_resnet":
        assert again.architecture.numerics == "timm"
    else:
        assert again.architecture == model.architecture
    if case not in ("cycle_mlp", "bit_resnet"):  # of no size of images
        assert again.image_shape == model.image_shape
    np.testing.assert_allclose(again.pixel_mean, model.pixel_mean, rtol=1e-6)
    assert_same_values(again, model)


@pytest.mark.parametrize("case", ["mixer", "bit_resnet", "res_mlp", "gmlp"])
def test_sizes_that_timm_does_not_have_are_refused(case, tmp_path):
    with pytest.raises(ValueError, match="none of its architectures"):
        keras_vit.save_checkpoint(open_case(case), tmp_path / "out", "timm")


@pytest.mark.parametrize(
    "case", ["res_mlp", "ff_only", "eamlp", "cycle_mlp", "axial_resnet"]
)
def test_another_scale_of_pixels_would_give_other_numbers(case, tmp_path):
    # timm's config specifies the scale, the authors' code has one.
    model = open_case(case, pixel_mean=127.5, pixel_std=127.5)
    with pytest.raises(ValueError, match="other numbers"):
        keras_vit.save_checkpoint(model, tmp_path / "out", "authors")


def test_a_resmlp_of_its_authors_has_their_names(tmp_path):
    keras_vit.save_checkpoint(
        open_case("res_mlp"), tmp_path / "out.pth", "authors"
    )
    torch = pytest.importorskip("torch")
    state = torch.load(tmp_path / "out.pth", weights_only=True)
    block = {n[9:] for n in state if n.startswith("blocks.1.")}
    assert block == {
        *("norm1.alpha", "norm1.beta", "attn.weight", "attn.bias", "gamma_1"),
        *("norm2.alpha", "norm2.beta", "gamma_2"),
        *(f"mlp.fc{n}.{part}" for n in (1, 2) for part in ("weight", "bias")),
    }
    assert state["norm.alpha"].shape == (32,)
    # As their training saves it.
    torch.save(dict(model=state), tmp_path / "trained.pth")
    released.check(tmp_path / "trained.pth")


def test_other_offsets_of_a_cycle_are_refused(tmp_path):
    arrays = arrays_of(golden("cycle_mlp")[1])
    name = "network.0.1.attn.sfc_w.offset"
    arrays[name] = -arrays[name]
    np.savez(tmp_path / "other.npz", **arrays)
    with pytest.raises(ValueError, match="sfc_w.offset` to be 0, 1 and -1"):
        keras_vit.CycleMLP(weights=tmp_path / "other.npz")


def test_a_file_of_a_training_script_has_its_arguments_beside(tmp_path):
    torch = pytest.importorskip("torch")
    state = {
        name: torch.from_numpy(array)
        for name, array in arrays_of(golden("eamlp")[1]).items()
    }
    saved = dict(state_dict=state, epoch=3, args=argparse.Namespace(lr=0.1))
    saved["model"] = dict(depth=2)  # settings
    torch.save(saved, tmp_path / "model_best.pth.tar")
    released.check(tmp_path / "model_best.pth.tar")
    model = keras_vit.EAMLP(weights=tmp_path / "model_best.pth.tar")
    assert_same_values(model, open_case("eamlp"))
    # The scripts of DeiT and of timm save an average beside the weights.
    saved = dict(model=state, model_ema=None)
    torch.save(saved, tmp_path / "checkpoint.pth")
    released.check(tmp_path / "checkpoint.pth")
    for key in ("state_dict", "model"):
        average = {name: 0 * value for name, value in state.items()}
        torch.save({key: state, f"{key}_ema": average}, tmp_path / "both.pth")
        with pytest.warns(UserWarning, match=f"`{key}` is .* not .*`{key}_ema"):
            model = keras_vit.EAMLP(weights=tmp_path / "both.pth")
        assert_same_values(model, open_case("eamlp"))


def test_two_models_in_a_file_are_refused(tmp_path):
    torch = pytest.importorskip("torch")
    one = {"a.weight": torch.zeros(3)}
    torch.save(dict(state_dict=one, net=one), tmp_path / "both.pth")
    with pytest.raises(ValueError, match="`state_dict` and `net`"):
        keras_vit.EAMLP(weights=tmp_path / "both.pth")


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
    assert_same_values(again, model)
    released.check(tmp_path / "axial26s.pth")
    entry = registry.find("imagenet2012", "AxialResNet26S")
    assert entry.url == "http://www.cs.jhu.edu/~hwang157/axial26s.pth"


def test_a_raft_model_that_mixes_all_tokens_takes_a_square(tmp_path):
    mixing = dict(token_mixing_type="original_tm", raft_sizes=None)
    model = catalogue.make_model("raft", input_shape=(16, 16, 3), **mixing)
    path = tmp_path / "out.pth"
    keras_vit.save_checkpoint(model, path, "authors", allow_differences=True)
    again = keras_vit.RaftMLP(weights=path, include_top=False)
    assert again.image_shape == (16, 16, 3)
