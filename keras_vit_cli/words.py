"""Makes classifiers, and queries, of the words on the command line."""

import keras

import keras_vit
from keras_vit.text import TEMPLATES, TwoTowers, WordDetector
from keras_vit_cli.arguments import TEMPLATE


def names_of(text: str | None) -> list[str]:
    """Return the names of --classes, without spaces around them.

    Args:
        text: Names with commas between, or None.
    """
    names = [name.strip() for name in (text or "").split(",")]
    return [name for name in names if name]


def model_of(
    model: TwoTowers, classes: str | None, templates: str = TEMPLATE
) -> keras.Model:
    """Return the classifier or detector of classes.

    Args:
        model: The two towers.
        classes: Their names, with commas between.
        templates: Prompts: a name of `keras_vit.text.TEMPLATES`, or one with
            {} for the name.

    Raises:
        ValueError: If there are no names, or the prompts are wrong.
    """
    names = names_of(classes)
    if not names:
        raise ValueError(
            "--classes must name classes of a model with a text tower, such as "
            f"--classes 'a cat,a dog'. Received: --classes={classes!r}"
        )
    prompts = templates if templates in TEMPLATES else [templates]
    if isinstance(model, WordDetector):
        return model.for_words(names, prompts)
    return keras_vit.zero_shot(model, names, prompts)
