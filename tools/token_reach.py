"""Draws after how many blocks a token is reached, for each family.

    python -m tools.token_reach --output=docs/images/token_reach.png
    python -m tools.token_reach mixer raft_mlp

A small model of each family has random weights. One token of a block's input
is changed at a time; a token of its output that changes depends on it. From
these pairs follows how many blocks lie between each token and the one in the
middle. Families with the same picture share it.
"""

import contextlib
import functools
import pathlib
import sys

import numpy as np

from keras_vit_cli import command
from tools import pictures

# Pixels per side of the images, where the grid would not be 16 x 16 otherwise.
SIDES = {"conv_mlp": 128, "eamlp": 256}
# Further arguments of a small model.
STRIDES = dict(cube_stride=(1, 4, 4), key_value_stride=(1, 4, 4))
ARGUMENTS = {"mvit": dict(cube_size=(1, 7, 7)) | STRIDES}
# Layers of a block that mix along one axis each, one after the other.
AXES = {
    "axial_resnet": lambda block: (block.height_block, block.width_block),
    "axial_vit": lambda block: (block.row, block.col),
    "raft_mlp": lambda block: block.token_mlps,
}
BLOCKS = 4
COLUMNS = 4


@command.entry
def main(arguments: list[str]) -> int:
    """Draw the picture, and print how many tokens each family reaches."""
    parser = command.Parser(description=__doc__)
    add = parser.add_argument
    add("family", nargs="*")
    add("--output", default="token_reach.png", type=pathlib.Path)
    flags = parser.parse_args(arguments)
    from keras_vit.models.families import FAMILIES

    if unknown := set(flags.family) - set(FAMILIES):
        raise ValueError(
            f"FAMILY must be one of {tuple(FAMILIES)}. Received: {unknown}"
        )
    found = {}
    for name in flags.family or FAMILIES:
        blocks, averages = reach_of(name)
        title = FAMILIES[name].title + "*" * averages
        counts = [int((blocks <= i + 1).sum()) for i in range(BLOCKS)]
        print(f"{title}: {counts} of {blocks.size} tokens", flush=True)
        found[title] = blocks
    pictures.save(draw(found), flags.output)
    return 0


def reach_of(name: str) -> tuple[np.ndarray, bool]:
    """Return after how many blocks the middle token depends on each token.

    Returns:
        Numbers of blocks of the first resolution, `[H, W]`; more than `BLOCKS`
        are infinitely many, and half a block is one of its axes. Averages
        over the map, such as the statistics of GroupNorm, are left out. And
        whether all tokens are reached in one block by them alone.
    """
    blocks, grid = first_blocks(name)
    with calling(without_averages(blocks)):
        steps = [dependencies(block, grid) for block in blocks]
    middle = grid // 2 * (grid + 1)
    reached = np.eye(grid**2, dtype=bool)[middle]
    numbers = np.full(grid**2, np.inf)
    for i in range(BLOCKS):
        reached = reached @ steps[i % len(steps)]
        numbers[reached & (numbers > i + 1)] = i + 1
    if name in AXES:
        axes = AXES[name](blocks[0])
        for layer in axes:
            others = [other for other in axes if other is not layer]
            with calling(dict.fromkeys(others, lambda x, **_: x)):
                along = dependencies(blocks[0], grid)
            numbers[along[middle] & (numbers == 1)] = 0.5
    averages = not steps[0].all() and dependencies(blocks[0], grid).all()
    return numbers.reshape(grid, grid), bool(averages)


def first_blocks(name: str):
    """Return the blocks of a family's first resolution, and its side."""
    import keras_vit
    from keras_vit.models.families import FAMILIES

    family = FAMILIES[name]
    given = family.small | ARGUMENTS.get(name, {})
    if "patch_size" in family.config.__dataclass_fields__:
        given = dict(patch_size=4) | given
    side = SIDES.get(name, 64)
    builder = getattr(keras_vit, family.title)
    model = builder(**given, input_shape=(side, side, 3), include_top=False)
    tokens = model.blocks[0].input.shape[1:-1]
    blocks = [
        block
        for block in model.blocks
        if tokens == block.input.shape[1:-1] == block.output.shape[1:-1]
    ]
    rng = np.random.default_rng(0)
    for weight in [w for block in blocks for w in block.weights]:
        # No zero hides a connection, and no scale a branch.
        value = rng.uniform(0.5, 1, weight.shape)
        if len(weight.shape) > 1:
            value *= rng.choice([-1, 1], weight.shape)
            value /= weight.shape[0] ** 0.5
        weight.assign(value)
    return blocks, int(np.prod(tokens) ** 0.5)


def dependencies(block, grid: int, batch: int = 32) -> np.ndarray:
    """Return which tokens of a block's output depend on which of its input.

    Args:
        block: A layer from tokens, `[B, N, D]`, or maps, `[B, H, W, D]`.
        grid: Tokens per side.
        batch: Tokens changed at a time, each in an image of its own; a divisor
            of the number of tokens.

    Returns:
        bool `[outputs, inputs]`, both in row-major order.
    """
    import keras

    rng = np.random.default_rng(0)
    shape = (-1, *block.input.shape[1:])
    width = shape[-1]
    x = rng.normal(size=(1, int(np.prod(shape[1:-1])), width))
    first = x.shape[1] - grid**2  # after a class token

    def outputs(x):
        y = block(x.reshape(shape).astype("float32"), training=False)
        y = keras.ops.convert_to_numpy(y)
        return y.reshape(len(x), -1, y.shape[-1])[:, -(grid**2) :]

    unchanged = outputs(np.repeat(x, batch, 0))  # rounds as the batches do
    columns = []
    for start in range(0, grid**2, batch):
        changed = np.repeat(x, batch, 0)
        tokens = first + start + np.arange(batch)
        changed[np.arange(batch), tokens] = rng.normal(size=(batch, width))
        columns.append(np.abs(outputs(changed) - unchanged).max(-1))
    difference = np.concatenate(columns).T
    return difference > 3e-7 * np.abs(unchanged).max()


@contextlib.contextmanager
def calling(functions: dict):
    """Let layers compute these functions instead of their own."""
    for layer, function in functions.items():
        layer.call = function
    try:
        yield
    finally:
        for layer in functions:
            del layer.call


def without_averages(blocks) -> dict:
    """Return functions without averages over the map, for `calling`.

    Of norms, only the scale is left; branches are weighted the same everywhere.
    """
    import keras

    from keras_vit import _keras

    functions = {}
    for layer in (each for b in blocks for each in _keras.nested_layers(b)):
        if isinstance(layer, keras.layers.GroupNormalization):
            functions[layer] = functools.partial(_scaled, layer)
        elif layer.name == "reweight_fc1":  # of the branches' averages
            functions[layer] = functools.partial(_of_zeros, layer.call)
    return functions


def _scaled(layer, x, **_):
    return x * layer.gamma


def _of_zeros(function, x, **given):
    return function(0 * x, **given)


def draw(found: dict[str, np.ndarray]):
    """Draw a map for each group of families that have the same."""
    import textwrap

    import matplotlib
    from matplotlib import colors, patches

    from keras_vit.inspection import figures

    groups: dict[bytes, list[str]] = {}
    for title, blocks in found.items():
        groups.setdefault(blocks.tobytes(), []).append(title)
    viridis = matplotlib.colormaps["viridis"]
    shades = ["black", *viridis(np.linspace(0.1, 0.95, BLOCKS)), "white"]
    levels = [0, 0.75, *(i + 0.5 for i in range(1, BLOCKS + 2))]
    rows = -(-len(groups) // COLUMNS)
    figure = figures.new_figure(2.1 * COLUMNS, 2.5 * rows)
    ordered = sorted(groups.values(), key=lambda titles: found[titles[0]].sum())
    for i, titles in enumerate(ordered):
        axes = figure.add_subplot(rows, COLUMNS, i + 1)
        axes.imshow(
            np.minimum(found[titles[0]], BLOCKS + 1),
            cmap=colors.ListedColormap(shades),
            norm=colors.BoundaryNorm(levels, len(shades)),
        )
        axes.set(xticks=[], yticks=[])
        text = textwrap.fill(", ".join(titles), 26)
        axes.set_title(text, loc="left", fontsize=8, va="bottom")
    numbers = [str(i + 1) for i in range(1, BLOCKS)]
    labels = ["one axis of a block", "1 block", *numbers, "more"]
    boxes = [patches.Patch(fc=c, ec="#888888") for c in shades]
    place = dict(loc="outside lower center", ncols=len(shades))
    figure.legend(boxes, labels, frameon=False, **place)
    return figure


if __name__ == "__main__":
    sys.exit(main())
