"""Constructors: functions in their family's file, with typed arguments."""

import dataclasses
import inspect
import sys
import typing

import catalogue
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


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("dinov2", dict(position_prefix=2), r"one of \[0, 1, 3\]"),
        ("dinov2", dict(class_token=False, position_prefix=0), "`pooling`"),
        ("dinov2", dict(parallel=True, post_norm=True), "`parallel` must be F"),
        ("dinov2", dict(pooling="map", norm="rms"), "`norm` must be 'layer'"),
        ("dinov3", dict(num_kv_heads=3), "`num_kv_heads` must divide"),
        ("dinov3", dict(hidden_size=12), "multiple of 4 `num_heads`"),
        ("beit", dict(class_token=False), "`class_token` must be True"),
    ],
)
def test_arguments_that_contradict_one_another_are_refused(
    name, changes, words
):
    with pytest.raises(ValueError, match=words):
        catalogue.make_model(name, **changes)
