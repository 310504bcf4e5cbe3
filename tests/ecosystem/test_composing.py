"""Models of this package inside models that others write."""

import catalogue
import keras
import numpy as np
import pytest

import keras_vit

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


def on_layers():
    backbone = make_backbone()
    tokens = backbone.get_layer("encoderblock_0").output
    x = keras.layers.GlobalAveragePooling1D()(tokens)
    return keras.Model(backbone.input, own_head()(x))


def two_towers():
    inputs = [keras.Input((16, 8, 3), name=name) for name in ("left", "right")]
    towers = make_backbone("first"), make_backbone("second")
    x = [tower(image) for tower, image in zip(towers, inputs, strict=True)]
    return keras.Model(inputs, own_head()(keras.layers.Concatenate()(x)))


def one_tower_twice():
    inputs = [keras.Input((16, 8, 3), name=name) for name in ("left", "right")]
    tower = make_backbone()
    x = keras.layers.Subtract()([tower(image) for image in inputs])
    return keras.Model(inputs, own_head()(x))


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
    "on layers": on_layers,
    "two towers": two_towers,
    "one tower twice": one_tower_twice,
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
    history = model.fit(x, LABELS, batch_size=4, epochs=2, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    before = model.predict(x, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(
        again.predict(x, verbose=0), before, rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("name", ["Sequential", "nested"])
def test_a_frozen_backbone_stays_frozen_through_a_file(name, tmp_path):
    model = PROGRAMS[name]()
    (backbone,) = (x for x in model.layers if x.name == "ViT")
    backbone.trainable = False
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert len(model.trainable_weights) == 2
    assert len(again.trainable_weights) == 2


@pytest.mark.parametrize("name", ["nested", "two towers", "on layers"])
def test_a_clone_has_the_same_variables_and_its_own_values(name):
    model = PROGRAMS[name]()
    clone = keras.models.clone_model(model)
    shapes = [(w.path, tuple(w.shape)) for w in model.weights]
    assert shapes == [(w.path, tuple(w.shape)) for w in clone.weights]
    clone.set_weights([np.full(w.shape, 0.5) for w in clone.weights])
    assert any((w != 0.5).any() for w in model.get_weights())
