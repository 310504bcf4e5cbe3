"""A checkpoint of any dialect: opened, recognised, described.

A dialect is a module of `rules`: `recognises` names, `flatten`s spellings
(`restore` undoes it), tells the `layout` and the `settings`, and holds the
table of `rules`.
"""

import dataclasses
import math
import os
import types

import numpy as np

from keras_vit.weights import contents, files, pixels
from keras_vit.weights.rules import (
    huggingface,
    jax,
    keras_hub,
    keras_vit,
    table,
    timm,
)

DIALECTS = {
    "jax": jax,
    "timm": timm,
    "huggingface": huggingface,
    "keras_hub": keras_hub,
    "keras_vit": keras_vit,
}
POSITIONS = "posembed_input/pos_embedding"
# What both the arrays and a config may specify.
_SIZES = (
    "patch_size",
    "hidden_size",
    "channels",
    "num_layers",
    "num_heads",
    "mlp_dim",
    "classes",
)
# What an error says of an argument that must be given.
_SUCH_AS = dict(
    num_heads="12 (ViT-B; also MoCo v3's ViT-S)",
    gelu_approximate="False (timm, transformers, keras-hub) or True (the "
    "authors, SigLIP)",
    layer_norm_epsilon="1e-6 (the authors, timm) or 1e-12 (transformers)",
    classifier="'gap', 'gap_norm' or 'unpooled'",
    resnet_numerics="'authors' or 'timm'",
)


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """What `open_checkpoint` found.

    Attributes:
        name: What to call it in an error.
        dialect: Name of its dialect.
        arrays: Name -> array, in the dialect's plain spelling.
        form: What gives them their own spelling back.
        layout: Which arrays a ViT of it has.
        facts: What it tells of the model, in the builder's words: sizes,
            `classes`, `grid`, `channels`, `gelu_approximate`,
            `layer_norm_epsilon`, `pixel_mean`, `pixel_std`, `labels` ...;
            what it does not tell is absent.
    """

    name: str
    dialect: str
    arrays: dict[str, files.Stored]
    form: object
    layout: table.Layout
    facts: dict

    @property
    def family(self) -> str:
        """Name of the family that it is of."""
        return "vit"

    @property
    def rules(self) -> types.ModuleType:
        """The module of the dialect."""
        return DIALECTS[self.dialect]


def open_checkpoint(
    weights, position_grid: tuple[int, int] | None = None
) -> Checkpoint:
    """Opens a checkpoint and finds out what it is. Reads no weights yet.

    Args:
        weights: A file (npz, safetensors, a state dict of PyTorch,
            `.weights.h5`, `.keras`), a directory (of transformers, of timm,
            of `keras.saving.save_model`, a preset of keras-hub), or a model
            of keras-hub.
        position_grid: (height, width) of its position embeddings, where the
            grid is no square and the file does not tell.

    Returns:
        The checkpoint.

    Raises:
        ValueError: If it is damaged, of no known dialect, or contradicts
            itself.
    """
    if isinstance(weights, (str, os.PathLike)):
        name = os.fspath(weights)
        arrays, config = contents.read(name)
    else:
        name = f"{type(weights).__name__} {getattr(weights, 'name', '')!r}"
        arrays, config = contents.read_object(weights)
    found = [
        key
        for key, module in DIALECTS.items()
        if module.recognises(set(arrays))
    ]
    if len(found) != 1:
        raise ValueError(
            f"The checkpoint {name!r} must be a ViT of one of the dialects "
            f"{tuple(DIALECTS)}; its names are of {found or 'none'}. "
            f"Received names: {sorted(arrays)[:6]} ..."
        )
    module = DIALECTS[found[0]]
    try:
        facts = module.settings(config)
        if position_grid is not None:
            facts["grid"] = tuple(position_grid)
        arrays, form = module.flatten(arrays, facts)
        layout = module.layout(arrays, config)
        found_facts = _describe(arrays, layout, module.rules(layout), facts)
        _check(facts, found_facts)
        facts |= found_facts
        layout = dataclasses.replace(layout, num_heads=facts["num_heads"] or 0)
    except KeyError as error:
        raise ValueError(
            f"The checkpoint {name!r} is no complete ViT of dialect "
            f"{found[0]!r}: expected it to hold `{error.args[0]}`. Found: "
            f"{sorted(arrays)[:6]} ..."
        ) from None
    except ValueError as error:
        raise ValueError(
            f"The checkpoint {name!r} does not read as a ViT of dialect "
            f"{found[0]!r}: {error}"
        ) from None
    # A config may hold anything in any place.
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
    ) as error:
        raise ValueError(
            f"The checkpoint {name!r} does not read as a ViT of dialect "
            f"{found[0]!r}: its config holds a value of another kind than "
            f"expected ({error}). Fetch it again."
        ) from None
    return Checkpoint(name, found[0], arrays, form, layout, facts)


def layout_of(config, representation: bool, head: bool) -> table.Layout:
    """Returns the layout of a model of an architecture."""
    return table.Layout(
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        resnet_units=config.resnet_units,
        classifier=config.classifier,
        representation=representation,
        head=head,
    )


def demand(source: Checkpoint, given: dict) -> None:
    """Checks that what a checkpoint does not specify is given.

    Args:
        source: The checkpoint.
        given: Fields of the architecture; None is not given.

    Raises:
        ValueError: If something is neither specified nor given.
    """
    given = {name: given.get(name) for name in _SUCH_AS}
    if source.layout.resnet_units is None:
        given = {**given, "resnet_numerics": "of no trunk"}
    absent = [
        name
        for name, value in given.items()
        if value is None and source.facts.get(name) is None
    ]
    if absent:
        arguments = ", ".join(f"`{name}`" for name in absent)
        architecture = source.facts.get("architecture")
        raise ValueError(
            f"{arguments} must be given, since neither the arrays nor a config "
            f"of the checkpoint {source.name!r} tell, and a guess would cost "
            "accuracy in silence. "
            + (
                f"Its architecture, {architecture!r}, is none that is known "
                "here. "
                if architecture
                else ""
            )
            + "Pass what it was trained with: "
            + "; ".join(f"{name}={_SUCH_AS[name]}" for name in absent)
            + ". A `.keras` file tells, and so does a directory with a "
            "config.json."
        )


def with_heads(source: Checkpoint, num_heads: int) -> Checkpoint:
    """Returns the checkpoint with the number of heads that it did not tell."""
    layout = dataclasses.replace(source.layout, num_heads=num_heads)
    return dataclasses.replace(source, layout=layout)


def _describe(arrays, layout, rules, facts):
    """Reads off the shapes of a few arrays what model they belong to."""
    rules = {rule.path: rule for rule in rules}

    def shape_of(path, axes):
        rule = rules[path]
        blanks = [blank(arrays[name].shape) for name in rule.sources]
        if any(len(array.shape) != axes for array in blanks):
            raise ValueError(
                f"expected `{rule.sources[0]}` of {axes} axes; found shape "
                f"{blanks[0].shape}"
            )
        return rule.transform.join(*blanks).shape

    patches = shape_of("embedding/kernel", 4)
    found = dict(
        patch_size=patches[:2],
        hidden_size=patches[3],
        channels=patches[2],
        num_layers=layout.num_layers,
        num_heads=layout.num_heads or facts.get("num_heads"),
        mlp_dim=shape_of("encoderblock_0/MlpBlock_0/Dense_0/kernel", 2)[1],
        classifier=layout.classifier,
        resnet_units=layout.resnet_units,
    )
    scale = 1
    if layout.resnet_units is not None:
        root = shape_of("resnet/conv_root/kernel", 4)
        found["channels"], found["resnet_width"] = root[2], root[3] / 64
        scale = 2 ** (1 + max(1, len(layout.resnet_units)))
    found["stride"] = tuple(scale * n for n in patches[:2])
    found["classes"] = shape_of("head/bias", 1)[0] if layout.head else None
    found["representation_size"] = (
        shape_of("pre_logits/bias", 1)[0] if layout.representation else None
    )
    positions = rules[POSITIONS].sources[0]
    if positions in arrays:
        # keras-hub's has no axis for the batch.
        axes = len(rules[POSITIONS].transform.split(blank((1, 1, 1)))[0].shape)
        found["grid"] = _grid(
            shape_of(POSITIONS, axes)[1] - layout.has_class_token,
            found["stride"],
            facts,
        )
    return found


def _grid(tokens, stride, facts):
    """Returns (height, width) of the grid of position embeddings."""
    told = facts.get("grid")
    if told is None and "image_size" in facts:
        size = facts["image_size"]
        told = tuple(n // s for n, s in zip(size, stride, strict=True))
    if told is not None:
        if math.prod(told) != tokens:
            raise ValueError(
                f"the {tokens} position embeddings cover no grid of "
                f"{tuple(told)}, as was told; say with "
                "`position_grid=(height, width)` what they cover"
            )
        return tuple(told)
    side = math.isqrt(tokens)
    if side * side == tokens:
        return side, side
    if math.isqrt(tokens - 1) ** 2 == tokens - 1:
        raise ValueError(
            f"its {tokens} position embeddings are those of a square grid and "
            "a class token, which is missing"
        )
    raise ValueError(
        f"its {tokens} position embeddings cover no square grid of patches; "
        "say with `position_grid=(height, width)` what they cover"
    )


def _check(told, found):
    """Refuses a config that contradicts the arrays, or cannot be right."""
    if found["classes"] is None:  # a head that was left out
        told = {name: told[name] for name in told if name != "classes"}
    differences = [
        f"{name}={told[name]}, where the arrays have {found[name]}"
        for name in _SIZES
        if told.get(name) is not None and told[name] != found[name]
    ]
    if differences:
        raise ValueError(
            f"its config contradicts its arrays: {'; '.join(differences)}"
        )
    if found["num_heads"] and found["hidden_size"] % found["num_heads"]:
        raise ValueError(
            f"expected a number of heads that divides its width, "
            f"{found['hidden_size']}; found {found['num_heads']}"
        )
    labels = told.get("labels")
    if labels and found["classes"] not in (None, len(labels)):
        raise ValueError(
            f"expected a name for each of its {found['classes']} classes; its "
            f"config has {len(labels)}"
        )
    pixels.check(told.get("pixel_mean"), told.get("pixel_std"))


def blank(shape):
    """An array without memory, to see what a transform does to a shape."""
    return np.broadcast_to(np.float32(0), shape)
