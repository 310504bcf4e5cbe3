"""Which implementation of attention computes softmax(q k^T / sqrt(E)) v."""

import keras

from keras_vit.layers import arguments

CHOICES = ("auto", "fused", "explicit")

# Backends on which "auto" is "fused". Under PyTorch the copies and the softmax
# of explicit attention took 6 % of the time of ViT-S/16 (docs/benchmarks.md).
# Under TensorFlow, and under JAX on CPUs and TPUs, Keras has no fused kernel
# for attention without a mask, and its einsums transpose more than the explicit
# products; that choice follows from its code and was not timed.
_FUSED = ("torch",)

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


def is_fused() -> bool:
    """Returns whether attention is fused, where it can be."""
    if _chosen == "auto":
        return keras.backend.backend() in _FUSED
    return _chosen == "fused"
