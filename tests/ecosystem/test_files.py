"""Files that Keras writes of our models, and what becomes of them."""

import json
import pathlib

import catalogue
import keras
import numpy as np
import pytest

import keras_vit

pytestmark = pytest.mark.backend("torch")

FILES = pathlib.Path(__file__).parents[1] / "goldens" / "files"
IMAGES = np.random.default_rng(0).uniform(0, 255, (8, 16, 8, 3))
LABELS = np.arange(8) % 5
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def load(path):
    model = keras.saving.load_model(path)
    model.jit_compile = False  # as JAX saved it; on PyTorch it takes minutes
    return model


@pytest.mark.backend("tensorflow", "jax", "torch")
@pytest.mark.parametrize("name", ["fitted", "int8"])
@pytest.mark.thorough("jax")
def test_a_file_of_an_earlier_version_and_another_backend_loads(name, tmp_path):
    with np.load(FILES / "outputs.npz") as archive:
        images, expected = archive["images"], archive[name]
    model = load(FILES / f"{name}.keras")
    assert model.get_layer("head").class_names == ("a", "b", "c")
    tolerance = 0.02 if name == "int8" else 1e-5
    atol = tolerance * np.abs(expected).max()
    found = model.predict(images, verbose=0)
    np.testing.assert_allclose(found, expected, atol=atol)
    if name == "fitted":
        assert int(model.optimizer.iterations) == 1
        assert not model.get_layer("encoderblock_0").trainable_weights
        model.fit(images, np.arange(4) % 3, verbose=0)
        found = model.predict(images, verbose=0)
    # It is saved in today's form.
    model.save(tmp_path / "again.keras")
    again = load(tmp_path / "again.keras")
    np.testing.assert_allclose(
        again.predict(images, verbose=0), found, rtol=0, atol=atol
    )


def test_model_checkpoint_files_are_readable_by_the_next_run(tmp_path):
    model = catalogue.make_model("dropout")
    model.compile("adam", LOSS, metrics=["accuracy"])
    model.fit(
        IMAGES,
        LABELS,
        epochs=2,
        verbose=0,
        validation_data=(IMAGES, LABELS),
        callbacks=[
            keras.callbacks.ModelCheckpoint(
                tmp_path / "{epoch}.keras", save_best_only=False
            ),
            keras.callbacks.ModelCheckpoint(
                tmp_path / "{epoch}.weights.h5", save_weights_only=True
            ),
            keras.callbacks.BackupAndRestore(tmp_path / "backup"),
            keras.callbacks.EarlyStopping(restore_best_weights=True),
            keras.callbacks.CSVLogger(tmp_path / "log.csv"),
        ],
    )
    loaded = keras.saving.load_model(tmp_path / "2.keras")
    assert int(loaded.optimizer.iterations) == 2
    loaded.fit(IMAGES, LABELS, verbose=0)
    filled = catalogue.make_model("dropout")
    filled.load_weights(tmp_path / "1.weights.h5")
    first = keras.saving.load_model(tmp_path / "1.keras")
    np.testing.assert_allclose(
        filled.predict(IMAGES, verbose=0),
        first.predict(IMAGES, verbose=0),
        rtol=1e-5,
        atol=1e-6,
    )


def test_weights_are_taken_from_a_file_of_an_earlier_version():
    with np.load(FILES / "outputs.npz") as archive:
        images, expected = archive["images"], archive["functional"]
    atol = 1e-5 * np.abs(expected).max()
    path = FILES / "functional.keras"
    for model in (load(path), keras_vit.ViT(weights=path)):
        found = model.predict(images, verbose=0)
        np.testing.assert_allclose(found, expected, rtol=0, atol=atol)
    assert model.class_names == ("a", "b", "c")
    assert model.architecture.pooling == "gap_norm"


BLOCKS = json.loads((FILES / "blocks_0.2.json").read_text())


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_that_version_0_2_wrote_computes_the_same(name):
    saved = BLOCKS[name]
    layer = keras.saving.deserialize_keras_object(saved["layer"])
    weights = {w.path: w for w in layer.weights if "seed" not in w.path}
    assert {p: list(w.shape) for p, w in weights.items()} == saved["variables"]
    for i, path in enumerate(sorted(weights)):
        rng = np.random.default_rng(i)
        weights[path].assign(rng.normal(0, 0.5, weights[path].shape))
    x = np.random.default_rng(99).normal(size=(1, *saved["shape"]))
    y = keras.ops.convert_to_numpy(layer(x.astype("float32")))[0]
    np.testing.assert_allclose(y, saved["outputs"], atol=5e-5)
    again = type(layer).from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
