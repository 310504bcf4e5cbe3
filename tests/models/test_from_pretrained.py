"""Any checkpoint, opened without saying what it is of."""

import catalogue
import numpy as np
import pytest
import realistic

import keras_vit

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

    assert registry.split_name("ViTB16/augreg") == ("ViTB16", "augreg")
    file = "augreg:B_16-i1k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0"
    assert registry.split_name(file) == ("ViTB16", file)
    assert registry.split_name("folder/a.npz") == (None, "folder/a.npz")
    with pytest.raises(ValueError, match="'ViTB16/augreg'"):
        keras_vit.from_pretrained("augreg")
