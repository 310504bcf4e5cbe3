"""Pictures are written, without a display and without global state."""

import numpy as np
import pytest

from keras_vit.inspection import figures

pytestmark = pytest.mark.backend_independent

PNG = b"\x89PNG"


@pytest.mark.parametrize(
    "text",
    [
        "epoch,accuracy,learning_rate,loss,step,val_accuracy,val_loss\n"
        "0,0.1,0.01,2.3,10,0.2,2.2\n1,0.3,0.0,2.0,20,0.25,2.1\n",
        "epoch,accuracy,loss,val_accuracy,val_loss\n0,0.5,1.0,NA,NA\n",
        "epoch,loss\n0,1.0\n",
    ],
)
def test_curves_are_drawn_from_what_the_logger_wrote(tmp_path, text):
    (tmp_path / "metrics.csv").write_text(text)
    figures.plot_curves(tmp_path / "metrics.csv", tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes()[:4] == PNG


def test_curves_of_nothing_are_refused(tmp_path):
    (tmp_path / "metrics.csv").write_text("epoch,loss\n")
    with pytest.raises(ValueError, match="at least one epoch"):
        figures.plot_curves(tmp_path / "metrics.csv", tmp_path / "curves.png")


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("shape", [(8, 8, 1), (16, 32, 3)])
def test_attention_is_drawn_on_images_of_any_shape(tmp_path, count, shape):
    images = np.random.default_rng(0).integers(0, 256, (count, *shape))
    attention = np.random.default_rng(0).random((count, 2, 4))
    figures.plot_attention(
        images,
        attention,
        ["a name of many words " * 5] * count,
        tmp_path / "attention.png",
        right=np.arange(count) % 2 == 0,
    )
    assert (tmp_path / "attention.png").read_bytes()[:4] == PNG


def test_attention_of_other_length_is_refused(tmp_path):
    with pytest.raises(ValueError, match="same length"):
        figures.plot_attention(
            np.zeros((2, 8, 8, 1)), np.ones((1, 2, 2)), ["a", "b"], "x.png"
        )
