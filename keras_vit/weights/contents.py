"""Reads the arrays and the config of a checkpoint from a path."""

import functools
import os

from keras import ops

from keras_vit._paths import require_file, why_no_file
from keras_vit.weights import files, stored, torch_files
from keras_vit.weights.rules import configs
from keras_vit.weights.stored import Stored


def read(path: str) -> tuple[dict[str, Stored], dict]:
    """Return the arrays and the config of a file or directory.

    Raises:
        ValueError: If there is none, or it is damaged.
    """
    if os.path.isdir(path):
        return _read_directory(path)
    reason = why_no_file(path)
    if reason:
        raise ValueError(
            f"`weights` must be an existing checkpoint. Received: "
            f"weights={path!r}, which {reason}"
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
    if lower.endswith((".pth", ".pth.tar", ".pt", ".bin")):
        return torch_files.read_torch(path), _config_beside(path)
    if lower.endswith(".pyth"):
        config = torch_files.read_slowfast_config(path) or _config_beside(path)
        return torch_files.read_torch(path), config
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
    require_file(path)
    with open(path, "rb") as file:
        return _parse(file.read(), path)


def _parse(text, path):
    try:
        found = stored.parse_json(text)
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
        return _read_keras(path, inside)
    index = "model.safetensors.index.json"
    # As in transformers, a single file takes precedence over shards.
    if index in inside and "model.safetensors" not in inside:
        shards = _shards(os.path.join(path, index))
    else:
        known = ("model.safetensors", "pytorch_model.bin")
        shards = [name for name in known if name in inside][:1]
    arrays = {}
    for shard in shards:
        # No name in an index may point outside of the directory.
        if shard not in inside:
            raise ValueError(
                f"The checkpoint {path!r} is incomplete: its index names "
                f"{shard!r}, which is not in it"
            )
        file = os.path.join(path, shard)
        require_file(file)
        read = (
            files.read_safetensors
            if shard.endswith(".safetensors")
            else torch_files.read_torch
        )
        arrays = _merge(path, arrays, read(file))
    if not arrays:
        raise ValueError(
            "`weights`, where it is a directory, must hold model.safetensors, "
            "pytorch_model.bin or model.weights.h5. Received: "
            f"weights={path!r}, a directory with {inside[:8]}"
        )
    return arrays, _config_beside(os.path.join(path, shards[0]))


def _merge(path, arrays, others):
    repeated = sorted(arrays.keys() & others.keys())
    if repeated:
        raise stored.twice(path, repeated)
    return arrays | others


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


def _read_keras(path, inside):
    """Read a directory of Keras or keras-hub, whose variables are numbered."""
    arrays = _read_h5(path, "model.weights.h5")
    config = _json(os.path.join(path, "config.json"))
    if "layers" in _section(path, config, "config"):
        return arrays, config  # of `keras.saving.save_model`
    config = dict(_section(path, config, "config"))
    if "task.weights.h5" in inside:
        head = _read_h5(path, "task.weights.h5")
        arrays = _merge(path, arrays, head)
        task = _json(os.path.join(path, "task.json"))
        task = _section(path, task, "config")
        config["pooling"] = task.get("pooling", "token")
    converter = _json(os.path.join(path, "image_converter.json"))
    config["image_converter"] = converter.get("config")
    return arrays, config


def _read_h5(folder, name):
    file = os.path.join(folder, name)
    require_file(file)
    return files.read_h5(file)


def _section(path, config, key):
    try:
        return configs.section(config, key)
    except ValueError as error:
        raise ValueError(
            f"A config in {path!r} cannot be read: {error}. Fetch it again."
        ) from None


def read_object(model) -> tuple[dict[str, Stored], dict]:
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
