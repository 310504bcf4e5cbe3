"""Clips of handwritten digits whose class is the direction of their motion."""

import numpy as np

from keras_vit.data import arrays

# (rows, columns) of one step; rows count downwards.
DIRECTIONS = {
    "east": (0, 1),
    "northeast": (-1, 1),
    "north": (-1, 0),
    "northwest": (-1, -1),
    "west": (0, -1),
    "southwest": (1, -1),
    "south": (1, 0),
    "southeast": (1, 1),
}
NUM_FRAMES, SIDE = 8, 16
TRAIN_CLIPS, EVAL_CLIPS = 4_000, 800
# Digits in a clip, and the pixels that one moves between frames.
NUM_DIGITS, SPEEDS = 2, (1, 2, 3)


def find(eval_fraction: float, seed: int) -> tuple[dict, dict]:
    """Make clips of scikit-learn's digits: the data set "moving_digits".

    In each clip two digits move in one of eight directions, at different
    speeds; a digit that leaves the frame returns on the opposite side. Digits
    are thus equally frequent everywhere, and no single frame shows the class.
    Their unordered positions show the axis of the motion, and the order of
    frames shows which of its two directions it is. The clips for evaluation use
    other digits, a share of each.

    Returns:
        The fields of a training and an evaluation `Source`: 4,000 and 800
        clips of 8 frames of 16 x 16 pixels in grey, with equally frequent
        classes.
    """
    train, evaluation = (
        part["images"][..., 0] for part in arrays.digits(eval_fraction, seed)
    )
    return (
        _clips(train, TRAIN_CLIPS, np.random.default_rng((seed, 0))),
        _clips(evaluation, EVAL_CLIPS, np.random.default_rng((seed, 1))),
    )


def _clips(images, count, rng):
    """Return the fields of a source of `count` clips of these images."""
    labels = rng.permutation(np.arange(count) % len(DIRECTIONS))
    directions = np.array([*DIRECTIONS.values()])[labels]
    clips = np.zeros((count, NUM_FRAMES, SIDE, SIDE), "uint8")
    for _ in range(NUM_DIGITS):
        drawn = images[rng.integers(len(images), size=count)]
        starts = rng.integers(SIDE, size=(count, 2))
        steps = directions * rng.choice(SPEEDS, size=(count, 1))
        times = np.arange(NUM_FRAMES)[:, np.newaxis]
        corners = starts[:, np.newaxis] + times * steps[:, np.newaxis]
        _draw(clips, drawn, corners)
    return dict(
        name="moving_digits",
        class_names=tuple(DIRECTIONS),
        num_examples=count,
        image_shape=(SIDE, SIDE, 1),
        is_video=True,
        num_frames=NUM_FRAMES,
        images=clips[..., np.newaxis],
        labels=labels,
    )


def _draw(clips, images, corners):
    """Draw an image `[N, h, w]` into each clip `[N, T, side, side]`.

    It is the maximum of both, and wraps around the edges; `corners` are row and
    column of the first pixel, `[N, T, 2]`.
    """
    height, width = images.shape[1:]
    rows = (corners[..., :1] + np.arange(height)) % SIDE  # [N, T, h]
    columns = (corners[..., 1:] + np.arange(width)) % SIDE  # [N, T, w]
    place = (
        np.arange(len(clips))[:, np.newaxis, np.newaxis, np.newaxis],
        np.arange(NUM_FRAMES)[:, np.newaxis, np.newaxis],
        rows[..., :, np.newaxis],
        columns[..., np.newaxis, :],
    )
    clips[place] = np.maximum(clips[place], images[:, np.newaxis])
