"""Scenes of handwritten digits, with boxes, masks and depth: "digit_scenes"."""

import numpy as np

from keras_vit.data.optional_imports import optional
from keras_vit.data.split import hold_out

SIDE = 48
TRAIN_SCENES, EVAL_SCENES = 20_000, 500
MOST_DIGITS = 3
# A digit at this depth is as many pixels high, and a nearer one is larger.
SIZE_AT_1 = 24
NEAREST, FARTHEST = 1.0, 1.5
# Depth of the ground at the lower and at the upper edge, which varies by the
# slope of the scene. What is nearer is brighter.
GROUND, HORIZON = (2.2, 2.6), (3.0, 6.0)
# Ink is an object where it is at least this bright, of 255.
_INK = 64
# Less of a digit is no object; its pixels have their class all the same.
_SEEN = 0.25


def find(eval_fraction: float, seed: int) -> tuple[dict, ...]:
    """Draw scenes of scikit-learn's digits.

    A scene has up to three digits, two on average, which overlap, on a ground
    that rises to the horizon. A nearer digit is larger and brighter, and hides
    those behind. Scenes for evaluation use other digits, a share of each.

    Args:
        eval_fraction: Share of the digits held out.
        seed: Of that choice.

    Returns:
        The fields of a training and an evaluation `TaskSource`: 20,000 and 500
        scenes of 48x48 pixels in grey, drawn when they are read.
    """
    digits, labels = optional("sklearn.datasets").load_digits(return_X_y=True)
    digits = digits.reshape(-1, 8, 8) * (255 / 16)
    names = tuple(str(digit) for digit in range(10))
    parts = hold_out(
        labels, eval_fraction, seed, name="digit_scenes", class_names=names
    )

    def fields(which, part, count):
        def load(index: int) -> dict:
            rng = np.random.default_rng((which, index))
            count = rng.integers(MOST_DIGITS + 1, size=2).max()
            chosen = rng.permutation(part)[:count]
            return _scene(digits[chosen], labels[chosen], rng)

        return dict(
            name="digit_scenes",
            class_names=names,
            num_examples=count,
            load=load,
            image_shape=(SIDE, SIDE, 1),
            digest=f"digit_scenes {eval_fraction} {seed} {which}",
        )

    counts = (TRAIN_SCENES, EVAL_SCENES)
    return tuple(
        fields(i, part, count)
        for i, (part, count) in enumerate(zip(parts, counts, strict=True))
    )


def _scene(digits, labels, rng):
    """Return the image and the targets of digits `[n, 8, 8]`."""
    rows = np.linspace(1, 0, SIDE)[:, None]
    near, far = rng.uniform(*GROUND), rng.uniform(*HORIZON)
    # Inverse depth is linear in the rows of a plane.
    depth = 1 / (rows / far + (1 - rows) / near) * np.ones((SIDE, SIDE))
    image = 100 / depth
    depths = rng.uniform(NEAREST, FARTHEST, len(digits))
    order = np.argsort(-depths)  # the farthest first
    boxes = np.zeros((len(digits), 4))
    masks = np.zeros((len(digits), SIDE, SIDE), bool)
    inks = np.zeros(len(digits))
    for i in order:
        ink = _enlarged(digits[i], round(SIZE_AT_1 / depths[i]))
        height, width = ink.shape
        top, left = (
            rng.integers(SIDE - height + 1),
            rng.integers(SIDE - width + 1),
        )
        place = np.s_[top : top + height, left : left + width]
        drawn = ink >= _INK
        inks[i] = drawn.sum()
        image[place] = np.where(drawn, ink / depths[i], image[place])
        depth[place] = np.where(drawn, depths[i], depth[place])
        masks[:, *place] &= ~drawn
        masks[i][place] |= drawn
        boxes[i] = left + width / 2, top + height / 2, width, height
    classes = np.zeros((SIDE, SIDE), "uint8")
    for mask, label in zip(masks, labels, strict=True):
        classes[mask] = label + 1
    seen = masks.sum((1, 2)) >= _SEEN * inks
    return dict(
        images=np.round(image).astype("uint8")[..., None],
        boxes=(boxes[seen] / SIDE).astype("float32"),
        labels=labels[seen].astype("int64"),
        masks=masks[seen],
        classes=classes,
        depth=depth.astype("float32"),
    )


def _enlarged(digit, height):
    """Return the ink of a digit, `[height, w]`, without empty borders."""
    (top, bottom), (left, right) = (
        np.flatnonzero((digit >= _INK).any(axis))[[0, -1]] for axis in (1, 0)
    )
    width = max(1, round(height * (right - left + 1) / (bottom - top + 1)))
    rows = _bilinear(top - 0.5, bottom + 0.5, height)
    return rows @ digit @ _bilinear(left - 0.5, right + 0.5, width).T


def _bilinear(start, end, count):
    """Return the weights of 8 pixels at places between two edges."""
    places = start + (np.arange(count) + 0.5) * (end - start) / count
    weights = 1 - np.abs(np.clip(places, 0, 7)[:, None] - np.arange(8))
    return np.maximum(weights, 0)
