"""The arrays of a ViT, and the names of its attention."""

import numpy as np

from keras_vit.weights.rules import table

# Width -> layers of the published ViTs.
_PUBLISHED = {192: 12, 384: 12, 768: 12, 1024: 24, 1280: 32, 1408: 40, 1664: 48}


def is_published(width: int, num_layers: int) -> bool:
    """Whether a published ViT has these sizes."""
    return _PUBLISHED.get(width) == num_layers


def attention_rows(
    path: str,
    name: str,
    num_heads: int,
    parts: dict = table.FLAX_LAYER,
    out: str = "out",
) -> list:
    """Return the rows of attention with a kernel `[D, A, E]` for each of three.

    The columns of `MultiHeadSelfAttention`'s fused projection are [A, 3, E].

    Args:
        path: Path of the layer.
        name: Name of its arrays.
        num_heads: A.
        parts: See `table.layer_rows`.
        out: Name of the last projection, `[A, E, D]`.
    """

    def fuse(*three):
        fused = np.stack(three, axis=-2)  # [..., A, 3, E]
        return fused.reshape(*fused.shape[:-3], -1)

    def part(fused):
        heads = fused.reshape(*fused.shape[:-1], num_heads, 3, -1)
        return tuple(np.moveaxis(heads, -2, 0))

    rows = [
        (
            f"{path}/qkv/{variable}",
            tuple(f"{name}/{x}{ending}" for x in ("query", "key", "value")),
            table.Transform(fuse, part),
        )
        for variable, (ending,) in parts.items()
    ]
    last = parts | dict(kernel=(*parts["kernel"], _joined_heads(num_heads)))
    return rows + table.layer_rows({f"{path}/out": f"{name}/{out}"}, last)


def _joined_heads(num_heads):
    """Return the transform of a last projection, `[A, E, D]` in files."""
    return table.Transform(
        lambda kernel: kernel.reshape(-1, kernel.shape[-1]),
        lambda kernel: (kernel.reshape(num_heads, -1, kernel.shape[-1]),),
    )


def pooling_rows(path: str, name: str, num_heads: int) -> list:
    """Return the rows of `AttentionPooling`, as big_vision's `MAPHead`.

    Args:
        path: Path of the layer.
        name: Name of its arrays.
        num_heads: A.
    """

    def join(*arrays):  # of [..., A, E]
        return np.concatenate(
            [a.reshape(*a.shape[:-2], -1) for a in arrays], axis=-1
        )

    def split(count):
        return lambda joined: tuple(
            part.reshape(*part.shape[:-1], num_heads, -1)
            for part in np.split(joined, count, axis=-1)
        )

    attention = f"{name}/MultiHeadDotProductAttention_0"
    rows: list[tuple] = [(f"{path}/probe", f"{name}/probe")]
    for layer, names in (
        ("query", ("query",)),
        ("key_value", ("key", "value")),
    ):
        transform = table.Transform(join, split(len(names)))
        rows += [
            (
                f"{path}/{layer}/{part}",
                tuple(f"{attention}/{x}/{part}" for x in names),
                transform,
            )
            for part in ("kernel", "bias")
        ]
    out = table.FLAX_LAYER | dict(kernel=("/kernel", _joined_heads(num_heads)))
    rows += table.layer_rows({f"{path}/out": f"{attention}/out"}, out)
    dense = {
        f"{path}/MlpBlock_0/Dense_{n}": f"{name}/MlpBlock_0/Dense_{n}"
        for n in (0, 1)
    }
    rows += table.layer_rows(dense, table.FLAX_LAYER)
    norm = {f"{path}/LayerNorm_0": f"{name}/LayerNorm_0"}
    return rows + table.layer_rows(norm, table.FLAX_NORM)


def add_class_row(arrays: dict, positions: str) -> None:
    """Add a row of zeros for the class token to position embeddings."""
    _, tokens, width = arrays[positions].shape
    arrays[positions] = arrays[positions].map(
        lambda a: np.concatenate([np.zeros_like(a[:, :1]), a], axis=1),
        (1, tokens + 1, width),
    )


def merge_class_row(arrays: dict, positions: str, token: str) -> None:
    """Add the class token's position embedding to the token itself."""
    first, grid = np.split(arrays[positions], [1], axis=1)
    if first.any():
        arrays[token] = arrays[token] + first
    arrays[positions] = grid


def fields(metadata: dict) -> dict:
    """Return the metadata of the parts of a ViT that determine its arrays.

    Args:
        metadata: Of a model, or what names show of a checkpoint, in which
            `classes` and `representation_size` may be truth values.
    """
    pooling = metadata.get("pooling") or "gap"
    return dict(
        num_layers=metadata["num_layers"],
        num_heads=metadata.get("num_heads") or 0,
        resnet_depths=metadata.get("resnet_depths"),
        class_token=pooling == "token" or bool(metadata.get("class_token")),
        pooling=pooling,
        position_embedding=metadata.get("position_embedding", "learned_1d"),
        representation_size=metadata.get("representation_size"),
        classes=metadata.get("classes"),
    )


def expand(rows: list, metadata: dict) -> list[table.Rule]:
    """Return a rule for each variable of a ViT; see `table.expand`."""
    has = fields(metadata)
    absent = table.without_top(has)
    absent += () if has["class_token"] else ("class_token/",)
    absent += () if has["resnet_depths"] is not None else ("resnet/",)
    absent += () if has["pooling"] == "map" else ("attention_pooling/",)
    if has["position_embedding"] in ("sincos_2d", "relative", "none"):
        absent += ("posembed_input/",)
    return table.expand(
        rows,
        num_layers=has["num_layers"],
        units=has["resnet_depths"],
        absent=absent,
    )
