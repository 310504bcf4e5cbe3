"""EAMLP in the authors' names, and in our own files.

Checked against EAMLP/models of MenghaoGuo/EANet. Their files contain the
sinusoids of positions, which a model computes; a file with another table is a
model with `position_embedding="table"`.
"""

import math
import re

import numpy as np

from keras_vit.weights import resize
from keras_vit.weights.rules import keras_format, patches, table, torch_modules
from keras_vit.weights.rules.torch_modules import norm, product

TITLE = "EAMLP"
_BLOCK = re.compile(r"blocks\.(\d+)\.")
_STEM, _TABLE = "tokens_to_token", "pos_embed"
_STRIDE = (16, 16)


def _window(side):
    """Return the transforms of a norm and a dense layer over a window.

    PyTorch orders these by channel first, the model by pixel first.
    """
    pixels = side * side
    vector = table.Transform(
        lambda array: array.reshape(-1, pixels).T.reshape(-1),
        lambda array: (array.reshape(pixels, -1).T.reshape(-1),),
    )

    def join(array):  # [out, channels * pixels]
        array = array.reshape(len(array), -1, pixels).transpose(2, 1, 0)
        return array.reshape(-1, array.shape[-1])

    def split(kernel):
        units = kernel.shape[-1]
        kernel = kernel.reshape(pixels, -1, units).transpose(2, 1, 0)
        return (kernel.reshape(units, -1),)

    return vector, table.Transform(join, split)


def _resample(value, fit):
    """Resample the table of a file for another grid."""
    if None in (fit.source_grid, fit.grid):
        return value
    return resize.resample_positions(value, fit.source_grid, fit.grid)


def _rows():
    rows = []
    for n, side in ((1, 7), (2, 3)):
        ours, theirs = f"attention{n}", f"{_STEM}.attention{n}"
        vector, kernel = _window(side)
        parts = dict(gamma=(".weight", vector), beta=(".bias", vector))
        rows += table.layer_rows({f"{ours}/norm1": f"{theirs}.norm1"}, parts)
        parts = dict(kernel=(".weight", kernel), bias=(".bias",))
        linear = {f"{ours}/q_linear": f"{theirs}.attn.q_linear"}
        rows += table.layer_rows(linear, parts)
        for name in ("linear_0", "linear_1", "proj"):
            layer, bias = f"{theirs}.attn.{name}", name != "linear_0"
            rows += product(f"{ours}/{name}", layer, bias=bias)
        rows += norm(f"{ours}/norm2", f"{theirs}.norm2")
        for layer in (0, 1):
            rows += product(
                f"{ours}/feed_forward/Dense_{layer}",
                f"{theirs}.mlp.fc{layer + 1}",
            )
    rows += [
        ("project/kernel", f"{_STEM}.project.weight", _window(3)[1]),
        ("project/bias", f"{_STEM}.project.bias"),
        ("positions/cls_token", "cls_token"),
        ("positions/pos_embed", _TABLE),
    ]
    ours, theirs = "blocks_{i}", "blocks.{i}"
    for n in (1, 2):
        rows += norm(f"{ours}/norm{n}", f"{theirs}.norm{n}")
        rows += product(f"{ours}/mlp/Dense_{n - 1}", f"{theirs}.mlp.fc{n}")
    for name in ("trans_dims", "linear_0", "linear_1", "proj"):
        rows += product(f"{ours}/attn/{name}", f"{theirs}.attn.{name}")
    return rows + norm("norm", "norm") + product("head", "head")


def _rules(metadata):
    absent = table.without_top(metadata)
    if metadata.get("position_embedding", "sinusoid") == "sinusoid":
        absent += ("positions/pos_embed",)
    return table.expand(
        _rows(), num_layers=metadata["num_layers"], absent=absent
    )


def grid(metadata: dict) -> tuple[int, int]:
    """Return the (rows, columns) of patches: after three soft splits."""
    size = metadata["image_size"]
    for side, stride, padding in ((7, 4, 2), (3, 2, 1), (3, 2, 1)):
        size = tuple((n + 2 * padding - side) // stride + 1 for n in size)
    return size


def _sinusoids(positions, width):
    """Return the table that the authors store, `[1, positions, width]`."""
    exponents = 2 * (np.arange(width) // 2) / width
    angles = np.arange(positions)[:, None] / 10_000**exponents
    angles[:, 0::2] = np.sin(angles[:, 0::2])
    angles[:, 1::2] = np.cos(angles[:, 1::2])
    return angles[None].astype("float32")


def _flatten(arrays, specified):
    """Remove the table if it is that of the formula."""
    arrays = dict(arrays)
    stored = arrays[_TABLE]
    if len(stored.shape) != 3:
        raise ValueError(
            f"expected `{_TABLE}` of 3 axes; found shape {stored.shape}"
        )
    _, tokens, width = stored.shape
    is_specified = bool(specified.keys() & {"grid", "image_size"})
    specified["grid"] = patches.grid_of(tokens - 1, _STRIDE, specified)
    specified["position_embedding"] = "table"
    if np.allclose(stored.read(), _sinusoids(tokens, width), atol=1e-5):
        specified["position_embedding"] = "sinusoid"
        del arrays[_TABLE]
    elif not is_specified:
        specified["patch_counts"] = (tokens - 1,)
    return arrays, _scheme(specified | dict(hidden_size=width))


def _scheme(metadata):
    """Return the shape of the table that a file needs and a model computes."""
    if metadata.get("position_embedding", "sinusoid") == "table":
        return None
    return math.prod(metadata["grid"]) + 1, metadata["hidden_size"]


def _restore(arrays, scheme):
    return arrays | ({} if scheme is None else {_TABLE: _sinusoids(*scheme)})


def _read_arrays(arrays, config, specified):
    num_layers = table.count(arrays, _BLOCK)
    every = _rules(dict(num_layers=num_layers, classes=1))
    shape_of = table.shapes(arrays, every)
    inputs, token_dim = shape_of("attention1/q_linear/kernel", 2)
    _, width = shape_of("project/kernel", 2)
    head_size, _ = shape_of("blocks_0/attn/linear_0/kernel", 2)
    return dict(
        channels=inputs // 49,
        stride=_STRIDE,
        hidden_size=width,
        num_layers=num_layers,
        num_heads=width // head_size,
        mlp_dim=shape_of("blocks_0/mlp/Dense_0/kernel", 2)[1],
        token_dim=token_dim,
        **table.read_top(arrays, every),
    )


RESIZES = {"positions/pos_embed": _resample}
FORMATS = {
    "authors": table.Format(
        requires=(
            rf"{_STEM}\.attention1\.attn\.q_linear\.weight",
            r"blocks\.0\.attn\.trans_dims\.weight",
        ),
        rules=_rules,
        read_arrays=_read_arrays,
        flatten=_flatten,
        restore=_restore,
        check=patches.check_grid,
        **(torch_modules.AUTHORS | dict(naming_schemes={"authors": _scheme})),
    )
}
FORMATS["keras_vit"] = keras_format.derive(
    FORMATS["authors"], requires=("attention1/q_linear/0", "positions/0")
)
