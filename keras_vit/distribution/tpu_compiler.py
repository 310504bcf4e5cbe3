"""Options of the TPU compiler, for training."""

import os
import pathlib

# KiB of the core's own memory that one operation may use. On v5e, which has
# 128 MiB, the compiler grants 16 MiB by default (32 on v6e); with more it
# estimates a faster training step: see docs/tpu.md.
_OPTION = "xla_tpu_scoped_vmem_limit_kib"
_OPTIONS = {"v5e": {_OPTION: "49152"}}
# Vendor and device on the PCI bus: the options must be set before a TPU is
# opened, before JAX and TensorFlow know its kind.
_V5E = ("0x1ae0", "0x0063")


def options(generation: str) -> dict[str, str]:
    """Return the compiler options for a generation of TPUs.

    Returns:
        Values by name, for `jax.jit(compiler_options=...)`.
    """
    return _OPTIONS.get(generation, {})


def set_options(devices: str = "/sys/bus/pci/devices") -> None:
    """Pass the options for this machine's TPU to libtpu.

    It appends them to the environment variable LIBTPU_INIT_ARGS, which libtpu
    reads when JAX or TensorFlow opens the TPU. What the variable sets remains.

    Args:
        devices: Folder in which Linux lists the devices of the PCI bus.
    """
    if not _has_v5e(pathlib.Path(devices)):
        return
    arguments = os.environ.get("LIBTPU_INIT_ARGS", "")
    for name, value in options("v5e").items():
        if name not in arguments:
            arguments += f" --{name}={value}"
    os.environ["LIBTPU_INIT_ARGS"] = arguments.strip()


def _has_v5e(devices):
    return any(
        _V5E == tuple(_content(device / name) for name in ("vendor", "device"))
        for device in devices.glob("*")
    )


def _content(path):
    try:
        return path.read_text().strip()
    except OSError:
        return ""
