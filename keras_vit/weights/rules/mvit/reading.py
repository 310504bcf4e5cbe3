"""What the arrays of an MViT, and a config, show of its architecture."""

import math

import numpy as np

from keras_vit.weights.rules import imagenet

# First width and blocks of the published models, and strides by patch.
_PUBLISHED = ((96, (1, 2, 11, 2)), (96, (2, 3, 16, 3)), (112, (2, 3, 16, 3)))
_PUBLISHED_STRIDES = {
    (3, 7, 7): dict(
        cube_stride=(2, 4, 4),
        query_stride=(1, 2, 2),
        key_value_stride=(1, 8, 8),
    ),
    (1, 7, 7): dict(
        cube_stride=(1, 4, 4),
        query_stride=(1, 2, 2),
        key_value_stride=(1, 4, 4),
    ),
}
# Kinetics', as the authors scale them.
_VIDEO_PIXELS = dict(pixel_mean=255 * 0.45, pixel_std=255 * 0.225)


def read(
    shape_of,
    paths: set,
    specified: dict,
    is_image: bool,
    shows_strides: bool,
) -> dict:
    """Return the metadata that arrays show, with what follows from it.

    Args:
        shape_of: Of a variable's path and a number of axes, its shape.
        paths: Of the variables that are there.
        specified: What a config specifies. `settings` are dictionaries of each
            block's `num_heads`, `query_stride` and `key_value_stride`.
        is_image: Whether it is a model of images by its kernel of patches.
        shows_strides: Whether kernels of several sizes are one larger than
            the strides, as in PySlowFast.
    """
    *cube_size, channels, width = shape_of("patch_embed/kernel", 5)
    has_token = "pos_encoding/class_token" in paths
    kinds = {"joint": "joint_pos", "separate": "spatial_pos"}
    kinds = [kind for kind in kinds if f"pos_encoding/{kinds[kind]}" in paths]
    settings = specified.get("settings")
    found = _read_stages(shape_of, paths, settings, shows_strides) | dict(
        cube_size=tuple(cube_size),
        channels=channels,
        mlp_ratio=shape_of("blocks_0/mlp_fc1/kernel", 2)[1] / width,
        position_embedding=kinds[0] if kinds else "none",
        pooling="token" if has_token else "gap",
        classes=shape_of("head/bias", 1)[0] if "head/bias" in paths else None,
        representation_size=None,
    )
    published = _published(found)
    metadata = published | found | specified
    found["grid"] = _read_grid(shape_of, metadata, is_image)
    if found["grid"] and not metadata.keys() & {"grid", "image_size"}:
        found["patch_counts"] = (math.prod(found["grid"]),)
    for name in ("cube_stride", "query_stride", "key_value_stride"):
        if name in metadata:
            found[name] = metadata[name]
    if (
        "cube_stride" in found
        and found["grid"]
        and "image_size" not in specified
    ):
        stride = found["cube_stride"][-len(found["grid"]) :]
        pairs = zip(found["grid"], stride, strict=True)
        *frames, height, width = (n * pixels for n, pixels in pairs)
        found["image_size"] = (height, width)
        found["num_frames"] = frames[0] if frames else None
    known = published or "settings" in specified
    if known and "pixel_mean" not in specified:
        found |= imagenet.PIXELS if is_image else _VIDEO_PIXELS
    return found


def _read_stages(shape_of, paths, settings, shows_strides):
    """Return the fields of the architecture that list stages."""
    count = sum(path.endswith("/norm1/gamma") for path in paths)

    def kernel(i, letter):
        path = f"blocks_{i}/attn/pool_{letter}/kernel"
        return shape_of(path, 5) if path in paths else None

    widths = [shape_of(f"blocks_{i}/norm1/gamma", 1)[0] for i in range(count)]
    queries, keys = ([kernel(i, x) for i in range(count)] for x in "qk")
    sizes = {shape[:3] for shape in (*queries, *keys) if shape}
    found: dict = dict(pooling_mode="conv") if sizes else {}
    if settings is None:
        if len(sizes) == 1 and all(keys):
            (found["pooling_size"],) = sizes
        shows_strides &= len(sizes) > 1
        settings = _settings(widths, queries, keys, shows_strides)
    if len(settings) != count:
        raise ValueError(
            f"its config has {len(settings)} blocks and its arrays {count}"
        )
    starts = [
        i
        for i in range(count)
        if i == 0
        or queries[i]
        or math.prod(settings[i]["query_stride"] or (1,)) > 1
        or widths[i] != widths[i - 1]
        or any(
            settings[i][name] != settings[i - 1][name]
            for name in ("num_heads", "key_value_stride")
        )
    ]
    found["depths"] = tuple(np.diff([*starts, count]).tolist())
    found["hidden_sizes"] = tuple(widths[i] for i in starts)
    for name in ("num_heads", "query_stride", "key_value_stride"):
        values = tuple(settings[i][name] for i in starts)
        if None not in values:
            found[name] = values
    found["kernels"] = [
        (bool(queries[i]), bool(keys[i]), f"blocks_{i}/proj/kernel" in paths)
        for i in range(count)
    ]
    return found


def _settings(widths, queries, keys, shows_strides):
    """Return what kernels show of each block's heads and strides."""
    settings = []
    for i, (width, query, key) in enumerate(
        zip(widths, queries, keys, strict=True)
    ):
        num_heads = None
        if query or key:
            num_heads = width // (query or key)[3]
        elif i and width == widths[i - 1]:
            num_heads = settings[-1]["num_heads"]
        settings.append(
            dict(
                num_heads=num_heads,
                query_stride=_stride_of(query) if shows_strides else None,
                key_value_stride=_stride_of(key) if shows_strides else None,
            )
        )
    return settings


def _stride_of(kernel):
    return tuple(max(1, n - 1) for n in (kernel or (1, 1, 1))[:3])


def _published(found):
    """Return the strides of the published model that has these sizes."""
    width = found["hidden_sizes"][0]
    if (
        found.get("pooling_mode") != "conv"
        or found["hidden_sizes"] != (width, 2 * width, 4 * width, 8 * width)
        or (width, found["depths"]) not in _PUBLISHED
    ):
        return {}
    return _PUBLISHED_STRIDES.get(found["cube_size"], {})


def _read_grid(shape_of, metadata, is_image):
    """Return the (frames, rows, columns) of tokens, or (rows, columns)."""
    size = tuple(metadata.get("grid") or ())
    if not size and "image_size" in metadata and "cube_stride" in metadata:
        size = grid(metadata)
    frames = size[0] if len(size) == 3 else 1
    if metadata["position_embedding"] == "none":
        return size or None
    if metadata["position_embedding"] == "separate":
        rows = shape_of("pos_encoding/spatial_pos", 3)[1]
        frames = shape_of("pos_encoding/temporal_pos", 3)[1]
        total = frames * rows
    else:
        total = shape_of("pos_encoding/joint_pos", 3)[1]
        total -= metadata["pooling"] == "token"
        rows = total // frames
    size = size or (math.isqrt(rows),) * 2
    found = size if len(size) == 3 else (frames, *size)
    if math.prod(found) != total or found[0] != frames:
        raise ValueError(
            f"its position embeddings, of {total} tokens, cover no grid of "
            f"{found}; specify with `position_grid=(frames, height, width)`, "
            "or (height, width) of images, what they cover"
        )
    return found[1:] if is_image else found


def grid(metadata: dict) -> tuple[int, ...]:
    """Return the (rows, columns) of an image's tokens.

    Those of a video are (frames, rows, columns).
    """
    frames = metadata.get("num_frames")
    size = (frames or 1, *metadata["image_size"])
    axes = zip(
        size, metadata["cube_size"], metadata["cube_stride"], strict=True
    )
    tokens = tuple(
        # Padded by half a patch where patches overlap.
        (n + (patch // 2 * 2 if patch > stride else 0) - patch) // stride + 1
        for n, patch, stride in axes
    )
    return tokens[1:] if frames is None else tokens
