"""Signatures: at run time, and as type checkers read them in the stubs."""

import dataclasses
import inspect
import pathlib
import re
import types
import typing

import pytest

import keras_vit
from keras_vit.models import families

pytestmark = pytest.mark.backend_independent
PACKAGE = pathlib.Path(keras_vit.__file__).parent
CONSTRUCTORS = [
    (family, name)
    for family in families.FAMILIES.values()
    for name in (family.title, *family.variants)
]


@pytest.mark.parametrize(("family", "name"), CONSTRUCTORS)
def test_every_argument_is_a_keyword_with_the_variants_default(family, name):
    constructor = getattr(keras_vit, name)
    parameters = inspect.signature(constructor).parameters
    assert {p.kind for p in parameters.values()} == {
        inspect.Parameter.KEYWORD_ONLY
    }
    assert list(parameters)[:7] == [
        "weights",
        "include_top",
        "classes",
        "input_shape",
        "classifier_activation",
        "include_preprocessing",
        "name",
    ]
    for field in dataclasses.fields(family.config):
        assert field.name in parameters
    for key, value in family.variants.get(name, {}).items():
        assert parameters[key].default == value
    for key in parameters:
        assert re.search(rf"\b{key}\b.*:", constructor.__doc__), key


def text_of(annotation):
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(map(text_of, inner))
    if origin is typing.Literal:  # unions with the same values share an order
        return f"Literal[{', '.join(map(repr, sorted(inner)))}]"
    if annotation is types.NoneType:
        return "None"
    text = inspect.formatannotation(annotation)
    text = re.sub(r"keras\.src(\.\w+)*\.", "keras.", text)
    text = re.sub(r"keras_vit\.models\.(families|image_model)\.", "", text)
    return text.replace("keras_vit.weights.checkpoint.", "")


def function_of(name, constructor):
    signature = inspect.signature(constructor)
    arguments = [
        f"    {p.name}: {text_of(p.annotation)} = {p.default!r},"
        for p in signature.parameters.values()
    ]
    returned = text_of(signature.return_annotation)
    return "\n".join(
        [f"def {name}(", "    *,", *arguments, f") -> {returned}: ..."]
    )


def stub_of(family):
    """What a type checker must know of a family's module."""
    kinds = typing.get_type_hints(family.config)
    fields = [
        f"    {f.name}: {text_of(kinds[f.name])}"
        + ("" if f.default is dataclasses.MISSING else f" = {f.default!r}")
        for f in dataclasses.fields(family.config)
    ]
    config = family.config.__name__
    names = [name for of, name in CONSTRUCTORS if of is family]
    return "\n".join(
        [
            "# Written by pytest tests/models/test_signatures.py "
            "--update-goldens.",
            "import collections.abc",
            "import dataclasses",
            "import os",
            "from typing import Literal",
            "",
            "import keras",
            "",
            "from keras_vit.models.families import Family",
            "from keras_vit.models.image_model import ImageModel",
            "from keras_vit.weights import Checkpoint",
            "",
            "FAMILY: Family",
            "VARIANTS: dict[str, dict]",
            "",
            "@dataclasses.dataclass(frozen=True, kw_only=True)",
            f"class {config}:",
            *fields,
            "",
            f"def forward(config: {config}, x: keras.KerasTensor)"
            " -> keras.KerasTensor: ...",
            *(function_of(name, getattr(keras_vit, name)) for name in names),
            "",
        ]
    )


@pytest.mark.parametrize(
    "family", families.FAMILIES.values(), ids=families.FAMILIES
)
def test_the_stub_shows_every_argument(family, update_goldens):
    path = PACKAGE / "models" / f"{family.name}.pyi"
    if update_goldens:
        path.write_text(stub_of(family))
    assert path.read_text() == stub_of(family)


def test_the_package_is_typed():
    assert (PACKAGE / "py.typed").exists()
