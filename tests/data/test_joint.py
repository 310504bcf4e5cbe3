"""Image, boxes and masks move together."""

import numpy as np
import pytest
import tensorflow as tf

from keras_vit import data
from keras_vit.data import joint

pytestmark = pytest.mark.backend_independent


def example():
    """A bright rectangle at the left of a dark image, its box and its mask."""
    mask = np.zeros((30, 40), "uint8")
    mask[6:18, 4:24] = 1
    boxes = np.array([[0.35, 0.4, 0.5, 0.4], [0, 0, 0, 0]], "float32")
    return {
        "images": tf.constant(np.repeat(mask[..., None] * 200, 3, 2)),
        "boxes": tf.constant(boxes),
        "labels": tf.constant([4, -1], "int64"),
        "masks": tf.constant(np.stack([mask, mask * 0])),
        "classes": tf.constant(mask),
        "areas": tf.constant([240.0, 0.0]),
    }


@pytest.mark.parametrize("number", range(6))
def test_boxes_and_masks_follow_the_image(number):
    options = dict(scales=(0.5, 2.0), keep_ratio=number < 4)
    seed = (number, 1)
    found = data.jitter_scale(example(), (48, 48), seed, fill=0, **options)
    mask = found["masks"][0].numpy()
    assert found["images"].shape == (48, 48, 3)
    assert np.mean((found["images"][..., 0].numpy() > 100) != mask) < 0.03
    assert ((found["classes"].numpy() == 1) == mask).all()
    assert found["labels"].numpy().tolist() == [4, -1]
    # Areas are those of the view: of the masks, or else by those of the boxes.
    assert found["areas"].numpy().tolist() == [mask.sum(), 0]
    of_boxes = {k: v for k, v in example().items() if k != "masks"}
    other = data.jitter_scale(of_boxes, (48, 48), seed, **options)
    np.testing.assert_allclose(other["areas"][0], mask.sum(), rtol=0.1)
    rows, columns = np.nonzero(mask)
    x, y, width, height = found["boxes"][0].numpy() * 48
    edges = [x - width / 2, y - height / 2, x + width / 2, y + height / 2]
    expected = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
    np.testing.assert_allclose(edges, expected, atol=1)


def test_masks_may_be_truth_values():
    given = example()
    wanted = data.jitter_scale(given, (48, 48), (0, 1))["areas"]
    given["masks"] = tf.cast(given["masks"], "bool")
    found = data.jitter_scale(given, (48, 48), (0, 1))
    np.testing.assert_array_equal(found["areas"], wanted)
    with pytest.raises(ValueError, match="`scales` must be the least and"):
        data.jitter_scale(given, (48, 48), (0, 1), scales=(2.0, 0.1))


def test_a_view_depends_on_the_seed_alone():
    views = [
        data.jitter_scale(example(), (32, 32), (seed, 0))["images"].numpy()
        for seed in (1, 1, 2)
    ]
    assert (views[0] == views[1]).all() and (views[0] != views[2]).any()


@pytest.mark.parametrize("seed", [0, (1,), (1, 2, 3), (0.5, 1), None, "ab"])
def test_a_seed_is_two_integers(seed):
    with pytest.raises(ValueError, match="`seed` must be two integers.*seed="):
        data.jitter_scale(example(), (8, 8), seed)


def test_a_seed_may_be_drawn_within_a_pipeline():
    def view(number):
        return data.jitter_scale(example(), (8, 8), (number, 0))["images"]

    found = list(tf.data.Dataset.range(2**40, 2**40 + 2).map(view))
    np.testing.assert_array_equal(found[0], view(2**40))


def test_an_image_is_stretched_as_for_evaluation():
    # 29 (30 / 29) is less than 30 in float32.
    given = dict(images=example()["images"][:29])
    image = tf.image.resize(given["images"], (30, 48))
    for seed in range(4):
        found = data.jitter_scale(
            *(given, (30, 48), (seed, 0), (1.0, 1.0), False),
            keep_ratio=False,
        )
        np.testing.assert_array_equal(found["images"], image)


def test_a_crop_begins_anywhere_and_has_a_pixel():
    pixels = np.arange(3.0, dtype="float32")[:, None, None]
    given = dict(images=tf.constant(pixels + np.zeros((3, 3, 1), "float32")))
    firsts = {
        float(
            data.jitter_scale(given, (2, 2), (seed, 0), (1.5, 1.5))["images"][
                0, 0, 0
            ]
        )
        for seed in range(8)
    }
    assert firsts == {0.0, 1.0}
    given = dict(images=tf.ones((1, 40, 1)))
    found = data.jitter_scale(given, (8, 8), (0, 0), (0.5, 0.5), fill=0)
    assert float(tf.reduce_sum(found["images"])) == 4


def test_an_image_that_fits_is_padded_below():
    depth = tf.ones((30, 40))
    given = example() | dict(depth=depth, masks=tf.zeros((2, 30, 40), "uint8"))
    found = data.jitter_scale(
        given, (48, 48), (0, 0), (1.0, 1.0), flip=False, fill=7
    )
    image = tf.image.resize(given["images"], (36, 48))
    np.testing.assert_array_equal(found["images"][:36], image)
    for name, value in (("images", 7), ("classes", 255), ("depth", 0)):
        assert (found[name][36:].numpy() == value).all()
    # No pixel is left of the object, whatever its box.
    assert found["labels"].numpy().tolist() == [-1, -1]


def test_objects_outside_a_crop_become_padding():
    labels = [
        data.jitter_scale(example(), (8, 8), (seed, 0), (8.0, 8.0))["labels"]
        for seed in range(12)
    ]
    assert {int(each[0]) for each in labels} == {4, -1}


def test_colours_change_by_at_most_the_strength():
    grey = tf.constant(np.array([[[50.0], [100.0]]], "float32"))
    for seed in range(8):
        dark, bright = (
            joint.jitter_colours(grey, (seed, 0), 0.2).numpy().ravel()
        )
        # The mean changes with brightness, the difference with both.
        assert 0.8 <= (dark + bright) / 150 <= 1.2
        assert 0.64 <= (bright - dark) / 50 <= 1.44
        white = joint.jitter_colours(grey * 2.5, (seed, 0), 0.2).numpy()
        assert white.max() <= 255
    colour = tf.constant(np.array([[[50.0, 100, 150]]], "float32"))
    changed = joint.jitter_colours(colour, (0, 0), 1e-6, saturation=0.5)
    grey, other = map(tf.image.rgb_to_grayscale, (colour, changed))
    np.testing.assert_allclose(other, grey, rtol=1e-4)
    factors = ((changed - grey) / (colour - grey)).numpy().ravel()
    np.testing.assert_allclose(factors, factors[0], rtol=1e-3)
    assert 0.01 < abs(factors[0] - 1) < 0.5
