"""Makes classifiers, and queries, of the words on the command line."""

import math
import sys
import tempfile

import keras

import keras_vit
from keras_vit.text import TEMPLATES, NaFlexTowers, TwoTowers, WordDetector
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
        model: The two towers. Of a NaFlex images become squares of as many
            patches as it takes.
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
    if isinstance(model, NaFlexTowers):
        model = _for_squares(model)
    return keras_vit.zero_shot(model, names, prompts)


def _for_squares(model):
    tower = model.image_tower
    patches = tower.get_layer("embedding")
    side = math.isqrt(tower.max_patches)
    height, width = patches.patch_size
    shape = (side * height, side * width, patches.channels)
    print(
        f"Images are resized to {shape[0]} x {shape[1]} pixels: a classifier "
        "takes one shape. `encode_images` of the model takes any.",
        file=sys.stderr,
    )
    with tempfile.TemporaryDirectory() as folder:
        # What resamples positions reads files.
        keras_vit.save_checkpoint(model, folder, format="huggingface")
        square = keras_vit.from_pretrained(folder, input_shape=shape)
    square.tokenizer = model.tokenizer
    return square
