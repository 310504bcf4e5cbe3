"""Checkpoints for other libraries: a model's variables under their names."""

import contextlib
import json
import os
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_vit._arguments import checked
from keras_vit._paths import atomic
from keras_vit.weights import checkpoint
from keras_vit.weights.checkpoint import Checkpoint
from keras_vit.weights.formats import npz, safetensors, torch
from keras_vit.weights.rules import FAMILIES, table

_DIRECTORY = "a directory, or a file that ends in .safetensors"
# Formats that can be a state dict of PyTorch, and its file endings.
_STATE_DICTS = {
    "timm": (".pth",),
    "torchvision": (".pth",),
    "authors": (".pth", ".pyth"),
}


@checked
def save_checkpoint(
    model,
    path: str | os.PathLike,
    format: str = "jax",
    allow_differences: bool = False,
) -> None:
    """Save a model's weights for another library.

    Args:
        model: A model of this package, built, trained or loaded, or a model
            that contains one.
        path: Destination. "jax", "jax_2020", "big_vision" and "scenic" write an
            npz file;
            "timm", "authors", "torchvision" and "huggingface" a directory with
            model.safetensors and config.json, or only the weights if the path
            ends in `.safetensors` (except for huggingface also `.pth`; for
            authors also `.pyth`, as PySlowFast, with the config).
        format: "jax" (the authors' linen names), "jax_2020", "big_vision",
            "timm" or "huggingface"; "authors", of families whose authors use
            PyTorch; "scenic", of BiT in post-activation order; "torchvision",
            of MViT.
        allow_differences: Whether to save even if the other library would
            compute different numbers, because of its GELU or its epsilons; the
            error names the differences.

    Raises:
        ValueError: If the format is unknown, cannot store a part of the model,
            or computes different numbers.

    Example:
        keras_vit.save_checkpoint(model, "out.npz", format="jax")
    """
    # This package must not import models; Keras has the registered classes.
    registered = keras.saving.get_registered_object
    towers = registered("keras_vit>TwoTowers")
    if towers is not None and isinstance(model, towers):
        _write_towers(model, path, format, allow_differences)
        return
    text_model = registered("keras_vit>TextModel")
    if text_model is None or not isinstance(model, text_model):
        model = registered("keras_vit>ImageModel").find(model)
    family, metadata = model.file_family, model.metadata
    write(_values(model), family, metadata, path, format, allow_differences)


def _values(model):
    """Return path -> function that returns the value, of each variable."""
    return {
        variable.path: lambda variable=variable: ops.convert_to_numpy(variable)
        for variable in model.weights
    }


def _write_towers(model, path, format, allow_differences):
    """Write an image tower and a text tower into one directory."""
    path = os.path.expanduser(os.fspath(path))
    image, text = model.image_tower, model.text_tower
    values = _values(text)
    if not hasattr(image, "task"):
        values |= _values(model.similarity)
    metadata = text.metadata | {
        name: f"similarity/{name}" in values
        for name in ("logit_scale", "logit_bias")
    }
    rules = FAMILIES.get(image.file_family)
    joined: Any = getattr(rules, "joined_config", None)
    family = getattr(rules, "TEXT_TOWER", None)
    if family == "owl_text":  # of CLIP's form, within another prefix
        metadata["outer"] = f"{image.file_family}."
    elif joined is None or family != text.file_family:
        raise ValueError(
            "`model` must have the two towers of a CLIP, or those of a SigLIP, "
            "as files of other libraries have. Received: an image tower of the "
            f"family {image.file_family!r} and a text tower of "
            f"{text.file_family!r}. Save it with `model.save('model.keras')`"
        )
    if format != "huggingface":
        raise ValueError(
            "`format` must be 'huggingface' of a model with two towers. "
            f"Received: format={format!r}"
        )
    projects_images = image.file_family != "clip" or image.metadata["classes"]
    if metadata["embedding_size"] is None or not projects_images:
        tower = "text" if projects_images else "image"
        raise ValueError(
            f"`model` must have a projection after its {tower} tower, as files "
            "of other libraries have. Received: one without. Save it with "
            "`model.save('model.keras')`"
        )
    arrays, target, metadata_ = arrays_of(
        _values(image),
        image.file_family,
        image.metadata,
        format,
        allow_differences,
    )
    others, own, _ = arrays_of(
        values, family, metadata, format, allow_differences
    )
    _check_path(path, target, format)
    sides = ((target, metadata_), (own, metadata))
    both = [one.config_of(known) for one, known in sides]
    _write_files(path, arrays | others, joined(*both))
    tokenizer = getattr(model.tokenizer, "save_files", None)
    if tokenizer is not None and os.path.isdir(path):
        tokenizer(path)


@checked
def convert(
    source: Checkpoint,
    path: str | os.PathLike,
    format: str,
    allow_differences: bool = False,
) -> None:
    """Save a checkpoint under another format's names, as `save_checkpoint`.

    Raises:
        ValueError: As `save_checkpoint`, and if the checkpoint does not fully
            specify its model: build the model with `keras_vit.ViT`, which takes
            the missing values as arguments, and save it.
    """
    source = checkpoint.complete(source, {})
    checkpoint.check_names(source, source.rules)
    values = {
        rule.path: lambda rule=rule: rule.transform.join(
            *(source.arrays[name].read() for name in rule.sources)
        )
        for rule in source.rules
    }
    write(
        values, source.family, source.metadata, path, format, allow_differences
    )


def formats(family: str) -> dict[str, table.Format]:
    """Return the formats in which a family can be saved: name -> format."""
    return {
        name: file_format
        for file_format in FAMILIES[family].FORMATS.values()
        for name in file_format.naming_schemes
    }


def write(values, family, metadata, path, format, allow_differences=False):
    """Write values under a format's names; see `save_checkpoint`."""
    arrays, target, metadata = arrays_of(
        values, family, metadata, format, allow_differences
    )
    path = os.path.expanduser(os.fspath(path))
    _check_path(path, target, format)
    if target.config_of is None:
        shown = {
            name: metadata[name]
            for name in ("grid", "pooling", "position_embedding")
            if metadata.get(name) not in (None, "learned_1d")
        }
        with atomic(path) as file:
            npz.write(file, arrays, shown)
        return
    _write_files(path, arrays, target.config_of(metadata))


def arrays_of(values, family, metadata, format, allow_differences=False):
    """Return the arrays of a file, its format, and the complete metadata.

    Args:
        values: Path of a variable -> function that returns its value.
        family: A key of `FAMILIES`.
        metadata: Of the model.
        format, allow_differences: See `save_checkpoint`.
    """
    if family not in FAMILIES:
        raise ValueError(
            f"`model` must be of a kind of which other libraries have files. "
            f"Received: one with the head {family!r}. Save it with "
            "`model.save('model.keras')`"
        )
    known = formats(family)
    if format not in known:
        raise ValueError(
            f"`format` must be one of {tuple(known)} for the family "
            f"{family!r}. Received: {format!r}"
        )
    if metadata.get("similarity_head") is not None:
        raise ValueError(
            "`model` must not compare with embeddings of classes, for which "
            "no library has a place. Received: a model of "
            "keras_vit.zero_shot. Save it with `model.save('model.keras')`"
        )
    unstated = getattr(FAMILIES[family], "UNSTATED", {})
    target, metadata = known[format], _complete(unstated | metadata)
    refused = target.refused(metadata, format)
    if refused:
        raise ValueError(
            f"`format={format!r}` has no place for what the model has: "
            f"{refused}"
        )
    differences = target.differences(metadata)
    if differences and not allow_differences:
        raise ValueError(
            f"The model would give other numbers in the format {format!r}: "
            + "; ".join(differences)
            + ". Pass allow_differences=True to save it nevertheless."
        )
    rules = target.rules(metadata)
    homeless = sorted(set(values) - {rule.path for rule in rules})
    if homeless:
        raise ValueError(
            f"The format {format!r} has no place for {homeless[:5]}"
        )
    arrays = {}
    for rule in rules:
        value = values[rule.path]()
        if value.dtype.name == "bfloat16":  # a type that NumPy and torch lack
            value = value.astype("float32")
        parts = rule.transform.split(value)
        arrays.update(zip(rule.sources, parts, strict=True))
    scheme = target.naming_schemes[format]
    if callable(scheme):
        scheme = scheme(metadata)
    return target.restore(arrays, scheme), target, metadata


def _write_files(path, arrays, config):
    """Write a file, or a directory with configs, as the path's end says."""
    # Before `atomic` makes the folder: the library may be absent.
    if path.endswith((".pth", ".pyth")):
        write_arrays = torch.writer(
            arrays, config if path.endswith(".pyth") else None
        )
    else:
        write_arrays = safetensors.writer(arrays)
    if path.endswith((".safetensors", ".pth", ".pyth")):
        with atomic(path) as file:
            write_arrays(file)
        return
    processor = config.pop("preprocessor", None)
    with atomic(os.path.join(path, "model.safetensors")) as file:
        write_arrays(file)
    _write_json(os.path.join(path, "config.json"), config)
    for name in ("processor_config.json", "preprocessor_config.json"):
        with contextlib.suppress(FileNotFoundError):  # of another model
            os.remove(os.path.join(path, name))
    if processor:
        file = os.path.join(path, "preprocessor_config.json")
        _write_json(file, processor)


def _check_path(path, target, format):
    ending = os.path.splitext(path)[1]
    wrong = ending != ".npz"
    if target.config_of is not None:
        others = (
            ".npz",
            ".bin",
            ".keras",
            ".h5",
            ".pt",
            ".pth",
            ".pyth",
            ".ckpt",
        )
        wrong = ending in others and ending not in _STATE_DICTS.get(format, ())
        wrong |= not ending and os.path.isfile(path)
    if wrong:
        kinds = _DIRECTORY if target.config_of is not None else ".npz"
        raise ValueError(
            f"`path` must be {kinds} for the format {format!r}. Received: "
            f"{path!r}"
        )


def _complete(metadata):
    metadata = dict(classes=None, class_names=None) | metadata
    if "image_size" not in metadata and "grid" in metadata:
        pairs = zip(metadata["grid"], metadata["stride"], strict=True)
        metadata["image_size"] = tuple(n * s for n, s in pairs)
    if isinstance(metadata.get("patch_size"), int):
        metadata["patch_size"] = (metadata["patch_size"],) * 2
    for name in ("pixel_mean", "pixel_std"):
        if metadata.get(name) is not None:
            metadata[name] = np.broadcast_to(
                metadata[name], metadata["channels"]
            ).tolist()
    return metadata


def _write_json(path, content):
    with atomic(path) as file:
        file.write((json.dumps(content, indent=2) + "\n").encode())
