"""What the constructors of all families share."""

import dataclasses
import inspect
import os
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal

import keras

from keras_vit._arguments import checked
from keras_vit._earlier_names import rename
from keras_vit.models import arguments
from keras_vit.models.build import build, own_paths
from keras_vit.models.families import FAMILIES, OPENERS, Family, is_of_training
from keras_vit.models.image_model import ImageModel
from keras_vit.weights import checkpoint, registry

Towers = Literal["both", "image", "text"]


def construct(
    family: Family, name: str, given: Mapping[str, Any]
) -> ImageModel:
    """Build a variant of a family, or a model of any size.

    Args:
        family: The family.
        name: A key of `family.variants`, or `family.title`.
        given: The arguments of the call, in place of the variant's.

    Raises:
        ValueError: As `build` raises.
        TypeError: If there is no such argument.
    """
    given = rename(given, stacklevel=4)
    _refuse_unknown(name, given, family)
    variant = name if name in family.variants else None
    sizes = family.variants.get(name, {})
    return build(family, {"name": name, **sizes, **given}, variant)


@checked
def from_pretrained(
    source: str | os.PathLike | keras.Model,
    *,
    towers: Towers | None = None,
    **changes,
) -> Any:
    """Open a checkpoint of any family and build its model.

    Args:
        source: Name of released weights, such as "ViTB16/augreg" (see
            `keras_vit.list_weights`); a path, a URL or "hf://owner/name"; a
            model of keras-hub. Files with a head of `keras_vit.heads`, such as
            YOLOS, give a `TaskModel`.
        towers: Which towers of a file that has those of images and of texts,
            such as CLIP's: "both", a `keras_vit.text.TwoTowers`; "image", an
            `ImageModel`; "text", a `keras_vit.text.TextModel`. None for both,
            unless an argument of a classifier is given, such as `classes` or
            `include_top`: then it is the image tower, as of a file without
            texts. With one of these, a file of a masked autoencoder gives its
            encoder, and otherwise a `MaskedModel`.
        **changes: Arguments of the family's constructor, such as `classes`,
            `input_shape` or `include_top`, in place of the checkpoint's own. A
            checkpoint without a head gives a model without one, unless
            `classes` are given.

    Raises:
        ValueError: If there is no such checkpoint, if its family is unknown, if
            it has no such tower, or if the constructor raises it.
        TypeError: If the constructor has no such argument.

    Example:
        model = keras_vit.from_pretrained("ViTB16/augreg", classes=37)
    """
    changes = rename(changes)
    opened = registry.open_weights(
        source, position_grid=changes.get("position_grid")
    )
    is_classifier = bool({"classes", "class_names", "include_top"} & {*changes})
    if towers in ("both", "text") or (towers is None and opened.may_have_texts):
        with own_paths():
            model = OPENERS["two_towers"](opened, changes, towers)
        if model is not None:
            return model
    if is_classifier and opened.has_decoder:
        opened = checkpoint.encoder_of(opened)
    if opened.family in OPENERS:
        with own_paths():
            return OPENERS[opened.family](opened, changes)
    if opened.family not in FAMILIES:
        raise ValueError(
            f"`towers` must be None or 'text' for {opened.name!r}, which is a "
            f"text tower. Received: towers={towers!r}"
        )
    family = FAMILIES[opened.family]
    _refuse_unknown("from_pretrained", changes, family)
    if opened.metadata.get("has_feature_maps") and not (
        is_classifier or changes.get("feature_maps")
    ):
        raise ValueError(
            f"{opened.name!r} is of a model of feature maps, which is opened "
            "as it is: `keras.models.load_model(path)`. For its backbone "
            "without a head pass include_top=False."
        )
    if opened.metadata.get("classes") is None and not is_classifier:
        changes["include_top"] = False
    sizes = family.variants.get(opened.variant or "", {})
    metadata = opened.metadata
    number = changes.get("classes") or len(changes.get("class_names") or ())
    has_its_head = changes.get("include_top", True) and (
        number in (0, metadata.get("classes"))
    )
    # What a file of this package says of its input and its output.
    names = ["include_preprocessing"]
    names += ["classifier_activation"] if has_its_head else []
    own = {name: metadata[name] for name in names if name in metadata}
    model = build(family, sizes | own | changes, opened.variant, opened)
    if has_its_head and "classifier_activation" not in changes:
        _restore_loss(model, metadata)
    return model


def _restore_loss(model, metadata):
    """Give a model the loss of its file, as `in_precision` keeps it.

    It states what makes probabilities of the scores.
    """
    if "loss" in metadata:
        model.compile(optimizer=None, loss=metadata["loss"])


def show_arguments(constructor: Callable, family: Family) -> None:
    """Give a constructor the signature that notebooks and `help` show.

    It has every argument, with the variant's own sizes as defaults; Python's
    own signature has `**kwargs`.
    """
    config, shown = family.config, constructor.__annotations__["kwargs"]
    kinds = typing.get_type_hints(typing.get_args(shown)[0])
    defaults = {
        field.name: field.default
        for field in dataclasses.fields(config)
        if is_of_training(field)
    }
    defaults |= arguments.DEFAULTS
    defaults |= family.variants.get(constructor.__name__, {})
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=defaults.get(name),
            annotation=kind,
        )
        for name, kind in kinds.items()
    ]
    constructor.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        parameters, return_annotation=ImageModel
    )
    constructor.__doc__ = (
        f"{constructor.__doc__}\n\nIts arguments are explained by "
        "help(keras_vit.models.ModelArguments)\nand by "
        f"help({config.__module__}.{config.__name__})."
    )


def _refuse_unknown(called, given, family):
    fields = [field.name for field in dataclasses.fields(family.config)]
    arguments.refuse_unknown(called, given, [*arguments.KINDS, *fields])
