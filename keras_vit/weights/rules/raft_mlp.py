"""RaftMLP in the authors' PyTorch names, and in our own files.

Checked against libs/modules.py of okojoalg/raft-mlp, whose checkpoints are
state dicts; a config.json beside one contains the arguments of their class.
"""

import dataclasses
import math
import re

import numpy as np

from keras_vit.weights import resize
from keras_vit.weights.rules import configs, imagenet, keras_format, table
from keras_vit.weights.rules.torch_modules import norm, product

TITLE = "RaftMLP"
_TOKEN_FC = re.compile(r"levels\.(\d+)\.fn\.(\d+)\.1\.fn\.0\.weight")
# Branches of a block: the name here -> the authors' name.
_BRANCHES = {
    "ser_pm": dict(vertical="1", horizontal="3", channels="5"),
    "original_tm": dict(tokens="1", channels="3"),
}
_AXES = ("vertical", "horizontal")
# Fields with the same name in their config.
_SAME = ("tokens_mlp_ratio", "mlp_ratio")
# Fields with a value for each level: the name here -> theirs.
_LEVEL_FIELDS = dict(
    depths="depth",
    hidden_sizes="dim",
    patch_sizes="patch_size",
    raft_sizes="raft_size",
    embedding_kernels="embedding_kernels",
)


def _embedding(kernels, patches_alone):
    """Return the transform of a level's embedding.

    The authors use a dense layer of unfolded windows, scale by scale: channels
    precede pixels, except that they follow them if only patches are embedded.
    """
    pixels = [k * k for k in kernels]

    def join(array):
        width, inputs = array.shape
        channels = inputs // sum(pixels)
        if patches_alone:
            return array.reshape(width, -1, channels).transpose(1, 2, 0)
        ends = np.cumsum(pixels)[:-1] * channels
        scales = [
            part.reshape(width, channels, -1).transpose(2, 1, 0)
            for part in np.split(array, ends, axis=1)
        ]
        return np.concatenate(scales)

    def split(kernel):
        width = kernel.shape[-1]
        if patches_alone:
            return (kernel.transpose(2, 0, 1).reshape(width, -1),)
        scales = [
            part.transpose(2, 1, 0).reshape(width, -1)
            for part in np.split(kernel, np.cumsum(pixels)[:-1])
        ]
        return (np.concatenate(scales, axis=1),)

    return table.Transform(join, split)


def _rafts(raft_size):
    """Return the transform of a norm before rafts are mixed.

    The authors' norm scales and shifts channels in the order [D / r, r]; maps
    are in the order [r, D / r].
    """

    def swap(array, rows):
        return array.reshape(rows, -1).T.reshape(-1)

    return table.Transform(
        lambda array: swap(array, array.size // raft_size),
        lambda array: (swap(array, raft_size),),
    )


def _of_levels(metadata, name):
    """Return a value for each level; ones if only names are needed."""
    return metadata.get(name) or (1,) * len(metadata["depths"])


def _rules(metadata):
    mixing = metadata.get("token_mixing_type", "ser_pm")
    patches_alone = metadata.get("embedding_type") != "emb_cross_mlp"
    depths = metadata["depths"]
    rafts = _of_levels(metadata, "raft_sizes")
    kernels = metadata.get("embedding_kernels") or [
        (patch,) for patch in _of_levels(metadata, "patch_sizes")
    ]
    rows = []
    for i, depth in enumerate(depths):
        level = f"levels.{i}.fn"
        name = f"{level}.1" if patches_alone else f"{level}.0.fc"
        embedding = _embedding(kernels[i], patches_alone)
        parts = dict(kernel=(".weight", embedding), bias=(".bias",))
        rows += table.layer_rows({f"level{i}_embedding": name}, parts)
        swap = _rafts(rafts[i])
        raft = dict(gamma=(".weight", swap), beta=(".bias", swap))
        for j in range(depth):
            for branch, number in _BRANCHES[mixing].items():
                path = f"level{i}_block{j}/{branch}"
                name = f"{level}.{j + 2}.{number}"
                norms = raft if branch in _AXES else table.TORCH_NORM
                its = ".norm" if branch == "channels" else ".norm.1"
                rows += table.layer_rows({f"{path}_norm": name + its}, norms)
                rows += product(f"{path}/Dense_0", f"{name}.fn.0")
                rows += product(f"{path}/Dense_1", f"{name}.fn.3")
    last = len(depths) - 1
    heads = range(0 if metadata.get("shortcut") else last, last + 1)
    for number, i in enumerate(heads):
        rows += norm(f"level{i}_norm", f"heads.{number}.1")
        if i < last:
            rows += product(f"level{i}_shortcut", f"heads.{number}.4")
    rows += product("head", "classifier")
    return table.expand(rows, absent=table.without_top(metadata))


def _windows(pixels):
    """Return the windows of a number of pixels: one, or two of sides P and 2
    P.

    The number decides, since no square is five times another. Returns None for
    other windows.
    """
    for number, sides in ((1, (1,)), (5, (1, 2))):
        patch = math.isqrt(pixels // number)
        if number * patch * patch == pixels:
            return tuple(patch * side for side in sides)
    return None


def _windows_of_levels(inputs, widths):
    """Return channels and windows of each level; None where unknown.

    Args:
        inputs: Values in all windows of each level.
        widths: Channels after each level.
    """
    channels = next((c for c in (3, 1) if _windows(inputs[0] // c)), None)
    if channels is None or inputs[0] % channels:
        return None, None
    before = [channels, *widths[:-1]]
    windows = [_windows(n // c) for n, c in zip(inputs, before, strict=True)]
    return channels, None if None in windows else tuple(windows)


def _read_arrays(arrays, config, specified):
    depths = table.depths(arrays, _TOKEN_FC)
    first = "levels.0.fn.2"
    is_raft = f"{first}.5.norm.weight" in arrays
    embedding = "fn.0.fc" if "levels.0.fn.0.fc.weight" in arrays else "fn.1"
    shapes = [
        arrays[f"levels.{i}.{embedding}.weight"].shape
        for i in range(len(depths))
    ]
    widths = tuple(shape[0] for shape in shapes)
    tokens = [
        [
            arrays[f"levels.{i}.fn.2.{number}.fn.0.weight"].shape
            for number in (("1", "3") if is_raft else ("1",))
        ]
        for i in range(len(depths))
    ]
    hidden, width = arrays[f"{first}.{5 if is_raft else 3}.fn.0.weight"].shape
    if arrays[f"{first}.1.norm.1.weight"].shape != (width,):
        raise ValueError("norms over more than channels are not supported")
    channels, windows = (
        specified.get("channels"),
        specified.get("embedding_kernels"),
    )
    patches = specified.get("patch_sizes")
    if not patches:
        inputs = [shape[1] for shape in shapes]
        channels, windows = _windows_of_levels(inputs, widths)
        patches = windows and tuple(kernels[0] for kernels in windows)
    found = dict(
        patch_sizes=patches,
        depths=depths,
        hidden_sizes=widths,
        token_mixing_type="ser_pm" if is_raft else "original_tm",
        embedding_type=(
            "emb_cross_mlp" if embedding == "fn.0.fc" else "emb_mixer"
        ),
        shortcut=len(depths) > 1
        and f"heads.{len(depths) - 1}.1.bias" in arrays,
        tokens_mlp_ratio=tokens[0][0][0] // tokens[0][0][1],
        mlp_ratio=hidden // width,
        # Rafts times tokens, or all tokens, along each axis of each level.
        token_lengths=tuple(
            tuple(shape[1] for shape in level) for level in tokens
        ),
        channels=channels,
        classes=None,
        representation_size=None,
    )
    if found["embedding_type"] == "emb_cross_mlp":
        found["embedding_kernels"] = windows
    if "classifier.bias" in arrays:
        (found["classes"],) = arrays["classifier.bias"].shape
    return configs.known(**found) | dict(
        classes=found["classes"], representation_size=None
    )


def _read_config(config):
    """Read the arguments of the authors' class, if the config has them."""
    levels = config.get("layers") or []
    found: dict = {n: configs.integer(config, n) for n in _SAME}
    found |= dict(
        **imagenet.PIXELS,
        image_size=configs.pair(config, "pretrained_image_size"),
        channels=configs.integer(config, "in_channels"),
    )
    for name in ("patch_sizes", "raft_sizes"):
        key = _LEVEL_FIELDS[name]
        sizes = tuple(configs.integer(level, key) for level in levels)
        found[name] = sizes if sizes and None not in sizes else None
    kernels = [level.get("embedding_kernels") for level in levels]
    if kernels and all(kernels):
        found["embedding_kernels"] = tuple(
            tuple(configs.integer(dict(kernel=k), "kernel") for k in level)
            for level in kernels
        )
    return configs.known(**found)


def _config_of(metadata):
    """Return the arguments of the authors' class; inverts `_read_config`."""
    levels: list[dict] = [{} for _ in metadata["depths"]]
    for name, key in _LEVEL_FIELDS.items():
        for level, value in zip(levels, metadata.get(name) or (), strict=False):
            level[key] = list(value) if isinstance(value, tuple) else value
    size = metadata.get("pretrained_image_size") or metadata["image_size"]
    return dict(
        layers=levels,
        in_channels=metadata["channels"],
        pretrained_image_size=size if isinstance(size, int) else list(size),
        num_classes=metadata["classes"],
        token_mixing_type=metadata["token_mixing_type"],
        embedding_type=metadata["embedding_type"],
        shortcut=metadata["shortcut"],
        **{name: metadata[name] for name in _SAME},
    )


def _required(metadata):
    wanted = dict(patch_sizes="(4, 2, 2, 2)")
    if metadata.get("token_mixing_type", "ser_pm") == "ser_pm":
        wanted["raft_sizes"] = "(2, 2, 2, 2)"
    if metadata.get("embedding_type") == "emb_cross_mlp":
        wanted["embedding_kernels"] = "((4, 8), (2, 4), (2, 4), (2,))"
    return wanted


# Maps are resized to the grid of the weights, not weights to that of maps.
grid = table.no_grid


def _grids(image_size, patch_sizes):
    """Return the (height, width) of each level in tokens."""
    grids = []
    for patch in patch_sizes:
        image_size = tuple(-(-n // patch) for n in image_size)
        grids.append(image_size)
    return grids


def _lengths(metadata):
    """Return the tokens that each level's MLPs mix: along axes, or in all."""
    rafts = metadata.get("raft_sizes") or (1,) * len(metadata["depths"])
    return [
        tuple(n // raft for n in level)
        for level, raft in zip(metadata["token_lengths"], rafts, strict=True)
    ]


def trained_image_size(metadata: dict) -> tuple[int, int]:
    """Return the (height, width) of the images for which weights are made."""
    size = metadata.get("pretrained_image_size")
    if size is not None:
        return (size, size) if isinstance(size, int) else tuple(size)
    first = _lengths(metadata)[0]
    if len(first) == 1:  # all tokens, of a square
        first = (math.isqrt(first[0]),) * 2
    return tuple(n * metadata["patch_sizes"][0] for n in first)


def fit_sizes(found: dict, config, image_size: tuple[int, int]) -> dict:
    """Return the size of the images for which the weights were trained.

    Raises:
        ValueError: If no image size has these numbers of tokens.
    """
    if "token_lengths" not in found:
        size, own = config.pretrained_image_size, found.get("image_size")
        return (
            {} if size or own == image_size else dict(pretrained_image_size=own)
        )
    metadata = found | dataclasses.asdict(config)
    lengths, size = _lengths(metadata), trained_image_size(metadata)
    grids = _grids(size, config.patch_sizes)
    if config.token_mixing_type == "original_tm":
        grids = [(math.prod(n),) for n in grids]
    if grids != lengths:
        raise ValueError(
            "`patch_sizes`, `raft_sizes` and `pretrained_image_size` must be "
            "those of the weights, whose token MLPs take "
            f"{found['token_lengths']} values in the levels. Received: "
            f"patch_sizes={config.patch_sizes}, raft_sizes="
            f"{config.raft_sizes}, pretrained_image_size="
            f"{config.pretrained_image_size}"
        )
    return dict(pretrained_image_size=size)


def _fold_channels(kernel, fit):
    return resize.fold_channels(kernel[None], fit.shape[1])[0]


RESIZES = {"level0_embedding/kernel": _fold_channels}
FORMATS = {
    "authors": table.Format(
        requires=(
            r"levels\.0\.fn\.2\.1\.norm\.1\.weight",
            r"levels\.0\.fn\..*",
        ),
        rules=_rules,
        read_arrays=_read_arrays,
        read_config=_read_config,
        required=_required,
        naming_schemes={"authors": None},
        config_of=_config_of,
        differences=imagenet.differences,
    )
}
FORMATS["keras_vit"] = keras_format.derive(
    FORMATS["authors"], requires=(r"level0_embedding/0", r"level0_block0/.*")
)
