"""Training a part of a model: its head, or low-rank updates of its blocks."""

import re

import keras

_LORA = re.compile(r"lora_kernel_[ab]$")
_HEAD = re.compile(r"(?:^|/)head/")


def train_head_only(model: keras.Model) -> None:
    """Freezes everything but the head: a linear probe.

    Args:
        model: A model of this package, not yet compiled.

    Raises:
        ValueError: If it has no head.
    """
    if not any(_HEAD.search(v.path) for v in model.variables):
        raise ValueError(
            "`model` must have a head to train. Received one made with "
            "include_top=False"
        )
    for variable in model.variables:
        if not _HEAD.search(variable.path):
            variable.trainable = False


def train_low_rank(model: keras.Model, rank: int) -> None:
    """Freezes everything but the head and a low-rank update of attention.

        W = W_0 + A B

    for the qkv and the output projection of each block, with A `[D, rank]`
    random and B `[rank, .]` zero at first. What is saved is W, without A and B,
    and loads as any other model. (Compile another `keras.Model` of the same
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
    projections = [
        layer
        for block in model.layers
        if hasattr(block, "attention")
        for layer in (block.attention.qkv, block.attention.out)
    ]
    if not projections:
        raise ValueError(
            "`model` must have Transformer blocks. Received: "
            f"{[layer.name for layer in model.layers]}"
        )
    for layer in projections:
        layer.enable_lora(rank)
    for variable in model.variables:
        if not (_LORA.search(variable.path) or _HEAD.search(variable.path)):
            variable.trainable = False
