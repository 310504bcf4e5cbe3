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
        "epoch,accuracy,loss\n0,0.5,1.0\n1,0.7",  # cut off
    ],
)
def test_curves_are_drawn_from_the_log(tmp_path, text):
    (tmp_path / "metrics.csv").write_text(text)
    figures.plot_curves(tmp_path / "metrics.csv", tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes()[:4] == PNG


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


@pytest.fixture
def saved(monkeypatch):
    """The figures that are saved, to look at."""
    kept = []
    figure_class = figures.new_figure(1, 1).__class__
    save = figure_class.savefig

    def keep(figure, *arguments):
        kept.append(figure)
        save(figure, *arguments)

    monkeypatch.setattr(figure_class, "savefig", keep)
    return kept


def drawn(attention, tmp_path, saved):
    """Returns the opacity of each patch and the axis of the scale."""
    images = np.full((len(attention), 8, 8, 1), 200)
    titles = ["a"] * len(attention)
    figures.plot_attention(images, attention, titles, tmp_path / "a.png")
    (figure,) = saved
    *pairs, scale = figure.findobj(lambda x: type(x).__name__ == "Axes")
    overlays = [axes.images[-1].get_array() for axes in pairs[1::2]]
    return np.array([overlay[..., 3] for overlay in overlays]), scale


def test_attention_shows_what_exceeds_the_uniform_share(tmp_path, saved):
    # 0.5, 0.7, 1 and 1.8 times 1/4; and 1, 1, 1.4 and 0.6 times.
    attention = np.array(
        [[[0.125, 0.175], [0.25, 0.45]], [[0.25, 0.25], [0.35, 0.15]]]
    )
    opacity, scale = drawn(attention, tmp_path, saved)
    np.testing.assert_allclose(
        opacity / opacity.max(),
        [[[0, 0], [0, 1]], [[0, 0], [np.log(1.4) / np.log(1.8), 0]]],
        atol=1e-6,
    )
    # The same scale for both, stated under them.
    labels = [label.get_text() for label in scale.get_xticklabels()]
    assert labels == ["1x", "1.34x", "1.8x"]
    assert "uniform share 1/4" in scale.get_xlabel()


def test_curves_mark_the_last_evaluation_not_the_best(tmp_path, saved):
    (tmp_path / "metrics.csv").write_text(
        "epoch,accuracy,val_accuracy\n0,0.5,0.75\n1,0.6,0.5\n"
    )
    figures.plot_curves(tmp_path / "metrics.csv", tmp_path / "curves.png")
    texts = [x.get_text() for x in saved[0].findobj() if hasattr(x, "get_text")]
    assert "50.00%" in texts and "75.00%" not in texts
