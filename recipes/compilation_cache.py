"""Compiled programs that are saved for the next run."""

import hashlib
import importlib.util
import os
import pathlib
import platform
from typing import Any

import keras

from keras_vit.weights import download

MAX_BYTES = 2 * 2**30


def enable() -> str | None:
    """Make JAX save what it compiles, and use what earlier runs saved.

    The directory is in the cache of Keras; the oldest programs are removed when
    it exceeds 2 GiB. JAX' own settings take precedence:
    JAX_COMPILATION_CACHE_DIR is another directory, and
    JAX_ENABLE_COMPILATION_CACHE=0 turns it off. TensorFlow and PyTorch compile
    nothing by default.

    Returns:
        The directory, or None if nothing is saved.
    """
    if keras.backend.backend() != "jax":
        return None
    import jax

    # JAX needs filelock to limit the size.
    if importlib.util.find_spec("filelock") is None:
        return None
    settings: Any = jax.config  # its stub lacks these fields
    if not settings.jax_enable_compilation_cache:
        return None
    if settings.jax_compilation_cache_dir is None:
        directory = os.path.join(download.cache_dir(), "compiled", _machine())
        settings.update("jax_compilation_cache_dir", directory)
        settings.update("jax_compilation_cache_max_size", MAX_BYTES)
        settings.update("jax_persistent_cache_min_compile_time_secs", 0.2)
        # Not the flags of XLA that store autotuned kernels in files.
        settings.update("jax_persistent_cache_enable_xla_caches", "none")
    return settings.jax_compilation_cache_dir


def _machine():
    """Return a name of the processor type: compiled code is for one type."""
    about = f"{platform.machine()} {platform.processor()}"
    info = pathlib.Path("/proc/cpuinfo")
    if info.is_file():
        lines = info.read_text().splitlines()
        kinds = ("model name", "flags", "Features")
        about += " ".join(sorted({x for x in lines if x.startswith(kinds)}))
    return hashlib.sha256(about.encode()).hexdigest()[:16]
