"""A checkpoint of any dialect: opened, recognised, described.

A dialect is a module of `rules`: `recognises` names, `flatten`s spellings
(`restore` undoes it), tells the `layout` and the `settings`, and holds the
table of `rules`.
"""

import dataclasses
import json
import math
import os
import types

import numpy as np
from keras import ops

from keras_vit.weights import files
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
            a preset of keras-hub), or a model of keras-hub.
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
        arrays, config = _read(name)
    else:
        name = f"{type(weights).__name__} {getattr(weights, 'name', '')!r}"
        arrays, config = _of_object(weights)
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
        facts |= _describe(arrays, layout, module.rules(layout), facts)
    except KeyError as error:
        raise ValueError(
            f"The checkpoint {name!r} is no complete ViT of dialect "
            f"{found[0]!r}: expected it to hold `{error.args[0]}`. Found: "
            f"{sorted(arrays)[:6]} ..."
        ) from None
        if facts.get("labels") and layout.head:
            _check_labels(facts)
    # A config may hold anything in any place.
    except (
        ArithmeticError,
        AttributeError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise ValueError(
            f"The checkpoint {name!r} does not read as a ViT of dialect "
            f"{found[0]!r}: {error}"
        ) from None
    return Checkpoint(name, found[0], arrays, form, layout, facts)


def demand(source: Checkpoint, **given) -> None:
    """Checks that what a checkpoint does not tell is given.

    Raises:
        ValueError: If something is neither told nor given.
    """
    absent = [
        name
        for name, value in given.items()
        if value is None and name not in source.facts
    ]
    if absent:
        raise ValueError(
            f"{absent} must be given, since the checkpoint {source.name!r} "
            "does not tell them. A `.keras` file does."
        )


def with_heads(source: Checkpoint, num_heads: int) -> Checkpoint:
    """Returns the checkpoint with the number of heads that it did not tell."""
    layout = dataclasses.replace(source.layout, num_heads=num_heads)
    return dataclasses.replace(source, layout=layout)


def _describe(arrays, layout, rules, facts):
    """Reads off the shapes of a few arrays what model they belong to."""
    rules = {rule.path: rule for rule in rules}

    def shape_of(path):
        rule = rules[path]
        blanks = [blank(arrays[name].shape) for name in rule.sources]
        return rule.transform.join(*blanks).shape

    patches = shape_of("embedding/kernel")
    if len(patches) != 4:
        raise ValueError(
            f"expected a patch embedding of 4 axes; found shape {patches}"
        )
    found = dict(
        patch_size=patches[:2],
        hidden_size=patches[3],
        channels=patches[2],
        num_layers=layout.num_layers,
        num_heads=layout.num_heads or facts.get("num_heads"),
        mlp_dim=shape_of("encoderblock_0/MlpBlock_0/Dense_0/kernel")[1],
        classifier=layout.classifier,
        resnet_units=layout.resnet_units,
    )
    scale = 1
    if layout.resnet_units is not None:
        root = shape_of("resnet/conv_root/kernel")
        found["channels"], found["resnet_width"] = root[2], root[3] / 64
        scale = 2 ** (1 + max(1, len(layout.resnet_units)))
    found["stride"] = tuple(scale * n for n in patches[:2])
    found["classes"] = shape_of("head/bias")[0] if layout.head else None
    found["representation_size"] = (
        shape_of("pre_logits/bias")[0] if layout.representation else None
    )
    if rules[POSITIONS].sources[0] in arrays:
        found["grid"] = _grid(
            shape_of(POSITIONS)[1] - (layout.classifier == "token"),
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


def _check_labels(facts):
    if len(facts["labels"]) != facts["classes"]:
        raise ValueError(
            f"expected a name for each of its {facts['classes']} classes; its "
            f"config has {len(facts['labels'])}"
        )


def blank(shape):
    """An array without memory, to see what a transform does to a shape."""
    return np.broadcast_to(np.float32(0), shape)


def _read(path):
    """Returns the arrays and the config of a file or directory."""
    if os.path.isdir(path):
        return _read_directory(path)
    if not os.path.exists(path):
        raise ValueError(
            f"`weights` must be an existing checkpoint. Received: "
            f"weights={path!r}, which is not there"
        )
    lower = path.lower()
    if lower.endswith(".keras"):
        config = _parse(files.read_member(path, "config.json"), path)
        content = files.read_member(path, "model.weights.h5")
        return files.read_h5(path, content), config
    if lower.endswith((".h5", ".hdf5")):
        return files.read_h5(path), {}
    if lower.endswith(".safetensors"):
        return files.read_safetensors(path), _config_beside(path)
    if lower.endswith((".pth", ".pt", ".bin")):
        return files.read_torch(path), _config_beside(path)
    return files.read_npz(path), files.read_comment(path)


def _config_beside(path):
    folder = os.path.dirname(path)
    config = _json(os.path.join(folder, "config.json"))
    processor = _json(os.path.join(folder, "preprocessor_config.json"))
    if processor:
        config["preprocessor"] = processor
    return config


def _json(path):
    if not os.path.exists(path):
        return {}
    with open(path, "rb") as file:
        return _parse(file.read(), path)


def _parse(text, path):
    try:
        found = json.loads(text)
        if not isinstance(found, dict):
            raise ValueError("it holds no object")
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path!r} must be JSON: {error}. Fetch it again."
        ) from None
    return found


def _read_directory(path):
    inside = sorted(os.listdir(path))
    if "model.weights.h5" in inside:
        return _read_preset(path, inside)
    index = "model.safetensors.index.json"
    # As transformers does, one whole file comes before shards.
    if index in inside and "model.safetensors" not in inside:
        shards = _shards(os.path.join(path, index))
    else:
        known = ("model.safetensors", "pytorch_model.bin")
        shards = [name for name in known if name in inside][:1]
    arrays = {}
    for shard in shards:
        # No name in an index may lead out of the directory.
        if shard not in inside:
            raise ValueError(
                f"The checkpoint {path!r} is incomplete: its index names "
                f"{shard!r}, which is not in it"
            )
        file = os.path.join(path, shard)
        read = (
            files.read_safetensors
            if shard.endswith(".safetensors")
            else files.read_torch
        )
        for name, array in read(file).items():
            if name in arrays:
                raise ValueError(f"{path!r} has `{name}` in two of its files")
            arrays[name] = array
    if not arrays:
        raise ValueError(
            "`weights`, where it is a directory, must hold model.safetensors, "
            "pytorch_model.bin or a preset of keras-hub. Received: "
            f"weights={path!r}, a directory with {inside[:8]}"
        )
    return arrays, _config_beside(os.path.join(path, shards[0]))


def _shards(path):
    files_of = _json(path).get("weight_map")
    if not isinstance(files_of, dict) or not all(
        isinstance(name, str) for name in files_of.values()
    ):
        raise ValueError(
            f"{path!r} must have a `weight_map` from names to files. Fetch it "
            "again."
        )
    return sorted(set(files_of.values()))


def _read_preset(path, inside):
    arrays = files.read_h5(os.path.join(path, "model.weights.h5"))
    config = _json(os.path.join(path, "config.json")).get("config", {})
    if "task.weights.h5" in inside:
        arrays |= files.read_h5(os.path.join(path, "task.weights.h5"))
        task = _json(os.path.join(path, "task.json")).get("config", {})
        config["pooling"] = task.get("pooling", "token")
    converter = _json(os.path.join(path, "image_converter.json"))
    config["image_converter"] = converter.get("config")
    return arrays, config


def _of_object(model):
    """Returns the arrays and the config of a model of keras-hub."""
    if "keras_hub" not in type(model).__module__:
        raise ValueError(
            "`weights` must be a path, a name or a model of keras-hub. "
            f"Received: {type(model)}"
        )
    backbone = getattr(model, "backbone", model)
    config = backbone.get_config()
    if backbone is not model:
        config["pooling"] = model.get_config().get("pooling", "token")
        converter = getattr(model.preprocessor, "image_converter", None)
        config["image_converter"] = converter and converter.get_config()
    numbers = dict(bias=1, beta=1)  # every other is a layer's first
    arrays = {}
    for variable in model.weights:
        layer, _, last = variable.path.rpartition("/")
        arrays[f"{layer}/{numbers.get(last, 0)}"] = files.Stored(
            tuple(variable.shape),
            lambda variable=variable: ops.convert_to_numpy(variable),
        )
    return arrays, config
