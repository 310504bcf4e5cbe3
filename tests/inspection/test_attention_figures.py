"""Attended distances, attention by head and rollout by layer."""

import types

import keras
import numpy as np
import pytest
import realistic
from catalogue import ENCODERS, make_model

import keras_vit
from keras_vit import inspection
from keras_vit.inspection import attention, figures, pictures, task_figures
from keras_vit.models import tokens

pytestmark = pytest.mark.backend("torch")


def images_of(model, count=2):
    rng = np.random.default_rng(0)
    return rng.uniform(0, 255, (count, *model.input_shape[1:]))


def distances_of(weights, grid, image_shape, queries=None, keys=None):
    """Returns the mean distances of given weights, `[B, A]`."""
    patches = tokens.of_patches(grid)
    inner = types.SimpleNamespace(
        image_shape=image_shape, metadata=dict(grid=grid)
    )
    geometry = (queries or patches, keys or patches)
    return attention._distances(inner, geometry, weights)


def test_uniform_attention_has_the_mean_distance_of_pairs():
    # 1 x 3 patches of 8 x 16 pixels: 0, 16 or 32 pixels apart.
    weights = np.full((1, 2, 3, 3), 1 / 3)
    found = distances_of(weights, (1, 3), (8, 48, 3))
    np.testing.assert_allclose(found, 16 * (4 * 1 + 2 * 2) / 9)
    # 2 x 1 patches of 8 x 16 pixels.
    weights = np.full((1, 1, 2, 2), 1 / 2)
    np.testing.assert_allclose(distances_of(weights, (2, 1), (16, 16, 3)), 4)


def test_a_class_token_is_left_out_of_distances():
    # All attend to the class token but for a hundredth on the neighbour.
    weights = np.zeros((1, 1, 3, 3))
    weights[..., 0] = 0.99
    weights[0, 0, 1, 2] = weights[0, 0, 2, 1] = 0.01
    found = distances_of(weights, (1, 2), (4, 16, 3))
    np.testing.assert_allclose(found, 8)


def make_uniform(model):
    """Gives all attention the same weights."""
    for weight in model.weights:
        if "qkv" in weight.path:
            weight.assign(np.zeros(weight.shape))
    return model


@pytest.mark.parametrize("name", ["token", "gap", "hybrid", "axial vit"])
def test_distances_of_uniform_attention_are_those_of_the_grid(name):
    model = make_uniform(make_model(name))
    height, width, _ = model.image_shape
    rows, columns = model.metadata["grid"]
    y, x = np.indices((rows, columns)).reshape(2, -1)
    apart = np.hypot(
        (y[:, None] - y) * height / rows, (x[:, None] - x) * width / columns
    )
    expected = [apart.mean()] * 2
    if name == "axial vit":  # one along columns, one along rows
        same = [x[:, None] == x, y[:, None] == y]
        expected = [apart[mask].mean() for mask in same]
    found = inspection.attended_distances(model, images_of(model, 3), 2)
    assert [each.shape for each in found] == [(2,), (2,)]
    for each, mean in zip(found, expected, strict=True):
        np.testing.assert_allclose(each, mean, rtol=1e-5)
    assert inspection.uniform_distances(model) == pytest.approx(expected)


def test_pooled_tokens_lie_in_the_middle_of_their_windows():
    pool = types.SimpleNamespace(
        grid_size=(1, 5, 4),
        output_grid=(1, 3, 2),
        kernel_size=(1, 3, 3),
        strides=(1, 2, 2),
    )
    block = types.SimpleNamespace(
        attn=types.SimpleNamespace(pool_q=None, pool_k=pool)
    )
    queries, keys = tokens.of_block(block, tokens.of_patches((5, 4)))
    assert queries.windows is None
    np.testing.assert_allclose(queries.places[1], [0, 1, 2, 3, 4])
    # Windows at the border have two tokens in the picture.
    np.testing.assert_allclose(keys.places[1], [0.5, 2, 3.5])
    np.testing.assert_allclose(keys.places[2], [0.5, 2])
    mass = np.array([[0.5, 0, 0, 0, 0, 0, 0.5]], "float32")
    mass = keras.ops.convert_to_numpy(keys.spread(mass))
    assert mass.shape == (1, 21)
    np.testing.assert_allclose(mass[0, 0], 0.5)
    np.testing.assert_allclose(
        mass[0, 1:].reshape(5, 4)[3:, 1:], np.full((2, 3), 0.5 / 6), rtol=1e-6
    )
    assert mass.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    "name",
    [
        *("token", "gap", "token_gap", "unpooled", "hybrid", "relative"),
        *("1-D shared", "mvit image", "axial vit", *ENCODERS),
    ],
)
def test_heads_and_rollouts_have_the_grid_and_sum_to_one(name):
    model = make_model(name)
    images = images_of(model).astype("uint8")
    grid = model.metadata["grid"]
    if model.num_frames is None:
        grid = grid[-2:]
    rollouts = inspection.rollout_by_layer(model, images)
    heads = inspection.attention_by_head(model, images)
    assert rollouts.shape == (len(heads), 2, *grid)
    axes = tuple(range(2, rollouts.ndim))
    np.testing.assert_allclose(rollouts.sum(axis=axes), 1, rtol=1e-6)
    assert (rollouts >= 0).all()
    for each in heads:
        assert each.shape[0] == 2
        np.testing.assert_allclose(each.sum(axis=axes), 1, rtol=1e-5)
    last = inspection.attention_rollout(model, images)
    np.testing.assert_allclose(rollouts[-1], last, rtol=1e-12)


@pytest.mark.parametrize(
    ("pooling", "read"),
    [
        ("token", [1, 0, 0]),
        ("token_unnormed", [1, 0, 0]),
        ("gap", [0, 0, 1]),
        ("token_and_gap", [0.5, 0, 0.5]),
    ],
)
def test_a_rollout_begins_at_what_the_classifier_reads(pooling, read):
    model = realistic.fill(make_model("dinov2", pooling=pooling))
    images = images_of(model)
    (weights,) = inspection.attention_weights(model, images)
    # The class token, two registers, and 4 x 2 patches.
    read = np.array([*read[:2], *read[1:2], *[read[2] / 8] * 8])
    expected = (weights.mean(axis=1).transpose(0, 2, 1) @ read + read)[:, 3:]
    expected = expected / expected.sum(axis=1, keepdims=True)
    found = inspection.attention_rollout(model, images)
    np.testing.assert_allclose(found.reshape(2, -1), expected, rtol=1e-5)


def test_the_first_rollout_is_the_first_attention_of_the_class_token():
    model = make_model("token")
    images = images_of(model)
    weights = inspection.attention_weights(model, images)[0]
    expected = weights.mean(axis=1)[:, 0, 1:]
    expected = expected / expected.sum(axis=-1, keepdims=True)
    found = inspection.rollout_by_layer(model, images)[0]
    np.testing.assert_allclose(found.reshape(2, -1), expected, rtol=1e-6)
    heads = inspection.attention_by_head(model, images)[0]
    expected = weights[:, :, 0, 1:]
    expected = expected / expected.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(heads.reshape(2, 2, -1), expected, rtol=1e-6)


def test_the_rollout_of_pooled_tokens_is_uniform_where_attention_is():
    # Windows do not overlap: each patch is in one.
    model = make_uniform(
        keras_vit.MViT(
            depths=(1, 1),
            hidden_sizes=(8, 8),
            num_heads=(1, 1),
            cube_size=(1, 4, 4),
            cube_stride=(1, 4, 4),
            query_stride=((1, 1, 1), (1, 1, 1)),
            key_value_stride=((1, 1, 1), (1, 1, 1)),
            pooling_mode="avg",
            pooling="gap",
            input_shape=(8, 16, 3),
            classes=2,
        )
    )
    found = inspection.rollout_by_layer(model, images_of(model))
    np.testing.assert_allclose(found, 1 / 8, rtol=1e-6)


@pytest.mark.parametrize("name", ["mixer", "bit", "raft", "axial resnet"])
def test_families_without_attention_among_tokens_are_refused(name):
    model = make_model(name)
    with pytest.raises(ValueError, match=f"Received.*{model.family}"):
        inspection.attended_distances(model, images_of(model))
    with pytest.raises(ValueError, match=f"Received.*{model.family}"):
        inspection.uniform_distances(model)


def test_pictures_of_attention_are_drawn(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (2, 16, 8, 3), "uint8")
    pictures.plot_rollouts(
        images, rng.uniform(size=(3, 2, 4, 2)), tmp_path / "r.png"
    )
    heads = [rng.uniform(size=(1, 4, 2)), rng.uniform(size=(2, 2, 1))]
    pictures.plot_heads(images[0], heads, tmp_path / "h.png")
    distances = [np.array([3.0, 1.0]), np.array([2.0])]
    matplotlib_figure = pytest.importorskip("matplotlib.figure")
    drawn, save = [], matplotlib_figure.Figure.savefig
    monkeypatch.setattr(
        matplotlib_figure.Figure,
        "savefig",
        lambda self, path: drawn.append(self) or save(self, path),
    )
    pictures.plot_attended_distances(
        distances, [4.0, 2.5], "title", tmp_path / "d.png"
    )
    [uniform] = drawn[0].axes[0].patches  # a line of steps
    assert uniform.get_data().values.tolist() == [4.0, 2.5]
    assert uniform.get_linestyle() == "--"
    assert uniform.get_label() == "attention to all patches alike"
    for path in tmp_path.iterdir():
        assert path.read_bytes()[:4] == b"\x89PNG"


def test_names_of_classes_are_no_formulas(tmp_path, monkeypatch):
    matplotlib_figure = pytest.importorskip("matplotlib.figure")
    texts, save = [], matplotlib_figure.Figure.savefig

    def saved(figure, path):
        save(figure, path)
        found = figure.findobj(lambda x: hasattr(x, "get_parse_math"))
        texts.append([x for x in found if "$" in x.get_text()])

    monkeypatch.setattr(matplotlib_figure.Figure, "savefig", saved)
    image, name = np.zeros((4, 4, 3)), r"$\frac{ $"
    figures.plot_attention(image[None], None, [name], tmp_path / "a.png")
    figures.plot_clips(image[None, None], None, [name], tmp_path / "c.png")
    box = dict(labels=[0], names=[name], scores=[1.0], boxes=[[0, 0, 2, 2]])
    found = [box, dict(classes=np.zeros((4, 4), int))]
    task_figures.plot_task([image] * 2, found, tmp_path / "t.png", [name])
    assert [len(drawn) for drawn in texts] == [1, 1, 2]
    for text in sum(texts, []):
        assert name in text.get_text() and not text.get_parse_math()
