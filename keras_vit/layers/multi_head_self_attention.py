"""Multi-head self-attention (appendix A)."""

import keras
from keras import ops

from keras_vit._arguments import Count, Rate, checked
from keras_vit.layers import (
    arguments,
    attention_implementation,
    qkv_projection,
)
from keras_vit.layers.attention_products import fused_attention, reshape, scores
from keras_vit.layers.composite import CompositeLayer
from keras_vit.layers.dense import Dense
from keras_vit.layers.softmax import softmax, weighted_sum


@keras.saving.register_keras_serializable(package="keras_vit")
class MultiHeadSelfAttention(CompositeLayer):
    """Scaled dot-product self-attention over `num_heads` heads.

        [q, k, v] = z U_qkv,   A = softmax(q k^T / sqrt(E)),   SA(z) = A v
        MSA(z) = [SA_1(z); ...; SA_A(z)] U_msa

    One fused projection makes q, k and v. Its 3 D columns are those of the
    first head, then those of the second, and so on, and within a head those
    of q, of k and of v: [A, 3, E]. When the columns are divided among devices,
    every device has complete heads (tensor parallelism). The softmax is
    computed in float32 under every dtype policy, or in float64. The products
    are fused or explicit: see `set_attention_implementation`.

    With `relative_positions` the logit of every pair of tokens has a bias: the
    product of the query with a learned embedding of their distance i - j in the
    sequence, like a second attention whose keys are positions (Table 8, "Rel.
    Pos. Emb."). The class token counts as position 0.

    Args:
        num_heads: Number of heads A; divides the token width D.
        dropout_rate: Share of attention weights set to zero in training.
        relative_positions: Whether to add the relative position bias.

    Input shape: `[B, T, D]`
    Output shape: `[B, T, D]`

    Raises:
        ValueError: If D is no multiple of `num_heads`.

    Reference:
        Dosovitskiy et al. 2021, equations 5 to 8 and appendix D.4; checked
        against `MultiHeadDotProductAttention` of Flax.
    """

    @checked
    def __init__(
        self,
        num_heads: Count,
        dropout_rate: Rate = 0.0,
        relative_positions: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.dropout_rate = dropout_rate
        self.relative_positions = relative_positions

    def build(self, input_shape):
        tokens, width = input_shape[1:]
        if width % self.num_heads:
            raise ValueError(
                f"MultiHeadSelfAttention `{self.name}` splits the token width "
                "(`hidden_size`) into `num_heads` equal parts, so the width "
                f"must be a multiple of it. Received: hidden_size={width}, "
                f"num_heads={self.num_heads}"
            )
        # The table of relative positions fixes the number of tokens.
        self._token_shape = (tokens if self.relative_positions else None, width)
        self.head_size = width // self.num_heads
        self.qkv = self.make(
            Dense,
            3 * width,
            # Glorot's bound for each D x D third, not for the fused kernel,
            # whose mean of fans is twice as large: (D + 3 D) / 2 = 2 D.
            kernel_initializer=keras.initializers.VarianceScaling(
                scale=2.0, mode="fan_avg", distribution="uniform"
            ),
            name="qkv",
        )
        self.qkv.build(input_shape)
        self.out = self.make(
            Dense,
            width,
            kernel_initializer="glorot_uniform",
            name="out",
        )
        self.out.build(input_shape)
        self.dropout = self.make_dropout(self.dropout_rate)
        if self.relative_positions:
            self.relative_embedding = self.add_weight(
                name="relative_embedding",
                shape=(self.num_heads, 2 * tokens - 1, self.head_size),
                initializer=keras.initializers.RandomNormal(stddev=0.02),
            )

    def call(self, inputs, training=None):
        drops_weights = training and self.dropout_rate
        if (
            attention_implementation.is_fused(inputs, self.num_heads)
            and not drops_weights
            and not self.relative_positions
        ):
            x = fused_attention(*self._heads(inputs))
        else:
            logits, value = self._logits(inputs)
            if drops_weights:
                weights = softmax(logits, self.compute_dtype)
                weights = self.dropout(weights, training=training)
                x = ops.matmul(weights, value)
            else:
                x = weighted_sum(logits, value)
            x = ops.transpose(x, (0, 2, 1, 3))  # [B, T, A, E]
        width = self.num_heads * self.head_size
        x = reshape(x, (-1, x.shape[1], width))  # [B, T, D]
        return self.out(x)

    def attention_weights(self, inputs):
        """Returns softmax(q k^T / sqrt(E)) of `inputs`, `[B, A, T, T]`."""
        return softmax(self._logits(inputs)[0])

    def _heads(self, inputs):
        """Returns queries, keys and values, each `[B, A, T, E]`."""
        inputs = arguments.check_shape(self, inputs, self._token_shape)
        return qkv_projection.by_head(self.qkv, inputs, self.num_heads)

    def _logits(self, inputs):
        """Returns the logits and the values of each head."""
        # With heads before tokens, the products below are plain batched matrix
        # products, which XLA runs faster than the einsum form.
        query, key, value = self._heads(inputs)
        logits = scores(query, key)
        if self.relative_positions:
            query = query * self.head_size**-0.5
            logits = logits + self._relative_bias(query)
        return logits, value

    def _relative_bias(self, query):
        """Returns the logits of the relative attention.

        Row i of the product holds distances T - 1 to -(T - 1) from left to
        right; column j needs the distance i - j, at T - 1 - i + j. Padding each
        row by one and reading the flat memory in rows of 2 T - 1 shifts row i
        by i places, which aligns the columns without a gather.
        """
        tokens = query.shape[2]
        table = ops.cast(self.relative_embedding, query.dtype)
        x = ops.matmul(query, ops.transpose(table, (0, 2, 1)))
        x = ops.pad(x, ((0, 0), (0, 0), (0, 0), (0, 1)))
        x = ops.reshape(x, (-1, self.num_heads, 2 * tokens * tokens))
        x = x[:, :, tokens - 1 : tokens - 1 + tokens * (2 * tokens - 1)]
        x = ops.reshape(x, (-1, self.num_heads, tokens, 2 * tokens - 1))
        return x[..., :tokens]  # [B, A, T, T]

    def compute_output_shape(self, input_shape):
        return input_shape
