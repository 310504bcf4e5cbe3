"""Constructors of a family's models, with every argument in their signature."""

import dataclasses
import inspect
import re
from collections.abc import Callable

from keras_vit.models import arguments
from keras_vit.models.image_model import Family, ImageModel, build


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
        known = signature.parameters
        unknown = [key for key in given if key not in known]
        arguments.refuse_unknown(name, unknown, known)
        architecture = dict(family.variants[name]) if is_variant else {}
        common = {}
        for key, value in given.items():
            (architecture if key in fields else common)[key] = value
        common["name"] = common.get("name") or name
        return build(
            family, architecture, variant=name if is_variant else None, **common
        )

    fields = {field.name: field for field in dataclasses.fields(family.config)}
    signature = _signature(fields.values(), family.variants.get(name, {}))
    construct.__name__ = construct.__qualname__ = name
    construct.__module__ = family.config.__module__
    construct.__signature__ = signature
    construct.__annotations__ = {
        **{key: p.annotation for key, p in signature.parameters.items()},
        "return": ImageModel,
    }
    construct.__doc__ = _docstring(family, description)
    return construct


def _signature(fields, sizes):
    """Returns the signature: the common arguments and the fields."""
    common = list(inspect.signature(build).parameters.values())[3:]
    number = [parameter.name for parameter in common].index("name") + 1
    own = []
    for field in fields:
        default = None
        if field.name in sizes:
            default = sizes[field.name]
        elif field.default is not dataclasses.MISSING:
            default = None if field.metadata.get("inherited") else field.default
        annotation = field.type
        if default is None and "None" not in str(annotation):
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
    """Returns the docstring, of those of `build` and the configuration."""
    sections = [
        re.search(r"Args:\n(.*?)(\n\n|$)", inspect.getdoc(text), re.DOTALL)[1]
        for text in (build, family.config)
    ]
    common = re.split("    (?=weights: )", sections[0], maxsplit=1)[1]
    return f"""{description}

Every argument is a keyword. What is None is taken from the weights, and
without weights is what the text says; sizes must be given then.

Args:
    {common}
{sections[1]}

Input shape: `[B, H, W, C]`, uint8 or float.
Output shape: `[B, classes]`, logits; `[B, D]` without the top.

Returns:
    An `ImageModel`, a functional `keras.Model`.

Raises:
    ValueError: If an argument has no possible value, if arguments contradict
        one another, if the image is no multiple of the patch, or if the
        weights do not fit the model.
    TypeError: If there is no such argument.
"""
