"""Every argument of every layer, architecture and function refuses nonsense.

The arguments come from signatures, and what they take from their defaults, so
that an argument without a check fails here.
"""

import dataclasses
import importlib
import inspect
import types
import typing
from collections.abc import Callable

import numpy as np
import pytest
from catalogue import LAYERS, TINY_OF

import keras_vit
from keras_vit.models import families

pytestmark = pytest.mark.backend_independent

PACKAGES = ["keras_vit"] + [
    f"keras_vit.{name}"
    for name in (
        *("data", "distribution", "evaluation", "export", "inspection"),
        *("layers", "models", "text", "training", "weights"),
    )
]
# Any text, or what Keras or a file determines.
FREE = {
    *("architecture", "bias_initializer", "kernel_initializer", "sublayers"),
    *("family", "name", "path", "provenance", "weights"),
    *("adapt_ds", "by", "coordinator", "data_dir", "dataset", "directory"),
    *("ds", "eval_split", "format", "layer", "learning_rate", "manual_dir"),
    *("output", "reduction"),
    *("message", "model", "source", "split", "tpu", "train_split", "variant"),
}
SIGNED = {"head_bias_init", "initial", "pixel_mean", "rotary_offset"}
SIGNED |= {"logit_bias", "logit_scale"}  # a logarithm
SIGNED |= {"end", "ignored", "process_id", "seed", "start"}
# Made by functions, whose arguments are checked.
RESULTS = ("AnnotatedImage", "Checkpoint", "Cost", "Devices", "FewShotResult")
RESULTS += ("ImageIndex", "LayerCost", "PairSource", "Preempted", "Source")
RESULTS += ("TaskSource", "Tokenizer")
NAN = float("nan")
FLAGS = ("banana", 1, 0, None, object())
ROTARY = ({}, {"kind": "banana"}, {"kind": "index", "order": "ji"})
ROTARY += ({"kind": "index", "banana": 1}, {"kind": "index", "theta": 0})


def leaves(hint):
    """Returns the types of which a hint is made."""
    inner = [kind for kind in typing.get_args(hint) if kind is not ...]
    if typing.get_origin(hint) in (typing.Literal, Callable) or not inner:
        return {hint}
    return set().union(*map(leaves, inner))


def nonsense(name, default, hint):
    """Returns values that an argument must refuse."""
    found = leaves(hint)
    if isinstance(default, bool) or bool in found:
        # Of AddPositionEmbs it may be a number too.
        flags = FLAGS if int not in found else ("banana", -1, None)
        return [
            x for x in flags if x is not None or types.NoneType not in found
        ]
    values = ["banana", object(), True, NAN]
    if name == "rotary" and str not in map(type, typing.get_args(hint)):
        values += ROTARY
    if {int, float} & found and name not in SIGNED:
        values += [-1, -0.5]
    if int in found and "tuple" not in str(hint):
        values += [2.5]
    if name.endswith("rate") and name != "frame_rate":
        values += [1.0]
    if "tuple" in str(hint):
        values += [("banana",), (-1, -1, -1), (NAN, NAN)]
    return values


def raises(name):
    return pytest.raises(ValueError, match=rf"`(\w+ of )?{name}`")


def refuses(function, given, name, default, hint):
    for value in nonsense(name, default, hint):
        with pytest.raises(
            (TypeError, ValueError), match=rf"`(\w+ of )?{name}`"
        ):
            function(**{**given, name: value})


def parameters_of(function):
    for p in inspect.signature(function).parameters.values():
        if p.name not in FREE | {"self", "args", "kwargs"}:
            default = None if p.default is p.empty else p.default
            hint = type(default) if p.annotation is p.empty else p.annotation
            yield p.name, default, hint


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_names_the_argument_that_it_refuses(name):
    layer_class, given, _ = LAYERS[name]
    known = layer_class(**given).get_config()
    for base in layer_class.__mro__:  # its arguments may pass as `kwargs`
        is_own = base.__module__.startswith("keras_vit.")
        if not is_own or "__init__" not in vars(base):
            continue
        for parameter in parameters_of(base.__init__):
            if parameter[0] in known:
                refuses(layer_class, given, *parameter)


@pytest.mark.parametrize("family", families.FAMILIES)
def test_an_architecture_names_the_argument_that_it_refuses(family):
    family = families.FAMILIES[family]
    names = {field.name for field in dataclasses.fields(family.config)}
    given = TINY_OF[family.title]
    given = {key: given[key] for key in given if key in names}
    family.config(**given)
    for parameter in parameters_of(family.config):
        refuses(family.config, given, *parameter)


def test_numbers_of_numpy_are_those_of_python():
    given = TINY_OF["ViT"]
    model = keras_vit.ViT(
        **{
            name: np.int64(value) if type(value) is int else value
            for name, value in given.items()
        }
    )
    assert model.count_params() == keras_vit.ViT(**given).count_params()
    schedule = keras_vit.training.LinearDecay(np.float32(0.5), np.int64(9))
    assert type(schedule.total_steps) is int


def test_a_signature_shows_types_without_their_conditions():
    for function in (keras_vit.layers.MlpBlock, keras_vit.data.train_batches):
        assert "lambda" not in str(inspect.signature(function))


def test_a_constructor_names_the_argument_that_it_refuses():
    given = TINY_OF["ViT"]
    for name, default, hint in parameters_of(keras_vit.ViT):
        if name == "dtype":  # a policy, or its name
            hint = str
        values = nonsense(name, default, hint)
        if default is None or "None" in str(hint):
            values = [value for value in values if value is not None]
        if name == "classifier_activation":
            values = ["banana", object()]
        for value in values:
            with raises(name):
                keras_vit.ViT(**{**given, name: value})


def public_functions():
    """Yields functions, and classes that are no layers."""
    for package in map(importlib.import_module, PACKAGES):
        names = [name for name in vars(package) if not name.startswith("_")]
        for name in getattr(package, "__all__", names):
            function = getattr(package, name)
            is_model = name in TINY_OF or name in keras_vit.list_models()
            if isinstance(function, types.ModuleType) or is_model:
                continue
            if callable(function) and name not in {*LAYERS, *RESULTS}:
                yield pytest.param(function, id=f"{package.__name__}.{name}")


@pytest.mark.parametrize("function", list(public_functions()))
def test_a_function_names_the_value_that_it_refuses(function):
    # Before it looks at any other argument.
    is_class = isinstance(function, type)
    parameters = parameters_of(function.__init__ if is_class else function)
    for name, default, hint in parameters:
        if isinstance(default, bool):
            values = FLAGS
        elif isinstance(default, str) or hint is str:
            values = ("banana",)
        elif any(
            typing.get_origin(leaf) is typing.Literal for leaf in leaves(hint)
        ):
            values = ("banana", 1)
        elif {int, float} & leaves(hint):
            values = nonsense(name, default, hint)
        else:
            continue
        for value in values:
            with pytest.raises(ValueError, match=f"`{name}`"):
                function(**{name: value})
