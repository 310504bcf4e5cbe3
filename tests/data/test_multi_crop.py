"""Crops for learning without labels."""

import dataclasses

import numpy as np
import pytest
import sources

from keras_vit import data
from keras_vit.data import multi_crop

pytestmark = [
    pytest.mark.backend_independent,
    pytest.mark.usefixtures("plain_decoding"),
]
CROPS = data.Crops(
    local_size=(6, 6), num_local=3, grid_size=(4, 4), masked=(0.25, 0.5)
)
PLAIN = dataclasses.replace(CROPS, distort=False)


def source(examples=10, channels=3):
    rng = np.random.default_rng(0)
    return sources.of_arrays(
        rng.integers(0, 256, (examples, 16, 16, channels), "uint8")
    )


def batches(steps, start_step=0, crops=CROPS, **options):
    found = data.crop_batches(
        source(channels=options.get("channels", 3)),
        crops,
        **dict(batch_size=4, image_size=(12, 12), seed=3) | options,
        start_step=start_step,
    )
    return list(found.take(steps).as_numpy_iterator())


def test_crops_depend_on_the_step_alone():
    whole = batches(5)
    shapes = {k: v.shape for k, v in whole[0]["images"].items()}
    assert shapes == dict(
        global_crops=(4, 2, 12, 12, 3),
        local_crops=(4, 3, 6, 6, 3),
        sources=(4, 16),
        places=(4, 8),
        shares=(4, 8),
    )
    for resumed, expected in zip(batches(2, 3), whole[3:], strict=True):
        for key, value in expected["images"].items():
            np.testing.assert_array_equal(resumed["images"][key], value)
    crops = np.concatenate([b["images"]["global_crops"] for b in whole])
    assert crops.min() >= 0 and crops.max() <= 255
    assert not any(np.array_equal(one, two) for one, two in crops)


def test_shards_and_replicas_are_parts_of_a_batch():
    plain = dict(crops=PLAIN)
    whole = batches(1, **plain)
    other = batches(1, **plain, seed=4)[0]["images"]["local_crops"]
    assert not np.array_equal(other, whole[0]["images"]["local_crops"])
    for options in (dict(num_shards=2), dict(num_replicas=2)):
        options |= plain
        size = options.get("num_shards", 1)
        parts = (
            [batches(1, shard_index=i, **options)[0] for i in range(2)]
            if size > 1
            else batches(2, **options)
        )
        for key, value in whole[0]["images"].items():
            joined = np.concatenate([part["images"][key] for part in parts])
            np.testing.assert_array_equal(joined, value)


def test_masks_are_blocks_of_some_of_the_patches():
    for batch in batches(6, crops=PLAIN):
        images = batch["images"]
        masked = images["sources"] == 16
        np.testing.assert_array_equal(
            np.where(masked, np.arange(16), images["sources"]),
            np.arange(16)[None] + 0 * masked,
        )
        for mask, places, shares in zip(
            masked, images["places"], images["shares"], strict=True
        ):
            count = mask.sum()
            assert 0 < count <= 8
            there = shares > 0
            np.testing.assert_array_equal(places[there], np.flatnonzero(mask))
            np.testing.assert_allclose(shares[there], 1 / count)
    masks = np.stack(
        [multi_crop.mask_blocks((14, 14), 90, (0, i)) for i in range(20)]
    )
    counts = masks.sum((1, 2))
    assert max(counts) <= 90 and np.mean(counts) > 75
    # To the last row and column.
    assert masks.any((0, 1)).all() and masks.any((0, 2)).all()


def test_without_distortions_crops_are_parts_of_the_image():
    crops = dataclasses.replace(
        CROPS, distort=False, flip=False, grid_size=None, global_area=(1.0, 1.0)
    )
    batch = batches(1, crops=crops, image_size=(16, 16))[0]["images"]
    assert batch.keys() == {"global_crops", "local_crops"}
    images = source().images
    assert any(
        np.allclose(image, crop, atol=1e-3)
        for crop in batch["global_crops"][:, 0]
        for image in images
    )


def test_grey_images_and_no_small_crops():
    crops = dataclasses.replace(CROPS, num_local=0, grid_size=None)
    batch = batches(1, crops=crops, channels=1)[0]["images"]
    assert batch.keys() == {"global_crops"}
    assert batch["global_crops"].shape == (4, 2, 12, 12, 1)


def test_evaluation_sees_every_image_once():
    options = dict(batch_size=4, image_size=(12, 12))
    one, two = (
        list(
            data.crop_eval_batches(
                source(), PLAIN, **options
            ).as_numpy_iterator()
        )
        for _ in range(2)
    )
    weights = np.concatenate([batch["weights"] for batch in one])
    np.testing.assert_allclose(weights, [1.2] * 10 + [0.0] * 2)
    for a, b in zip(one, two, strict=True):
        for key, value in a["images"].items():
            np.testing.assert_array_equal(b["images"][key], value)


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="`local_area` must be two shares"):
        data.Crops(local_area=(0.4, 0.1))
    with pytest.raises(ValueError, match=r"two shares.*masked=\(0.5,\)"):
        data.Crops(masked=(0.5,))
    with pytest.raises(ValueError, match="at least 4 patches.* of 16 patches"):
        data.Crops(grid_size=(4, 4), masked=(0.1, 0.2))
    with pytest.raises(ValueError, match="`num_local` must be at least 0"):
        data.Crops(num_local=-1)


def test_windows_have_the_area_and_lie_within_the_image():
    places = np.stack(np.meshgrid(range(16), range(32), indexing="ij"), -1)
    found = multi_crop._windows(
        *(places.astype("float32"), 40, (2, 2), (0.6, 0.6), (0, 1))
    ).numpy()
    first, last = found[:, 0, 0], found[:, 1, 1]
    sides = last - first + 1
    np.testing.assert_allclose(sides.prod(-1) / (16 * 32), 0.6, rtol=1e-3)
    ratio = sides[:, 1] / sides[:, 0]
    # Smaller ratios would be higher than the image.
    assert ratio.min() >= 0.6 * 32 / 16 - 1e-3 and ratio.max() <= 4 / 3 + 1e-3
    assert first.min() >= -1e-3
    assert (last <= (15.001, 31.001)).all()


def test_colours_are_distorted_as_often_as_the_authors_do():
    def crops(*colour):
        images = np.broadcast_to(np.uint8(colour), (40, 4, 4, 3)).copy()
        given = dataclasses.replace(CROPS, num_local=0, grid_size=None)
        options = dict(batch_size=40, image_size=(4, 4), seed=1)
        found = data.crop_batches(sources.of_arrays(images), given, **options)
        (batch,) = found.take(1).as_numpy_iterator()
        return batch["images"]["global_crops"].reshape(80, 16, 3).mean(1)

    bright, dark = crops(200, 200, 200), crops(60, 30, 20)
    # One in five of one of the two crops has its bright values inverted.
    assert 0 < (bright < 119).all(-1).sum() < 20
    assert dark.max() < 119
    assert 4 < (np.ptp(dark, axis=-1) < 1).sum() < 40  # one in five is grey
    same = np.abs(dark - (60, 30, 20)).max(-1) < 0.5
    assert 1 < same.sum() < 40  # four in five change their colours
