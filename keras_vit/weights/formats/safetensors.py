"""Files of safetensors."""

from collections.abc import Callable

import numpy as np

from keras_vit.weights.formats.guard import DERIVED, Guard, Stored, parse_json

_DTYPES = dict(F16="float16", BF16="bfloat16", F32="float32", F64="float64")


def read(path: str) -> tuple[dict[str, Stored], dict]:
    """Open a file, as `npz.read` does; it has no metadata."""
    guard, arrays = Guard(path), {}
    try:
        import safetensors
    except ImportError:
        raise guard.needs("safetensors") from None
    with guard.at("its header"):
        file = safetensors.safe_open(guard.path, framework="numpy")
        # Of a name that is there twice, the library takes the later array.
        with open(guard.path, "rb") as content:
            length = int.from_bytes(content.read(8), "little")
            parse_json(content.read(length))
    for name in file.keys():  # noqa: SIM118  not a dictionary
        view = file.get_slice(name)
        kind = view.get_dtype()
        if "F" in kind or not name.endswith(DERIVED):
            guard.add(
                arrays,
                name,
                view.get_shape(),
                _DTYPES.get(kind, kind),
                lambda name=name: file.get_tensor(name),
            )
    return arrays, {}


def writer(arrays: dict[str, np.ndarray]) -> Callable:
    """Return a function that writes arrays to an open file.

    Raises:
        ValueError: If the library is not installed.
    """
    try:
        from safetensors import numpy
    except ImportError:
        raise ValueError(
            "Writing it needs safetensors: pip install safetensors"
        ) from None
    # Of a scalar, `ascontiguousarray` makes a vector.
    contiguous = {n: np.asarray(a, order="C") for n, a in arrays.items()}
    return lambda file: file.write(
        numpy.save(contiguous, metadata={"format": "pt"})
    )
