"""The picture of the README."""

import numpy as np
import pytest
from PIL import Image

from tools import overview_picture

pytestmark = pytest.mark.backend_independent


def test_it_shows_the_measured_speed_beside_the_patches(tmp_path):
    path = tmp_path / "picture.png"
    assert overview_picture.main([f"--output={path}"]) == 0
    with Image.open(path) as picture:
        assert picture.size == (1200, 380)
    page = (overview_picture.DOCS / "benchmarks.md").read_text()
    ratios = overview_picture.ratios(page)
    assert {other for _, _, other in ratios} == {"keras-hub", "timm"}
    assert {backend for backend, _, _ in ratios} == {
        "TensorFlow",
        "JAX",
        "PyTorch",
    }
    assert all(set(row) == {"float32", "bfloat16"} for row in ratios.values())
    # What the README says of them.
    readme = (overview_picture.DOCS.parent / "README.md").read_text()
    for (_, task, _), row in ratios.items():
        assert task != "training" or f"{row['float32']:.2f}" in readme


def test_patches_have_white_gaps():
    image = np.arange(224 * 224 * 3).reshape(224, 224, 3).astype("uint8")
    drawn = overview_picture.apart(image, gap=4)
    assert drawn.shape == (14 * 20 - 4, 14 * 20 - 4, 3)
    np.testing.assert_array_equal(drawn[20:36, 40:56], image[16:32, 32:48])
    assert (drawn[16:20] == 255).all() and (drawn[:, 36:40] == 255).all()
