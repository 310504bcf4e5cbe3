"""The head for actions of persons in boxes."""

import pathlib

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import training
from keras_vit.heads.actions import RoIAlign

SMALL = dict(
    input_shape=(4, 64, 96, 3),
    include_top=False,
    depths=(1, 1),
    hidden_sizes=(8, 16),
    num_heads=1,
    cube_stride=(2, 4, 4),
    key_value_stride=(1, 2, 2),
)
pytestmark = pytest.mark.backend("torch")
GOLDEN = pathlib.Path(__file__).parents[1] / "goldens/numerics/roi_align.npz"


def numpy(x):
    return keras.ops.convert_to_numpy(x)


def boxes():
    """Those of the golden, by centre and extent; the last has no area."""
    with np.load(GOLDEN) as golden:
        begin, end = np.split(golden["boxes"], 2, axis=1)
    return np.concatenate([(begin + end) / 2, end - begin], 1)[None]


@pytest.mark.parametrize("size", [(7, 7), (16, 24), (3, 40)])
def test_boxes_are_read_as_by_torchvision(size):
    # As make_released.py draws them.
    maps = np.random.default_rng(0).normal(size=(1, *size, 3))
    found = RoIAlign()(maps.astype("float32"), boxes())
    with np.load(GOLDEN) as golden:
        expected = golden["x".join(map(str, size))]
    np.testing.assert_allclose(numpy(found)[0], expected, atol=1e-5)


def test_cells_of_boxes_beyond_the_image_are_means_too():
    wide = np.array([[[0.5, 0.5, 1.4, 1.4], [0.5, 0.5, 5.0, 5.0]]], "float32")
    found = RoIAlign()(np.ones((1, 14, 14, 1), "float32"), wide)
    np.testing.assert_allclose(numpy(found)[0, :, 3, 3], 1, atol=1e-5)


def test_half_precision_moves_no_box():
    columns = np.broadcast_to(np.arange(64.0) - 32, (1, 64, 64))[..., None]
    maps = keras.ops.cast(columns, "bfloat16")
    # 0.50195 is 0.5 in bfloat16.
    inside = np.array([[[0.50195, 0.5, 0.5, 0.5]]], "float32")
    found = RoIAlign(dtype="mixed_bfloat16")(maps, inside)
    middle = numpy(keras.ops.cast(found, "float32"))[0, 0, 3, 3]
    np.testing.assert_allclose(middle, 64 * 0.50195 - 0.5 - 32, atol=0.01)


def test_scores_are_those_of_slowfasts_head():
    keras.utils.set_random_seed(0)
    backbone = keras_vit.MViT(**SMALL)
    model = keras_vit.heads.actions(backbone, classes=3)
    clip = np.random.default_rng(1).uniform(0, 255, (1, 4, 64, 96, 3))
    inputs = dict(videos=clip.astype("float32"), boxes=boxes())
    found = model.predict(inputs, verbose=0)
    maps = keras_vit.feature_maps(backbone, [-1], norm=True)
    mean = numpy(maps.predict(clip, verbose=0)).mean(1)
    # ResNetRoIHead: the mean over time, RoIAlign, the maximum, a linear layer.
    features = numpy(RoIAlign()(mean, boxes())).max((2, 3))
    kernel, bias = map(numpy, model.get_layer("head").weights)
    expected = features @ kernel + bias
    assert np.abs(expected).max() > 0.01
    np.testing.assert_allclose(found["logits"], expected, atol=1e-5)
    (drawn,) = model.interpret(found, [(10, 20)], threshold=0.0)
    # The last box has no area.
    assert drawn["labels"].tolist() == [0, 1, 2] * 3
    np.testing.assert_allclose(drawn["boxes"][3], [2, 2, 7, 9], rtol=1e-5)


def test_it_is_trained_saved_and_read(tmp_path):
    names = ("sit", "stand")
    backbone = keras_vit.MViT(**SMALL, head_dropout_rate=0.5)
    model = keras_vit.heads.actions(backbone, class_names=names)
    training.set_loss(model, training.ActionLoss())
    model.compile("adam")
    inputs = dict(videos=np.zeros((1, 4, 64, 96, 3)), boxes=boxes())
    targets = dict(actions=np.ones((1, 4, 2)), labels=np.array([[0, 0, 0, -1]]))
    losses = model.fit(inputs, targets, epochs=2, verbose=0).history["loss"]
    assert losses[1] < losses[0]
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert (again.task, again.class_names) == ("actions", names)
    np.testing.assert_array_equal(
        again.predict(inputs, verbose=0)["logits"],
        model.predict(inputs, verbose=0)["logits"],
    )
    assert "head_dropout" in [layer.name for layer in again.layers]


def test_the_loss_is_the_mean_over_persons_and_actions():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(2, 3, 4)).astype("float32")
    targets = rng.integers(0, 2, (2, 3, 4))
    labels = np.array([[0, -1, 0], [-1, -1, 0]])
    probability = 1 / (1 + np.exp(-logits))
    each = -np.log(np.where(targets, probability, 1 - probability))
    found = training.ActionLoss()(
        dict(actions=targets, labels=labels), dict(logits=logits)
    )
    np.testing.assert_allclose(numpy(found), each[labels >= 0].mean(), 1e-5)


def test_a_model_of_images_is_refused():
    backbone = keras_vit.MViT(**SMALL | dict(input_shape=(64, 96, 3)))
    with pytest.raises(ValueError, match="a model of videos"):
        keras_vit.heads.actions(backbone, classes=2)
