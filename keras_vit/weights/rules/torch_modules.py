"""Rows of a table for the modules of PyTorch, and a format of state dicts."""

import numpy as np

from keras_vit.weights.rules import configs, imagenet, table

# Convolutions with a kernel of one cell: [out, in, 1, 1].
_POINTWISE = table.Transform(
    lambda kernel: kernel[..., 0, 0].T,
    lambda kernel: (kernel.T[..., None, None],),
)
# Depthwise convolutions: [channels, 1, height, width].
_DEPTHWISE = table.Transform(
    lambda kernel: kernel.transpose(2, 3, 0, 1),
    lambda kernel: (kernel.transpose(2, 3, 0, 1),),
)
TRANSFORMS = {
    "linear": table.TRANSPOSED,
    "pointwise": _POINTWISE,
    "convolution": table.CONVOLUTION,
    "depthwise": _DEPTHWISE,
}


def product(
    path: str, name: str, kind: str = "linear", bias: bool = True
) -> list:
    """Return the rows of a dense layer or a convolution; see `table.expand`.

    Args:
        path: Path of the layer.
        name: Name of the module.
        kind: A key of `TRANSFORMS`.
        bias: Whether it has a bias.
    """
    rows = [(f"{path}/kernel", f"{name}.weight", TRANSFORMS[kind])]
    return rows + [(f"{path}/bias", f"{name}.bias")] * bias


def norm(path: str, name: str, batch: bool = False) -> list:
    """Return the rows of a norm; see `table.expand`.

    Args:
        path: Path of the layer.
        name: Name of the module.
        batch: Whether it is a BatchNorm, with moving averages.
    """
    pairs = dict(gamma="weight", beta="bias")
    if batch:
        pairs |= dict(moving_mean="running_mean")
        pairs |= dict(moving_variance="running_var")
    return [
        (f"{path}/{ours}", f"{name}.{theirs}") for ours, theirs in pairs.items()
    ]


def depths(arrays: dict, pattern) -> tuple[int, ...]:
    """Return the number of blocks in each level.

    Args:
        arrays: The arrays by name.
        pattern: Matches the names of blocks, with groups of the level and of
            the block.
    """
    found = {}
    for match in filter(None, map(pattern.match, arrays)):
        found.setdefault(int(match[1]), set()).add(int(match[2]))
    return tuple(len(found[level]) for level in sorted(found))


def restore(arrays: dict, scheme) -> dict:
    """Add the counters that PyTorch's BatchNorms require."""
    for name in list(arrays):
        if name.endswith(".running_mean"):
            counter = name.removesuffix("running_mean") + "num_batches_tracked"
            arrays[counter] = np.zeros((), "int64")
    return arrays


def authors(
    rows,
    read_arrays,
    config_of,
    read_config=lambda config: {},
    unseen: dict | None = None,
    published: tuple = (),
    **kwargs,
) -> table.Format:
    """Return the format of the authors' state dicts.

    Args:
        rows: Returns the rows of a model with a head, given metadata.
        read_arrays: Returns the metadata that the arrays show, without those of
            the head.
        config_of: Returns the arguments of the authors' class, given metadata.
        read_config: Returns the metadata that these specify and arrays do not.
        unseen: Fields that neither show, with the values of `published`.
        published: (depths, hidden_sizes) of the published models.
        **kwargs: Further fields of `table.Format`.
    """

    unseen = unseen or {}

    def of_model(metadata):
        absent = table.without_top(metadata)
        return table.expand(rows(metadata), absent=absent)

    def read(arrays, config, specified):
        found = read_arrays(arrays)
        if (found["depths"], found["hidden_sizes"]) in published:
            found |= {k: specified.get(k, v) for k, v in unseen.items()}
        bias = arrays.get("head.bias")
        return found | dict(
            classes=None if bias is None else bias.shape[0],
            representation_size=None,
        )

    return table.Format(
        rules=of_model,
        read_arrays=read,
        read_config=lambda config: configs.known(
            **imagenet.PIXELS,
            image_size=configs.pair(config, "img_size"),
            **read_config(config),
        ),
        config_of=lambda metadata: dict(
            img_size=list(metadata["image_size"]),
            in_chans=metadata["channels"],
            num_classes=metadata["classes"],
            **config_of(metadata),
        ),
        required=lambda metadata: {k: str(v) for k, v in unseen.items()},
        restore=restore,
        naming_schemes={"authors": None},
        refused=table.refuse_pre_logits,
        differences=imagenet.differences,
        **kwargs,
    )
