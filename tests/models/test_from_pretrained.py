"""Any checkpoint, opened without saying what it is of."""

import pathlib
import sys

import catalogue
import keras
import numpy as np
import pytest
import realistic

import keras_vit
from keras_vit.export.scores import activation_of
from keras_vit.weights import Checkpoint

pytestmark = pytest.mark.backend("torch")

IMAGES = np.random.default_rng(0).uniform(0, 255, (2, 16, 8, 3))


def make_model():
    return realistic.fill(
        catalogue.make_model("token", class_names=tuple("abcde"))
    )


@pytest.mark.backend("tensorflow", "jax", "torch")
@pytest.mark.parametrize("name", ["a.npz", "a.keras", "timm", "transformers"])
def test_it_is_the_model_that_was_saved(name, tmp_path):
    if name in ("timm", "transformers"):
        pytest.importorskip("safetensors")
    model, path = make_model(), tmp_path / name
    if name == "a.keras":
        model.save(path)
    else:
        formats = dict(timm="timm", transformers="huggingface")
        keras_vit.save_checkpoint(
            model, path, formats.get(name, "jax"), allow_differences=True
        )
    again = keras_vit.from_pretrained(path)
    assert again.architecture.hidden_size == 16
    assert again.provenance == str(path)
    np.testing.assert_allclose(
        again.predict(IMAGES, verbose=0),
        model.predict(IMAGES, verbose=0),
        atol=1e-5,
    )


@pytest.mark.parametrize("name", ["token", "mixer", "deit"])
def test_a_file_states_its_input_its_activation_and_its_classes(name, tmp_path):
    saved = realistic.fill(
        catalogue.make_model(
            name,
            classes=3,
            class_names=tuple("abc"),
            classifier_activation="softmax",
            include_preprocessing=False,
        )
    )
    path = tmp_path / "a.keras"
    saved.save(path)
    again = keras_vit.from_pretrained(path)
    x = np.resize(IMAGES / 255, (2, *saved.input_shape[1:]))
    y = saved.predict(x, verbose=0)
    np.testing.assert_allclose(again.predict(x, verbose=0), y, atol=1e-6)
    assert again.class_names == ("a", "b", "c")
    for changes in (dict(classifier_activation=None), dict(classes=2)):
        head = keras_vit.from_pretrained(path, **changes).get_layer("head")
        assert head.get_config()["activation"] == "linear"
    again = keras_vit.from_pretrained(path, include_preprocessing=True)
    found = again.predict(x * 127.5 + 127.5, verbose=0)
    np.testing.assert_allclose(found, y, atol=1e-5)


def test_a_file_states_an_activation_of_the_user(tmp_path):
    @keras.saving.register_keras_serializable("test")
    def doubled(scores):
        return 2 * scores

    path = tmp_path / "a.keras"
    realistic.fill(
        catalogue.make_model("token", classifier_activation=doubled)
    ).save(path)
    assert keras_vit.from_pretrained(path).head.activation is doubled
    del keras.saving.get_custom_objects()["test>doubled"]
    with pytest.raises(ValueError, match="`classifier_activation`.*'test>doub"):
        keras_vit.from_pretrained(path)
    assert keras_vit.from_pretrained(path, include_top=False).head is None


@pytest.mark.parametrize(
    "loss",
    [
        keras.losses.BinaryCrossentropy(from_logits=True, label_smoothing=0.5),
        keras_vit.training.SigmoidCrossentropy(),
    ],
)
@pytest.mark.parametrize("name", ["token", "mixer"])
def test_a_file_states_the_loss_of_its_scores(name, loss, tmp_path):
    saved = realistic.fill(catalogue.make_model(name))
    path = tmp_path / "a.keras"
    saved.compile("sgd", loss)
    saved.save(path)
    again = keras_vit.from_pretrained(path)
    assert again.loss.get_config() == loss.get_config()
    assert activation_of(again) == "sigmoid"
    for changes in (dict(classes=2), dict(include_top=False)):
        assert not keras_vit.from_pretrained(path, **changes).compiled


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("VideoMAE", {}),
        ("SigLIP", dict(pooling="map")),
        ("EVA02", dict(pooling="map")),
        ("DINOv2", dict(pooling="map")),
    ],
)
def test_gates_that_no_library_has_are_read(name, changes, tmp_path):
    sizes = catalogue.TINY_OF[name] | changes | dict(activation="swiglu")
    model = realistic.fill(getattr(keras_vit, name)(**sizes))
    model.save(tmp_path / "a.keras")
    again = keras_vit.from_pretrained(tmp_path / "a.keras")
    for one, other in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", ["mixer", "dinov2"])
def test_a_grid_of_positions_that_has_no_use_is_refused(name, tmp_path):
    catalogue.make_model(name).save(tmp_path / "a.keras")
    with pytest.raises(ValueError, match="`position_grid` must be None"):
        keras_vit.from_pretrained(tmp_path / "a.keras", position_grid=(2, 2))


def test_a_model_with_a_head_for_a_task_is_opened_by_keras(tmp_path):
    backbone = catalogue.make_model("token", include_top=False)
    path = tmp_path / "a.keras"
    keras_vit.heads.linear(backbone, class_names=("a", "b")).save(path)
    with pytest.raises(ValueError, match="a TaskModel, .*keras.models.load_mo"):
        keras_vit.from_pretrained(path)


def test_changes_are_arguments_of_the_constructor(tmp_path):
    make_model().save(tmp_path / "a.keras")
    path = tmp_path / "a.keras"
    model = keras_vit.from_pretrained(
        path, classes=3, input_shape=(32, 32, 3), dropout_rate=0.1, name="pets"
    )
    assert model.output_shape == (None, 3)
    assert model.name == "pets"
    assert model.architecture.dropout_rate == 0.1
    with pytest.raises(TypeError, match="from_pretrained.*'num_layers'"):
        keras_vit.from_pretrained(path, num_layer=3)


def test_released_weights_are_named_with_their_constructor():
    from keras_vit.weights import registry

    entry = registry.find("ViTB16/augreg")
    assert (entry.variant, entry.name) == ("ViTB16", "augreg")
    file = "augreg:B_16-i1k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0"
    assert registry.find(file).variant == "ViTB16"
    assert registry.find("folder/a.npz") is None
    assert registry.find("ViTB16/a.npz") is None
    with pytest.raises(ValueError, match="'ViTB16/augreg'"):
        keras_vit.from_pretrained("augreg")


@pytest.mark.parametrize("name", ["a.npz", "a.keras", "transformers"])
def test_a_source_enters_a_dozen_functions(name, tmp_path):
    root, path = pathlib.Path(keras_vit.__file__).parent, str(tmp_path / name)
    model, entered = make_model(), set()
    if name == "a.keras":
        model.save(path)
    else:
        kind = "jax" if name == "a.npz" else "huggingface"
        keras_vit.save_checkpoint(model, path, kind, allow_differences=True)

    def note(frame, event, _):
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(f"{root}/"):
            return
        room = pathlib.Path(code.co_filename).relative_to(root).parts[0]
        count = code.co_argcount + code.co_kwonlyargcount
        names = {*code.co_varnames[:count]} - {"self"}  # of its properties
        given = [frame.f_locals[name] for name in names]
        is_given = any(
            isinstance(x, Checkpoint) or (isinstance(x, str) and x == path)
            for x in given
        )
        # Every call's arguments are checked. The layer of metadata is given
        # where the weights are from.
        if is_given and room not in ("layers", "_arguments.py"):
            entered.add((code.co_filename, code.co_name))

    sys.setprofile(note)
    try:
        keras_vit.from_pretrained(path)
    finally:
        sys.setprofile(None)
    assert len(entered) <= 12, sorted(entered)


def test_class_names_that_contradict_the_head_are_refused(tmp_path):
    path = tmp_path / "a.keras"
    make_model().save(path)  # of the classes a, b, c, d and e
    with pytest.raises(ValueError, match="'b' as class 0, .* class 1 of"):
        keras_vit.from_pretrained(path, class_names=tuple("bxyze"))
    names = ("ant", "b", "cat", "dog", "eel")
    assert keras_vit.from_pretrained(path, class_names=names).class_names == (
        names
    )
