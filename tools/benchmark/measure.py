"""Times functions in turns, and measures the memory that they take."""

import ctypes
import gc
import math
import pathlib
import re
import sys
import time
from collections.abc import Callable

import keras
import numpy as np
from keras import ops

# A round repeats a call until this time, so that short calls are not lost in
# the noise of the clock.
MIN_SECONDS = 0.1
_STATUS = pathlib.Path("/proc/self/status")


def first_call(make: Callable) -> tuple[Callable, float]:
    """Makes a function and runs it.

    Args:
        make: Returns the function.

    Returns:
        The function, and seconds until its first result.
    """
    start = time.perf_counter()
    function = make()
    function()
    return function, time.perf_counter() - start


def peak_memory(make: Callable) -> int | None:
    """Returns the peak in bytes of a function's second call.

    On an accelerator that of its memory; else that of the process, above the
    memory in use before the function was made. None where it is unknown.

    Args:
        make: Returns the function. Nothing like it may have run before in this
            process: allocators reuse what was freed.
    """
    _release()
    before = _memory("VmRSS")
    function = make()
    function()
    is_reset = _reset_peak()
    function()
    if device() != "cpu":
        return _device_peak()
    return _memory("VmHWM") - before if is_reset else None


def rounds(functions: dict[str, Callable], number: int) -> dict[str, list]:
    """Calls functions in turns; returns seconds per call, by round.

    Every other round runs in reverse order, so that none always follows the
    same one.

    Args:
        functions: Name -> function, which has been called before.
        number: Number of rounds.
    """
    seconds = {name: [] for name in functions}
    repeats = {}
    for name, function in functions.items():
        found = _timed(function, 1)
        repeats[name] = max(1, math.ceil(MIN_SECONDS / found))
    for i in range(number):
        for name in list(functions)[:: -1 if i % 2 else 1]:
            seconds[name].append(_timed(functions[name], repeats[name]))
    return seconds


def product_rate(dtype: str) -> float:
    """Returns multiply-accumulates per second of a large matrix product.

    Args:
        dtype: Name of the type of the matrices.
    """
    size = (2048, 1024, 4096) if device() == "cpu" else (8192, 8192, 8192)
    rng = np.random.default_rng(0)
    a, b = (
        ops.cast(rng.standard_normal(shape, "float32"), dtype)
        for shape in (size[:2], size[1:])
    )

    def product():
        return ops.matmul(a, b)

    if keras.backend.backend() == "jax":
        import jax

        run = jax.jit(ops.matmul)

        def product():
            return run(a, b)

    def function():
        ops.convert_to_numpy(ops.cast(product()[0, :1], "float32"))

    function()
    times = rounds({"product": function}, 7)["product"]
    return math.prod(size) / min(times)


def device() -> str:
    """Returns the type of the backend's first device: cpu, gpu or tpu."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        return jax.default_backend()
    if backend == "torch":
        import torch

        return "gpu" if torch.cuda.is_available() else "cpu"
    import tensorflow as tf

    kinds = {device.device_type for device in tf.config.list_physical_devices()}
    return next((k.lower() for k in ("TPU", "GPU") if k in kinds), "cpu")


def _timed(function, repeats):
    start = time.perf_counter()
    for _ in range(repeats):
        function()
    return (time.perf_counter() - start) / repeats


def _release():
    """Frees what earlier functions left behind."""
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
        if trim is not None:
            trim(0)


def _memory(field):
    """Returns bytes of this process: VmRSS now, VmHWM at its peak."""
    if not _STATUS.is_file():
        return None
    match = re.search(rf"{field}:\s+(\d+) kB", _STATUS.read_text())
    return 1024 * int(match[1]) if match else None


def _reset_peak():
    """Makes the kernel forget the process' peak; returns whether it did.

    The peaks of GPUs are reset as well.
    """
    if device() != "cpu":
        backend = keras.backend.backend()
        if backend == "torch":
            import torch

            torch.cuda.reset_peak_memory_stats()
        elif backend == "tensorflow":
            import tensorflow as tf

            tf.config.experimental.reset_memory_stats("GPU:0")
    try:
        pathlib.Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _device_peak():
    """Returns the peak in bytes of an accelerator.

    JAX' peak is that of the process so far.
    """
    backend = keras.backend.backend()
    if backend == "torch":
        import torch

        return torch.cuda.max_memory_allocated()
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.config.experimental.get_memory_info("GPU:0")["peak"]
    import jax

    stats = jax.devices()[0].memory_stats() or {}
    return stats.get("peak_bytes_in_use")
