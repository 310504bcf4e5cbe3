"""The picture of attention in the documentation."""

import numpy as np
import pytest
from PIL import Image

import keras_vit
from tests import realistic
from tools import attention_picture

pytestmark = pytest.mark.backend("torch")


def test_the_picture_has_two_photographs_and_eight_maps(tmp_path):
    model = keras_vit.ViT(
        patch_size=4,
        hidden_size=8,
        num_layers=5,
        num_heads=2,
        mlp_dim=8,
        input_shape=(32, 32, 3),
    )
    realistic.fill(model)
    model.save(tmp_path / "model.keras")
    path = tmp_path / "picture.png"
    arguments = [str(tmp_path / "model.keras"), f"--output={path}"]
    assert attention_picture.main(arguments) == 0
    with Image.open(path) as picture:
        assert picture.size == (1250, 350)


def test_a_patch_is_lit_by_its_share_of_attention():
    image = np.full((4, 6, 3), 100.0)
    shares = np.zeros((2, 3))
    shares[1, 2] = 1
    drawn = attention_picture._overlay(image, shares)
    assert drawn.shape == image.shape
    np.testing.assert_allclose(drawn[:2], 0.35 * 100 / 255)
    assert (drawn[2:, 4:].max(axis=-1) > 0.9).all()
