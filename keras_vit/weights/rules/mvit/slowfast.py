"""The config of PySlowFast: properties of an MViT that arrays do not show."""

from keras_vit.weights.rules import configs

# Options that compute something different with the same arrays, or that are not
# supported.
_REFUSED = {
    "REL_POS_SPATIAL": "relative positions",
    "REL_POS_TEMPORAL": "relative positions",
    "RESIDUAL_POOLING": "a residual connection around pooling",
    "DIM_MUL_IN_ATT": "attention of the output's width",
    "NORM_STEM": "a norm after the patch embedding",
    "POOL_FIRST": "pooling before the projections",
    "USE_MEAN_POOLING": "a norm after the mean of the patches",
    "USE_FIXED_SINCOS_POS": "positions that are added twice",
}
# Lists of the blocks that pool; without any, none does, whatever the mode.
_POOLING = ("POOL_Q_STRIDE", "POOL_KV_STRIDE", "POOL_KV_STRIDE_ADAPTIVE")


def read(config: dict) -> dict:
    """Return the metadata that a config specifies.

    Raises:
        ValueError: If its model is not supported.
    """
    mvit = configs.section(config, "MVIT")
    data = configs.section(config, "DATA")
    model = configs.section(config, "MODEL")
    for key, what in _REFUSED.items():
        if configs.flag(mvit, key):
            raise ValueError(f"{what} ({key}) is not supported")
    if configs.flag(data, "REVERSE_INPUT_CHANNEL"):
        raise ValueError(
            "pixels in the order BGR (REVERSE_INPUT_CHANNEL) are not supported"
        )
    found = configs.known(
        image_size=configs.pair(data, "TRAIN_CROP_SIZE"),
        pixel_mean=configs.pixels(data, "MEAN"),
        pixel_std=configs.pixels(data, "STD"),
        class_names=configs.names(config, "label_names"),
        classes=configs.integer(model, "NUM_CLASSES", low=0),
    )
    if not mvit:
        return found
    is_image = bool(configs.flag(mvit, "PATCH_2D"))
    stride = tuple(mvit.get("PATCH_STRIDE") or (2, 4, 4))
    kernel = mvit.get("POOL_KVQ_KERNEL")
    frames = configs.integer(data, "NUM_FRAMES")
    pools = any(mvit.get(key) for key in _POOLING)
    mode = configs.choice(mvit, "MODE", ("conv", "max", "avg")) or "conv"
    _check_padding(mvit, stride)
    return found | dict(
        pooling_mode=mode if pools else "none",
        cube_stride=(1, *stride) if is_image else stride,
        num_frames=None if is_image else frames,
        pooling_size=tuple(kernel) if kernel else None,
        settings=_settings(mvit),
    )


def padding(kernel, stride) -> list[int]:
    """Return half a patch where patches overlap, 0 elsewhere."""
    return [
        n // 2 if n > step else 0
        for n, step in zip(kernel, stride, strict=True)
    ]


def _check_padding(mvit, stride):
    given = mvit.get("PATCH_PADDING")
    kernel = mvit.get("PATCH_KERNEL")
    if given and kernel and list(given) != padding(kernel, stride):
        raise ValueError(
            f"PATCH_PADDING={given}, other than half of PATCH_KERNEL="
            f"{kernel} where patches overlap, is not supported"
        )


def _settings(mvit):
    """Return the heads and strides of each block."""
    heads = configs.integer(mvit, "NUM_HEADS") or 1
    factors = dict(mvit.get("HEAD_MUL") or ())
    depth = configs.integer(mvit, "DEPTH") or 16
    queries = _by_block(mvit.get("POOL_Q_STRIDE"))
    keys = _by_block(mvit.get("POOL_KV_STRIDE"))
    adaptive = mvit.get("POOL_KV_STRIDE_ADAPTIVE")
    # With a kernel, the listed blocks pool, even with a stride of 1.
    if mvit.get("POOL_KVQ_KERNEL") and (queries or keys):
        if (1, 1, 1) in queries.values() or not (
            adaptive or len(keys) == depth
        ):
            raise ValueError(
                "POOL_KVQ_KERNEL with query strides of 1, or with key strides "
                "of only some blocks, is not supported"
            )
    settings = []
    for i in range(depth):
        heads = int(heads * factors.get(i, 1))
        query, key = queries.get(i, (1, 1, 1)), keys.get(i, (1, 1, 1))
        if adaptive:
            pairs = zip(adaptive, query, strict=True)
            key = adaptive = tuple(max(1, n // s) for n, s in pairs)
        settings.append(
            dict(num_heads=heads, query_stride=query, key_value_stride=key)
        )
    return settings


def _by_block(rows):
    return {i: tuple(stride) for i, *stride in rows or ()}


def write(metadata: dict, blocks: list[dict]) -> dict:
    """Return a config; inverts `read`."""
    is_image = metadata.get("num_frames") is None
    axes = slice(int(is_image), 3)
    patch, stride = metadata["cube_size"], metadata["cube_stride"]
    height, width = metadata["image_size"]
    pools = metadata["pooling_mode"] != "none"
    kernel = metadata.get("pooling_size") if pools else None

    mvit = _blocks(blocks, kernel) | dict(
        PATCH_2D=is_image,
        PATCH_KERNEL=list(patch[axes]),
        PATCH_STRIDE=list(stride[axes]),
        PATCH_PADDING=padding(patch[axes], stride[axes]),
        MLP_RATIO=float(metadata["mlp_ratio"]),
        QKV_BIAS=True,
        NORM="layernorm",
        CLS_EMBED_ON=metadata["pooling"] == "token",
        USE_ABS_POS=metadata["position_embedding"] != "none",
        SEP_POS_EMBED=metadata["position_embedding"] == "separate",
    )
    if pools:
        mvit["MODE"] = metadata["pooling_mode"]
    size = height if height == width else [height, width]
    config: dict = dict(
        MVIT=mvit,
        DATA=dict(
            NUM_FRAMES=1 if is_image else metadata["num_frames"],
            TRAIN_CROP_SIZE=size,
            TEST_CROP_SIZE=size,
            MEAN=[n / 255 for n in metadata["pixel_mean"]],
            STD=[n / 255 for n in metadata["pixel_std"]],
        ),
        MODEL=dict(
            ARCH="mvit", MODEL_NAME="MViT", NUM_CLASSES=metadata["classes"] or 0
        ),
    )
    if metadata["class_names"]:
        config["label_names"] = list(metadata["class_names"])
    return config


def _blocks(blocks, kernel):
    """Return the fields that list blocks; inverts `_settings`."""

    def factors(name):
        pairs = zip(blocks, blocks[1:], strict=False)
        return [
            [i + 1, after[name] / before[name]]
            for i, (before, after) in enumerate(pairs)
            if after[name] != before[name]
        ]

    def strides(name, listed=()):
        return [
            [i, *block[name]]
            for i, block in enumerate(blocks)
            if block[name] != (1, 1, 1) or i in listed
        ]

    # With a kernel, only the listed blocks pool.
    pooled = range(len(blocks)) if kernel else ()
    return dict(
        EMBED_DIM=blocks[0]["hidden_size"],
        NUM_HEADS=blocks[0]["num_heads"],
        DEPTH=len(blocks),
        DIM_MUL=factors("hidden_size"),
        HEAD_MUL=factors("num_heads"),
        POOL_Q_STRIDE=strides("query_stride"),
        POOL_KV_STRIDE=strides("key_value_stride", pooled),
        POOL_KVQ_KERNEL=kernel and list(kernel),
    )
