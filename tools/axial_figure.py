r"""The costs of axial models beside others, as in the ViT paper's figure.

python -m tools.axial_figure
python -m tools.axial_figure v3-8 --image_size=384

Figure 13 of the paper (12 of its first edition) draws ImageNet's 5-shot
accuracy of six models against exaFLOPs of pre-training and against images per
second and core. This prints the costs: multiply-accumulates of the models,
exaFLOPs of 7 epochs on JFT-300M, and the speed of inference in bfloat16 for the
best of several batches per core, as estimated by the TPU compiler of libtpu
(pip install -r requirements/tpu-plan.txt). If the compiler has no estimate, the
time is
that of operations and memory accesses at the chip's peak. No program reaches
this bound, and models with small matrix products are further from it than
others.
"""

import argparse
import sys

from keras_vit_cli import command
from tools import cost_figure
from tools.plan_tpu import compiler, slices

# Name in the figure, constructor and its arguments.
MODELS = (
    ("AxialResNet-50", "AxialResNet50", {}),
    ("Axial-ViT-B/32", "AxialViTB32", {}),
    ("Axial-ViT-B/16", "AxialViTB16", {}),
    ("ViT-B/32", "ViTB32", {}),
    ("ViT-B/16", "ViTB16", {}),
    (
        "ResNet50",
        "BiTR50x1",
        dict(activation_order="post_activation", numerics="authors"),
    ),
)
EPOCHS = 7  # on JFT-300M
BATCHES = (1, 8, 64, 512)


@command.entry
def main(arguments: list[str]) -> int:
    """Prints a line for each model."""
    parser = command.Parser(
        prog="python -m tools.axial_figure",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("slice", nargs="?", default="v3-8")
    parser.add_argument("--image_size", type=int, default=224)
    parser.add_argument(
        "--batches",
        type=_numbers,
        default=BATCHES,
        help="images on each device, such as 8,64",
    )
    flags = parser.parse_args(arguments)
    tpu = slices.find(flags.slice)
    slices.prepare(tpu)
    names = ("", "parameters", "MACs", "exaFLOPs", "img/s/core", "batch", "by")
    print("".join(f"{name:>15}" for name in names))
    for name, constructor, given in MODELS:
        cells = costs(constructor, given, tpu, flags.image_size, flags.batches)
        print("".join(f"{cell:>15}" for cell in (name, *cells)), flush=True)
    return 0


def costs(
    constructor: str,
    given: dict,
    tpu: slices.Slice,
    image_size: int,
    batches: tuple[int, ...],
) -> tuple[str, ...]:
    """Returns the cells of a model's line.

    Args:
        constructor: Name of the model's constructor.
        given: Arguments of the constructor.
        tpu: The slice, for which `slices.prepare` was called.
        image_size: Pixels per side.
        batches: Images on each device; the fastest batch counts.

    Raises:
        ValueError: If not even the smallest batch fits.
    """
    import keras

    import keras_vit
    from keras_vit import inspection
    from keras_vit.distribution import layouts

    shape = (image_size, image_size, 3)

    def build():
        return getattr(keras_vit, constructor)(input_shape=shape, **given)

    with inspection.costs.shapes_alone():
        model = build()
    operations = keras_vit.cost(model).macs
    images = EPOCHS * cost_figure.JFT_IMAGES
    pre_training = cost_figure.exaflops(operations, images)
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        layout = layouts.distribution("data", slices.devices(tpu))
        inference = compiler.Inference(build, layout, tpu)
        best, batch, source = fastest(inference, tpu, batches)
    finally:
        keras.config.set_dtype_policy("float32")
    return (
        f"{model.count_params() / 1e6:.2f} M",
        f"{operations / 1e9:.2f} G",
        f"{pre_training:.0f}",
        f"{best:,.0f}",
        f"{batch}",
        source,
    )


def fastest(
    inference: compiler.Inference,
    tpu: slices.Slice,
    batches: tuple[int, ...],
) -> tuple[float, int, str]:
    """Returns images per second and core, their batch, and the source."""
    found = []
    for batch in batches:
        try:
            program = inference.compile(batch * tpu.num_devices)
        except compiler.DoesNotFit:
            break
        seconds = program.compiler_seconds
        source = "compiler" if seconds else "roofline"
        seconds = seconds or compiler.roofline(program, tpu)["step"]
        images = batch * tpu.num_devices
        found.append((images / seconds / tpu.num_cores, batch, source))
    if not found:
        raise ValueError(
            f"--batches must have one that fits {tpu.name}. Received: {batches}"
        )
    return max(found)


def _numbers(text):
    numbers = tuple(int(number) for number in text.split(","))
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError("numbers of images, at least 1")
    return tuple(sorted(numbers))


if __name__ == "__main__":
    sys.exit(main())
