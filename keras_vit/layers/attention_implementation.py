"""Which implementation of attention computes softmax(q k^T / sqrt(E)) v."""

import keras

from keras_vit.layers import arguments

CHOICES = ("auto", "fused", "explicit")

# Where "auto" is "fused": the smallest size of the attention weights in
# float32, [B, A, T, T], in MiB. Elsewhere it is "explicit".
_FUSED_FROM = {
    ("torch", "cpu", "float32"): 0,
    ("torch", "cpu", "bfloat16"): 32,
}


_chosen = "auto"


def set_attention_implementation(name: str) -> None:
    """Selects the implementation of `MultiHeadSelfAttention`.

    It holds for all models of the process that are traced afterwards. Dropout
    of attention weights, relative positions and `attention_weights` always use
    the explicit products.

    Args:
        name: "fused" is `keras.ops.dot_product_attention`, which under PyTorch
            never stores the weights of all pairs of tokens; "explicit" is two
            matrix products with a softmax between; "auto", the default, is the
            faster one for the backend.

    Raises:
        ValueError: If the name is unknown.

    Example:
        keras_vit.layers.set_attention_implementation("explicit")
    """
    global _chosen
    arguments.check_choice(name, "name", CHOICES)
    _chosen = name


def is_fused(qkv) -> bool:
    """Returns whether attention is fused, where it can be.

    Args:
        qkv: The queries, keys and values, `[B, T, A, 3, E]`.
    """
    if _chosen != "auto":
        return _chosen == "fused"
    backend = keras.backend.backend()
    dtype = keras.backend.standardize_dtype(qkv.dtype)
    size = _FUSED_FROM.get((backend, _device(backend, qkv), dtype))
    if size is None or not size:
        return size is not None
    batch_size, tokens, heads = qkv.shape[:3]
    return 4 * batch_size * heads * tokens**2 >= size * 2**20


def _device(backend, x):
    if backend == "torch":
        return x.device.type
    if backend == "jax":
        import jax

        return jax.default_backend()
    return "any"
