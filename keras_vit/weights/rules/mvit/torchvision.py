"""The arguments of torchvision's MViT, which its arrays do not show."""

from keras_vit.weights.rules import configs
from keras_vit.weights.rules.mvit.slowfast import padding


def read(config: dict) -> dict:
    """Return the metadata that arguments of torchvision's MViT specify.

    Raises:
        ValueError: If they are of an MViTv2.
    """
    for key in ("residual_pool", "rel_pos_embed", "proj_after_attn"):
        if configs.flag(config, key):
            raise ValueError(f"{key}, of MViTv2, is not supported")
    found = configs.known(
        image_size=configs.pair(config, "spatial_size"),
        pixel_mean=configs.pixels(config, "mean"),
        pixel_std=configs.pixels(config, "std"),
        class_names=configs.names(config, "categories"),
        classes=configs.integer(config, "num_classes"),
    )
    frames = configs.integer(config, "temporal_size")
    if frames is not None:
        found["num_frames"] = frames if frames > 1 else None
    if config.get("patch_embed_stride"):
        found["cube_stride"] = tuple(config["patch_embed_stride"])
    if config.get("block_setting"):
        found |= _blocks(config["block_setting"])
    return found


def _blocks(rows):
    """Return the metadata that the settings of blocks specify."""

    def triple(row, name):
        return tuple(row[name]) or (1, 1, 1)

    settings = [
        dict(
            num_heads=row["num_heads"],
            query_stride=triple(row, "stride_q"),
            key_value_stride=triple(row, "stride_kv"),
        )
        for row in rows
    ]
    # One size for all windows, or the size that follows from the stride.
    sizes = {triple(row, "kernel_kv") for row in rows}
    size = sizes.pop() if len(sizes) == 1 else None
    for row in rows:
        for axis in ("q", "kv"):
            stride, kernel = row[f"stride_{axis}"], row[f"kernel_{axis}"]
            expected = size or tuple(n + 1 if n > 1 else 1 for n in stride)
            if kernel and tuple(kernel) != expected:
                raise ValueError(
                    f"kernels of pooling of several sizes, {kernel} and "
                    f"{expected}, are not supported"
                )
    return dict(settings=settings, pooling_size=size, pooling_mode="conv")


def write(metadata: dict, blocks: list[dict]) -> dict:
    """Return arguments; inverts `read`."""
    patch, stride = metadata["cube_size"], metadata["cube_stride"]
    config = dict(
        spatial_size=list(metadata["image_size"]),
        temporal_size=metadata.get("num_frames") or 1,
        num_classes=metadata["classes"] or 0,
        residual_pool=False,
        residual_with_cls_embed=False,
        rel_pos_embed=False,
        proj_after_attn=False,
        patch_embed_kernel=list(patch),
        patch_embed_stride=list(stride),
        patch_embed_padding=padding(patch, stride),
        block_setting=[
            dict(
                num_heads=block["num_heads"],
                input_channels=block["hidden_size"],
                output_channels=block["output_size"],
                kernel_q=list(block["query_size"]),
                kernel_kv=list(block["key_value_size"]),
                stride_q=list(block["query_stride"])
                * bool(block["query_size"]),
                stride_kv=list(block["key_value_stride"])
                * bool(block["key_value_size"]),
            )
            for block in blocks
        ],
        mean=[n / 255 for n in metadata["pixel_mean"]],
        std=[n / 255 for n in metadata["pixel_std"]],
    )
    if metadata["class_names"]:
        config["categories"] = list(metadata["class_names"])
    return config
