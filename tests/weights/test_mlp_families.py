"""Families of MLPs in every format: read, and written back."""

import argparse

import numpy as np
import pytest
from functional import arrays_of, golden, values_of
from keras import ops

import keras_vit
from keras_vit.weights import checkpoint, released, rules

# Golden: the constructor of any size, the file's format, and for timm the
# sizes for which it has no architecture.
CASES = {
    "res_mlp": (keras_vit.ResMLP, "timm", (32, 8, 3)),
    "gmlp": (keras_vit.GMLP, "timm", (32, 8, 2)),
    "ff_only": (keras_vit.FFOnly, "authors"),
    "eamlp": (keras_vit.EAMLP, "authors"),
    "cycle_mlp": (keras_vit.CycleMLP, "authors"),
}
FORMATS = [
    ("res_mlp", "timm"),
    ("res_mlp", "authors"),
    ("gmlp", "timm"),
    ("ff_only", "authors"),
    ("eamlp", "authors"),
    ("cycle_mlp", "authors"),
]
# Where models are built the fastest.
pytestmark = pytest.mark.backend("torch")


def open_case(case, **kwargs):
    data, path = golden(case)
    own = dict(weights=path, input_shape=data["input"].shape[1:])
    return CASES[case][0](**own | kwargs)


@pytest.fixture
def sizes_of_timm(monkeypatch):
    """Has timm know the architectures of the goldens."""
    for case, (_, _, *size) in CASES.items():
        for key in size:
            names = rules.FAMILIES[case]._ARCHITECTURES
            first = next(iter(names.values()))
            monkeypatch.setitem(names, key, first)


@pytest.mark.parametrize("case", CASES)
class TestFiles:
    def test_the_file_is_written_back_bitwise(
        self, case, tmp_path, sizes_of_timm
    ):
        torch = pytest.importorskip("torch")
        path = golden(case)[1]
        keras_vit.save_checkpoint(
            open_case(case), tmp_path / "out.pth", CASES[case][1]
        )
        found = torch.load(tmp_path / "out.pth", weights_only=True)
        expected = arrays_of(path)
        assert found.keys() == expected.keys()
        for key, array in expected.items():
            np.testing.assert_array_equal(found[key].numpy(), array)

    def test_our_own_files_are_read(self, case, tmp_path):
        model = open_case(case)
        model.save(tmp_path / "model.keras")
        again = keras_vit.from_pretrained(tmp_path / "model.keras")
        assert again.architecture == model.architecture
        for key, value in values_of(again).items():
            np.testing.assert_array_equal(value, values_of(model)[key])

    def test_one_channel_folds_the_first_kernel(self, case):
        if case == "eamlp":
            pytest.skip("a norm of the values of all channels precedes it")
        data, _ = golden(case)
        shape = data["input"].shape[1:3]
        arguments = dict(include_preprocessing=False)
        one = open_case(case, input_shape=(*shape, 1), **arguments)
        three = open_case(case, input_shape=(*shape, 3), **arguments)
        grey = data["input"][..., :1]
        np.testing.assert_allclose(
            one.predict(grey, verbose=0),
            three.predict(np.repeat(grey, 3, axis=-1), verbose=0),
            rtol=1e-4,
            atol=1e-5,
        )

    def test_other_classes_start_a_head_from_zeros(self, case):
        model = open_case(case, classes=3)
        assert model.output_shape == (None, 3)
        assert not ops.convert_to_numpy(model.head.kernel).any()

    def test_a_missing_array_is_named(self, case, tmp_path):
        arrays = arrays_of(golden(case)[1])
        name = [name for name in sorted(arrays) if name.endswith("bias")][3]
        del arrays[name]
        np.savez(tmp_path / "damaged.npz", **arrays)
        with pytest.raises(ValueError, match=name):
            CASES[case][0](weights=str(tmp_path / "damaged.npz"))


@pytest.mark.parametrize(("case", "format"), FORMATS)
def test_a_directory_specifies_all_that_the_model_has(
    case, format, tmp_path, sizes_of_timm
):
    model = open_case(case)
    keras_vit.save_checkpoint(model, tmp_path / "out", format)
    source = checkpoint.open_checkpoint(str(tmp_path / "out"))
    assert (source.family, source.format_name) == (case, format)
    again = keras_vit.from_pretrained(tmp_path / "out")
    assert again.architecture == model.architecture
    if case != "cycle_mlp":  # whose weights are of no size of images
        assert again.image_shape == model.image_shape
    np.testing.assert_allclose(again.pixel_mean, model.pixel_mean, rtol=1e-6)
    for key, value in values_of(again).items():
        np.testing.assert_array_equal(value, values_of(model)[key])


@pytest.mark.parametrize("case", [c for c in CASES if CASES[c][1] == "timm"])
def test_sizes_that_timm_does_not_have_are_refused(case, tmp_path):
    with pytest.raises(ValueError, match="none of its architectures"):
        keras_vit.save_checkpoint(open_case(case), tmp_path / "out", "timm")


@pytest.mark.parametrize("case", CASES)
def test_another_scale_of_pixels_would_give_other_numbers(case, tmp_path):
    # timm's config specifies the scale, the authors' code has one.
    for own, format in FORMATS:
        if own == case and format == "authors":
            model = open_case(case, pixel_mean=127.5, pixel_std=127.5)
            with pytest.raises(ValueError, match="other numbers"):
                keras_vit.save_checkpoint(model, tmp_path / "out", format)


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
    torch.save(saved, tmp_path / "model_best.pth.tar")
    released.check(tmp_path / "model_best.pth.tar")
    model = keras_vit.EAMLP(weights=tmp_path / "model_best.pth.tar")
    expected = values_of(open_case("eamlp"))
    for key, value in values_of(model).items():
        np.testing.assert_array_equal(value, expected[key])
