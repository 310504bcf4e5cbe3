"""Crops for learning without labels."""

import colorsys
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
    with pytest.raises(ValueError, match=r"a tuple of 2.*masked=\(0.5,\)"):
        data.Crops(masked=(0.5,))
    with pytest.raises(ValueError, match="at least 4 patches.* of 16 patches"):
        data.Crops(grid_size=(4, 4), masked=(0.1, 0.2))
    with pytest.raises(ValueError, match="`num_local` must be an integer"):
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


def test_crops_are_distorted_as_the_authors_do():
    def crops(*columns):
        """Return large crops, `[80, 2, ...]`, and small ones of 80 images."""
        images = np.empty((80, 8, 8, 3), "uint8")
        for i, colour in enumerate(columns):
            images[:, :, i :: len(columns)] = colour
        whole = dict(global_area=(1.0, 1.0), local_area=(1.0, 1.0))
        given = data.Crops(local_size=(8, 8), num_local=1, **whole)
        options = dict(batch_size=80, image_size=(8, 8), seed=1)
        found = data.crop_batches(sources.of_arrays(images), given, **options)
        (batch,) = found.take(1).as_numpy_iterator()
        return [
            batch["images"][f"{kind}_crops"] for kind in ("global", "local")
        ]

    # One in five of one large crop, which is either, is inverted; brightness
    # alone leaves 0.6 of 200. No blur darkens the border.
    large, small = crops((200, 200, 200))
    assert max(np.ptp(x, axis=(2, 3)).max() for x in (large, small)) < 0.1
    inverted = (large < 119).all((2, 3, 4)).sum(axis=0)
    assert 8 < inverted.sum() < 24 and inverted.min() > 2
    assert (small > 119).all()
    # One in five is grey, and one in five of the others keeps its colour.
    colours = [x.mean((2, 3)).reshape(-1, 3) for x in crops((60, 30, 20))]
    colours = np.concatenate(colours)
    range_ = np.ptp(colours, axis=-1)
    assert 0.15 < (range_ < 1).mean() < 0.28
    same = np.abs(colours - (60, 30, 20)).max(-1) < 0.5
    assert 0.12 < same.mean() < 0.2
    # The grey of the others is 37.8 times the brightness, their range 40 times
    # brightness, contrast and saturation; no hue turns by more than a tenth.
    changed = colours[(range_ >= 1) & ~same]
    range_ = np.ptp(changed, axis=-1)
    brightness = (changed.max(-1) - range_ * 22.2 / 40) / 37.8
    for found, most in ((brightness, 0.4), (range_ / 40 / brightness, 0.68)):
        assert 0.85 * most < found.max() - 1 <= most + 0.01
    hues = [colorsys.rgb_to_hsv(*each)[0] for each in changed]
    turns = (np.array(hues) - 1 / 24 + 0.5) % 1 - 0.5
    assert 0.09 < np.abs(turns).max() <= 0.101
    # Of large crops one is blurred, and one in ten; every second small one. By
    # less than half a pixel, as one in five is, it may not show.
    contrasts = [x.std(3).mean((-1, -2)) for x in crops((60,) * 3, (72,) * 3)]
    for found, share in zip(contrasts, (0.55, 0.5), strict=True):
        assert 0.6 * share < (found < 2).mean() < share
