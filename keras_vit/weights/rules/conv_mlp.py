"""ConvMLP in the authors' PyTorch names, and in our own files.

As in src/convmlp.py of SHI-Labs/Convolutional-MLPs.
"""

import re

from keras_vit.weights.rules import keras_format, table, torch_modules
from keras_vit.weights.rules.torch_modules import norm, product

TITLE = "ConvMLP"
_BLOCK = re.compile(r"stages\.(\d+)\.blocks\.(\d+)\.")
_CONV_BLOCK = re.compile(r"conv_stages\.conv_blocks\.(\d+)\.")


def _rows(metadata):
    # Sequences of a convolution, its norm and a ReLU.
    sequences = {f"tokenizer{n + 1}": ("tokenizer.block", n) for n in range(3)}
    for i in range(metadata["num_conv_blocks"]):
        for n in range(3):
            name = f"conv_stages.conv_blocks.{i}"
            sequences[f"conv_block{i + 1}_{n + 1}"] = (name, n)
    rows = []
    for path, (name, n) in sequences.items():
        rows += product(path, f"{name}.{3 * n}", "convolution", bias=False)
        rows += norm(f"{path}_bn", f"{name}.{3 * n + 1}", batch=True)
    for i, depth in enumerate(metadata["depths"]):
        down = f"stages.{i - 1}.downsample_mlp" if i else "conv_stages"
        rows += product(f"down{i + 1}", f"{down}.downsample", "convolution")
        for j in range(depth):
            ours = f"stage{i + 1}_block{j + 1}"
            theirs = f"stages.{i}.blocks.{j}"
            for each in ("norm1", "norm2", "connect_norm"):
                rows += norm(f"{ours}/{each}", f"{theirs}.{each}")
            for n in (1, 2):
                for path, name in (
                    (f"{ours}/channel_mlp1_fc{n}", f"channel_mlp1.fc{n}"),
                    (f"{ours}/fc{n}", f"channel_mlp2.fc{n}"),
                ):
                    rows += product(path, f"{theirs}.{name}", "linear")
            rows += product(
                f"{ours}/connect", f"{theirs}.connect", "depthwise", bias=False
            )
    rows += norm("final_norm", "norm")
    return rows + product("head", "head", "linear")


def _read_arrays(arrays):
    depths = table.depths(arrays, _BLOCK)
    widths = tuple(
        arrays[f"stages.{i}.blocks.0.norm1.weight"].shape[0]
        for i in range(len(depths))
    )
    hidden = arrays["stages.0.blocks.0.channel_mlp1.fc1.weight"].shape[0]
    return dict(
        depths=depths,
        hidden_sizes=widths,
        stem_size=arrays["tokenizer.block.6.weight"].shape[0],
        num_conv_blocks=table.count(arrays, _CONV_BLOCK),
        mlp_ratio=hidden / widths[0],
        channels=arrays["tokenizer.block.0.weight"].shape[1],
    )


grid = table.no_grid
RESIZES = {"tokenizer1/kernel": table.fit_pixels}
FORMATS = {
    "authors": torch_modules.authors(
        _rows,
        _read_arrays,
        requires=(
            r"tokenizer\.block\.0\.weight",
            r"stages\.0\.blocks\.0\.connect_norm\.weight",
        ),
        config_of=lambda metadata: dict(
            blocks=list(metadata["depths"]),
            dims=list(metadata["hidden_sizes"]),
            mlp_ratios=[metadata["mlp_ratio"]] * len(metadata["depths"]),
            channels=metadata["stem_size"],
            n_conv_blocks=metadata["num_conv_blocks"],
        ),
    )
}
FORMATS["keras_vit"] = keras_format.derive(
    FORMATS["authors"],
    requires=(r"tokenizer1/0", r"stage1_block1/connect_norm/0"),
)
