"""Which implementation of attention computes softmax(q k^T / sqrt(E)) v."""

from typing import Literal

import keras

from keras_vit._arguments import checked

Choice = Literal["auto", "fused", "explicit"]

# Where "auto" is "fused": (backend, device, dtype) -> the smallest size of the
# attention weights in float32, [B, A, T, T], in MiB. Elsewhere, and always on
# TPUs and with TensorFlow and JAX on CPUs, it is "explicit".
#
# Measured on a CPU with two cores: time of the layer of ViT-B, fused divided by
# explicit (python -m tools.benchmark.attention):
#
#                      TensorFlow     JAX            PyTorch
#                      infer  train   infer  train   infer  train
#   float32,    2 MiB  1.07   1.03    1.17   1.15    0.91   0.89
#   float32,   14 MiB  1.11   1.16    1.13   1.16    0.71   0.92
#   float32,   61 MiB  1.14   1.20    1.45   1.44    0.60   0.75
#   bfloat16,   2 MiB  1.07   0.93    1.07   1.11    1.16   1.38
#   bfloat16,  14 MiB  1.06   1.09    1.58   1.13    1.28   1.49
#   bfloat16,  61 MiB  1.14   1.16    1.26   1.33    1.40   1.58
#   bfloat16, 192 MiB                                0.95   1.07
#
# On GPUs, which were not measured, the fused kernels of PyTorch and of cuDNN
# never write the weights; cuDNN has none for float32.
_FUSED_FROM = {
    ("torch", "cpu", "float32"): 0,
    ("torch", "cpu", "bfloat16"): 128,
    ("torch", "cuda", "float32"): 0,
    ("torch", "cuda", "float16"): 0,
    ("torch", "cuda", "bfloat16"): 0,
    ("jax", "gpu", "float16"): 0,
    ("jax", "gpu", "bfloat16"): 0,
}

_chosen: Choice = "auto"


@checked
def set_attention_implementation(name: Choice) -> None:
    """Selects the implementation of self-attention.

    It holds for ViT and the ViTs after the paper, and for all models of the
    process that are traced afterwards. Dropout of attention weights, relative
    positions and `attention_weights` always use the explicit products.

    Args:
        name: "fused" is `keras.ops.dot_product_attention`, with PyTorch
            `scaled_dot_product_attention`, which never stores the weights of
            all pairs of tokens; "explicit" is two matrix products with a
            softmax between; "auto", the default, is the faster one for the
            backend, the device, the dtype and the size.

    Raises:
        ValueError: If the name is unknown.

    Example:
        keras_vit.layers.set_attention_implementation("explicit")
    """
    global _chosen
    _chosen = name


def is_fused(inputs, num_heads: int) -> bool:
    """Returns whether attention is fused, where it can be.

    Args:
        inputs: Tokens in the dtype of the computation, `[B, T, D]`.
        num_heads: Number of heads A.
    """
    if _chosen != "auto":
        return _chosen == "fused"
    backend = keras.backend.backend()
    dtype = keras.backend.standardize_dtype(inputs.dtype)
    size = _FUSED_FROM.get((backend, _device(backend, inputs), dtype))
    if not size:
        return size is not None
    batch_size, tokens, _ = inputs.shape
    if not isinstance(batch_size, int):  # a symbol of an export
        return False
    return 4 * batch_size * num_heads * tokens**2 >= size * 2**20


def _device(backend, x):
    if backend == "torch":
        return x.device.type
    if backend == "jax":
        import jax

        return jax.default_backend()
    return "any"
