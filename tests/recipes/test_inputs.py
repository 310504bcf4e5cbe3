"""What a run says of the size of its images."""

import types

import numpy as np
import pytest
from PIL import Image

from keras_vit import data
from recipes import begin, inputs

pytestmark = pytest.mark.backend_independent


@pytest.mark.parametrize(
    ("image_size", "grid", "notes"),
    [
        ((20, 30), (5, 6), []),
        ((224, 30), None, ["20x30 pixels are enlarged to 224x30."]),
        (
            (24, 32),
            (3, 4),
            [
                "20x30 pixels are enlarged to 24x32, 12 tokens.",
                "only 12 tokens",
            ],
        ),
    ],
)
def test_enlarged_images_and_few_tokens_are_named(
    tmp_path, image_size, grid, notes
):
    for name in ("ant/1.png", "ant/2.png", "bee/1.png", "bee/2.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pixels = np.zeros((20, 30, 3), "uint8")
        Image.fromarray(pixels).save(tmp_path / name)
    train, _ = data.load(str(tmp_path))
    info = inputs.DatasetInfo(
        image_size=image_size, channels=3, class_names=(), train_images=2
    )
    model = types.SimpleNamespace(metadata=dict(grid=grid))
    found = begin.size_notes(info, train, model)
    assert len(found) == len(notes)
    assert all(note in text for note, text in zip(notes, found, strict=True))
