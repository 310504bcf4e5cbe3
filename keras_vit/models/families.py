"""The parts of a family of models.

A family is a module `models/<family>.py` with

1. the dataclass of its architecture, made by `@architecture`, whose docstring
   has a section `Args`; all fields but those of training, "..._rate" and
   "..._init", are taken from the weights unless the caller gives them;
2. `forward(config, x)`, from scaled images `[B, H, W, C]` to the
   representation, `[B, D]`, or `[B, 2, D]` of two tokens that each have a
   classifier (`layers.DistilledHead`); or from videos `[B, T, H, W, C]`, with
   `takes_video`;
3. `VARIANTS`, constructor name -> the fields that it sets;
4. `FAMILY = register(...)`, its row in `FAMILIES`;
5. a constructor for each variant, and one named `Family.title` for any size,
   listed in `__all__`; a line in `models/constructors.py`.

`models/build.py` does the rest: weights, head, class names, preprocessing,
resizing. The rules that map a family's checkpoints are in
`weights/rules/<family>.py`, as `weights/rules/table.py` says.
"""

import dataclasses
import typing
from collections.abc import Callable

from keras_vit._arguments import checked

_T = typing.TypeVar("_T")


@dataclasses.dataclass(frozen=True)
class Family:
    """The properties of a family that `build` and other code use.

    Attributes:
        name: Name of its modules, such as "vit".
        title: Name of the constructor of any size, such as "ViT".
        config: The dataclass of its architecture.
        forward: Computes the representation from a `config` and images.
        block: The class of its repeated layers, or a tuple of classes.
        variants: Constructor name -> the fields of `config` that it sets.
        layers: Pattern of the paths of layers whose outputs stay divided along
            the batch when a model is divided among devices.
        small: Fields of a model that is small enough to train from scratch on a
            CPU, except `patch_size`.
        last_norm: Name of the norm after the last block, if there is one.
        stride: Returns the pixels between the cells of the grid, given a
            `config`; None if the weights specify them.
        takes_video: Whether it takes videos, and images as well.
        input_shapes: Constructor name -> its input shape, if that is not (224,
            224, 3).
    """

    name: str
    title: str
    config: type
    forward: Callable
    block: type | tuple[type, ...]
    variants: dict[str, dict]
    layers: str = ""
    small: dict = dataclasses.field(default_factory=dict)
    last_norm: str = "norm"
    stride: Callable | None = None
    takes_video: bool = False
    input_shapes: dict[str, tuple[int, ...]] = dataclasses.field(
        default_factory=dict
    )


FAMILIES = {}
# Name of the rules of files with a head, or of texts -> the function of
# `keras_vit.heads` or `keras_vit.text` that builds the model of a checkpoint,
# given it and changes. "two_towers" -> that of an image tower's checkpoint.
OPENERS: dict[str, Callable] = {}


def register(*args, **kwargs) -> Family:
    """Return a `Family` of these arguments, and add it to `FAMILIES`."""
    family = Family(*args, **kwargs)
    FAMILIES[family.name] = family
    return family


def of(constructor: str) -> Family | None:
    """Return the family of a constructor by name, None if it has none."""
    for family in FAMILIES.values():
        if constructor in (family.title, *family.variants):
            return family
    return None


def sizes_of(constructor: str) -> dict:
    """Return the fields that a constructor sets; {} of one of any size."""
    family = of(constructor)
    return family.variants.get(constructor, {}) if family else {}


@typing.dataclass_transform(frozen_default=True, kw_only_default=True)
def architecture(config: type[_T]) -> type[_T]:
    """Make a class a frozen, keyword-only dataclass that checks its fields."""
    return checked(dataclasses.dataclass(frozen=True, kw_only=True)(config))


def is_of_training(field: dataclasses.Field) -> bool:
    """Return whether a field of an architecture is no property of weights."""
    return field.name.endswith(("_rate", "_init"))


def drop_path_rates(config) -> list[float]:
    """Return the rate of stochastic depth of each block.

    It grows linearly from 0 in the first to `drop_path_rate` in the last.

    Args:
        config: The architecture, with `num_layers`, or `depths` of its stages.
    """
    if hasattr(config, "depths"):
        num_blocks = sum(config.depths)
    else:
        num_blocks = config.num_layers
    last = max(1, num_blocks - 1)
    return [config.drop_path_rate * i / last for i in range(num_blocks)]


def check_heads(config) -> None:
    """Check that the heads of an architecture divide its width."""
    if config.hidden_size % config.num_heads:
        raise ValueError(
            "`hidden_size` must be a multiple of `num_heads`. Received: "
            f"hidden_size={config.hidden_size}, num_heads={config.num_heads}"
        )


def check_levels(config, *names: str) -> None:
    """Check that an architecture has a value for each level of a pyramid.

    Args:
        config: The architecture.
        *names: Its fields of a value for each level, beside `depths`.
    """
    for name in names:
        values = getattr(config, name)
        if not values or len(values) != len(config.depths):
            raise ValueError(
                f"`{name}` must have a value for each level, as `depths`. "
                f"Received: {name}={values}, depths={config.depths}"
            )
