"""State dicts of PyTorch, read without unpickling objects."""

import argparse
import os
import pickle
import zipfile

from keras_vit.weights import stored
from keras_vit.weights.stored import Stored


def read_torch(path: str | os.PathLike) -> dict[str, Stored]:
    """Open a state dict of PyTorch, as `read_npz` does.

    The state dict may be the value of "model", "state_dict", "model_state" or
    "net". Integers that PyTorch's modules count or derive from sizes are
    ignored.
    """
    path = os.fspath(path)
    state = _load_torch(path)
    import torch

    for key in ("model", "state_dict", "model_state", "net"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict):
        raise ValueError(
            f"{path!r} must hold a dict of tensors. Received: "
            f"{type(state).__name__}"
        )
    arrays = {}
    for name, tensor in state.items():
        if not isinstance(tensor, torch.Tensor) or not isinstance(name, str):
            raise ValueError(
                f"{path!r} must hold tensors by name. Received: `{name}` of "
                f"{type(tensor).__name__}"
            )
        if not tensor.is_floating_point() and name.endswith(stored.DERIVED):
            continue
        stored.check_dtype(path, name, str(tensor.dtype).removeprefix("torch."))
        stored.check_shape(path, name, tensor.shape)
        claimed = tensor.numel() * tensor.element_size()
        if tensor.layout != torch.strided or (
            claimed > tensor.untyped_storage().nbytes()
        ):
            raise ValueError(
                f"{path!r} must hold dense tensors, of which each number is "
                f"in the file. Received: `{name}`, of {claimed} bytes"
            )

        def read(name=name, tensor=tensor):
            with stored.naming(path, name):
                tensor = tensor.detach()
                if tensor.dtype == torch.bfloat16:
                    tensor = tensor.float()
                return stored.finite(path, name, tensor.numpy())

        arrays[name] = Stored(tuple(tensor.shape), read)
    return arrays


def read_slowfast_config(path: str | os.PathLike) -> dict:
    """Return the config of a checkpoint of PySlowFast, or {}."""
    path = os.fspath(path)
    content = _load_torch(path)
    text = content.get("cfg") if isinstance(content, dict) else None
    if not isinstance(text, str):
        return {}
    try:
        import yaml
    except ImportError:
        raise stored.needs(path, "pyyaml") from None
    with stored.naming(path, "cfg"):
        config = yaml.safe_load(text)
        if not isinstance(config, dict):
            raise ValueError("it holds no mapping")
    return config


def _load_torch(path):
    """Return the saved object, which may contain only tensors, numbers,
    strings."""
    try:
        import torch
    except ImportError:
        raise stored.needs(path, "torch") from None
    # Before version 1.6 the format was not a zip archive.
    if zipfile.is_zipfile(path):
        with (
            stored.naming(path, "an archive member"),
            stored.open_zip(path) as archive,
        ):
            broken = archive.testzip()
            if broken:
                raise zipfile.BadZipFile(f"bad checksum of {broken}")
    with stored.naming(path, "its index"):
        try:
            # Training scripts save their arguments beside the state dict.
            with torch.serialization.safe_globals([argparse.Namespace]):
                state = torch.load(
                    path,
                    map_location="cpu",
                    weights_only=True,
                    mmap=zipfile.is_zipfile(path),
                )
        except pickle.UnpicklingError:
            raise ValueError(
                f"{path!r} holds more than tensors, which could run code; only "
                "what `torch.load(..., weights_only=True)` takes is read. Save "
                "`model.state_dict()` alone."
            ) from None
    return state
