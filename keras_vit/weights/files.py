"""Files of arrays, whose contents are checked before anything is read.

Nothing is unpickled. Arrays stay in their file until they are needed, so that a
checkpoint is never completely in memory. `torch_files` reads the files of
PyTorch.
"""

import functools
import io
import itertools
import math
import os
import re

import numpy as np

from keras_vit.weights import stored
from keras_vit.weights.stored import Stored


def read_npz(path: str | os.PathLike) -> dict[str, Stored]:
    """Open an npz file.

    Args:
        path: The file.

    Returns:
        Name -> array.

    Raises:
        ValueError: If it is not an npz file, is truncated or damaged, has a
            duplicate member, claims more bytes than it can hold, or contains
            anything but arrays of floats. Reading an array also raises it if
            the array does not match its checksum or is not finite.
    """
    import ml_dtypes  # a dependency of Keras

    path = os.fspath(path)
    archive = stored.open_zip(path)
    arrays = {}
    for member in archive.infolist():
        name = member.filename.removesuffix(".npy")
        if name in arrays:
            raise stored.twice(path, [name])
        with stored.naming(path, name):
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
        # NumPy writes bfloat16 as two bytes of unnamed type.
        half = dtype.str == "|V2"
        dtype = np.dtype(ml_dtypes.bfloat16 if half else dtype)
        stored.check_dtype(path, name, dtype.name)
        stored.check_shape(path, name, shape)

        def read(name=name, member=member, dtype=dtype, half=half):
            with stored.naming(path, name), archive.open(member) as file:
                array = np.lib.format.read_array(file, allow_pickle=False)
            # No library accepts the other byte order.
            native = array.view(dtype) if half else array.astype(dtype.name)
            return stored.finite(path, name, native)

        arrays[name] = Stored(shape, read)
    return arrays


def read_safetensors(path: str | os.PathLike) -> dict[str, Stored]:
    """Open a safetensors file, as `read_npz` does."""
    path = os.fspath(path)
    try:
        import safetensors
    except ImportError:
        raise stored.needs(path, "safetensors") from None
    with stored.naming(path, "its header"):
        file = safetensors.safe_open(path, framework="numpy")
        names = file.keys()
        # Of a name that is there twice, the library takes the later array.
        with open(path, "rb") as content:
            length = int.from_bytes(content.read(8), "little")
            stored.parse_json(content.read(length))
    arrays = {}
    for name in names:
        view = file.get_slice(name)
        if "F" not in view.get_dtype() and name.endswith(stored.DERIVED):
            continue
        dtype = dict(
            F16="float16", BF16="bfloat16", F32="float32", F64="float64"
        )
        stored.check_dtype(
            path, name, dtype.get(view.get_dtype(), view.get_dtype())
        )
        stored.check_shape(path, name, view.get_shape())

        def read(name=name):
            with stored.naming(path, name):
                return stored.finite(path, name, file.get_tensor(name))

        arrays[name] = Stored(tuple(view.get_shape()), read)
    return arrays


def read_h5(path: str, content: bytes | None = None) -> dict[str, Stored]:
    """Open a weights file of Keras, as `read_npz` does.

    Every number must be in the file, as in those that Keras writes: compressed
    arrays are refused, and chunks that were never written, which read as zeros.

    Args:
        path: The file, or its name in messages.
        content: Its bytes, if it is inside an archive.

    Returns:
        "layer/sublayer/index of the variable" -> array, with the names of the
        layers.
    """
    import h5py

    def opened():
        return h5py.File(path if content is None else io.BytesIO(content), "r")

    def read(name, place, dtype):
        # Opened for each read: an open file could not be overwritten.
        with stored.naming(path, name), opened() as file:
            # No library accepts the other byte order.
            array = file[place].astype(dtype)[()]
            return stored.finite(path, name, array)

    size = os.path.getsize(path) if content is None else len(content)
    arrays, claimed = {}, 0
    with stored.naming(path, "its index"), opened() as file:
        for name, item in _h5_variables(path, file, (), itertools.count()):
            if name in arrays:
                raise stored.twice(path, [name])
            _check_dataset(path, name, item)
            claimed += max(item.nbytes, item.id.get_storage_size())
            if claimed > size:
                raise stored.too_large(path, claimed, size)
            arrays[name] = Stored(
                tuple(item.shape),
                functools.partial(read, name, item.name, item.dtype.name),
            )
    return arrays


def _h5_variables(path, group, layers, visits):
    """Yield the name and the dataset of each variable of a model."""
    import h5py

    # Groups that contain one another have infinitely many paths.
    if next(visits) > stored.MAX_MEMBERS:
        raise stored.too_many(path, "groups")
    # Keras keeps variables under "vars", with the layer's name.
    if "vars" in group:
        variables = _h5_member(path, group, "vars")
        layers = (*layers, variables.attrs.get("name", ""))
        for index in variables:
            # After low-rank updates the variables are there by name as well,
            # with which training continues (`layers.Dense`).
            if "lora_kernel_a" in variables and not index[:1].isdigit():
                continue
            if not re.fullmatch("0|[1-9][0-9]*", index):  # "01" is 1 as well
                raise ValueError(f"`{variables.name}` holds {index!r}")
            name = "/".join((*layers[1:], index))
            yield name, _h5_member(path, variables, index)
    for key in group:
        # Not weights of the model: the state of training and of dropout.
        if key not in ("vars", "optimizer", "seed_generator"):
            member = _h5_member(path, group, key)
            if isinstance(member, h5py.Group):
                yield from _h5_variables(path, member, layers, visits)


def _h5_member(path, group, key):
    """Return an object that is stored in this file."""
    import h5py

    if not isinstance(group.get(key, getlink=True), h5py.HardLink):
        raise stored.not_plain(
            path, f"{group.name}/{key}", "points out of the file"
        )
    return group[key]


def _check_dataset(path, name, item):
    """Refuses what is not a plain array, all of it in this file."""
    import h5py

    if not isinstance(item, h5py.Dataset) or item.external or item.is_virtual:
        raise stored.not_plain(path, name, "points out of the file")
    stored.check_dtype(path, name, item.dtype.name)
    stored.check_shape(path, name, item.shape)
    if item.id.get_create_plist().get_nfilters():
        raise stored.not_plain(path, name, "is compressed")
    if item.id.get_space_status() != h5py.h5d.SPACE_STATUS_ALLOCATED:
        raise stored.not_plain(path, name, "was not written completely")


def read_comment(path: str | os.PathLike) -> dict:
    """Return the metadata that `save_checkpoint` wrote into an npz file, or
    {}.

    Raises:
        ValueError: If the metadata is damaged or truncated.
    """
    path = os.fspath(path)
    with stored.open_zip(path) as archive, stored.naming(path, "its comment"):
        text = archive.comment
        with open(path, "rb") as file:
            # The last record of the archive ends with the length of the
            # comment.
            file.seek(-len(text) - 2, os.SEEK_END)
            length = int.from_bytes(file.read(2), "little")
        if length != len(text):
            raise ValueError(f"{len(text)} of {length} bytes are there")
        found = stored.parse_json(text) if text.startswith(b"{") else {}
    return found


def read_member(path: str | os.PathLike, name: str) -> bytes:
    """Return a member of a zip archive, such as config.json of `.keras`."""
    path = os.fspath(path)
    archive = stored.open_zip(path)
    with stored.naming(path, name):
        return archive.read(name)


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
