r"""The costs of axial models beside others, as in the ViT paper's figure.

python -m tools.axial_figure
python -m tools.axial_figure v3-8 --image_size=384

Figure 13 of the paper (12 of its first edition) draws ImageNet's 5-shot
accuracy of six models against exaFLOPs of pre-training and against images per
second and core. This prints the costs: multiply-accumulates of the models,
exaFLOPs of 7 epochs on JFT-300M, and the speed of inference in bfloat16 for the
best of several batches per core, as estimated by the TPU compiler of libtpu
(pip install -r requirements/tpu-plan.txt). If the compiler has no estimate, the
time is that of operations and memory accesses at the chip's peak. No program
reaches this bound, and models with small matrix products are further from it
than others.
"""

import functools
import sys

from keras_vit_cli import command
from tools import cost_figure, counts
from tools.plan_tpu import compiler, slices

# Name in the figure -> constructor and its arguments.
MODELS: dict[str, tuple[str, dict]] = {
    "AxialResNet-50": ("AxialResNet50", {}),
    "Axial-ViT-B/32": ("AxialViTB32", {}),
    "Axial-ViT-B/16": ("AxialViTB16", {}),
    "ViT-B/32": ("ViTB32", {}),
    "ViT-B/16": ("ViTB16", {}),
    "ResNet50": (
        "BiTR50x1",
        dict(activation_order="post_activation", numerics="authors"),
    ),
}
EPOCHS = 7  # on JFT-300M
BATCHES = (1, 8, 64, 128, 512)


@command.entry
def main(arguments: list[str]) -> int:
    """Print a line for each model."""
    parser = command.Parser(description=__doc__)
    add = parser.add_argument
    add("slice", nargs="?", default="v3-8")
    add("--image_size", type=command.count, default=224)
    each = "images on each device, such as 8,64"
    numbers = command.several(command.count)
    add("--batches", type=numbers, default=BATCHES, help=each)
    names = command.several(known=MODELS)
    add("--models", type=names, default=[*MODELS], help="such as ViT-B/16")
    flags = parser.parse_args(arguments)
    tpu = slices.prepare(flags.slice)
    header = ("", "parameters", "MACs", "exaFLOPs", "img/s/core", "batch", "by")
    print("".join(f"{name:>15}" for name in header))
    batches = tuple(sorted(flags.batches))
    for name in flags.models:
        cells = costs(*MODELS[name], tpu, flags.image_size, batches)
        print("".join(f"{cell:>15}" for cell in (name, *cells)), flush=True)
    return 0


def costs(
    constructor: str, given: dict, tpu: slices.Slice, image_size: int, batches
) -> tuple[str, ...]:
    """Return the cells of a model's line, of its fastest batch."""
    import keras_vit

    given = given | dict(input_shape=(image_size, image_size, 3))
    cost = counts.cost_of(constructor, **given)
    images = EPOCHS * cost_figure.JFT_IMAGES
    pre_training = cost_figure.exaflops(cost.macs, images)
    build = functools.partial(getattr(keras_vit, constructor), **given)
    inference = compiler.in_bfloat16(compiler.Inference, build, tpu)
    best, batch, source = fastest(inference, tpu, batches)
    return (
        f"{cost.parameters / 1e6:.2f} M",
        f"{cost.macs / 1e9:.2f} G",
        f"{pre_training:.0f}",
        f"{best:,.0f}",
        f"{batch}",
        source,
    )


def fastest(
    inference: compiler.Step, tpu: slices.Slice, batches: tuple[int, ...]
) -> tuple[float, int, str]:
    """Return images per second and core, their batch, and the source.

    Raises:
        ValueError: If not even the smallest batch fits.
    """
    found = []
    for batch in batches:
        try:
            program = inference.compile(batch * tpu.num_devices)
        except compiler.DoesNotFit:
            break
        seconds, source = compiler.step_time(program, tpu)
        images = batch * tpu.num_devices
        found.append((images / seconds / tpu.num_cores, batch, source))
    if not found:
        raise ValueError(
            f"--batches must have one that fits {tpu.name}. Received: {batches}"
        )
    return max(found)


if __name__ == "__main__":
    sys.exit(main())
