"""Makes classifiers, and queries, of the words on the command line."""

import keras

import keras_vit
from keras_vit.text import TEMPLATES, TwoTowers, WordDetector


def names_of(text: str | None) -> list[str]:
    """Return the names of --classes, without spaces around them.

    Args:
        text: Names with commas between, or None.
    """
    names = [name.strip() for name in (text or "").split(",")]
    return [name for name in names if name]


def model_of(model: TwoTowers, options) -> keras.Model:
    """Return the classifier or detector that --classes and --templates name.

    Args:
        model: The two towers.
        options: Of the command line.

    Raises:
        ValueError: If there are no names, or the prompts are wrong.
    """
    names = names_of(options.classes)
    if not names:
        raise ValueError(
            "--classes must name classes of a model with a text tower, such as "
            f"--classes 'a cat,a dog'. Received: --classes={options.classes!r}"
        )
    templates = options.templates
    if templates not in TEMPLATES:
        templates = [templates]
    if isinstance(model, WordDetector):
        return model.for_words(names, templates)
    found: keras.Model = keras_vit.zero_shot(model, names, templates)
    if model.similarity.logit_bias is not None:
        # Each class is right or wrong by itself: the scores are sigmoids.
        found.compile(loss=keras.losses.BinaryCrossentropy(from_logits=True))
    return found
