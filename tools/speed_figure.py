r"""Draws inference speed and the largest batch against the image size.

python -m tools.speed_figure v3-8 v5e-8
python -m tools.speed_figure here --models=ViTB32,ViTB16 --image_sizes=64,224
python -m tools.speed_figure

This is Figure 12 of the ViT paper (Figure 11 of its first edition). For a
slice, the TPU compiler of libtpu (pip install -r requirements/tpu-plan.txt)
compiles the program of one core. The largest batch is the largest power of two
that fits the memory. The speed is the best of that batch and of --batches. If
the compiler does not estimate the time, it is computed from operations and
memory traffic at the chip's peak rates: a bound that no program reaches. "here"
measures on this machine's device; the largest batch is limited by its memory,
and is left out on a processor. A slice or "here" runs for minutes to hours.
Each point is written at once to the folder --output, in one CSV file per
device; existing points are not computed again. Inference runs in bfloat16, on a
processor in float32. Without a device, the figure is drawn from the points in
the folder.
"""

import argparse
import functools
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable

from keras_vit_cli import command
from tools import pictures, speed_points
from tools.plan_tpu import compiler, slices
from tools.speed_points import MODELS, MOST, Point, append, read

# The ResNets of the paper normalise after each convolution.
RESNET = dict(activation_order="post_activation", numerics="authors")
HERE = "here"


@command.entry
def main(arguments: list[str]) -> int:
    """Compute the missing points and draws the figure."""
    parser = command.Parser(description=__doc__)
    add = parser.add_argument
    add("device", nargs="*", help='slices, such as v3-8, or "here"')
    add("--models", type=command.several(known=MODELS), default=[*MODELS])
    numbers: dict = dict(type=command.several(command.count))
    add("--image_sizes", default=speed_points.IMAGE_SIZES, **numbers)
    shown = "images at a time, such as 8,64"
    add("--batches", default=[], help=shown, **numbers)
    add("--output", default="inference_speed", type=pathlib.Path)
    flags = parser.parse_args(arguments)
    flags.output.mkdir(parents=True, exist_ok=True)
    if len(flags.device) > 1:
        # The compiler takes one kind of slice in each process.
        options = [f"--output={flags.output}"] + [
            f"--{name}={','.join(map(str, getattr(flags, name)))}"
            for name in ("models", "image_sizes", "batches")
        ]
        for device in flags.device:
            words = [sys.executable, "-m", "tools.speed_figure", device]
            if code := subprocess.call([*words, *options]):
                return code
        return 0
    for device in flags.device:
        fill(device, flags)
    found = {
        path.stem: read(path) for path in sorted(flags.output.glob("*.csv"))
    }
    if not any(found.values()):
        raise ValueError(
            f"--output must be a folder with points, without a device. "
            f"Received: {flags.output}"
        )
    for device, points in found.items():
        print(f"{device}: what the paper's text says of its figure")
        for line in speed_points.statements(points):
            print(f"  {line}")
    figure = speed_points.draw(found)
    pictures.save(figure, flags.output / "inference_speed.png")
    return 0


def fill(device: str, flags: argparse.Namespace) -> None:
    """Add the points that a device's file does not have yet."""
    name, make = measured() if device == HERE else compiled(device)
    path = flags.output / f"{name}.csv"
    have = {(point.model, point.image_size) for point in read(path)}
    for size in flags.image_sizes:
        for model in flags.models:
            if (model, size) in have:
                continue
            start = time.monotonic()
            point = make(model, size, flags.batches)
            append(path, point)
            print(
                f"{name}, {MODELS[model]}, {size} pixels: "
                f"{point.speed:,.0f} images/s with {point.batch} "
                f"({point.source}), largest batch {point.largest or '-'}; "
                f"{time.monotonic() - start:.0f} s",
                flush=True,
            )


def build(constructor: str, image_size: int):
    """Return a model for images of about `image_size`.

    The side is rounded to a multiple of the patch size: 70, 126, 378 and 518
    for ViT-H/14.
    """
    import keras_vit

    patch = 14 if constructor.endswith("14") else 32
    side = max(1, round(image_size / patch)) * patch
    given = RESNET if constructor.startswith("BiT") else {}
    return getattr(keras_vit, constructor)(input_shape=(side, side, 3), **given)


def compiled(device: str) -> tuple[str, Callable]:
    """Return a slice's name, and what compiles a point for one core of it.

    It takes a model, the size of its images, and further batches to try.
    """
    tpu = slices.prepare(device)
    cores = tpu.num_cores / tpu.num_devices

    def point(name, size, batches):
        model = functools.partial(build, name, size)
        # One device is enough, because inference needs no communication.
        inference = compiler.in_bfloat16(compiler.Inference, model, tpu, most=1)
        largest, program = largest_batch(inference.compile)
        found = {x: inference.compile(x) for x in batches if x < largest}
        if largest:
            found[largest] = program
        speeds = [(0.0, 0, "compiler")]
        for batch, program in found.items():
            seconds, source = compiler.step_time(program, tpu)
            speeds.append((batch / seconds / cores, batch, source))
        return Point(name, size, int(largest / cores), *max(speeds))

    return tpu.name, point


def largest_batch(compile_batch, most: int = MOST):
    """Return the largest power of two that fits and its program, or (0, None).

    The search starts at `most`: a program that does not fit is rejected before
    its code is generated, and `compiler.DoesNotFit` says how much memory is
    missing.
    """
    batch = most
    while batch:
        try:
            return batch, compile_batch(batch)
        except compiler.DoesNotFit as error:
            share = error.available / error.needs if error.needs else 0.5
            # A margin of a fifth: near the limit the compiler saves memory.
            room = int(1.2 * batch * share)
            batch = min(batch // 2, 1 << max(room, 1).bit_length() - 1)
    return 0, None


def measured(build=build) -> tuple[str, Callable]:
    """Return the name of this machine's first device, and what measures there.

    It does with JAX what that of `compiled` does. `build` returns a model of a
    name and a size of images.
    """
    import jax
    import keras
    import numpy as np

    from tools.benchmark import measure

    if keras.backend.backend() != "jax":
        raise ValueError(
            "`here` measures with JAX: set KERAS_BACKEND=jax. Received: "
            f"{keras.backend.backend()!r}"
        )
    device = jax.devices()[0]
    is_processor = device.platform == "cpu"

    def point(name, size, batches):
        policy = "float32" if is_processor else "mixed_bfloat16"
        keras.config.set_dtype_policy(policy)
        model = build(name, size)
        variables = [v.value for v in model.variables]

        @jax.jit
        def forward(variables, images):
            values = zip(model.variables, variables, strict=True)
            with keras.StatelessScope(list(values)):
                return model(images, training=False)

        def seconds(batch):
            shape = (batch, *model.input_shape[1:])

            def call():
                jax.block_until_ready(forward(variables, images))

            try:
                images = jax.device_put(np.zeros(shape, "uint8"), device)
                return min(measure.rounds(dict(call=call), 5)["call"])
            except jax.errors.JaxRuntimeError as error:
                if "RESOURCE_EXHAUSTED" not in str(error):
                    raise
                raise compiler.DoesNotFit(0, 0) from None

        found, largest = {}, 0
        if not is_processor:
            largest, best = largest_batch(seconds)
            found = {largest: best} if largest else {}
        for batch in batches or (1, 8):
            if batch < largest or not largest:
                found[batch] = seconds(batch)
        speeds = ((batch / best, batch) for batch, best in found.items())
        speed, batch = max(speeds, default=(0.0, 0))
        return Point(name, size, largest, speed, batch, "measured")

    return device.device_kind.replace(" ", "_").replace("/", "_"), point


if __name__ == "__main__":
    sys.exit(main())
