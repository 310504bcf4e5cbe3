"""Compiling the Transformer blocks of a model with PyTorch."""

import functools

import keras

from keras_vit._keras import nested_layers
from keras_vit.layers.transformer_block import TransformerBlock
from keras_vit.ops.shared_program import SharedProgram

# What differs between blocks of one program: names, which weights are trained,
# and dropout, with which a block computes itself in training.
_IGNORED = ("name", "trainable", "frozen", "dropout_rate", "drop_path_rate")


def compile_blocks(model: keras.Model, **options) -> None:
    """Compile the Transformer blocks of a model with torch.compile.

    Blocks of one structure share a program, so that ViT-B/16 compiles in the
    time of one block. `predict`, `evaluate`, `fit` and calls then use it; what
    is before and after the blocks remains as it is. A block computes itself
    where its program would not fit: in training with dropout, stochastic depth
    or `remat`, with an attention bias, and once it has other weights (LoRA,
    quantization). Call it after `set_attention_implementation`.

    With TensorFlow and JAX nothing happens: Keras compiles the whole model
    there (`jit_compile` of `model.compile`).

    Args:
        model: A built model, such as a ViT. It is changed in place; it is saved
            and cloned without the programs.
        **options: Those of torch.compile, such as `mode`.

    Raises:
        ValueError: If no block of the model is a `TransformerBlock`.

    Example:
        keras_vit.models.compile_blocks(model)
        model.predict(images)
    """
    blocks = [
        layer
        for layer in nested_layers(model)
        if isinstance(layer, TransformerBlock)
    ]
    if not blocks:
        raise ValueError(
            "`model` must have layers of the class TransformerBlock, such as "
            f"those of ViT, DeiT, DINOv2 and SigLIP. Received: {model!r}"
        )
    if keras.backend.backend() != "torch":
        return
    programs: list[tuple[tuple, SharedProgram]] = []
    for block in blocks:
        structure = _structure(block)
        like = [each for other, each in programs if other == structure]
        if not like:
            forward = functools.partial(block._forward, training=False)
            like = [SharedProgram(forward, block, **options)]
            programs.append((structure, like[0]))
        block.program = like[0].of(block)


def _structure(block):
    config = block.get_config()
    kept = {key: config[key] for key in config if key not in _IGNORED}
    return kept, [(weight.shape, weight.dtype) for weight in block.weights]
