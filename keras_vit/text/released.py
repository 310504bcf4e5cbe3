"""Models of released files: two towers, or the one of texts."""

import dataclasses
import os
import types
from typing import Literal

from keras_vit.models import arguments
from keras_vit.models.build import build, policy
from keras_vit.models.families import FAMILIES, OPENERS
from keras_vit.models.siglip import SigLIPConfig
from keras_vit.text.naflex import naflex_tower
from keras_vit.text.tokenizers import Tokenizer
from keras_vit.text.tower import TextConfig, TextModel, text_tower
from keras_vit.text.two_towers import TwoTowers, naflex_towers, two_towers
from keras_vit.text.word_detector import word_detector
from keras_vit.weights import checkpoint, load
from keras_vit.weights.checkpoint import Checkpoint
from keras_vit.weights.rules import FAMILIES as FAMILY_RULES
from keras_vit.weights.rules import TEXTS

Towers = Literal["both", "image", "text"]
# The arguments of `from_pretrained` that models with a text tower take.
_OF_TEXT = ("name", "dtype", "remat")
_OF_BOTH = (
    *(*_OF_TEXT, "input_shape", "include_preprocessing", "pixel_mean"),
    *("pixel_std", "position_grid", "max_patches"),
)
# Of these, those that leave a NaFlex open to any shape.
_OF_NAFLEX = (*_OF_TEXT, "max_patches")


def open_towers(
    source: Checkpoint, changes: dict, towers: Towers | None
) -> TwoTowers | TextModel | None:
    """Build the model of a file with two towers, with its weights.

    Args:
        source: The checkpoint of the image tower.
        changes: Arguments in place of the checkpoint's own.
        towers: See `keras_vit.from_pretrained`.

    Returns:
        The model; None where the image tower alone is to be opened.

    Raises:
        ValueError: If there is no text tower, or the weights do not fit.
        TypeError: If there is no such argument.
    """
    if source.family in TEXTS and towers in (None, "text"):
        return open_text_model(source, changes)
    if towers is None and set(changes) - set(_OF_BOTH):
        return None  # of a classifier on the image tower
    text = checkpoint.open_text(source)
    if text is None:
        if towers is None:
            return None
        raise ValueError(
            f"`towers` must be None or 'image' for {source.name!r}, which has "
            f"no text tower. Received: towers={towers!r}"
        )
    known = _OF_TEXT if towers == "text" else _OF_BOTH
    arguments.refuse_unknown("from_pretrained", changes, known)
    if towers == "text":
        return open_text_model(text, changes)
    given = {key: changes[key] for key in ("dtype", "remat") if key in changes}
    if text.family == "owl_text":
        image = OPENERS[source.family](source, changes)
        tower = _text_model(text, given)
        load.fill(tower, text, text.metadata)
        return word_detector(image, tower, changes.get("name") or image.name)
    tower = _text_model(text, given)
    found = text.metadata
    name = changes.get("name") or "two_towers"
    model: TwoTowers
    if source.family == "siglip2" and not set(changes) - set(_OF_NAFLEX):
        model = naflex_towers(_naflex_tower(source, changes), tower, name)
    else:
        family = getattr(FAMILY_RULES[source.family], "FILES_OF", source.family)
        head = source.metadata.get("classes") is not None
        own = dict(name="image_tower", include_top=head)
        of_one_size = [name for name in _OF_BOTH if name != "max_patches"]
        arguments.refuse_unknown("from_pretrained", changes, of_one_size)
        image = build(FAMILIES[family], changes | own, source=source)
        widths = image.output_shape[-1], tower.output_shape[-1]
        if widths[0] != widths[1]:
            raise ValueError(
                "The embeddings of both towers of a file must have one width. "
                f"Received: {widths[0]} of images and {widths[1]} of texts. "
                "Open one of them, with towers='image' or towers='text'"
            )
        model = two_towers(
            image,
            tower,
            logit_bias=0.0 if found["logit_bias"] else None,
            name=name,
        )
    variables = [*tower.weights, *model.similarity.weights]
    load.fill(types.SimpleNamespace(weights=variables), text, found)
    return model


def open_naflex(source: Checkpoint, changes: dict):
    """Build the image tower of a NaFlex: for any shape, or for one.

    Args:
        source: The checkpoint.
        changes: Arguments in place of the checkpoint's own. With `input_shape`
            or an argument of a classifier it is a SigLIP for images of one
            shape.

    Raises:
        ValueError: If the weights do not fit.
        TypeError: If there is no such argument.
    """
    if not set(changes) - set(_OF_NAFLEX):
        return _naflex_tower(source, changes)
    if not {"classes", "class_names", "include_top"} & set(changes):
        changes = dict(changes, include_top=False)
    return build(FAMILIES["siglip"], changes, source=source)


def _naflex_tower(source, changes):
    found = source.metadata
    names = {field.name for field in dataclasses.fields(SigLIPConfig)}
    config = SigLIPConfig(**{n: found[n] for n in names & set(found)})
    halves = (127.5,) * found["channels"]
    max_patches = changes.get("max_patches")
    if max_patches is None:
        max_patches = found.get("max_patches")
    with policy(changes.get("dtype")):
        model = naflex_tower(
            config,
            found["grid"],
            max_patches=max_patches,
            channels=found["channels"],
            pixel_mean=found.get("pixel_mean", halves),
            pixel_std=found.get("pixel_std", halves),
            provenance=source.provenance,
        )
    for block in model.blocks:
        block.remat = bool(changes.get("remat"))
    load.fill(model, source, model.metadata)
    return model


def open_text_model(source: Checkpoint, changes: dict) -> TextModel:
    """Build the text tower of a file, with its weights.

    Args:
        source: The checkpoint of the text tower.
        changes: Arguments in place of the checkpoint's own.

    Raises:
        ValueError: If the weights do not fit.
        TypeError: If there is no such argument.
    """
    arguments.refuse_unknown("from_pretrained", changes, _OF_TEXT)
    scalars = ("logit_scale", "logit_bias")
    source = dataclasses.replace(
        source,
        arrays={k: a for k, a in source.arrays.items() if k not in scalars},
        metadata=source.metadata | dict.fromkeys(scalars, False),
    )
    model = _text_model(source, changes)
    load.fill(model, source, source.metadata)
    return model


def _text_model(source, given):
    """Return a text tower with the sizes of a file, and its tokenizer."""
    found = source.metadata
    names = {field.name for field in dataclasses.fields(TextConfig)}
    fields = {name: found[name] for name in names & set(found)}
    tokenizer = None
    if os.path.isdir(source.name):
        tokenizer = Tokenizer.from_directory(
            source.name, found["context_length"]
        )
    kind: Literal["clip", "siglip"] = "clip" if found["causal"] else "siglip"
    given = {key: value for key, value in given.items() if value is not None}
    return text_tower(kind, tokenizer=tokenizer, **fields, **given)


OPENERS["two_towers"] = open_towers
OPENERS["siglip2"] = open_naflex
