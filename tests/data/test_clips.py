"""Clips of videos: their frames, and that these are treated alike."""

import numpy as np
import pytest
import sources
from videos import take

from keras_vit import data
from keras_vit.data import clips, moving_digits

tf = pytest.importorskip("tensorflow")

pytestmark = [
    pytest.mark.backend_independent,
    pytest.mark.usefixtures("plain_decoding"),
]


def numbered(count=6, num_frames=10, size=(6, 5), channels=3):
    """Clips whose frame t of clip n is all 20 n + t."""
    values = 20 * np.arange(count)[:, None] + np.arange(num_frames)
    shape = (count, num_frames, *size, channels)
    images = np.broadcast_to(values[..., None, None, None], shape)
    return source_of(images.astype("uint8"))


def still(count=4, num_frames=3, size=(12, 12)):
    """Clips of noise whose frames are all the same."""
    frame = np.random.default_rng(0).integers(0, 256, (count, 1, *size, 3))
    return source_of(frame.repeat(num_frames, axis=1).astype("uint8"))


def source_of(images):
    video = dict(is_video=True, num_frames=images.shape[1])
    return sources.of_arrays(images, image_shape=images.shape[2:], **video)


PLAIN = dict(batch_size=4, image_size=(6, 5), crop="none", flip=False)


def test_moving_digits_are_a_function_of_the_seed():
    train, evaluation = data.load("moving_digits")
    assert train.class_names == tuple(moving_digits.DIRECTIONS)
    for source in (train, evaluation):
        counts = np.bincount(source.labels)
        assert counts.min() == counts.max()
        assert source.images.shape[1:] == (8, 16, 16, 1)
    again, _ = data.load("moving_digits")
    np.testing.assert_array_equal(train.images, again.images)
    assert not np.array_equal(
        train.images, data.load("moving_digits", seed=1)[0].images
    )


def test_one_digit_moves_by_its_step_around_the_edges(monkeypatch):
    monkeypatch.setattr(moving_digits, "NUM_DIGITS", 1)
    monkeypatch.setattr(moving_digits, "TRAIN_CLIPS", 16)
    monkeypatch.setattr(moving_digits, "EVAL_CLIPS", 8)
    fields, _ = moving_digits.find(0.2, 0)
    steps = np.array([*moving_digits.DIRECTIONS.values()])[fields["labels"]]
    for clip, step in zip(fields["images"][..., 0], steps, strict=True):
        speeds = [
            speed
            for speed in moving_digits.SPEEDS
            if all(
                np.array_equal(np.roll(a, speed * step, (0, 1)), b)
                for a, b in zip(clip[:-1], clip[1:], strict=True)
            )
        ]
        assert len(speeds) == 1


def test_clips_to_evaluate_on_are_of_other_digits(monkeypatch):
    drawn = []
    monkeypatch.setattr(
        moving_digits, "_clips", lambda images, *_: drawn.append(images)
    )
    moving_digits.find(0.2, 0)
    train, held_out = ({x.tobytes() for x in images} for images in drawn)
    assert len(held_out) > 300 and not train & held_out


def test_clips_have_every_nth_frame_from_a_random_start():
    source = numbered(num_frames=10)
    arguments = dict(**PLAIN, num_frames=3, frame_step=2, seed=3)
    run = take(data.train_batches(source, **arguments), 9)
    assert run[0].shape == (4, 3, 6, 5, 3) and run[0].dtype == np.uint8
    frames = np.concatenate(run)[..., 0, 0, 0].astype(int)
    np.testing.assert_array_equal(np.diff(frames), 2)
    starts = frames[:, 0] % 20
    assert set(starts) <= set(range(6)) and len(set(starts)) > 3
    # The run resumes at any step.
    later = data.train_batches(source, **arguments, start_step=5)
    np.testing.assert_array_equal(run[5:], take(later, 4))


def test_of_a_short_video_the_last_frame_is_repeated():
    source = numbered(num_frames=3)
    arguments = dict(**PLAIN, num_frames=4, frame_step=2)
    for frames in np.concatenate(
        take(data.train_batches(source, **arguments), 2)
    ):
        assert (frames[:, 0, 0, 0] % 20).tolist() == [0, 2, 2, 2]


@pytest.mark.parametrize(
    "arguments",
    [
        dict(crop="inception", flip=True),
        dict(crop="pad", pad=3, flip=True),
        dict(crop="resize", resize=16),
        dict(
            crop="none",
            augment=(
                "RandAugment(num_ops=1, factor=0.5)",
                "RandomErasing(factor=(1.0, 1.0))",
                "batch:RandomErasing(factor=(1.0, 1.0))",
                "MixUp(alpha=0.8)",
                "CutMix()",
            ),
        ),
    ],
    ids=lambda x: x["crop"],
)
def test_the_frames_of_a_clip_are_cropped_and_augmented_alike(arguments):
    common = dict(batch_size=4, image_size=(12, 12), num_frames=3, flip=False)
    batches = data.train_batches(still(), **common | arguments)
    [batch] = batches.take(1).as_numpy_iterator()
    images = batch["images"]
    assert images.shape == (4, 3, 12, 12, 3)
    np.testing.assert_array_equal(images, images[:, :1].repeat(3, axis=1))
    np.testing.assert_allclose(batch["labels"].sum(-1), 1, rtol=1e-6)
    plain = data.train_batches(still(), **common, crop="none")
    assert not np.array_equal(images, take(plain, 1)[0])


def test_repeats_follow_each_other_with_other_clips():
    source = numbered(num_frames=20)
    arguments = dict(**PLAIN, num_frames=2, repeats=2)
    run = take(data.train_batches(source, **arguments), 6)
    frames = np.concatenate(run)[:, 0, 0, 0, 0].astype(int)
    pairs = frames.reshape(-1, 2)
    assert (pairs[:, 0] // 20 == pairs[:, 1] // 20).all()
    assert (pairs[:, 0] != pairs[:, 1]).any()
    # Each example once an epoch, whatever the repeats.
    assert sorted(pairs[:6, 0] // 20) == list(range(6))
    later = data.train_batches(source, **arguments, start_step=3)
    np.testing.assert_array_equal(run[3:], take(later, 3))
    with pytest.raises(ValueError, match="`repeats` must divide the 4"):
        data.train_batches(source, **PLAIN, num_frames=2, repeats=3)


def test_evaluation_takes_clips_and_crops_spread_evenly():
    images = np.zeros((2, 9, 4, 8, 1), "uint8")
    images[:] = 10 * np.arange(9)[:, None, None, None]
    images += np.arange(8, dtype="uint8")[:, None]
    arguments = dict(batch_size=2, image_size=(4, 4), channels=1)
    [batch] = take(
        data.eval_batches(
            source_of(images),
            **arguments,
            num_frames=2,
            frame_step=3,
            num_clips=3,
            num_crops=3,
            resize=4,
        ),
        2,
    )
    assert batch.shape == (2, 9, 2, 4, 4, 1)
    np.testing.assert_array_equal(
        batch[0, :, :, 0, 0, 0],
        [
            [10 * start + column, 10 * (start + 3) + column]
            for start in (0, 3, 5)
            for column in (0, 2, 4)
        ],
    )
    [batch] = take(
        data.eval_batches(source_of(images), **arguments, num_frames=3), 1
    )
    assert batch.shape == (2, 3, 4, 4, 1)
    assert (batch[0, :, 0, 0, 0] // 10).tolist() == [3, 4, 5]  # the middle


def test_frames_are_shuffled_by_clip():
    source = numbered(count=8, num_frames=10)
    batches = data.eval_batches(
        source, batch_size=4, image_size=(6, 5), num_frames=10
    )
    shuffled = data.shuffle_frames(batches, seed=1)
    before, after = (np.concatenate(take(x, 2)) for x in (batches, shuffled))
    orders = after[..., 0, 0, 0] - before[:, :1, 0, 0, 0]
    assert after.shape == before.shape
    np.testing.assert_array_equal(np.sort(orders), [range(10)] * 8)
    assert len({tuple(order) for order in orders}) == 8
    again = np.concatenate(take(data.shuffle_frames(batches, seed=1), 2))
    np.testing.assert_array_equal(after, again)
    images = batches.map(lambda x: dict(x, images=x["images"][:, 0]))
    with pytest.raises(ValueError, match="`batches` must be .* with clips"):
        data.shuffle_frames(images)


def test_npz_of_clips(tmp_path):
    x = np.arange(10 * 3 * 4 * 5 * 1).reshape(10, 3, 4, 5, 1).astype("uint8")
    y = np.arange(10) % 2
    path = str(tmp_path / "clips.npz")
    np.savez(path, x_train=x, y_train=y, x_test=x[:2], y_test=y[:2])
    train, evaluation = data.load(path)
    assert train.is_video and evaluation.num_examples == 2
    assert (train.num_frames, train.image_shape) == (3, (4, 5, 1))
    np.savez(path, x_train=x, y_train=y, x_test=x[:2, 0], y_test=y[:2])
    with pytest.raises(ValueError, match="both clips"):
        data.load(path)


def test_what_is_for_videos_is_refused_for_images_and_the_other_way():
    clips = numbered()
    images = data.load("digits")[0]
    sizes = dict(batch_size=4, image_size=(8, 8))
    with pytest.raises(ValueError, match="`num_frames` must be given"):
        data.train_batches(clips, **sizes)
    with pytest.raises(ValueError, match="`num_frames` must be given"):
        data.eval_batches(images, **sizes, channels=1, num_frames=4)
    with pytest.raises(ValueError, match="must be 1 for images"):
        data.eval_batches(images, **sizes, channels=1, num_clips=2)
    with pytest.raises(ValueError, match="needs `resize`"):
        data.eval_batches(clips, **sizes, num_frames=2, num_crops=3)
    with pytest.raises(ValueError, match="at least 0"):
        data.eval_batches(clips, **sizes, num_frames=2, frame_step=-1)


@pytest.mark.parametrize("num_frames", [3, 8, 10, 41])
def test_segments_of_the_whole_video_give_a_frame_each(num_frames):
    sampling = clips.Sampling(num_frames=4, step=0)
    # As `get_seq_frames` of SlowFast's ssv2.py: the segments share their ends.
    ends = np.round((num_frames - 1) / 4 * np.arange(5)).astype(int)
    first, last = ends[:-1], ends[1:]
    middle = clips.frame_numbers(0.5, num_frames, sampling)
    np.testing.assert_array_equal(middle, (first + last) // 2)
    drawn = np.stack(
        [
            clips.frame_numbers(
                clips.random_place((seed, 0), sampling), num_frames, sampling
            )
            for seed in range(60)
        ]
    )
    np.testing.assert_array_equal(drawn.min(0), first)
    np.testing.assert_array_equal(drawn.max(0), last)


def test_a_clip_of_segments_spans_the_video():
    options = PLAIN | dict(num_frames=3, frame_step=0)
    batches = data.train_batches(numbered(num_frames=9), **options)
    for images in take(batches, 3):
        for clip in images[:, :, 0, 0, 0]:
            frames = clip % 20
            assert 0 <= frames[0] <= 3 <= frames[1] <= 5 <= frames[2] <= 8
