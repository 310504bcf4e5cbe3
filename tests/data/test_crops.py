"""Crops of images that were resized before."""

import io

import numpy as np
import pytest
import sources

from keras_vit import data
from keras_vit.data import crops, decode

tf = pytest.importorskip("tensorflow")

pytestmark = pytest.mark.backend_independent


def ramp(height, width):
    """An image that holds row and column in its first two channels."""
    rows, columns = np.meshgrid(
        np.arange(height), np.arange(width), indexing="ij"
    )
    return np.stack([rows, columns, 0 * rows], -1).astype("float32")


def test_windows_have_the_authors_areas_and_aspects():
    areas, aspects = [], []
    for seed in range(100):
        _, size = crops.sample_window((400, 400, 3), (0, seed))
        height, width, _ = size.numpy().tolist()
        areas.append(height * width / 400**2)
        aspects.append(width / height)
    assert 0.045 < min(areas) < 0.08 and 0.75 < max(areas) <= 1
    assert 0.74 < min(aspects) < 0.85 and 1.2 < max(aspects) < 1.35


def test_resized_and_cropped_at_random():
    batches = data.train_batches(
        sources.of_arrays(ramp(40, 20)[None]),
        batch_size=200,
        image_size=(8, 8),
        crop="resize",
        resize=10,
        flip=False,
    )
    (batch,) = batches.take(1).as_numpy_iterator()
    # Of 10 x 10 pixels, four rows and two columns of the image each.
    np.testing.assert_allclose(np.diff(batch["images"][..., 0], axis=1), 4)
    np.testing.assert_allclose(np.diff(batch["images"][..., 1], axis=2), 2)
    firsts = {tuple(image[0, 0, :2]) for image in batch["images"]}
    assert firsts == {
        (4 * row + 1.5, 2 * column + 0.5)
        for row in range(3)
        for column in range(3)
    }
    # In proportion, the other side is rounded.
    assert crops.resize_shorter(tf.ones((7, 3, 1)), 8).shape == (19, 8, 1)
    assert decode.fitted((42, 90), (64, 64)).numpy().tolist() == [30, 64]


@pytest.mark.parametrize(
    ("shape", "first", "step"),
    [
        # 16 rows become 8: half of the resolution, and the middle of 8 x 16.
        ((16, 32), (2.5, 10.5), 2),
        ((32, 16), (10.5, 2.5), 2),
        ((16, 34), (2.5, 10.5), 2),  # 5 columns before it, and 6 behind
        ((4, 4), (0.5, 0.5), 0.5),
    ],
)
def test_evaluation_in_proportion_sees_the_middle(shape, first, step):
    batches = data.eval_batches(
        sources.of_arrays(ramp(*shape)[None]),
        batch_size=1,
        image_size=(6, 6),
        resize=8,
    )
    assert batches.element_spec["images"].shape == (1, 6, 6, 3)
    (batch,) = batches.as_numpy_iterator()
    image = batch["images"][0]
    if step == 2:
        np.testing.assert_allclose(image[0, 0, :2], first)
    np.testing.assert_allclose(np.diff(image[1:5, :, 0], axis=0), step)
    np.testing.assert_allclose(np.diff(image[:, 1:5, 1], axis=1), step)


@pytest.mark.parametrize("shape", [(2000, 4), (4, 2001), (1, 1)])
def test_of_a_very_long_image_the_middle_is_resized(shape):
    image = np.full((*shape, 3), 7, "uint8")
    long = int(np.argmax(shape))
    found = crops.central_crop(tf.constant(image), (6, 6), 8)
    np.testing.assert_allclose(found, np.full((6, 6, 3), 7))
    if max(shape) > 1:
        image = ramp(*shape)
        found = crops.central_crop(tf.constant(image), (6, 6), 8)
        middle = found[:, :, long].numpy().mean()
        np.testing.assert_allclose(middle, (max(shape) - 1) / 2, atol=0.6)


@pytest.mark.parametrize(
    ("image_shape", "expected"),
    [
        ((32, 32, 3), (160, 128)),
        ((95, 96, 3), (160, 128)),
        ((96, 96, 3), (512, 480)),
        ((375, 500, 3), (512, 480)),
        (None, (512, 480)),
    ],
)
def test_hyper_rule_of_bit(image_shape, expected):
    assert data.bit_hyper_rule(image_shape) == expected


@pytest.mark.parametrize("resize", [0, 5, -8, 7.5, 100_000])
def test_resize_is_at_least_the_crop_and_not_huge(resize):
    arguments = dict(batch_size=1, image_size=(6, 8))
    source = sources.of_arrays(ramp(8, 8)[None])
    with pytest.raises(ValueError, match=f"`resize`.*resize={resize}"):
        data.train_batches(source, **arguments, crop="resize", resize=resize)
    if resize:
        with pytest.raises(ValueError, match=f"`resize`.*resize={resize}"):
            data.eval_batches(source, **arguments, resize=resize)


@pytest.mark.parametrize("min_area", [0, -0.1, 1.1])
def test_the_smallest_area_is_a_share(min_area):
    source = sources.of_arrays(ramp(8, 8)[None])
    with pytest.raises(ValueError, match=f"`min_area`.*min_area={min_area}"):
        data.train_batches(
            source, batch_size=1, image_size=(8, 8), min_area=min_area
        )


@pytest.mark.parametrize(
    "options",
    [
        dict(crop="none", resize=10),
        dict(resize=10),
        dict(crop="pad", min_area=0.5),
        dict(crop="resize", resize=10, pad=1),
    ],
)
def test_an_option_of_another_crop_is_refused(options):
    source = sources.of_arrays(ramp(8, 8)[None])
    *_, name = options
    with pytest.raises(ValueError, match=f"`{name}`.*alone.*{name}="):
        data.train_batches(source, batch_size=1, image_size=(8, 8), **options)


# Traced once: eagerly, each call traces a part of it.
WINDOW = tf.function(
    lambda encoded, seed: crops.decode_window(encoded, 3, seed),
    input_signature=[
        tf.TensorSpec((), tf.string),
        tf.TensorSpec((2,), tf.int32),
    ],
    autograph=False,
)


@pytest.mark.parametrize("orientation", [1, 3, 5, 6, 8])
def test_the_window_of_a_turned_jpeg_is_one_of_the_upright_image(orientation):
    pillow = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, (21, 34, 3)).astype("uint8")
    exif, file = pillow.Exif(), io.BytesIO()
    exif[0x0112] = orientation
    pillow.fromarray(image).save(file, "JPEG", exif=exif, subsampling=0)
    encoded = tf.constant(file.getvalue())
    upright = data.decode_image(encoded)
    for seed in range(3):
        # The window of pixels, which are not decoded but cut.
        expected = crops.decode_window(upright, 3, (seed, 0))
        found = WINDOW(encoded, tf.constant((seed, 0)))
        np.testing.assert_array_equal(found, expected)
