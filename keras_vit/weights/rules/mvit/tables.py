"""The tables of MViT's variables, and which of them a model has."""

import dataclasses
import math

from keras_vit.weights.rules import table

_BLOCK = "blocks_{i}"
_NORMS = ("norm1", "norm2", "attn/norm_q", "attn/norm_k", "attn/norm_v")
# Kernels of PyTorch are [out, in, frames, height, width], and [channels, 1,
# ...] where they are depthwise.
_CONVOLUTION = table.Transform(
    lambda kernel: kernel.transpose(2, 3, 4, 1, 0),
    lambda kernel: (kernel.transpose(4, 3, 0, 1, 2),),
)
_DEPTHWISE = table.Transform(
    lambda kernel: kernel.transpose(2, 3, 4, 0, 1),
    lambda kernel: (kernel.transpose(3, 4, 0, 1, 2),),
)
# In image models, the authors' kernel has no axis of frames.
_CONVOLUTION_2D = table.Transform(
    lambda kernel: kernel.transpose(2, 3, 1, 0)[None],
    lambda kernel: (kernel[0].transpose(3, 2, 0, 1),),
)
# torchvision has no leading axes of length 1.
_ROW = table.Transform(
    lambda row: row.reshape(1, 1, -1), lambda row: (row.reshape(-1),)
)
_ROWS = table.Transform(lambda rows: rows[None], lambda rows: (rows[0],))


def slowfast_rows() -> list:
    """Return the table of the authors' names."""
    rows = [
        ("pos_encoding/class_token", "cls_token"),
        ("pos_encoding/joint_pos", "pos_embed"),
        ("pos_encoding/spatial_pos", "pos_embed_spatial"),
        ("pos_encoding/temporal_pos", "pos_embed_temporal"),
        ("pos_encoding/class_pos", "pos_embed_class"),
    ]
    block = "blocks.{i}"
    return rows + _layer_rows(
        {
            "patch_embed": "patch_embed.proj",
            "head": "head.projection",
            f"{_BLOCK}/attn/qkv": f"{block}.attn.qkv",
            f"{_BLOCK}/attn/proj": f"{block}.attn.proj",
            f"{_BLOCK}/mlp_fc1": f"{block}.mlp.fc1",
            f"{_BLOCK}/mlp_fc2": f"{block}.mlp.fc2",
            f"{_BLOCK}/proj": f"{block}.proj",
        },
        lambda norm: f"{block}.{norm.replace('/', '.')}",
        lambda letter: f"{block}.attn.pool_{letter}",
    )


def torchvision_rows() -> list:
    """Return the table of torchvision's names."""
    rows = [
        ("pos_encoding/class_token", "pos_encoding.class_token", _ROW),
        ("pos_encoding/spatial_pos", "pos_encoding.spatial_pos", _ROWS),
        ("pos_encoding/temporal_pos", "pos_encoding.temporal_pos", _ROWS),
        ("pos_encoding/class_pos", "pos_encoding.class_pos", _ROW),
    ]
    block = "blocks.{i}"

    def norm_name(norm):
        letter = norm.removeprefix("attn/norm_")
        pooled = f"{block}.attn.pool_{letter}.norm_act.0"
        return pooled if "/" in norm else f"{block}.{norm}"

    return rows + _layer_rows(
        {
            "patch_embed": "conv_proj",
            "head": "head.1",
            f"{_BLOCK}/attn/qkv": f"{block}.attn.qkv",
            f"{_BLOCK}/attn/proj": f"{block}.attn.project.0",
            f"{_BLOCK}/mlp_fc1": f"{block}.mlp.0",
            f"{_BLOCK}/mlp_fc2": f"{block}.mlp.3",
            f"{_BLOCK}/proj": f"{block}.project",
        },
        norm_name,
        lambda letter: f"{block}.attn.pool_{letter}.pool",
    )


def _layer_rows(layers, norm_name, pool_name):
    """Return the rows of layers with kernels, of norms and of poolings."""
    patches = dict(kernel=(".weight", _CONVOLUTION), bias=(".bias",))
    patch_embed = {"patch_embed": layers.pop("patch_embed")}
    norms = {f"{_BLOCK}/{norm}": norm_name(norm) for norm in _NORMS}
    pools = {f"{_BLOCK}/attn/pool_{x}": pool_name(x) for x in "qkv"}
    return [
        *table.layer_rows(patch_embed, patches),
        *table.layer_rows(layers, table.TORCH_DENSE),
        *table.layer_rows(norms | {"norm": "norm"}, table.TORCH_NORM),
        *table.layer_rows(pools, dict(kernel=(".weight", _DEPTHWISE))),
    ]


def expand(rows: list, num_layers: int, flat: bool = False) -> list:
    """Return the rules of all variables that blocks may have.

    Args:
        rows: A format's table.
        num_layers: Number of blocks.
        flat: Whether the patch kernel has no axis of frames.
    """
    return [
        dataclasses.replace(rule, transform=_CONVOLUTION_2D)
        if flat and rule.path == "patch_embed/kernel"
        else rule
        for rule in table.expand(rows, num_layers=num_layers)
    ]


def is_flat(metadata: dict) -> bool:
    """Whether the authors' kernel of patches has no axis of frames."""
    return metadata.get("num_frames") is None and metadata["cube_size"][0] == 1


def absent_paths(metadata: dict) -> tuple[str, ...]:
    """Return the prefixes of the paths that a model does not have."""
    kind = metadata["position_embedding"]
    has_token = metadata["pooling"] == "token"
    positions = dict(
        class_token=has_token,
        joint_pos=kind == "joint",
        spatial_pos=kind == "separate",
        temporal_pos=kind == "separate",
        class_pos=kind == "separate" and has_token,
    )
    absent = [f"pos_encoding/{x}" for x, has in positions.items() if not has]
    kernels = metadata.get("kernels")  # as the arrays show
    if kernels is None:
        is_conv = metadata["pooling_mode"] == "conv"
        kernels = [
            (
                is_conv and block["query_size"],
                is_conv and block["key_value_size"],
                block["hidden_size"] != block["output_size"],
            )
            for block in blocks_of(metadata)
        ]
    for i, (query, key, projection) in enumerate(kernels):
        letters = ("" if query else "q") + ("" if key else "kv")
        for layer in ("pool", "norm"):
            absent += [f"blocks_{i}/attn/{layer}_{x}/" for x in letters]
        if not projection:
            absent.append(f"blocks_{i}/proj/")
    return (*absent, *table.without_top(metadata))


def blocks_of(metadata: dict) -> list[dict]:
    """Return the settings of each block.

    Returns:
        `hidden_size`, `output_size`, `num_heads`, `query_stride`,
        `key_value_stride`, and the windows of pooling `query_size` and
        `key_value_size`, () without pooling.
    """
    size = metadata.get("pooling_size")
    pools = metadata["pooling_mode"] != "none"

    def window(stride):
        return size or tuple(n + 1 if n > 1 else 1 for n in stride)

    blocks = []
    for stage, count in enumerate(metadata["depths"]):
        for n in range(count):
            query = metadata["query_stride"][stage] if n == 0 else (1, 1, 1)
            key = metadata["key_value_stride"][stage]
            key_size = tuple(window(key))
            pools_queries = pools and math.prod(query) > 1
            blocks.append(
                dict(
                    hidden_size=metadata["hidden_sizes"][stage],
                    num_heads=metadata["num_heads"][stage],
                    query_stride=tuple(query),
                    query_size=tuple(window(query)) if pools_queries else (),
                    key_value_stride=tuple(key),
                    key_value_size=key_size
                    if pools and math.prod(key_size) > 1
                    else (),
                )
            )
    for block, following in zip(blocks, [*blocks[1:], blocks[-1]], strict=True):
        block["output_size"] = following["hidden_size"]
    return blocks
