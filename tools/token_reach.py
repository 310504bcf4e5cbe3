"""How far a token reaches in one block of each family, as pictures.

    python -m tools.token_reach --output=docs/images/token_reach
    python -m tools.token_reach mixer raft_mlp

For the first block of a small model of each family, with random weights: the
gradient of one output token, summed over its channels, with respect to the
block's inputs. A picture shows its size at each input token, on a logarithmic
scale; tokens that the output does not depend on are white.
"""

import argparse
import pathlib
import sys

import numpy as np

from keras_vit_cli import command

# Pixels per side of the images, where the grid would not be 16 x 16 otherwise.
SIDES = {"conv_mlp": 128, "eamlp": 256}
# Further arguments of a small model.
ARGUMENTS = {
    "mvit": dict(
        cube_size=(1, 7, 7), cube_stride=(1, 4, 4), key_value_stride=(1, 4, 4)
    ),
}
DECADES = 5  # of the scale


@command.entry
def main(arguments: list[str]) -> int:
    """Draws a picture for each family, and prints how many tokens it shows."""
    parser = command.Parser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("family", nargs="*")
    parser.add_argument("--output", default="token_reach", type=pathlib.Path)
    flags = parser.parse_args(arguments)
    from keras_vit.models.families import FAMILIES

    for name in flags.family or FAMILIES:
        if name not in FAMILIES:
            raise ValueError(
                f"FAMILY must be one of {tuple(FAMILIES)}. Received: {name!r}"
            )
        reach = reach_of(name)
        path = flags.output / f"{name}.png"
        draw(reach, path)
        print(f"{path}: {np.count_nonzero(reach)} of {reach.size} tokens")
    return 0


def reach_of(name: str) -> np.ndarray:
    """Returns the size of the gradient at each input token, `[H, W]`.

    The largest is 1; what rounding alone makes of zero is zero.

    Args:
        name: Name of a family.
    """
    import keras

    import keras_vit
    from keras_vit.models.families import FAMILIES

    family = FAMILIES[name]
    given = family.small | ARGUMENTS.get(name, {})
    fields = family.config.__dataclass_fields__
    if "patch_size" in fields:
        given = dict(patch_size=4) | given
    side = SIDES.get(name, 64)
    builder = getattr(keras_vit, family.title)
    model = builder(**given, input_shape=(side, side, 3), include_top=False)
    block = model.blocks[0]
    rng = np.random.default_rng(0)
    for weight in block.weights:  # no zero hides a connection
        value = rng.normal(size=weight.shape) * 0.2
        is_variance = weight.name == "moving_variance"
        weight.assign(np.abs(value) + 0.5 if is_variance else value)
    shape = block.input.shape[1:]
    x = rng.normal(size=(1, *shape)).astype("float32")
    found = np.abs(gradient(block, x))[0].sum(-1)
    if found.ndim == 1:  # tokens, perhaps after a class token
        side = int(len(found) ** 0.5)
        found = found[len(found) - side * side :].reshape(side, side)
    found = found / found.max()
    return np.where(found > keras.config.epsilon(), found, 0.0)


def gradient(block, x: np.ndarray) -> np.ndarray:
    """Returns the gradient of the middle output token for the inputs.

    Args:
        block: A layer from tokens, `[B, N, D]`, or maps, `[B, H, W, D]`.
        x: Its inputs, for one example.
    """
    import keras

    def middle(x):
        y = block(x, training=False)
        if len(y.shape) == 4:
            return keras.ops.sum(y[0, y.shape[1] // 2, y.shape[2] // 2])
        side = int(y.shape[1] ** 0.5)
        first = y.shape[1] - side * side
        return keras.ops.sum(y[0, first + side // 2 * side + side // 2])

    backend = keras.backend.backend()
    x = keras.ops.convert_to_tensor(x)
    if backend == "jax":
        import jax

        found = jax.grad(middle)(x)
    elif backend == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(x)
            y = middle(x)
        found = tape.gradient(y, x)
    else:
        x.requires_grad_()
        middle(x).backward()
        found = x.grad
    return keras.ops.convert_to_numpy(found)


def draw(reach: np.ndarray, out_path: pathlib.Path) -> None:
    """Draws a map.

    Args:
        reach: The result of `reach_of`.
        out_path: The picture to write.
    """
    from matplotlib import colors

    from keras_vit.inspection import figures

    figure = figures.new_figure(2, 2)
    axes = figure.add_subplot()
    shown = np.ma.masked_equal(reach, 0)
    norm = colors.LogNorm(10**-DECADES, 1, clip=True)
    axes.imshow(shown, cmap="viridis_r", norm=norm)
    axes.set_xticks([])
    axes.set_yticks([])
    out_path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out_path)


if __name__ == "__main__":
    sys.exit(main())
