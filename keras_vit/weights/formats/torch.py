"""State dicts of PyTorch, read without unpickling objects."""

import argparse
import json
import pickle
import re
import warnings
import zipfile
from collections.abc import Callable

import numpy as np

from keras_vit.weights.formats.guard import DERIVED, Guard, Stored

# Of what training scripts save, the entries with the model's weights.
_KEYS = ("model", "state_dict", "model_state", "net")


def read(path: str) -> tuple[dict[str, Stored], dict]:
    """Open a state dict, as `npz.read` does.

    It may be the value of "model", "state_dict", "model_state" or "net". Where
    an average of the weights, such as "model_ema", is beside, a warning says
    that it is not read: the scripts of DeiT and BEiT evaluate the weights, timm
    the average, and the results differ.
    Integers that PyTorch's modules count or derive from sizes are ignored.

    Returns:
        Name -> array, and the config of PySlowFast beside them, {} without.
    """
    guard, arrays = Guard(path), {}
    state = content = _load(guard)
    import torch

    key = _key(guard, state)
    if key:
        _warn_of_average(path, state, key)
        state = state[key]
    if not isinstance(state, dict):
        raise guard.refuse(
            f"must contain a dict of tensors. Received: {type(state).__name__}"
        )
    for name, tensor in state.items():
        if not isinstance(tensor, torch.Tensor) or not isinstance(name, str):
            raise guard.refuse(
                f"must contain tensors by name. Received: `{name}` of "
                f"{type(tensor).__name__}"
            )
        if not tensor.is_floating_point() and name.endswith(DERIVED):
            continue
        claimed = tensor.numel() * tensor.element_size()
        if tensor.layout != torch.strided or (
            claimed > tensor.untyped_storage().nbytes()
        ):
            raise guard.refuse(
                "must contain dense tensors, each number of which is in the "
                f"file. Received: `{name}`, of {claimed} bytes"
            )

        def values(tensor=tensor):
            # The imaginary part of a conjugate is stored with the other sign.
            tensor = tensor.detach().resolve_neg()
            half = tensor.dtype == torch.bfloat16
            return (tensor.float() if half else tensor).numpy()

        dtype = str(tensor.dtype).removeprefix("torch.")
        guard.add(arrays, name, tuple(tensor.shape), dtype, values)
    return arrays, _slowfast_config(guard, content)


def _key(guard, content):
    """Return the entry that has the weights, None where there is none."""
    import torch

    entries = content if isinstance(content, dict) else {}
    sets = [
        name
        for name, value in entries.items()
        if isinstance(value, dict)
        and any(isinstance(v, torch.Tensor) for v in value.values())
    ]
    found = [name for name in _KEYS if name in sets]
    # Of other scripts, such as the encoders and the predictor of I-JEPA.
    if len(found) > 1 or (sets and not found):
        found = found or sets
        raise guard.refuse(
            "must contain one set of weights, alone or as the only one of "
            f"{_KEYS}. Received: "
            f"{' and '.join(f'`{name}`' for name in found[:4])}. Save the one "
            f"to be read alone: `torch.save(content[{found[0]!r}], 'one.pth')` "
            "with what `torch.load` returns."
        )
    return found[0] if found else None


def _warn_of_average(path, content, key):
    for name, value in content.items():
        if isinstance(value, dict) and re.search("(^|_)ema(_|$)", str(name)):
            warnings.warn(
                f"{path!r} has two sets of weights: `{key}` is read, and not "
                f"its average `{name}`, which timm would read. To use that one "
                f"save it alone: `torch.save(content[{name!r}], 'average.pth')`"
                " with what `torch.load` returns.",
                stacklevel=2,
            )


def _slowfast_config(guard, content):
    """Return the config of a checkpoint of PySlowFast, or {}."""
    text = content.get("cfg") if isinstance(content, dict) else None
    if not isinstance(text, str):
        return {}
    try:
        import yaml
    except ImportError:
        raise guard.needs("pyyaml") from None
    with guard.at("cfg"):
        config = yaml.safe_load(text)
        if not isinstance(config, dict):
            raise ValueError("it is not a mapping")
    return config


def _load(guard):
    """Return the saved object: only tensors, numbers and strings."""
    try:
        import torch
    except ImportError:
        raise guard.needs("torch") from None
    # Before version 1.6 the format was not a zip archive.
    is_zip = zipfile.is_zipfile(guard.path)
    if is_zip:
        with guard.at("an archive member"), guard.open_zip() as archive:
            broken = archive.testzip()
            if broken:
                raise zipfile.BadZipFile(f"bad checksum of {broken}")
    with guard.at("its index"):
        try:
            # Training scripts save their arguments beside the state dict.
            with torch.serialization.safe_globals([argparse.Namespace]):
                return torch.load(
                    guard.path,
                    map_location="cpu",
                    weights_only=True,
                    mmap=is_zip,
                )
        except pickle.UnpicklingError:
            raise guard.refuse(
                "contains more than tensors, which could run code; only what "
                "`torch.load(..., weights_only=True)` takes is read. Save "
                "`model.state_dict()` alone."
            ) from None


def writer(arrays: dict[str, np.ndarray], config: dict | None) -> Callable:
    """Return a function that writes a state dict to an open file.

    Args:
        arrays: Name -> array.
        config: Config of PySlowFast, whose file it is then; None writes the
            state dict alone.

    Raises:
        ValueError: If PyTorch is not installed.
    """
    try:
        import torch
    except ImportError:
        raise ValueError("Writing it needs torch: pip install torch") from None
    tensors = {
        name: torch.from_numpy(np.array(array, order="C"))
        for name, array in arrays.items()
    }
    if config is not None:
        # PySlowFast stores its config as YAML, a superset of JSON.
        tensors = dict(model_state=tensors, cfg=json.dumps(config))
    return lambda file: torch.save(tensors, file)
