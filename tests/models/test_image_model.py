"""The metadata of a model, and its copies."""

import catalogue
import keras
import numpy as np
import pytest

import keras_vit

pytestmark = pytest.mark.backend("torch")

REMEMBERED = (
    "family",
    "architecture",
    "image_shape",
    "pixel_mean",
    "pixel_std",
    "class_names",
    "provenance",
    "resampling",
)


def make_model(**kwargs):
    return catalogue.make_model(
        "token",
        class_names=tuple("abcde"),
        pixel_mean=(1.0, 2.0, 3.0),
        pixel_std=(40.0, 50.0, 60.0),
        **kwargs,
    )


def saved(model, folder):
    model.save(folder / "model.keras")
    return keras.saving.load_model(folder / "model.keras")


def saved_unzipped(model, folder):
    keras.saving.save_model(model, folder / "model", zipped=False)
    return keras.saving.load_model(folder / "model")


COPIES = {
    "saved": saved,
    "saved unzipped": saved_unzipped,
    "from_config": lambda model, _: type(model).from_config(model.get_config()),
    "clone": lambda model, _: keras.models.clone_model(model),
    "json": lambda model, _: keras.models.model_from_json(model.to_json()),
}


@pytest.mark.parametrize("way", COPIES)
def test_a_copy_has_all_metadata(way, tmp_path):
    model = make_model()
    model = COPIES[way](make_model(weights=save(model, tmp_path)), tmp_path)
    assert isinstance(model, keras_vit.models.ImageModel)
    assert model.family == "vit"
    assert model.architecture == keras_vit.models.vit.ViTConfig(
        patch_size=4,
        hidden_size=16,
        num_layers=2,
        num_heads=2,
        mlp_dim=32,
    )
    assert model.image_shape == (16, 8, 3)
    assert tuple(model.pixel_mean) == (1.0, 2.0, 3.0)
    assert tuple(model.pixel_std) == (40.0, 50.0, 60.0)
    assert model.class_names == tuple("abcde")
    assert model.provenance.endswith("weights.keras")
    assert model.resampling == "aligned_bilinear"
    assert [block.name for block in model.blocks] == [
        "encoderblock_0",
        "encoderblock_1",
    ]
    assert model.head.units == 5
    assert model.includes_preprocessing


def save(model, folder):
    model.head.kernel.assign(np.ones(model.head.kernel.shape))
    model.save(folder / "weights.keras")
    return str(folder / "weights.keras")


def test_weights_alone_are_filled_into_a_model(tmp_path):
    model = make_model()
    model.save_weights(tmp_path / "a.weights.h5")
    again = make_model()
    again.load_weights(tmp_path / "a.weights.h5")
    for one, other in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(one, other)


def test_without_the_top_there_is_no_head():
    model = catalogue.make_model("features")
    assert model.head is None
    assert model.class_names is None
    assert model.representation is model.output


def test_dtype_is_the_policy_of_the_layers():
    before = keras.config.dtype_policy()
    model = make_model(dtype="mixed_bfloat16")
    assert keras.config.dtype_policy() == before
    assert model.blocks[0].compute_dtype == "bfloat16"
    assert model.get_layer("embedding").compute_dtype == "bfloat16"
    assert model.head.compute_dtype == "float32"
    y = model(np.zeros((1, 16, 8, 3), "float32"))
    assert keras.backend.standardize_dtype(y.dtype) == "float32"


def test_remat_is_set_in_every_block():
    assert all(block.remat for block in make_model(remat=True).blocks)


def test_positional_arguments_are_refused_in_the_constructors_name():
    with pytest.raises(TypeError, match=r"ViTB16\(\) takes 0 positional"):
        keras_vit.ViTB16("imagenet21k")


def test_models_are_listed_by_family():
    assert "ViTB16" in keras_vit.list_models(family="vit")
    with pytest.raises(ValueError, match="`family` must be one of"):
        keras_vit.list_models(family="cnn")


def test_quantising_warns_of_nothing_and_reaches_the_head():
    model = make_model()
    model.quantize("int8")  # warnings are errors
    assert model.head.quantization_mode == "int8"
    assert model.blocks[0].mlp.dense_0.quantization_mode == "int8"
