"""Keras' `.weights.h5`, alone or inside a `.keras` archive."""

import functools
import io
import itertools
import os
import re

from keras_vit.weights.formats.guard import (
    Guard,
    Stored,
    native,
    native_type,
    parse_json,
)

# Policies of layers whose numbers `keras.Model.quantize` has replaced.
_QUANTIZED = re.compile(
    rb'"class_name": *"(Quantized(Float8)?|Int4|GPTQ|AWQ)DTypePolicy"'
)


def read_keras(path: str) -> tuple[dict[str, Stored], dict]:
    """Open a `.keras` archive; returns its arrays and its config."""
    guard = Guard(path)
    archive = guard.open_zip()
    with guard.at("config.json"):
        text = archive.read("config.json")
        config = parse_json(text)
        if not isinstance(config, dict):
            raise ValueError("it is not an object")
    if _QUANTIZED.search(text):
        raise guard.refuse(
            "is of a quantized model, which is opened as it is: "
            "`keras.models.load_model(path)`. For another size, head or "
            "format open the file from before `quantize`."
        )
    # Others of ours are more than a backbone with a classifier.
    package, _, name = str(config.get("registered_name")).partition(">")
    if package == "keras_vit" and name not in ("ImageModel", "Accumulation"):
        raise guard.refuse(
            f"is of a {name}, which is opened as it is: "
            "`keras.models.load_model(path)`."
        )
    with guard.at("model.weights.h5"):
        content = archive.read("model.weights.h5")
    return _arrays(guard, lambda: io.BytesIO(content), len(content)), config


def read(path: str) -> tuple[dict[str, Stored], dict]:
    """Open a weights file of Keras, as `npz.read` does; it has no metadata.

    Returns:
        "layer/sublayer/index of the variable" -> array, with the names of the
        layers; and {}.
    """
    return _arrays(Guard(path), lambda: path, os.path.getsize(path)), {}


def _arrays(guard, file_of, size):
    """Return the arrays of a file, which `file_of` returns, of some bytes.

    Every number must be in the file, as in those that Keras writes: compressed
    arrays are refused, and chunks that were never written, which read as zeros.
    """
    import h5py

    def opened():
        return h5py.File(file_of(), "r")

    def values(place):
        # Opened for each read: an open file could not be overwritten.
        with opened() as file:
            return native(file[place][()])

    arrays, claimed = {}, 0
    with guard.at("its index"), opened() as file:
        for name, item in _variables(guard, file, (), itertools.count()):
            _check_dataset(guard, name, item)
            claimed += max(item.nbytes, item.id.get_storage_size())
            if claimed > size:
                raise guard.too_large(claimed, size)
            read_item = functools.partial(values, item.name)
            guard.add(
                arrays,
                name,
                item.shape,
                native_type(item.dtype).name,
                read_item,
            )
    return arrays


def _variables(guard, group, layers, visits):
    """Yield the name and the dataset of each variable of a model."""
    import h5py

    # Groups that contain one another have infinitely many paths.
    guard.limit(next(visits), "groups")
    # Keras keeps variables under "vars", with the layer's name.
    if "vars" in group:
        variables = _member(guard, group, "vars")
        layers = (*layers, variables.attrs.get("name", ""))
        for index in variables:
            # After low-rank updates the variables are there by name as well,
            # with which training continues (`layers.Dense`).
            if "lora_kernel_a" in variables and not index[:1].isdigit():
                continue
            if not re.fullmatch("0|[1-9][0-9]*", index):  # "01" is 1 as well
                raise ValueError(f"`{variables.name}` contains {index!r}")
            name = "/".join((*layers[1:], index))
            yield name, _member(guard, variables, index)
    for key in group:
        # Not weights of the model: the state of training and of dropout.
        if key not in ("vars", "optimizer", "seed_generator"):
            member = _member(guard, group, key)
            if isinstance(member, h5py.Group):
                yield from _variables(guard, member, layers, visits)


def _member(guard, group, key):
    """Return an object that is stored in this file."""
    import h5py

    if not isinstance(group.get(key, getlink=True), h5py.HardLink):
        raise guard.not_plain(f"{group.name}/{key}", "points out of the file")
    return group[key]


def _check_dataset(guard, name, item):
    """Refuse what is not a plain array, all of it in this file."""
    import h5py

    if not isinstance(item, h5py.Dataset) or item.external or item.is_virtual:
        raise guard.not_plain(name, "points out of the file")
    if item.id.get_create_plist().get_nfilters():
        raise guard.not_plain(name, "is compressed")
    if item.id.get_space_status() != h5py.h5d.SPACE_STATUS_ALLOCATED:
        raise guard.not_plain(name, "was not written completely")
