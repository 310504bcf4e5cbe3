"""How checkpoints are opened and written: one module for each kind of file."""

import functools
import os
from collections.abc import Callable

from keras import ops

from keras_vit._paths import files_to_name, require_file, why_no_file
from keras_vit.weights.formats import hdf5, npz, safetensors, torch
from keras_vit.weights.formats.guard import DERIVED, Guard, Stored, parse_json

# Endings of a path -> its reader; any other file is read as an npz file.
_READERS: dict[tuple[str, ...], Callable] = {
    (".keras",): hdf5.read_keras,
    (".h5", ".hdf5"): hdf5.read,
    (".safetensors",): safetensors.read,
    (".pth", ".pth.tar", ".pt", ".bin", ".pyth", ".ckpt"): torch.read,
}
# What data parallelism, `torch.compile`, and modules of training scripts, such
# as Lightning's, put before the names of the model that they hold.
_WRAPPERS = ("module.", "_orig_mod.", "model.", "net.")
# The names of OpenCLIP's own files.
_OPEN_CLIP = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")


def read(path: str) -> tuple[dict[str, Stored], dict]:
    """Return the arrays and the config of a file or directory.

    Raises:
        ValueError: If there is none, or it is damaged.
    """
    listed: tuple[str, ...] = ()
    if os.path.isdir(path):
        inside = sorted(os.listdir(path))
        if "model.weights.h5" in inside:
            return _read_keras_directory(path, inside)
        names, listed = _weights(path, inside)
        files = [os.path.join(path, name) for name in names]
        for file in files:
            require_file(file)
    elif reason := why_no_file(path):
        raise ValueError(
            f"`weights` must be an existing checkpoint. Received: "
            f"weights={path!r}, which {reason}"
        )
    else:
        files = [path]
    arrays: dict[str, Stored] = {}
    for file in files:
        known = (
            reader
            for endings, reader in _READERS.items()
            if file.lower().endswith(endings)
        )
        reader = next(known, npz.read)
        others, config = reader(file)
        Guard(path).merge(arrays, others)
    absent = [n for n in listed if n not in arrays and not n.endswith(DERIVED)]
    if absent:
        raise ValueError(
            f"The checkpoint {path!r} is incomplete: its index lists "
            f"{absent[:3]}, which no file has. Fetch it again."
        )
    if reader not in (safetensors.read, torch.read):
        return arrays, config
    arrays = _without_wrappers(arrays)
    if not config:
        folder, file = os.path.split(files[0])
        if file in _OPEN_CLIP:
            found = _json(folder, "open_clip_config.json")
            return arrays, dict(open_clip=found)
        config = _json(folder, "config.json")
        # As in transformers 5, that of a whole processor, of images and texts,
        # takes precedence over one by itself.
        processor = _json(folder, "processor_config.json").get(
            "image_processor", _json(folder, "preprocessor_config.json")
        )
        if processor:
            config["preprocessor"] = processor
    return arrays, config


def _without_wrappers(arrays):
    """Return the arrays without prefixes of wrappers that all names have."""
    for inner in wrapped(arrays).values():
        if len(inner) == len(arrays):
            return _without_wrappers(inner)
    return arrays


def wrapped(arrays: dict[str, Stored]) -> dict[str, dict[str, Stored]]:
    """Return the arrays under each prefix of a wrapper, without it."""
    found = {
        prefix: {
            name.removeprefix(prefix): array
            for name, array in arrays.items()
            if name.startswith(prefix)
        }
        for prefix in _WRAPPERS
    }
    return {p: _without_wrappers(a) for p, a in found.items() if a}


def _json(folder, name):
    """Return the object in a JSON file, {} if there is no such file."""
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        return {}
    require_file(path)
    try:
        with open(path, "rb") as file:
            found = parse_json(file.read())
        if not isinstance(found, dict):
            raise ValueError("it is not an object")
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{path!r} must be JSON: {error}. Fetch it again."
        ) from None
    return found


def _weights(path, inside):
    """Return the files of a directory, and the arrays that its index lists."""
    index = "model.safetensors.index.json"
    known = ("model.safetensors", "pytorch_model.bin", *_OPEN_CLIP)
    names, listed = [name for name in known if name in inside][:1], ()
    # As in transformers, a single file takes precedence over shards.
    if index in inside and "model.safetensors" not in inside:
        files_of = _shards(path, index)
        names, listed = sorted(set(files_of.values())), tuple(files_of)
    # No name in an index may point outside of the directory.
    absent = [name for name in names if name not in inside]
    if absent:
        raise ValueError(
            f"The checkpoint {path!r} is incomplete: its index names "
            f"{absent[0]!r}, which is not in it"
        )
    if not names:
        raise ValueError(
            "`weights`, where it is a directory, must contain "
            "model.safetensors, pytorch_model.bin or model.weights.h5. "
            f"Received: weights={path!r}, a directory with {inside[:8]}"
            f"{files_to_name(path)}"
        )
    return names, listed


def _shards(folder, index):
    """Return the file of each array that an index lists."""
    files_of = _json(folder, index).get("weight_map")
    if not isinstance(files_of, dict) or not all(
        isinstance(name, str) for name in files_of.values()
    ):
        raise ValueError(
            f"{os.path.join(folder, index)!r} must have a `weight_map` from "
            "names to files. Fetch it again."
        )
    return files_of


def _read_keras_directory(path, inside):
    """Read a directory of Keras or keras-hub, whose variables are numbered."""

    def section(file, key="config"):
        found = _json(path, file).get(key)
        found = {} if found is None else found
        if not isinstance(found, dict):
            raise ValueError(
                f"A config in {path!r} cannot be read: expected `{key}` of "
                f"{file} to be an object. Fetch it again."
            )
        return found

    weights = [
        name
        for name in ("model.weights.h5", "task.weights.h5")
        if name in inside
    ]
    arrays: dict[str, Stored] = {}
    for name in weights:
        file = os.path.join(path, name)
        require_file(file)
        Guard(path).merge(arrays, hdf5.read(file)[0])
    config = section("config.json")
    if "layers" in config:  # of `keras.saving.save_model`
        return arrays, _json(path, "config.json")
    config = dict(config)
    if len(weights) == 2:
        config["pooling"] = section("task.json").get("pooling", "token")
    converter = _json(path, "image_converter.json")
    config["image_converter"] = converter.get("config")
    return arrays, config


def read_model(model) -> tuple[dict[str, Stored], dict]:
    """Return the arrays and the config of a model of keras-hub.

    Raises:
        ValueError: If it is another object.
    """
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
    numbers = dict(bias=1, beta=1)  # all others are the first of a layer
    arrays = {}
    for variable in model.weights:
        layer, _, last = variable.path.rpartition("/")
        arrays[f"{layer}/{numbers.get(last, 0)}"] = Stored(
            tuple(variable.shape),
            functools.partial(ops.convert_to_numpy, variable),
        )
    return arrays, config
