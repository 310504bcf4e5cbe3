r"""Clips per second against accuracy on Kinetics-400, of MViT and ViT-B.

python -m tools.mvit_figure v5e-8 --output=mvit_speed.png
KERAS_BACKEND=jax python -m tools.mvit_figure here --models=MViT-S,MViT-B/16x4

The accuracies are those of the paper (Fan et al. 2021, 2104.11227), of several
views of each video and from memory; nothing was trained here. The speeds are
those of single clips: for a slice of bfloat16 on one core, as estimated by the
TPU compiler of libtpu (pip install -r requirements/tpu-plan.txt; minutes for
each model), for "here" measured with JAX on this machine's device.
"""

import functools
import pathlib
import sys

from keras_vit_cli import command
from tools import axial_figure, mvit_ablations, pictures, speed_figure
from tools.plan_tpu import compiler, slices

# Name, constructor, its arguments, the paper's accuracy and views.
MODELS = {
    "MViT-S": ("MViT", mvit_ablations.SMALL.changes, 76.0, "5"),
    "MViT-B/16x4": ("MViTB16x4", {}, 78.4, "5"),
    "MViT-B/32x3": ("MViTB32x3", {}, 80.2, "5"),
    "MViT-B/64x3": ("MViTB64x3", {}, 81.2, "3 x 3"),
    "ViT-B": ("VideoViTB16", {}, 68.5, "5"),
}
HERE = "here"


@command.entry
def main(arguments: list[str]) -> int:
    """Print a line for each model and draw the figure."""
    parser = command.Parser(description=__doc__)
    add = parser.add_argument
    add("device", help='a slice, such as v5e-8, or "here"')
    add("--models", type=command.several(known=MODELS), default=[*MODELS])
    numbers: dict = dict(type=command.several(command.count), default=[8])
    add("--batches", help="clips at a time, such as 1,8", **numbers)
    add("--output", default="mvit_speed.png", type=pathlib.Path)
    flags = parser.parse_args(arguments)
    measure = _measured if flags.device == HERE else _compiled(flags.device)
    speeds = {}
    for name in flags.models:
        speeds[name], batch, source = measure(name, flags.batches)
        print(
            f"{name:<14}{speeds[name]:>10.2f} clips/s with {batch} ({source}); "
            f"the paper: {MODELS[name][2]} % of {MODELS[name][3]} views",
            flush=True,
        )
    pictures.save(draw(speeds, flags.device), flags.output)
    return 0


def build(name: str, _=None):
    """Return a model of the figure."""
    import keras_vit

    constructor, given, *_ = MODELS[name]
    return getattr(keras_vit, constructor)(**dict(classes=400) | given)


def draw(speeds: dict[str, float], device: str):
    """Draw clips per second against the paper's accuracy."""
    figure, axes = pictures.axes_of(5.2, 4.2)
    for name, speed in speeds.items():
        colour = "#8c8c8c" if name == "ViT-B" else "#4c72b0"
        axes.plot(speed, MODELS[name][2], "o", color=colour)
        pictures.name(axes, name, (speed, MODELS[name][2]), fontsize=9)
    where = "measured here" if device == HERE else f"a core of {device}"
    axes.set(xscale="log", xlabel=f"clips per second, {where}")
    axes.set_ylabel("accuracy on Kinetics-400, the paper's (%)")
    axes.margins(0.2)
    pictures.plain(axes)
    return figure


def _compiled(device):
    """Return a function of a model's name and batches to its speed."""
    tpu = slices.prepare(device)  # before Keras is imported

    def measure(name, batches):
        make = functools.partial(build, name)
        inference = compiler.in_bfloat16(compiler.Inference, make, tpu)
        return axial_figure.fastest(inference, tpu, batches)

    return measure


def _measured(name, batches):
    _, make = speed_figure.measured(build)
    point = make(name, 224, batches)
    return point.speed, point.batch, point.source


if __name__ == "__main__":
    sys.exit(main())
