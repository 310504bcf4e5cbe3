"""A family of forty lines has all features of the other models."""

import dataclasses
import inspect
import types
from typing import Unpack

import keras
import numpy as np
import pytest
import realistic
import test_catalogue

import keras_vit
from keras_vit import layers, training
from keras_vit.distribution import layouts
from keras_vit.layers.base import CompositeLayer
from keras_vit.models import ModelArguments, construct, families
from keras_vit.weights import resize, rules
from keras_vit.weights.rules import keras_format, patches, table


# The model file.
@dataclasses.dataclass(frozen=True, kw_only=True)
class ToyConfig:
    """A toy.

    Args:
        patch_size: Pixels per side of a patch.
        hidden_size: Width of the tokens.
        num_layers: Number of blocks.
    """

    patch_size: int
    hidden_size: int
    num_layers: int


@keras.saving.register_keras_serializable("toy")
class ToyBlock(CompositeLayer):
    def build(self, shape):
        self.dense = self.make(keras.layers.Dense, shape[-1], name="dense")
        self.dense.build(shape)

    def call(self, x):
        return x + keras.activations.relu(self.dense(x))

    def compute_output_shape(self, shape):
        return shape


def forward(config, x):
    patches = layers.PatchEmbedding(
        config.patch_size, config.hidden_size, name="patches"
    )
    x = patches(x)
    x = layers.AddPositionEmbs(patches.grid_size, False, name="places")(x)
    for i in range(config.num_layers):
        x = ToyBlock(name=f"toy_{i}")(x)
    return keras.ops.mean(x, axis=1)


FAMILY = families.Family(
    "toy",
    "Toy",
    ToyConfig,
    forward,
    ToyBlock,
    {"ToyS4": dict(patch_size=4, hidden_size=16, num_layers=2)},
)


class ToyArguments(ModelArguments, total=False):
    """The fields of `ToyConfig`, as arguments."""

    patch_size: int | None
    hidden_size: int | None
    num_layers: int | None


def ToyS4(**kwargs: Unpack[ToyArguments]) -> keras_vit.models.ImageModel:
    """A toy of 16 values."""
    return construct.construct(FAMILY, "ToyS4", kwargs)


# The rules file.
def rows(metadata):
    paths = ["patches/kernel", "patches/bias", "places/pos_embedding"]
    paths += ["toy_{i}/dense/kernel", "toy_{i}/dense/bias"]
    paths += ["head/kernel", "head/bias"]
    return table.expand(
        [(path, f"toy/{path}") for path in paths],
        num_layers=metadata["num_layers"],
        absent=table.without_top(metadata),
    )


def read_arrays(arrays, config, specified):
    patch, _, channels, width = arrays["toy/patches/kernel"].shape
    tokens = arrays["toy/places/pos_embedding"].shape[1]
    head = arrays.get("toy/head/bias")
    return dict(
        patch_size=patch,
        hidden_size=width,
        num_layers=sum(name.endswith("dense/bias") for name in arrays),
        channels=channels,
        classes=head and head.shape[0],
        representation_size=None,
        stride=(patch, patch),
        grid=patches.grid_of(tokens, (patch, patch), specified),
    )


JAX = table.Format(
    requires=("toy/.*",),
    rules=rows,
    read_arrays=read_arrays,
    read_config=lambda config: dict(
        pixel_mean=127.5,
        pixel_std=127.5,
        **({"grid": tuple(config["grid"])} if "grid" in config else {}),
    ),
    naming_schemes={"jax": None},
)
RULES = types.SimpleNamespace(
    TITLE="Toy",
    FORMATS={"jax": JAX, "keras_vit": keras_format.derive(JAX, ("patches/0",))},
    RESIZES={
        "patches/kernel": table.fit_pixels,
        "places/pos_embedding": lambda value, fit: resize.resample_positions(
            value, fit.source_grid, fit.grid
        ),
    },
    grid=lambda metadata: tuple(
        side // metadata["patch_size"] for side in metadata["image_size"]
    ),
)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(families.FAMILIES, "toy", FAMILY)
    monkeypatch.setitem(rules.FAMILIES, "toy", RULES)


SMALL = dict(input_shape=(8, 16, 3), classes=5)
IMAGES = np.random.default_rng(0).uniform(0, 255, (4, 8, 16, 3))
IMAGES = IMAGES.astype("float32")
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def make_model(**kwargs):
    return realistic.fill(ToyS4(**SMALL | kwargs))


def predict(model, images=IMAGES):
    return model.predict(images, verbose=0)


@pytest.mark.parametrize(
    "check",
    [
        "saving_and_loading_keeps_the_output",
        "each_image_is_judged_alone",
        "mixed_precision_agrees_and_has_float32_logits",
        "every_trainable_variable_moves_in_a_training_step",
    ],
)
def test_it_has_the_properties_of_the_catalogue(check, monkeypatch, tmp_path):
    monkeypatch.setattr(test_catalogue, "make_model", lambda name: make_model())
    function = getattr(test_catalogue.TestModels(), f"test_{check}")
    model = make_model()
    x = test_catalogue.images_for(model, batch_size=3)
    case = "toy", model, x, test_catalogue.outputs_of(model, x)
    known = dict(case=case, dtype="mixed_bfloat16", tmp_path=tmp_path)
    needed = inspect.signature(function).parameters
    function(**{name: known[name] for name in needed})


@pytest.mark.parametrize("name", ["toy.npz", "toy.keras"])
def test_it_is_saved_and_opened(name, tmp_path):
    model = make_model(class_names=tuple("abcde"))
    if name == "toy.npz":
        keras_vit.save_checkpoint(model, tmp_path / name)
    else:
        model.save(tmp_path / name)
        loaded = keras.saving.load_model(tmp_path / name)
        assert loaded.architecture == model.architecture
    again = keras_vit.from_pretrained(tmp_path / name)
    assert again.family == "toy"
    np.testing.assert_allclose(predict(again), predict(model), atol=1e-6)
    if name == "toy.keras":
        assert again.class_names == tuple("abcde")


def test_blocks_that_cannot_recompute_are_named():
    with pytest.raises(ValueError, match="`remat` must be False.*'toy'"):
        make_model(remat=True)


def test_it_is_resized(tmp_path):
    model = make_model()
    path = tmp_path / "toy.npz"
    keras_vit.save_checkpoint(model, path)
    wide = keras_vit.from_pretrained(path, input_shape=(16, 16, 1), classes=2)
    assert predict(wide, np.zeros((1, 16, 16, 1))).shape == (1, 2)
    again = keras_vit.from_pretrained(
        path, input_shape=(16, 32, 3), patch_size=8, resize_patches=True
    )
    images = IMAGES.repeat(2, axis=1).repeat(2, axis=2)
    with pytest.raises(ValueError, match="does not fit the model"):
        keras_vit.from_pretrained(path, input_shape=(16, 32, 3), patch_size=8)
    assert predict(again, images).shape == (4, 5)


def test_it_is_trained_in_part_and_by_depth():
    model = make_model()
    factor = training.depth_factor(model, 0.5)
    assert factor("patches/kernel") == factor("places/pos_embedding") == 0.125
    assert factor("toy_0/dense/kernel") == 0.25
    assert factor("head/kernel") == 1
    training.train_low_rank(model, 2)
    assert len(model.trainable_variables) == 2 + 2 * 2
    model = make_model()
    training.train_head_only(model)
    assert [v.path for v in model.trainable_variables] == [
        "head/kernel",
        "head/bias",
    ]
    model.compile("adam", LOSS)
    model.fit(IMAGES, np.arange(4), verbose=0)


def test_it_is_sharded():
    layout = layouts.distribution("fsdp", [f"cpu:{i}" for i in range(8)])
    for weight in make_model().weights:
        divides = any(n % 8 == 0 for n in weight.shape)
        axes = layout.get_variable_layout(weight).axes
        assert ("data" in axes) == divides


def test_it_is_quantised(tmp_path):
    model = make_model()
    before = predict(model)
    model.quantize("int8")
    model.save(tmp_path / "int8.keras")
    again = keras.saving.load_model(tmp_path / "int8.keras")
    atol = 0.1 * np.abs(before).max()
    np.testing.assert_allclose(predict(again), before, atol=atol)


@pytest.mark.backend("tensorflow")
@pytest.mark.usefixtures("plain_serving")
def test_it_is_exported(tmp_path):
    import tensorflow as tf

    model = make_model()
    path = keras_vit.export_savedmodel(model, tmp_path / "toy" / "1")
    logits = tf.saved_model.load(path).signatures["logits"]
    found = logits(images=tf.constant(IMAGES))["logits"]
    np.testing.assert_allclose(found, predict(model), atol=1e-4)


def test_its_constructor_shows_and_checks_its_arguments():
    construct.show_arguments(ToyS4, FAMILY)
    assert inspect.signature(ToyS4).parameters["hidden_size"].default == 16
    with pytest.raises(TypeError, match="ToyS4.*Nearest names: .'hidden_size'"):
        ToyS4(hiden_size=3)
