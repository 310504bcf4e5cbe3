"""Models of this package inside models that others write."""

import catalogue
import keras
import numpy as np
import pytest

import keras_vit

pytestmark = pytest.mark.backend("torch")

IMAGES = np.random.default_rng(0).uniform(0, 255, (8, 16, 8, 3))
LABELS = np.arange(8) % 3
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def make_backbone(name="ViT"):
    return keras_vit.ViT(**catalogue.TINY, include_top=False, name=name)


def own_head():
    return keras.layers.Dense(3, name="classes")


def augmented_sequential():
    return keras.Sequential(
        [
            keras.Input((16, 8, 3)),
            keras.layers.RandomFlip("horizontal"),
            make_backbone(),
            keras.layers.Dropout(0.1),
            own_head(),
        ]
    )


def nested():
    inputs = keras.Input((32, 16, 3))
    x = keras.layers.AveragePooling2D(2, data_format="channels_last")(inputs)
    return keras.Model(inputs, own_head()(make_backbone()(x)))


def two_towers():
    inputs = [keras.Input((16, 8, 3), name=name) for name in ("left", "right")]
    towers = make_backbone("first"), make_backbone("second")
    x = [tower(image) for tower, image in zip(towers, inputs, strict=True)]
    return keras.Model(inputs, own_head()(keras.layers.Concatenate()(x)))


@keras.saving.register_keras_serializable("ecosystem")
class Subclassed(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.backbone = make_backbone()
        self.head = own_head()

    def build(self, input_shape):
        self.head.build((None, 16))

    def call(self, images, training=None):
        return self.head(self.backbone(images, training=training))


PROGRAMS = {
    "Sequential": augmented_sequential,
    "nested": nested,
    "two towers": two_towers,
    "subclassed": Subclassed,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_fits_saves_and_loads(name, tmp_path):
    model = PROGRAMS[name]()
    x = IMAGES
    if name == "nested":
        x = IMAGES.repeat(2, axis=1).repeat(2, axis=2)
    if "tower" in name:
        x = {"left": IMAGES, "right": IMAGES[::-1]}
    model.compile("adam", LOSS)
    history = model.fit(x, LABELS, batch_size=4, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    before = model.predict(x, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(
        again.predict(x, verbose=0), before, rtol=1e-5, atol=1e-6
    )


CONTAINING = ["Sequential", "nested", "on layers of the model", "subclassed"]


def containing(name):
    if name != "on layers of the model":
        return PROGRAMS[name]()
    backbone = make_backbone()
    return keras.Model(backbone.input, own_head()(backbone.output))


def images_of(name, number=8):
    x = IMAGES[:number].astype("float32")
    return x.repeat(2, axis=1).repeat(2, axis=2) if name == "nested" else x


@pytest.mark.parametrize("name", CONTAINING)
def test_our_functions_find_the_model_inside(name, tmp_path):
    model = containing(name)
    x = images_of(name, 2)
    model(x)  # a subclass is built when it is called
    rollout = keras_vit.inspection.attention_rollout(model, x)
    assert rollout.shape == (2, 4, 2)
    inner = keras_vit.models.ImageModel.find(model)
    if name != "on layers of the model":
        expected = keras_vit.inspection.attention_rollout(inner, IMAGES[:2])
        np.testing.assert_allclose(rollout, expected, atol=1e-5)
    factor = keras_vit.training.depth_factor(model, 0.5)
    by_path = {v.path: factor(v.path) for v in model.trainable_variables}
    assert sorted(set(by_path.values())) == [0.125, 0.25, 0.5, 1.0]
    assert all(by_path[p] == 1 for p in by_path if "classes/" in p)
    keras_vit.save_checkpoint(model, tmp_path / "inner.npz")
    again = keras_vit.ViT(weights=tmp_path / "inner.npz", include_top=False)
    np.testing.assert_allclose(
        again.predict(IMAGES[:2], verbose=0),
        keras.Model(inner.input, inner.output).predict(IMAGES[:2], verbose=0),
        atol=1e-5,
    )


@pytest.mark.parametrize("name", CONTAINING)
def test_a_part_of_a_model_inside_is_trained(name):
    for train, number in (
        (keras_vit.training.train_head_only, 2),
        (lambda model: keras_vit.training.train_low_rank(model, 2), 2 + 2 * 4),
    ):
        model = containing(name)
        model(images_of(name, 2))
        train(model)
        assert len(model.trainable_variables) == number


@pytest.mark.backend("tensorflow")
@pytest.mark.usefixtures("plain_serving")
def test_a_model_with_one_inside_is_exported(tmp_path):
    import tensorflow as tf

    model = containing("subclassed")
    x = images_of("subclassed", 2)
    expected = model.predict(x, verbose=0)
    path = keras_vit.export_savedmodel(model, tmp_path / "own" / "1")
    logits = tf.saved_model.load(path).signatures["logits"]
    found = logits(images=tf.constant(x))
    np.testing.assert_allclose(found["logits"], expected, atol=1e-4)
    assert found["features"].shape == (2, 16)


def test_two_models_inside_are_named():
    model = two_towers()
    for function in (
        keras_vit.training.train_head_only,
        lambda model: keras_vit.inspection.attention_rollout(model, IMAGES),
        lambda model: keras_vit.save_checkpoint(model, "a.npz"),
    ):
        with pytest.raises(ValueError, match="'first', 'second'. Pass one"):
            function(model)
