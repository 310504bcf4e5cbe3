"""Times functions in turns, and measures the memory that they take."""

import ctypes
import gc
import math
import os
import pathlib
import re
import statistics
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


def peak_memory(make: Callable) -> int | None:
    """Return the peak in bytes of a function's second call, None if unknown.

    On an accelerator that of its memory; else that of the process, above the
    memory in use before `make` made the function. Nothing like it may have run
    before in this process: allocators reuse what was freed.
    """
    _release()
    before = _memory("VmRSS")
    function = make()
    function()
    if device() != "cpu":
        reset, peak = _of_accelerator()
        reset()
        function()
        return peak()
    is_reset = _reset_peak()
    function()
    return _memory("VmHWM") - before if is_reset else None


def fits(make: Callable) -> bool:
    """Return whether a function can be made and called twice in memory."""
    try:
        function = make()
        function()
        function()  # with the slots of the optimizer
        return True
    except Exception as error:
        # Each backend has its own class.
        reasons = ("out of memory", "resource_exhausted", "oom when")
        is_memory = isinstance(error, MemoryError)
        if is_memory or any(x in str(error).lower() for x in reasons):
            return False
        raise
    finally:
        function = None
        keras.utils.clear_session()
        _release()
        if keras.backend.backend() == "torch" and device() == "gpu":
            import torch

            torch.cuda.empty_cache()


def largest(fits: Callable[[int], bool], most: int) -> int:
    """Return the largest number that fits, to an eighth; 0 if none does."""
    low, step = 0, 1
    while low + step <= most and fits(low + step):
        low += step
        step = low
    while step > max(1, low // 8):
        step //= 2
        if low + step <= most and fits(low + step):
            low += step
    return low


def rounds(
    functions: dict[str, Callable],
    number: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list]:
    """Call functions in turns; return seconds per call, by round.

    The first call of each, which compiles, is not counted. Every other round
    runs in reverse order, so that none always follows the same one. `clock`
    gives seconds; `time.process_time` where others use the machine.
    """
    seconds = {name: [] for name in functions}
    repeats = {}
    for name, function in functions.items():
        function()
        found = _timed(function, 1, clock)
        repeats[name] = max(1, math.ceil(MIN_SECONDS / found))
    for i in range(number):
        for name in list(functions)[:: -1 if i % 2 else 1]:
            seconds[name].append(_timed(functions[name], repeats[name], clock))
    return seconds


def ratio(ours: list[float], theirs: list[float]) -> tuple[float, float, float]:
    """Return our speed divided by theirs: the median, lowest and highest.

    Args:
        ours, theirs: Seconds of each round.
    """
    ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
    return statistics.median(ratios), min(ratios), max(ratios)


def rates(
    pipelines: dict, batch_size: int, seconds: float, number: int
) -> dict[str, list[float]]:
    """Return examples per second of each pipeline in each round.

    The pipelines, functions that return iterators of batches, run in turns, so
    that a change in the machine's speed affects all of them.
    """
    found: dict = {name: [] for name in pipelines}
    for _ in range(number):
        for name, start_pipeline in pipelines.items():
            iterator = start_pipeline()
            next(iterator)  # starts the threads
            count, start = 0, time.perf_counter()
            while not count or time.perf_counter() - start < seconds:
                next(iterator)
                count += 1
            took = time.perf_counter() - start
            found[name].append(count * batch_size / took)
    return found


def bytes_of(path: str) -> int:
    """Return the size of a file, or of the files of a folder."""
    files = pathlib.Path(path).rglob("*")
    sizes = [file.stat().st_size for file in files if file.is_file()]
    return sum(sizes) or os.path.getsize(path)


def product_rate(dtype: str) -> float:
    """Return multiply-accumulates per second of a large matrix product."""
    size = (2048, 1024, 4096) if device() == "cpu" else (8192, 8192, 8192)
    rng = np.random.default_rng(0)
    a, b = (
        ops.cast(rng.standard_normal(shape, "float32"), dtype)
        for shape in (size[:2], size[1:])
    )

    multiply = ops.matmul
    if keras.backend.backend() == "jax":
        import jax

        multiply = jax.jit(ops.matmul)

    def function():
        ops.convert_to_numpy(ops.cast(multiply(a, b)[0, :1], "float32"))

    times = rounds({"product": function}, 7)["product"]
    return math.prod(size) / min(times)


def device() -> str:
    """Return the type of the backend's first device: cpu, gpu or tpu."""
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


def _timed(function, repeats, clock):
    start = clock()
    for _ in range(repeats):
        function()
    return (clock() - start) / repeats


def _release():
    """Free what earlier functions left behind."""
    gc.collect()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
        if trim is not None:
            trim(0)


def _memory(field):
    """Return bytes of this process: VmRSS now, VmHWM at its peak."""
    if not _STATUS.is_file():
        return None
    match = re.search(rf"{field}:\s+(\d+) kB", _STATUS.read_text())
    return 1024 * int(match[1]) if match else None


def _reset_peak():
    """Make the kernel forget the process' peak; return whether it did."""
    try:
        pathlib.Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _of_accelerator():
    """Return functions that reset the peak of its memory, and that return it.

    JAX' peak is that of the process so far.
    """
    backend = keras.backend.backend()
    if backend == "torch":
        from torch import cuda

        return cuda.reset_peak_memory_stats, cuda.max_memory_allocated
    if backend == "tensorflow":
        import tensorflow as tf

        stats = tf.config.experimental
        return (
            lambda: stats.reset_memory_stats("GPU:0"),
            lambda: stats.get_memory_info("GPU:0")["peak"],
        )
    import jax

    stats = jax.devices()[0].memory_stats
    return lambda: None, lambda: (stats() or {}).get("peak_bytes_in_use")


def processors() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
