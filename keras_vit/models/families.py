"""What a family of models is made of.

A family is a module `models/<family>.py` with

1. a frozen, keyword-only dataclass of its architecture, whose docstring has a
   section `Args`; a field made by `inherited` is taken from the weights where
   the caller does not give it;
2. `forward(config, x)`, from scaled images `[B, H, W, C]` to the
   representation, `[B, D]`; or from videos `[B, T, H, W, C]`, with
   `takes_video`;
3. `VARIANTS`, constructor name -> the fields that it sets;
4. `FAMILY = register(Family(...))`, its row in `FAMILIES`, and for each
   variant `constructor(FAMILY, name, description)` (`models/constructors.py`).

`image_model.build` does the rest: weights, head, class names, preprocessing,
resizing. The rules that map a family's checkpoints are in
`weights/rules/<family>.py`, as `weights/rules/table.py` says.
"""

import dataclasses
from collections.abc import Callable


@dataclasses.dataclass(frozen=True)
class Family:
    """What `build` and other code must know of a family.

    Attributes:
        name: Name of its modules, such as "vit".
        title: Name of the constructor of any size, such as "ViT".
        config: The dataclass of its architecture.
        forward: From a `config` and images to the representation.
        block: The class of its repeated layers, or a tuple of classes.
        variants: Constructor name -> the fields of `config` that it sets.
        layers: Pattern of the paths of layers whose outputs stay divided by
            examples where a model is divided among devices.
        small: Fields of a model that is small enough to be trained from
            scratch on a processor, but for `patch_size`.
        levels: Of a model, the symbolic feature maps of a pyramid, from the
            finest on; None without one.
        stride: Of a `config`, pixels between the cells of the grid, where the
            config has them; None where the weights specify them.
        takes_video: Whether it takes videos, and images as well.
        input_shapes: Constructor name -> the shape of its input, where that
            is not (224, 224, 3).
    """

    name: str
    title: str
    config: type
    forward: Callable
    block: type | tuple[type, ...]
    variants: dict[str, dict]
    layers: str = ""
    small: dict = dataclasses.field(default_factory=dict)
    levels: Callable | None = None
    stride: Callable | None = None
    takes_video: bool = False
    input_shapes: dict[str, tuple[int, ...]] = dataclasses.field(
        default_factory=dict
    )


FAMILIES = {}


def register(family: Family) -> Family:
    """Adds a family to `FAMILIES`, and returns it."""
    FAMILIES[family.name] = family
    return family


def inherited(default):
    """Returns a dataclass field that belongs to the weights.

    Args:
        default: Its value where neither caller nor weights give it.
    """
    return dataclasses.field(default=default, metadata={"inherited": True})
