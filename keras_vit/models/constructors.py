"""Constructors of a family's models, with every argument in their signature."""

import dataclasses
import inspect
import os
import re
import typing
from collections.abc import Callable

import keras

from keras_vit.models import arguments
from keras_vit.models.build import build
from keras_vit.models.families import FAMILIES, Family
from keras_vit.models.image_model import ImageModel
from keras_vit.weights import registry


def constructor(family: Family, name: str, description: str) -> Callable:
    """Returns the constructor of a variant, or of any size.

    Its signature holds every argument, with the variant's own sizes as
    defaults.

    Args:
        family: The family.
        name: A key of `family.variants`, or `family.title`.
        description: The first line of its docstring.
    """
    is_variant = name in family.variants

    def construct(**given):
        _refuse_unknown(name, given, family)
        return _build(
            family,
            {**family.variants.get(name, {}), **given},
            name if is_variant else None,
            name,
        )

    signature = _signature(family, family.variants.get(name, {}))
    construct.__name__ = construct.__qualname__ = name
    construct.__module__ = family.config.__module__
    construct.__signature__ = signature  # type: ignore[attr-defined]
    construct.__annotations__ = {
        **{key: p.annotation for key, p in signature.parameters.items()},
        "return": ImageModel,
    }
    construct.__doc__ = _docstring(family, description)
    return construct


def from_pretrained(
    source: str | os.PathLike | keras.Model, **changes
) -> ImageModel:
    """Opens a checkpoint of any family and builds its model.

    Args:
        source: Name of released weights, such as "ViTB16/augreg" (see
            `keras_vit.list_weights`); a path, a URL or "hf://owner/name"; a
            model of keras-hub.
        **changes: Arguments of the family's constructor, such as `classes`,
            `input_shape` or `include_top`, in place of the checkpoint's own. A
            checkpoint without a head gives a model without one, unless
            `classes` are given.

    Raises:
        ValueError: If there is no such checkpoint, if its family is unknown, or
            if the constructor raises it.
        TypeError: If the constructor has no such argument.

    Example:
        model = keras_vit.from_pretrained("ViTB16/augreg", classes=37)
    """
    variant = None
    if isinstance(source, str):
        variant, source = registry.split_name(source)
    opened = registry.open_weights(
        source, variant, changes.get("position_grid")
    )
    family = FAMILIES[opened.family]
    _refuse_unknown("from_pretrained", changes, family)
    if opened.metadata.get("classes") is None and not (
        {"classes", "class_names", "include_top"} & set(changes)
    ):
        changes["include_top"] = False
    sizes = family.variants.get(variant, {})
    given = {**sizes, **changes, "weights": opened}
    return _build(family, given, variant, variant or family.title)


def _build(family, given, variant, name):
    """Separates the fields of the architecture from the common arguments."""
    fields = {field.name for field in dataclasses.fields(family.config)}
    architecture = {key: given[key] for key in given if key in fields}
    common = {key: given[key] for key in given if key not in fields}
    common["name"] = common.get("name") or name
    return build(family, architecture, variant=variant, **common)


def _refuse_unknown(called, given, family):
    known = _signature(family, {}).parameters
    unknown = [key for key in given if key not in known]
    arguments.refuse_unknown(called, unknown, known)


def _signature(family, sizes):
    """Returns the signature: the common arguments and the fields."""
    kinds = typing.get_type_hints(build) | typing.get_type_hints(family.config)
    common = [
        parameter.replace(annotation=kinds[parameter.name])
        for parameter in list(inspect.signature(build).parameters.values())[3:]
    ]
    number = [parameter.name for parameter in common].index("name") + 1
    own = []
    for field in dataclasses.fields(family.config):
        default = None
        if field.name in sizes:
            default = sizes[field.name]
        elif field.default is not dataclasses.MISSING:
            default = None if field.metadata.get("inherited") else field.default
        annotation = kinds[field.name]
        if default is None:
            annotation = annotation | None
        own.append(
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=default,
                annotation=annotation,
            )
        )
    return inspect.Signature(
        [*common[:number], *own, *common[number:]],
        return_annotation=ImageModel,
    )


def _docstring(family, description):
    """Returns a docstring made from those of `build` and the configuration."""
    sections = [
        re.search(r"Args:\n(.*?)(\n\n|$)", inspect.getdoc(text), re.DOTALL)[1]
        for text in (build, family.config)
    ]
    common = re.split("    (?=weights: )", sections[0], maxsplit=1)[1]
    videos = ", or `[B, T, H, W, C]`" if family.takes_video else ""
    return f"""{description}

Every argument is a keyword. An argument that is None is taken from the weights.
Without weights it has the default stated here, and sizes must be given.

Args:
    {common}
{sections[1]}

Input shape: `[B, H, W, C]`{videos}, uint8 or float.
Output shape: `[B, classes]`, logits; `[B, D]` without the top.

Returns:
    An `ImageModel`, a functional `keras.Model`.

Raises:
    ValueError: If an argument has no possible value, if arguments contradict
        one another, if the image is no multiple of the patch, or if the
        weights do not fit the model.
    TypeError: If there is no such argument.
"""
