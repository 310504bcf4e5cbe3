"""Class token, average pooling and fc_norm: MAE's fine-tuning, in timm."""

import pathlib

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import evaluation, inspection
from keras_vit.weights import checkpoint

pytestmark = pytest.mark.backend("torch")

FOLDER = pathlib.Path(__file__).parents[1] / "goldens" / "timm" / "mae_avg"


def read_golden():
    with np.load(FOLDER / "io.npz") as archive:
        return archive["pixels"], archive["pooled"], archive["logits"]


def assert_agrees(found, expected):
    difference = np.abs(keras.ops.convert_to_numpy(found) - expected).max()
    assert difference <= 1e-5 * np.abs(expected).max()


def test_logits_and_features_are_those_of_timm():
    pixels, pooled, logits = read_golden()
    model = keras_vit.ViT(weights=str(FOLDER))
    assert_agrees(model.predict(pixels, verbose=0), logits)
    assert_agrees(model(pixels), logits)
    backbone = keras_vit.ViT(weights=str(FOLDER), include_top=False)
    assert_agrees(backbone.predict(pixels, verbose=0), pooled)


def test_it_is_written_back_as_it_was(tmp_path):
    model = keras_vit.ViT(weights=str(FOLDER))
    keras_vit.save_checkpoint(model, tmp_path / "timm", format="timm")
    sources = [
        checkpoint.open_checkpoint(p) for p in (FOLDER, tmp_path / "timm")
    ]
    first, second = ({k: s.arrays[k].read() for k in s.arrays} for s in sources)
    assert first.keys() == second.keys()
    assert "fc_norm.weight" in first
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])
    assert sources[1].metadata["pooling"] == "gap_norm"
    assert sources[1].metadata["class_token"] is True
    for format in ("jax", "big_vision", "huggingface"):
        with pytest.raises(ValueError, match="no place.*gap_norm"):
            keras_vit.save_checkpoint(
                model, tmp_path / "out.npz", format=format
            )


def test_the_class_token_is_not_read():
    pixels, _, _ = read_golden()
    model = keras_vit.ViT(weights=str(FOLDER))
    rollout = inspection.attention_rollout(model, pixels)
    assert rollout.shape == (2, 4, 4)
    np.testing.assert_allclose(rollout.sum(axis=(1, 2)), 1, rtol=1e-5)
    block = model.get_layer("encoderblock_1")
    tokens = keras.Model(model.input, block.output).predict(pixels, verbose=0)
    found = evaluation.representation(model, "encoderblock_1")
    assert_agrees(found.predict(pixels, verbose=0), tokens[:, 1:].mean(axis=1))


def test_another_pooling_of_a_token_is_refused(tmp_path):
    config = (FOLDER / "config.json").read_text()
    (tmp_path / "config.json").write_text(config.replace('"avg"', '"token"'))
    weights = (FOLDER / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(weights)
    with pytest.raises(ValueError, match="expected global_pool 'avg'"):
        keras_vit.ViT(weights=str(tmp_path))
