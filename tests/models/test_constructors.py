"""Constructors: functions in their family's file, with typed arguments."""

import dataclasses
import inspect
import sys
import typing

import pytest

import keras_vit
from keras_vit.models import arguments, families

pytestmark = pytest.mark.backend_independent
CONSTRUCTORS = [
    (family, name)
    for family in families.FAMILIES.values()
    for name in (family.title, *family.variants)
]


@pytest.mark.parametrize(("family", "name"), CONSTRUCTORS)
def test_a_constructor_stands_in_the_file_of_its_family(family, name):
    constructor = getattr(keras_vit, name)
    module = sys.modules[constructor.__module__]
    assert module.FAMILY is family
    assert inspect.getsource(constructor).startswith(f"def {name}(**kwargs: ")
    assert f'construct(FAMILY, "{name}", kwargs)' in inspect.getsource(
        constructor
    )
    assert name in module.__all__
    shown = inspect.signature(constructor).parameters
    for key, value in family.variants.get(name, {}).items():
        assert shown[key].default == value
    assert f"{family.config.__name__})" in constructor.__doc__


@pytest.mark.parametrize("family", families.FAMILIES.values())
def test_its_arguments_are_the_fields_of_the_architecture(family):
    constructor = getattr(keras_vit, family.title)
    (listed,) = typing.get_args(constructor.__annotations__["kwargs"])
    found = typing.get_type_hints(listed, include_extras=True)
    fields = typing.get_type_hints(family.config, include_extras=True)
    optional = {name: kind | None for name, kind in fields.items()}
    assert found == arguments.KINDS | optional
    # Defaults of fields are those of the weights, or of a training.
    for field in dataclasses.fields(family.config):
        shown = inspect.signature(constructor).parameters[field.name].default
        expected = field.default if families.is_of_training(field) else None
        assert shown == expected
