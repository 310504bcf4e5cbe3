"""Released files with heads: the library's numbers, and back bit for bit."""

import json

import keras
import numpy as np
import pytest

import keras_vit
from tests.drawn_folders import drawn
from tests.heads import theirs

safetensors = pytest.importorskip("safetensors.numpy")

GOLDENS = drawn("tasks")
pytestmark = pytest.mark.filterwarnings("ignore")  # of transformers


def check(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        tolerance = 1e-4 if name == "predicted_depth" else 1e-5
        found_value = keras.ops.convert_to_numpy(found[name])
        assert found_value.shape == value.shape, name
        difference = np.abs(found_value - value).max()
        assert difference <= tolerance * np.abs(value).max(), name


def check_same_files(folder, other):
    mine, own = (
        safetensors.load_file(path / "model.safetensors")
        for path in (folder, other)
    )
    assert mine.keys() == own.keys()
    for name, value in own.items():
        assert mine[name].dtype == value.dtype
        np.testing.assert_array_equal(mine[name], value, err_msg=name)


@pytest.mark.parametrize("name", sorted(p.name for p in GOLDENS.iterdir()))
def test_goldens_have_the_librarys_numbers(name, tmp_path):
    data = np.load(GOLDENS / name / "io.npz")
    shape = data["pixels"].shape[1:]
    model = keras_vit.from_pretrained(GOLDENS / name, input_shape=shape)
    expected = {
        key.removeprefix("out/"): theirs.channels_last(
            key.removeprefix("out/"), data[key]
        )
        for key in data.files
        if key.startswith("out/") and not key.endswith("hidden_state")
    }
    check(model.predict(data["pixels"], verbose=0), expected)
    model = keras_vit.from_pretrained(GOLDENS / name)
    keras_vit.save_checkpoint(model, tmp_path / "own", format="huggingface")
    check_same_files(tmp_path / "own", GOLDENS / name)


@pytest.mark.backend("torch")
@pytest.mark.parametrize("case", theirs.CASES)
def test_files_have_the_librarys_numbers_and_are_saved(
    case, transformers, tmp_path
):
    folder, own = tmp_path / "theirs", tmp_path / "own"
    model, size = theirs.make(transformers, case, folder)
    opened = keras_vit.from_pretrained(folder)
    x = theirs.pixels(size)
    expected = theirs.outputs(model, x)
    check(opened.predict(x, verbose=0), expected)
    keras_vit.save_checkpoint(opened, own, format="huggingface")
    check_same_files(own, folder)
    again = type(model).from_pretrained(own)
    for name, value in theirs.outputs(again.eval(), x).items():
        atol = 1e-5 * np.abs(expected[name]).max()
        np.testing.assert_allclose(value, expected[name], rtol=0, atol=atol)
    names = json.loads((folder / "config.json").read_text()).get("id2label")
    assert names is None or len(names) in (2, opened.metadata["classes"])
    opened.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert isinstance(again, keras_vit.heads.TaskModel)
    # JSON has no tuples.
    assert json.dumps(again.metadata) == json.dumps(opened.metadata)
    assert again.provenance == str(folder)
    for name, value in opened(x).items():
        np.testing.assert_array_equal(
            keras.ops.convert_to_numpy(again(x)[name]),
            keras.ops.convert_to_numpy(value),
        )


@pytest.mark.backend("torch")
@pytest.mark.parametrize("case", theirs.OTHER_SIZES)
def test_other_image_sizes_give_the_librarys_numbers(
    case, transformers, tmp_path
):
    model, _ = theirs.make(transformers, case, tmp_path)
    size = theirs.OTHER_SIZES[case]
    opened = keras_vit.from_pretrained(tmp_path, input_shape=(*size, 3))
    x = theirs.pixels(size)
    model = theirs.at_size(model, tmp_path, size)
    check(opened(x), theirs.outputs(model, x))


@pytest.mark.backend("torch")
@pytest.mark.parametrize("case", theirs.WITH_CLASSES)
def test_other_classes_start_anew(case, transformers, tmp_path):
    theirs.make(transformers, case, tmp_path)
    opened = keras_vit.from_pretrained(tmp_path)
    other = keras_vit.from_pretrained(tmp_path, class_names=tuple("abcd"))
    assert other.class_names == tuple("abcd")
    before = {weight.path: weight for weight in opened.weights}
    for after in other.weights:
        if not after.path.startswith("head/"):
            np.testing.assert_array_equal(
                keras.ops.convert_to_numpy(before[after.path]),
                keras.ops.convert_to_numpy(after),
            )


@pytest.mark.backend("torch")
def test_arguments_that_no_head_has_are_refused():
    with pytest.raises(TypeError, match="no argument 'include_top'"):
        keras_vit.from_pretrained(GOLDENS / "yolos", include_top=False)
