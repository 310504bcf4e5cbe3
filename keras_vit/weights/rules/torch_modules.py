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
    parts = dict(kernel=(".weight", TRANSFORMS[kind]), bias=(".bias",))
    return table.layer_rows({path: name}, parts, "kernel", "bias" * bias)


def norm(path: str, name: str, batch: bool = False) -> list:
    """Return the rows of a norm; a BatchNorm has moving averages."""
    parts = table.TORCH_BATCH_NORM if batch else table.TORCH_NORM
    return table.layer_rows({path: name}, parts)


def restore(arrays: dict, scheme) -> dict:
    """Add the counters that PyTorch's BatchNorms require."""
    for name in list(arrays):
        if name.endswith(".running_mean"):
            counter = name.removesuffix("running_mean") + "num_batches_tracked"
            arrays[counter] = np.zeros((), "int64")
    return arrays


# The authors' format of families whose config specifies nothing.
AUTHORS: dict = dict(
    read_config=lambda config: dict(imagenet.PIXELS),
    naming_schemes={"authors": None},
    config_of=lambda metadata: dict(num_classes=metadata["classes"]),
    differences=imagenet.differences,
)


def authors(
    rows,
    read_arrays,
    config_of=lambda metadata: {},
    read_config=lambda config: {},
    unseen: dict | None = None,
    published: tuple = (),
    **kwargs,
) -> table.Format:
    """Return the format of the authors' state dicts, of a family of levels.

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
        config_of=lambda metadata: configs.known(
            img_size=metadata.get("image_size"),
            in_chans=metadata["channels"],
            num_classes=metadata["classes"],
            **config_of(metadata),
        ),
        required=lambda metadata: {k: str(v) for k, v in unseen.items()},
        naming_schemes={"authors": None},
        differences=imagenet.differences,
        **(dict(restore=restore) | kwargs),
    )
