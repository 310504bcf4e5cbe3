"""Training a part of a model: its head, or low-rank updates of its blocks."""

import keras


def train_head_only(model: keras.Model) -> None:
    """Freezes every layer but the head: a linear probe.

    It stays one when it is saved and loaded, or cloned; `layer.trainable =
    True` thaws.

    Args:
        model: A model of this package, not yet compiled.

    Raises:
        ValueError: If it has no head.
    """
    if "head" not in {layer.name for layer in model.layers}:
        raise ValueError(
            "`model` must have a head to train. Received one made with "
            "include_top=False"
        )
    for layer in model.layers:
        layer.trainable = layer.name == "head"


def train_low_rank(model: keras.Model, rank: int) -> None:
    """Freezes everything but the head and a low-rank update of attention.

        W = W_0 + A B

    for the qkv and the output projection of each block, with A `[D, rank]`
    random and B `[rank, .]` zero at first. What is saved is W, without A and B,
    and loads as any other model; there the projections and the head are
    trainable and all else is frozen. (Compile another `keras.Model` of the same
    input and output: with it, its optimizer would be saved, which has more
    variables than the model that is loaded.)

    Args:
        model: A ViT of this package, neither compiled nor run.
        rank: Rank of the update.

    Raises:
        ValueError: If `rank` is no positive integer, or the model has no
            Transformer block.

    Reference:
        Hu et al. 2022 (LoRA), section 4.1; Keras' own `Dense.enable_lora`.
    """
    if not isinstance(rank, int) or rank < 1:
        raise ValueError(
            f"`rank` must be at least 1 and a whole number. Received: {rank!r}"
        )
    blocks = [layer for layer in model.layers if hasattr(layer, "attention")]
    if not blocks:
        raise ValueError(
            "`model` must have Transformer blocks. Received: "
            f"{[layer.name for layer in model.layers]}"
        )
    for layer in model.layers:
        if layer not in blocks:
            layer.trainable = layer.name == "head"
    for block in blocks:
        for layer in (block.norm_0, block.norm_1, block.mlp):
            layer.trainable = False
        for layer in (block.attention.qkv, block.attention.out):
            layer.enable_lora(rank)  # which freezes the kernel
            layer.bias.trainable = False
        if block.relative_positions:
            block.attention.relative_embedding.trainable = False
