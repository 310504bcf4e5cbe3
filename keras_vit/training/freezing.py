"""Training a part of a model: its head, or low-rank updates of its blocks."""

import keras

from keras_vit._arguments import Count, checked
from keras_vit._keras import nested_layers
from keras_vit.layers.keras_layers import check_float
from keras_vit.models import ImageModel


def train_head_only(model: keras.Model) -> None:
    """Freeze every layer but the head: a linear probe.

    The model stays a linear probe when it is saved and loaded, or cloned;
    `layer.trainable = True` unfreezes a layer.

    Args:
        model: A model of this package, not yet compiled, or a model that
            contains one: your own layers around it then stay trainable too.

    Raises:
        ValueError: If nothing is left to train, the head is quantised, or
            `model` contains no model of this package or several.
    """
    inner = ImageModel.find(model)
    inside = {id(variable) for variable in inner.variables}
    trains_own = any(id(x) not in inside for x in model.trainable_variables)
    trains_head = inner.head is not None and (model is inner or model.trainable)
    if not (trains_own or trains_head):
        raise ValueError(
            "`model` must have a head to train. Received one made with "
            "include_top=False, or in a model that is frozen"
        )
    if inner.head is not None:
        check_float(inner.head, "model")  # else its bias alone would be trained
    inner.trainable = True  # or layers of a frozen model would not be trained
    for layer in inner.layers:
        layer.trainable = layer is inner.head


@checked
def train_low_rank(model: keras.Model, rank: Count) -> None:
    """Freeze everything but the head and a low-rank update of attention.

        W = W_0 + A B

    for the projections of each block's attention (where blocks have none, for
    all their dense layers), with A `[D, rank]` random and B `[rank, .]` zero at
    first. A clone or a loaded model continues with the same A and B. Files also
    hold W, which `keras_vit.ViT(weights=path)` reads, and `load_weights` of a
    model without updates.

    Args:
        model: A model of this package, neither compiled nor run, or a model
            that contains one: your own layers around it then stay trainable.
        rank: Rank of the update.

    Raises:
        ValueError: If `rank` is not a positive integer, if the blocks have no
            dense layers, or if `model` contains no model of this package or
            several.

    Reference:
        Hu et al. 2022 (LoRA), section 4.1; Keras' own `Dense.enable_lora`.
    """
    inner = ImageModel.find(model)
    projections = [x for block in inner.blocks for x in _projections(block)]
    if not projections:
        raise ValueError(
            "`model` must have blocks with dense layers. Received: "
            f"{inner.name!r}, a {inner.family!r}, with none"
        )
    blocks = inner.blocks
    inner.trainable = True  # also blocks that `train_head_only` froze
    for layer in inner.layers:
        if layer not in blocks:
            layer.trainable = layer is inner.head
    for block in blocks:
        for layer in [block, *nested_layers(block)]:
            if layer in projections:
                layer.enable_lora(rank)  # which freezes the kernel
                if layer.bias is not None:
                    layer.bias.trainable = False
            elif not any(x in projections for x in nested_layers(layer)):
                layer.trainable = False
            else:
                layer.freeze_weights()


def _projections(block):
    """Return the dense layers that are updated: attention's, or all."""
    attention = getattr(block, "attention", block)
    return [
        layer
        for layer in nested_layers(attention)
        if isinstance(layer, keras.layers.Dense)
    ]
