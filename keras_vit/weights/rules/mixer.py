"""MLP-Mixer in the authors' npz files, in timm, and in our own files.

Checked against the files of gs://mixer_models and timm/models/mlp_mixer.py.
The authors' GELU is the tanh form, timm's the exact one.
"""

import functools

import numpy as np

from keras_vit.weights.rules import (
    configs,
    keras_format,
    patches,
    table,
    timm_config,
)

TITLE = "MLP-Mixer"
_BLOCK = "MixerBlock_{i}"
_MLPS = {"token_mixing": "mlp_tokens", "channel_mixing": "mlp_channels"}
_DENSE = [f"{_BLOCK}/{mlp}/Dense_{n}" for mlp in _MLPS for n in (0, 1)]
_REQUIRED = dict(gelu_approximate="False (timm) or True (the authors)")
# Width, patch, blocks: architecture of timm. No argument changes these.
_ARCHITECTURES = {
    (512, 32, 8): "mixer_s32_224",
    (512, 16, 8): "mixer_s16_224",
    (768, 32, 12): "mixer_b32_224",
    (768, 16, 12): "mixer_b16_224",
    (1024, 32, 24): "mixer_l32_224",
    (1024, 16, 24): "mixer_l16_224",
}


def _authors_rows():
    layers = ("stem", "head", *_DENSE)
    norms = [f"{_BLOCK}/LayerNorm_{n}" for n in (0, 1)]
    norms.append("pre_head_layer_norm")
    return [
        *table.layer_rows({x: x for x in layers}, table.FLAX_LAYER),
        *table.layer_rows({x: x for x in norms}, table.FLAX_NORM),
    ]


def _timm_rows():
    theirs = "blocks.{i}"
    dense = {"head": "head"}
    norms = {"pre_head_layer_norm": "norm"}
    for n in (0, 1):
        norms[f"{_BLOCK}/LayerNorm_{n}"] = f"{theirs}.norm{n + 1}"
        for mlp, name in _MLPS.items():
            dense[f"{_BLOCK}/{mlp}/Dense_{n}"] = f"{theirs}.{name}.fc{n + 1}"
    return [
        *table.layer_rows({"stem": "stem.proj"}, table.TORCH_CONVOLUTION),
        *table.layer_rows(dense, table.TORCH_DENSE),
        *table.layer_rows(norms, table.TORCH_NORM),
    ]


grid = patches.grid


def fit_sizes(found: dict, config, image_size: tuple[int, int]) -> dict:
    """Return the fields of the architecture that depend on the image size.

    The hidden layer over tokens grows with the number of tokens (appendix C).

    Raises:
        ValueError: If the token matrices cannot grow to this grid.
    """
    if None in image_size or config.tokens_mlp_dim != found.get(
        "tokens_mlp_dim"
    ):
        return {}
    patch = patches.pair(config.patch_size)
    rows, columns = grid(dict(patch_size=patch, image_size=image_size))
    own_rows, own_columns = found.get("grid") or grid(found)
    if rows % own_rows or columns % own_columns or not rows * columns:
        height, width = own_rows * patch[0], own_columns * patch[1]
        raise ValueError(
            "`input_shape` must have a height and a width that are integer "
            f"multiples of the weights' {height} x {width} pixels, such as "
            f"({2 * height}, {2 * width}, 3): a Mixer's weights are of a fixed "
            "number of patches, whose matrices can only be repeated. "
            f"Received: height={image_size[0]}, width={image_size[1]}"
        )
    copies = (rows // own_rows) * (columns // own_columns)
    return dict(tokens_mlp_dim=copies * config.tokens_mlp_dim)


def _grow(value, fit, token_axis, hidden_axis):
    """Repeat a token matrix for each part of a larger image.

    The matrix is block-diagonal with a block for each rectangle of the size of
    the weights' grid. Before training, each part of the image is thus mixed
    separately, like an image of the weights' resolution.
    """
    if fit.source_grid is None or fit.source_grid == fit.grid:
        return value
    (rows, columns), (own_rows, own_columns) = fit.grid, fit.source_grid
    if rows % own_rows or columns % own_columns:
        return value
    parts = np.arange(rows * columns).reshape(
        rows // own_rows, own_rows, columns // own_columns, own_columns
    )
    parts = parts.transpose(0, 2, 1, 3).reshape(-1, own_rows * own_columns)
    shape = [len(parts) * side for side in value.shape]
    grown = np.zeros(shape, value.dtype)
    for i, tokens in enumerate(parts):
        index = [None] * value.ndim
        if token_axis is not None:
            index[token_axis] = tokens
        if hidden_axis is not None:
            width = value.shape[hidden_axis]
            index[hidden_axis] = np.arange(i * width, (i + 1) * width)
        grown[np.ix_(*index)] = value
    return grown


def _growing(token_axis, hidden_axis):
    return functools.partial(
        _grow, token_axis=token_axis, hidden_axis=hidden_axis
    )


_TOKENS = r"MixerBlock_\d+/token_mixing/"
RESIZES = {
    "stem/kernel": table.fit_pixels,
    f"{_TOKENS}Dense_0/kernel": _growing(0, 1),
    f"{_TOKENS}Dense_0/bias": _growing(None, 0),
    f"{_TOKENS}Dense_1/kernel": _growing(1, 0),
    f"{_TOKENS}Dense_1/bias": _growing(0, None),
}


def _shown(shape_of, found, specified):
    tokens, hidden = shape_of(_DENSE[0].format(i=0) + "/kernel", 2)
    if shape_of(_DENSE[1].format(i=0) + "/kernel", 2)[0] != hidden:
        raise ValueError("gated MLPs (gMixer) are not supported")
    own = dict(
        tokens_mlp_dim=hidden,
        mlp_dim=shape_of(_DENSE[2].format(i=0) + "/kernel", 2)[1],
    )
    if _architecture(found) and "architecture" not in specified:
        # A state dict alone, of the sizes of an architecture of timm.
        own["gelu_approximate"] = specified.get("gelu_approximate", False)
    return tokens, own


def _format(rows, block, **kwargs):
    return patches.format(
        rows,
        _shown,
        stem="stem",
        block=block,
        required=lambda metadata: _REQUIRED,
        **kwargs,
    )


def _differences(metadata, theirs, approximate, scale=None):
    found = table.pixel_differences(metadata, scale)
    if metadata.get("gelu_approximate", approximate) != approximate:
        forms = {True: "tanh", False: "exact"}
        found.append(f"{theirs} has GELU's {forms[approximate]} form")
    return found


def _authors_config(config):
    return configs.known(
        gelu_approximate=True,
        pixel_mean=127.5,
        pixel_std=127.5,
        grid=configs.pair(config, "grid"),
    )


def _timm_config(config):
    found = timm_config.read(config)
    arguments = configs.section(config, "model_args")
    activation = configs.choice(arguments, "act_layer", ("gelu", "gelu_tanh"))
    # Architectures of other names may compute something different.
    if found.get("architecture", "").startswith("mixer_") or activation:
        found["gelu_approximate"] = activation == "gelu_tanh"
    return found


def _architecture(metadata):
    (patch, *other) = dict.fromkeys(metadata["patch_size"])
    size = (metadata["hidden_size"], patch, metadata["num_layers"])
    return None if other else _ARCHITECTURES.get(size)


def _timm_config_of(metadata):
    dims = (metadata["tokens_mlp_dim"], metadata["mlp_dim"])
    return timm_config.write(
        metadata,
        _architecture(metadata),
        img_size=list(metadata["image_size"]),
        mlp_ratio=[dim / metadata["hidden_size"] for dim in dims],
    )


def _timm_refused(metadata, format):
    return table.refuse_pre_logits(metadata) + table.listed(
        {
            "patch_size, hidden_size and num_layers of none of its "
            f"architectures, {tuple(_ARCHITECTURES.values())}": (
                _architecture(metadata) is None
            )
        }
    )


FORMATS = {
    "jax": _format(
        _authors_rows(),
        r"MixerBlock_(\d+)/",
        requires=(r"(params/)?MixerBlock_0/token_mixing/Dense_0/kernel",),
        read_config=_authors_config,
        flatten=lambda arrays, metadata: (table.without_params(arrays), None),
        naming_schemes={"jax": None},
        differences=lambda m: _differences(m, "the authors' code", True, 127.5),
    ),
    "timm": _format(
        _timm_rows(),
        r"blocks\.(\d+)\.",
        requires=(r"stem\.proj\.weight", r"blocks\.0\.mlp_tokens\.fc1\..*"),
        read_config=_timm_config,
        naming_schemes={"timm": None},
        config_of=_timm_config_of,
        refused=_timm_refused,
        differences=lambda m: _differences(m, "timm", False),
    ),
}
FORMATS["keras_vit"] = keras_format.derive(
    FORMATS["jax"], requires=("stem/0", r"MixerBlock_0/token_mixing/Dense_0/0")
)
