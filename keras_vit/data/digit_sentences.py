"""Handwritten digits and sentences about them: "digit_sentences"."""

import numpy as np

from keras_vit.data import arrays

NAMES = tuple("zero one two three four five six seven eight nine".split())
# Those to train on.
TEMPLATES = (
    "a handwritten {}",
    "the number {}",
    "the digit {}",
    "a picture of a {}",
    "a picture of the number {}",
    "a photo of the digit {}",
    "a scan of a {}",
    "someone wrote a {}",
    "someone wrote the number {}",
    "this is a {}",
    "this is the digit {}",
    "here is a handwritten {}",
    "a {} in grey",
    "a small {}",
    "a small image of a {}",
    "an image of the number {}",
    "a {} written with a pen",
    "the number {} written by hand",
    "the digit {} on black",
    "it shows a {}",
    "it shows the number {}",
    "a bright {} on a black ground",
    "{}",
    "{} by hand",
    "one can read a {} here",
)
# Those to evaluate with; none of them is trained on.
UNSEEN = (
    "a photo of the number {}",
    "an image of a handwritten {}",
    "a scan of the digit {}",
    "this picture shows the number {}",
    "here someone wrote a {}",
    "a {} written by hand",
    "the handwritten digit {}",
    "a grey picture of a {}",
)


def sentences(templates: tuple[str, ...]) -> list[list[str]]:
    """Return the sentences about each digit, with its name or its numeral.

    Args:
        templates: Sentences with a place for the digit, `{}`.
    """
    return [
        [t.format(form) for t in templates for form in (name, str(digit))]
        for digit, name in enumerate(NAMES)
    ]


def find(eval_fraction: float, seed: int) -> tuple[dict, ...]:
    """Return the fields of a training and an evaluation `PairSource`.

    The digits are those of scikit-learn, 8x8 pixels; for evaluation others, and
    other sentences.

    Args:
        eval_fraction: Share of the digits held out.
        seed: Seed of that choice.
    """
    parts = arrays.digits(eval_fraction, seed)
    found = []
    for part, templates in zip(parts, (TEMPLATES, UNSEEN), strict=True):
        of_digit, labels = sentences(templates), part["labels"]
        each = len(of_digit[0])
        found.append(
            dict(
                images={k: part[k] for k in ("images", "image_shape")},
                texts=tuple(text for texts in of_digit for text in texts),
                starts=labels * each,
                counts=np.full(len(labels), each),
                labels=labels,
                class_texts=tuple(map(tuple, of_digit)),
                class_names=NAMES,
            )
        )
    return tuple(found)
