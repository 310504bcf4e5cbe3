"""The metadata of a model, and its copies."""

import catalogue
import keras
import numpy as np
import pytest
from drawn_folders import drawn

import keras_vit

pytestmark = pytest.mark.backend("torch")


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


def test_dtype_is_the_policy_of_the_layers():
    before = keras.config.dtype_policy()
    model = make_model(dtype="mixed_bfloat16")
    assert keras.config.dtype_policy() == before
    assert model.blocks[0].compute_dtype == "bfloat16"
    assert model.get_layer("embedding").compute_dtype == "bfloat16"
    assert model.head.compute_dtype == "float32"
    y = model(np.zeros((1, 16, 8, 3), "float32"))
    assert keras.backend.standardize_dtype(y.dtype) == "float32"


@pytest.mark.backend("jax")
def test_float64_is_refused_where_jax_would_round_it():
    with pytest.raises(ValueError, match="jax_enable_x64"):
        make_model(dtype="float64")


def test_float64_warns_where_keras_rounds_products():
    with pytest.warns(UserWarning, match="only TensorFlow computes"):
        model = make_model(dtype="float64")
    for layer in model._flatten_layers(include_self=False):
        assert layer.compute_dtype == "float64", layer.path


def test_dropout_follows_the_argument_of_the_call():
    model = catalogue.make_model("dropout", include_top=False)
    x = np.zeros((1, 16, 8, 3), "float32")
    expected = model(x).detach()
    for switch in (model.train, model.eval):
        switch()
        np.testing.assert_array_equal(model(x).detach(), expected)
        dropped = model(x, training=True).detach()
        assert not np.array_equal(dropped, expected)


@pytest.mark.backend("tensorflow")
def test_shapes_that_tensorflow_does_not_know_are_checked(tmp_path):
    import tensorflow as tf

    model = catalogue.make_model("features", num_layers=1)
    images = np.random.default_rng(0).uniform(0, 255, (3, 16, 8, 3))
    images = images.astype("float32")
    expected = model.predict(images, verbose=0)
    model.export(tmp_path, verbose=False)
    served = tf.saved_model.load(tmp_path).signatures["serving_default"]
    # From the second on, Keras traces a program that knows no sizes.
    for shape in ((16, 8, 3), (32, 16, 3), (8, 16, 3), (16, 8, 1), (16, 8)):
        x = np.zeros((2, *shape), "float32")
        for call in (
            lambda x: model.predict(x, verbose=0),
            lambda x: served(images=x),
        ):
            if shape == images.shape[1:]:
                call(tf.constant(x))
                continue
            with pytest.raises(tf.errors.InvalidArgumentError) as error:
                call(tf.constant(x))
            sizes = ",".join(map(str, x.shape))
            message = f"[{sizes}] is not compatible with expected shape "
            assert message + "[?,16,8,3]" in str(error.value)
    again = model.predict(images, verbose=0)
    np.testing.assert_allclose(again, expected, rtol=1e-5)


@pytest.mark.backend("tensorflow", "jax", "torch")
@pytest.mark.parametrize("kind", ["classifier", "detector", "towers"])
def test_a_layer_may_open_a_model_within_its_build(kind, tmp_path):
    place = tmp_path / "model.npz"
    if kind == "detector":
        place = drawn("tasks") / "yolos"
    elif kind == "towers":
        place = drawn("towers") / "clip"
    else:
        model = catalogue.make_model("token")
        keras_vit.save_checkpoint(model, place, format="jax")

    class Outer(keras.layers.Layer):
        def build(self, shape):
            self.inner = keras_vit.from_pretrained(place, **given)

        def call(self, inputs):
            return inputs

    own = dict(num_heads=2, classes=3)  # whose head is new
    given = own if kind == "classifier" else {}
    outer = Outer()
    outer(np.zeros((1, 2), "float32"))
    paths = [x.path for x in keras_vit.from_pretrained(place, **given).weights]
    assert [x.path for x in outer.inner.weights] == paths


def test_positional_arguments_are_refused_in_the_constructors_name():
    with pytest.raises(TypeError, match=r"ViTB16\(\) takes 0 positional"):
        keras_vit.ViTB16("imagenet21k")


def test_models_are_listed_by_family():
    assert "ViTB16" in keras_vit.list_models(family="vit")
    with pytest.raises(ValueError, match="`family` must be one of"):
        keras_vit.list_models(family="cnn")


def test_a_loss_without_an_optimizer_does_not_train():
    model = make_model()
    loss = keras_vit.training.SigmoidCrossentropy()
    model.compile(optimizer=None, loss=loss)
    with pytest.raises(ValueError, match="compiled with an optimizer"):
        model.fit(np.zeros((2, *model.input_shape[1:])), np.zeros((2, 5)))
