"""Layers of text towers, and what joins two towers."""

import math

import keras
import numpy as np
from keras import ops

from keras_vit._arguments import Count, Natural, checked
from keras_vit.layers import MultiHeadSelfAttention
from keras_vit.layers.base import check_shape
from keras_vit.ops.attention import causal_attention, is_fused
from keras_vit.ops.dtypes import constant
from keras_vit.ops.norm import unit_length


@keras.saving.register_keras_serializable(package="keras_vit")
class CausalAttention(MultiHeadSelfAttention):
    """Self-attention of which each token sees itself and those before it.

    Its arguments are those of `MultiHeadSelfAttention`.

    Input shape: `[B, T, D]`
    Output shape: `[B, T, D]`

    Reference:
        Radford et al. 2021 (2103.00020), section 2.4; checked against clip of
        transformers.
    """

    adds_to_scores = True

    def _attend(self, inputs, training, bias=None):
        drops_weights = training and self.dropout_rate
        if bias is None and not drops_weights:
            if is_fused(inputs, self.num_heads):
                x = causal_attention(*self._heads(inputs))
                if x is not None:
                    width = self.num_heads * self.head_size
                    return ops.reshape(x, (-1, x.shape[1], width))
        return super()._attend(inputs, training, bias)

    def _scores(self, query, key):
        logits = super()._scores(query, key)
        # Below what float16 can hold, and far enough below any logit that the
        # exponential is zero.
        tokens = int(query.shape[2])
        later = np.triu(np.full((tokens, tokens), -3e4, "float32"), 1)
        return logits + ops.cast(constant(later), logits.dtype)


@keras.saving.register_keras_serializable(package="keras_vit")
class TokenEmbedding(keras.layers.Layer):
    """Looks up the vector of each token, and adds that of its position.

    Args:
        vocab_size: Number of tokens V.
        hidden_size: Width D of a vector.

    Input shape: `[B, L]`, integers below V
    Output shape: `[B, L, D]`
    """

    @checked
    def __init__(self, vocab_size: Count, hidden_size: Count, **kwargs):
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size

    def build(self, input_shape):
        self._length = input_shape[1]

        def table(name, rows, stddev):
            normal = keras.initializers.RandomNormal(stddev=stddev)
            return self.add_weight(
                name=name, shape=(rows, self.hidden_size), initializer=normal
            )

        self.token_embedding = table("token_embedding", self.vocab_size, 0.02)
        self.pos_embedding = table("pos_embedding", self._length, 0.01)

    def call(self, inputs):
        inputs = check_shape(self, inputs, (self._length,))
        x = ops.take(self.token_embedding, inputs, axis=0)
        return ops.cast(x + self.pos_embedding, self.compute_dtype)

    def compute_output_shape(self, input_shape):
        return (*input_shape, self.hidden_size)

    def compute_output_spec(self, inputs):
        shape = self.compute_output_shape(inputs.shape)
        return keras.KerasTensor(shape, self.compute_dtype)


@keras.saving.register_keras_serializable(package="keras_vit")
class EndOfText(keras.layers.Layer):
    """Returns the vector of the end of each text.

    Args:
        token: The id that ends a text, the first of which is read. None for
            the largest id of each text, which ends it in CLIP's vocabulary.

    Call arguments:
        inputs: Vectors, `[B, L, D]`
        ids: `[B, L]`

    Output shape: `[B, D]`
    """

    @checked
    def __init__(self, token: Natural | None = None, **kwargs):
        super().__init__(**kwargs)
        self.token = token

    def build(self, inputs_shape, ids_shape=None):
        self._length = inputs_shape[1]

    def call(self, inputs, ids):
        if self.token is not None:
            ids = ops.cast(ops.equal(ids, self.token), "int32")
        place = ops.argmax(ids, axis=1)  # the first of the largest
        # A product, as its gradient is faster than that of a gather on TPUs.
        places = ops.convert_to_tensor(np.arange(self._length), place.dtype)
        chosen = ops.cast(ops.equal(place[:, None], places), inputs.dtype)
        return ops.squeeze(ops.matmul(chosen[:, None], inputs), 1)

    def compute_output_shape(self, inputs_shape, ids_shape=None):
        return (inputs_shape[0], inputs_shape[-1])


@keras.saving.register_keras_serializable(package="keras_vit")
class UnitLength(keras.layers.Layer):
    """Divides vectors by their lengths.

    Input shape: `[..., D]`
    Output shape: `[..., D]`
    """

    def call(self, inputs):
        return unit_length(inputs)

    def compute_output_shape(self, input_shape):
        return input_shape


@keras.saving.register_keras_serializable(package="keras_vit")
class Similarity(keras.layers.Layer):
    """Compares images with texts by their embeddings x and y.

        logits = exp(logit_scale) x . y + logit_bias

    Args:
        logit_scale: First value of the logarithm of the scale: log(1 / 0.07)
            (CLIP), log(10) (SigLIP).
        logit_bias: That of the bias: -10 (SigLIP); None without one (CLIP).

    Call arguments:
        images: `[B, E]`, of length 1
        texts: `[C, E]`, of length 1

    Output shape: `[B, C]`
    """

    @checked
    def __init__(
        self,
        logit_scale: float = math.log(1 / 0.07),
        logit_bias: float | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self._first = dict(logit_scale=logit_scale, logit_bias=logit_bias)

    def build(self, images_shape, texts_shape=None):
        def scalar(name):
            first = self._first[name]
            if first is None:
                return None
            constant = keras.initializers.Constant(first)
            return self.add_weight(name=name, shape=(), initializer=constant)

        self.logit_scale = scalar("logit_scale")
        self.logit_bias = scalar("logit_bias")

    def call(self, images, texts):
        return self.logits(images, texts)

    def logits(self, images, texts):
        """Return the logits of embeddings of length 1, `[B, C]`.

        Args:
            images: `[B, E]`
            texts: `[C, E]`
        """
        x = ops.matmul(images, ops.transpose(texts)) * self.scale()
        return x if self.logit_bias is None else x + self.logit_bias

    def scale(self):
        """Return the scale, exp(logit_scale)."""
        return ops.exp(self.logit_scale)

    def compute_output_shape(self, images_shape, texts_shape):
        return (images_shape[0], texts_shape[0])

    def get_config(self):
        return super().get_config() | self._first
