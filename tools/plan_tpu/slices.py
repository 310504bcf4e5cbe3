"""TPU generations, and the slices that the TPU compiler knows."""

import dataclasses
import difflib
import importlib.util
import math
import os
import re
import typing


class Chip(typing.NamedTuple):
    """A generation of TPUs; sizes and speeds are those of one chip.

    Attributes:
        hbm: GiB of memory.
        flops: bfloat16 FLOP/s.
        hbm_bandwidth: Bytes per second from and to memory.
        ici_bandwidth: Bytes per second over all links to other chips, one way.
        cores: TensorCores.
        devices: JAX devices; one is two cores on v4 and v5p ("megacore").
        counted: What a slice's name counts, "cores" or "chips".
        accelerator: Its name in TPU_ACCELERATOR_TYPE.
        topologies: Topologies of its slices, in chips.
    """

    hbm: int
    flops: float
    hbm_bandwidth: float
    ici_bandwidth: float
    cores: int
    devices: int
    counted: str
    accelerator: str
    topologies: tuple[str, ...]


# Two axes up to the pod; three if slices are made of cubes of 4x4x4.
_SMALL_2D = ("2x2", "4x4", "4x8", "8x8", "8x16", "16x16")
_LITE = ("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
_3D = ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "4x8x8", "8x8x8")
_3D += ("8x8x16", "8x16x16")

# Peaks of v3 and later, and memory: cloud.google.com/tpu/docs/v3, /v4, /v5e,
# /v5p, /v6e and /tpu7x, whose bandwidth between chips is both ways; v2:
# cloud.google.com/tpu/docs/v2. Between chips on v2 and v3: four links of 496
# and 656 Gbit/s (Jouppi et al. 2020, Communications of the ACM 63(7), Table
# 3); on v4: six of 50 GB/s (Jouppi et al. 2023, 2304.01433, Table 4).
# fmt: off
CHIPS = {
    "v2": Chip(16, 45e12, 700e9, 4 * 62e9, 2, 2, "cores", "v2", _SMALL_2D),
    "v3": Chip(
        32, 123e12, 900e9, 4 * 82e9, 2, 2, "cores", "v3",
        (*_SMALL_2D, "16x32", "32x32"),
    ),
    "v4": Chip(32, 275e12, 1200e9, 6 * 50e9, 2, 1, "cores", "v4", _3D),
    "v5e": Chip(16, 197e12, 819e9, 200e9, 1, 1, "chips", "v5litepod", _LITE),
    "v5p": Chip(
        95, 459e12, 2765e9, 600e9, 2, 1, "cores", "v5p",
        (*_3D, "16x16x16", "16x16x24"),
    ),
    "v6e": Chip(32, 918e12, 1638e9, 400e9, 1, 1, "chips", "v6e", _LITE),
    "tpu7x": Chip(192, 2307e12, 7380e9, 600e9, 2, 2, "cores", "tpu7x", _3D),
}
# fmt: on


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Slice:
    """A slice; counts are those of all of it, the others of one JAX device.

    `name` is that in Cloud TPU, such as "v3-8", `generation` a key of `CHIPS`,
    `topology` chips along each axis, "2x2", `hbm` in bytes; see `Chip`.
    """

    name: str
    generation: str
    topology: str
    num_chips: int
    num_cores: int
    num_devices: int
    hbm: int
    flops: float
    hbm_bandwidth: float
    ici_bandwidth: float


def find(name: str) -> Slice:
    """Return the slice of a name such as "v3-8" or "v5e-256".

    The number counts TensorCores on v2, v3, v4, v5p and tpu7x, and chips on
    v5e and v6e, whose chips have one core.
    """
    slices = all_slices()
    asked = name.lower().replace("v5litepod", "v5e").replace("v5lite", "v5e")
    if asked in slices:
        return slices[asked]
    generation = asked.partition("-")[0]
    number = re.fullmatch(r".*-(\d+)", asked)
    if generation in CHIPS and number:
        counted = CHIPS[generation].counted

        def distance(name):
            ratio = int(name.partition("-")[2]) / max(1, int(number[1]))
            return abs(math.log(ratio))

        same = [n for n in slices if n.partition("-")[0] == generation]
        near = sorted(same, key=distance)[:3]
        hint = f"Nearest of this generation, by its {counted}: {near}"
    else:
        near = difflib.get_close_matches(asked, slices, n=3) or ["v3-8"]
        hint = f"Generations: {list(CHIPS)}; nearest names: {near}"
    raise ValueError(
        "The slice must be one of a TPU generation, such as v3-8, v5e-256 or "
        f"v5p-8. Received: {name!r}. {hint}"
    )


def all_slices() -> dict[str, Slice]:
    """Return every slice by its name."""
    found = {}
    speeds = "flops", "hbm_bandwidth", "ici_bandwidth"
    for generation, chip in CHIPS.items():
        for topology in chip.topologies:
            chips = math.prod(map(int, topology.split("x")))
            cores = chips * chip.cores
            number = cores if chip.counted == "cores" else chips
            name = f"{generation}-{number}"
            found[name] = Slice(
                name=name,
                generation=generation,
                topology=topology,
                num_chips=chips,
                num_cores=cores,
                num_devices=chips * chip.devices,
                hbm=chip.hbm * 2**30 // chip.devices,
                **{x: getattr(chip, x) / chip.devices for x in speeds},
            )
    return found


def prepare(name: str) -> Slice:
    """Prepare this process for planning, and return the slice of a name.

    JAX must not have started.
    """
    tpu = find(name)
    if importlib.util.find_spec("libtpu") is None:
        raise ValueError(
            "The TPU compiler is in libtpu, which is not installed: "
            "pip install -r requirements/tpu-plan.txt"
        )
    number = tpu.name.partition("-")[2]
    os.environ.update(
        KERAS_BACKEND="jax",
        JAX_PLATFORMS="cpu",
        # Do not query the metadata server for the TPU of this machine.
        TPU_SKIP_MDS_QUERY="1",
        TPU_ACCELERATOR_TYPE=f"{CHIPS[tpu.generation].accelerator}-{number}",
        TPU_WORKER_HOSTNAMES="localhost",
        TPU_LOG_DIR="disabled",
        # Only one process may use a TPU and load libtpu, which it ensures by
        # locking /tmp/libtpu_lockfile; a compiler uses none.
        ALLOW_MULTIPLE_LIBTPU_LOAD="1",
    )
    # Hide the compiler's messages, unless they are enabled.
    os.environ.setdefault("TPU_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TPU_STDERR_LOG_LEVEL", "3")
    return tpu


def devices(tpu: Slice) -> list:
    """Return the jax.Device objects of a slice, after `prepare`."""
    from jax.experimental import topologies

    arguments = {}
    if CHIPS[tpu.generation].cores > CHIPS[tpu.generation].devices:
        # The only one of v5p; for v4 it must be specified.
        arguments["chip_config_name"] = "megacore"
    topology = topologies.get_topology_desc(
        platform="tpu",
        topology_name=f"{tpu.generation}:{tpu.topology}",
        **arguments,
    )
    return sorted(topology.devices, key=lambda device: device.id)
