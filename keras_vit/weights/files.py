"""Files of arrays: what is in them is checked before anything is read.

Nothing is ever unpickled. Arrays stay in their file until they are asked for,
so that a checkpoint is never in memory all at once.
"""

import collections
import contextlib
import dataclasses
import io
import itertools
import json
import math
import os
import pickle
import textwrap
import zipfile
from collections.abc import Callable

import numpy as np

# An archive may unfold to so many times its size, and so many bytes more:
# weights hardly compress, a bomb does nothing else.
_MAX_UNFOLDING = 20
_MAX_BYTES_MORE = 2**28
# The largest ViTs have some thousand arrays. A directory of more members is
# not even read, since each costs time.
_MAX_MEMBERS = 20_000
_MAX_AXES = 8
# Endings of what is no weight: counters of BatchNorm, and tables of indices.
_DERIVED = (".num_batches_tracked", "_index")
_FLOATS = ("float16", "bfloat16", "float32", "float64")


@dataclasses.dataclass(frozen=True)
class Stored:
    """An array that still is in its file.

    Attributes:
        shape: Its shape.
        read: Returns it.
    """

    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]

    def map(self, function: Callable, shape: tuple[int, ...]) -> "Stored":
        """Returns it with a function applied once it is read."""
        return Stored(shape, lambda: function(self.read()))


def read_npz(path: str | os.PathLike) -> dict[str, Stored]:
    """Opens an npz file.

    Args:
        path: The file.

    Returns:
        Name -> array.

    Raises:
        ValueError: If it is no npz file, truncated or damaged, has a member
            twice, claims more bytes than it can hold, or holds anything but
            arrays of floats. Reading an array raises it too, if the array's
            bytes do not have their checksum or are not finite.
    """
    import ml_dtypes  # with Keras

    path = os.fspath(path)
    archive = _open_zip(path)
    arrays = {}
    for member in archive.infolist():
        name = member.filename.removesuffix(".npy")
        if name in arrays:
            raise _twice(path, [name])
        with _naming(path, name):
            with archive.open(member) as file:
                shape, dtype = _npy_header(file)
                header = file.tell()
        if dtype.hasobject:
            raise ValueError(
                f"{path!r} holds pickled Python objects under `{name}`, which "
                "could run code; only plain arrays are read."
            )
        claimed = math.prod(shape) * dtype.itemsize
        if claimed != member.file_size - header:
            raise ValueError(
                f"{path!r} is damaged at `{name}`: it claims an array of "
                f"{claimed} bytes and holds {member.file_size - header}. "
                "Fetch it again."
            )
        # NumPy writes bfloat16 as two nameless bytes.
        half = dtype.str == "|V2"
        dtype = np.dtype(ml_dtypes.bfloat16 if half else dtype)
        _check_dtype(path, name, dtype.name)
        _check_shape(path, name, shape)

        def read(name=name, member=member, dtype=dtype, half=half):
            with _naming(path, name), archive.open(member) as file:
                array = np.lib.format.read_array(file, allow_pickle=False)
            # No library takes the other byte order.
            native = array.view(dtype) if half else array.astype(dtype.name)
            return _finite(path, name, native)

        arrays[name] = Stored(shape, read)
    return arrays


def read_safetensors(path: str | os.PathLike) -> dict[str, Stored]:
    """Opens a safetensors file, as `read_npz` does."""
    path = os.fspath(path)
    try:
        import safetensors
    except ImportError:
        raise _needs(path, "safetensors") from None
    with _naming(path, "its header"):
        file = safetensors.safe_open(path, framework="numpy")
        names = file.keys()
    arrays = {}
    for name in names:
        view = file.get_slice(name)
        if "F" not in view.get_dtype() and name.endswith(_DERIVED):
            continue
        dtype = {"F16": "float16", "BF16": "bfloat16", "F32": "float32"}
        _check_dtype(path, name, dtype.get(view.get_dtype(), view.get_dtype()))
        _check_shape(path, name, view.get_shape())

        def read(name=name):
            with _naming(path, name):
                return _finite(path, name, file.get_tensor(name))

        arrays[name] = Stored(tuple(view.get_shape()), read)
    return arrays


def read_torch(path: str | os.PathLike) -> dict[str, Stored]:
    """Opens a state dict that PyTorch saved, as `read_npz` does.

    The state dict may stand under "model", "state_dict", "model_state" or
    "net". Integers that PyTorch's modules count or derive from sizes are left
    out.
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
        if not tensor.is_floating_point() and name.endswith(_DERIVED):
            continue
        _check_dtype(path, name, str(tensor.dtype).removeprefix("torch."))
        _check_shape(path, name, tensor.shape)
        claimed = tensor.numel() * tensor.element_size()
        if tensor.layout != torch.strided or (
            claimed > tensor.untyped_storage().nbytes()
        ):
            raise ValueError(
                f"{path!r} must hold dense tensors, of which each number is "
                f"in the file. Received: `{name}`, of {claimed} bytes"
            )

        def read(name=name, tensor=tensor):
            with _naming(path, name):
                tensor = tensor.detach()
                if tensor.dtype == torch.bfloat16:
                    tensor = tensor.float()
                return _finite(path, name, tensor.numpy())

        arrays[name] = Stored(tuple(tensor.shape), read)
    return arrays


def read_slowfast_config(path: str | os.PathLike) -> dict:
    """Returns the config of a checkpoint of PySlowFast, {} without any."""
    path = os.fspath(path)
    content = _load_torch(path)
    text = content.get("cfg") if isinstance(content, dict) else None
    if not isinstance(text, str):
        return {}
    try:
        import yaml
    except ImportError:
        raise _needs(path, "pyyaml") from None
    with _naming(path, "cfg"):
        config = yaml.safe_load(text)
        if not isinstance(config, dict):
            raise ValueError("it holds no mapping")
    return config


def read_h5(path: str, content: bytes | None = None) -> dict[str, Stored]:
    """Opens a weights file of Keras, as `read_npz` does.

    Args:
        path: The file, or what to call it.
        content: Its bytes, where it is inside an archive.

    Returns:
        "layer/sublayer/index of the variable" -> array, with the names that
        the layers have.
    """
    import h5py

    def opened():
        return h5py.File(path if content is None else io.BytesIO(content), "r")

    size = os.path.getsize(path) if content is None else len(content)
    arrays = {}
    visits = itertools.count()

    def visit(group, layers):
        # Groups that hold one another have more paths than any file has bytes.
        if next(visits) > _MAX_MEMBERS:
            raise _too_many(path, "groups")
        # Keras keeps variables under "vars", with the layer's name.
        if "vars" in group:
            variables = group[local_key(group, "vars")]
            layers = (*layers, variables.attrs.get("name", ""))
            for index in variables:
                name = "/".join((*layers[1:], index))
                arrays[name] = stored(
                    name, variables[local_key(variables, index)]
                )
        for key in group:
            # No weights of the model: state of training and of dropout.
            if key not in ("vars", "optimizer", "seed_generator"):
                if isinstance(group[local_key(group, key)], h5py.Group):
                    visit(group[key], layers)

    def local_key(group, key):
        """Returns a key whose object is stored in this file."""
        if not isinstance(group.get(key, getlink=True), h5py.HardLink):
            raise _points_out(path, f"{group.name}/{key}")
        return key

    def stored(name, item):
        if not isinstance(item, h5py.Dataset) or (
            item.external or item.is_virtual
        ):
            raise _points_out(path, name)
        _check_dtype(path, name, item.dtype.name)
        _check_shape(path, name, item.shape)
        if item.nbytes > _MAX_UNFOLDING * size + _MAX_BYTES_MORE:
            raise _too_large(path, item.nbytes, size)
        place = item.name

        def read():
            # Opened anew: an open file could not be saved over.
            with _naming(path, name), opened() as file:
                return _finite(path, name, file[place][()])

        return Stored(tuple(item.shape), read)

    with _naming(path, "its index"), opened() as file:
        visit(file, ())
    return arrays


def read_comment(path: str | os.PathLike) -> dict:
    """Returns what `save_checkpoint` noted in an npz file, {} if nothing.

    Raises:
        ValueError: If the note is damaged or cut.
    """
    path = os.fspath(path)
    with _open_zip(path) as archive, _naming(path, "its comment"):
        text = archive.comment
        with open(path, "rb") as file:
            # The archive's last record ends in the length of the comment.
            file.seek(-len(text) - 2, os.SEEK_END)
            length = int.from_bytes(file.read(2), "little")
        if length != len(text):
            raise ValueError(f"{len(text)} of {length} bytes are there")
        found = json.loads(text) if text.startswith(b"{") else {}
    return found


def read_member(path: str | os.PathLike, name: str) -> bytes:
    """Returns a member of a zip archive, such as config.json of `.keras`."""
    path = os.fspath(path)
    archive = _open_zip(path)
    with _naming(path, name):
        return archive.read(name)


def _load_torch(path):
    """Returns what PyTorch saved, of tensors, numbers and strings alone."""
    try:
        import torch
    except ImportError:
        raise _needs(path, "torch") from None
    # Before version 1.6 the format was no zip archive.
    if zipfile.is_zipfile(path):
        with _naming(path, "an archive member"), _open_zip(path) as archive:
            broken = archive.testzip()
            if broken:
                raise zipfile.BadZipFile(f"bad checksum of {broken}")
    with _naming(path, "its index"):
        try:
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


def _open_zip(path):
    if not zipfile.is_zipfile(path):
        raise ValueError(
            f"{path!r} is no zip archive, which its kind of file is, or is "
            "truncated. Fetch it again."
        )
    if _listed_members(path) > _MAX_MEMBERS:
        raise _too_many(path, "members")
    with _naming(path, "its index"):
        archive = zipfile.ZipFile(path)
    counts = collections.Counter(archive.namelist())
    if counts.total() > _MAX_MEMBERS:
        raise _too_many(path, "members")
    twice = sorted(name for name, count in counts.items() if count > 1)
    if twice:
        raise _twice(path, twice)
    claimed = sum(member.file_size for member in archive.infolist())
    size = os.path.getsize(path)
    if claimed > _MAX_UNFOLDING * size + _MAX_BYTES_MORE:
        raise _too_large(path, claimed, size)
    return archive


def _listed_members(path):
    """Number of members by the archive's last record, 65,535 for any more."""
    with open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - 22 - 2**16))
        end = file.read()
    record = end[end.rfind(b"PK\5\6") :]
    return int.from_bytes(record[10:12], "little")


def _npy_header(file):
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"version {version} of the npy format")
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }[version]
    try:
        shape, _, dtype = read(file)
    except (MemoryError, RecursionError):  # of Python's parser
        raise ValueError("its header is no header of an array") from None
    return shape, dtype


@contextlib.contextmanager
def _naming(path, name):
    """Turns whatever a library raises over damaged bytes into a sentence."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        if repr(path) in str(error):  # already is one
            raise
        reason = textwrap.shorten(str(error), 200) or type(error).__name__
        raise ValueError(
            f"{path!r} is damaged at `{name}`: {reason}. Fetch it again."
        ) from error


def _check_dtype(path, name, dtype):
    if dtype not in _FLOATS:
        raise ValueError(
            f"{path!r} must hold arrays of floats. Received: `{name}` of "
            f"{dtype}"
        )


def _check_shape(path, name, shape):
    # To Python a bool is an int, to NumPy it is no length of an axis.
    if (
        shape is None
        or len(shape) > _MAX_AXES
        or not all(type(n) is int and 0 < n < 2**48 for n in shape)
    ):
        raise ValueError(
            f"{path!r} is damaged at `{name}`: expected up to {_MAX_AXES} "
            f"positive lengths of axes; found the shape "
            f"{textwrap.shorten(str(shape), 80)}. Fetch it again."
        )


def _finite(path, name, array):
    if not np.isfinite(array).all():
        raise ValueError(
            f"{path!r} is damaged at `{name}`: it holds values that are not "
            "finite. Fetch it again."
        )
    return array


def _points_out(path, name):
    return ValueError(
        f"{path!r} must hold plain arrays. Received: `{name}`, which points "
        "out of the file"
    )


def _twice(path, names):
    return ValueError(
        f"{path!r} has members twice: {names[:5]}. Fetch it again."
    )


def _too_many(path, what):
    return ValueError(
        f"{path!r} has more than {_MAX_MEMBERS} {what}: no checkpoint, and "
        "not read."
    )


def _too_large(path, claimed, size):
    return ValueError(
        f"{path!r} claims to hold {claimed} bytes in a file of {size}: no "
        "checkpoint, and not read."
    )


def _needs(path, library):
    return ValueError(
        f"Reading {path!r} needs {library}: pip install {library}"
    )
