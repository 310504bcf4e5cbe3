"""Layers of a ViT's positions, other than learned tables (Table 8)."""

import keras
from keras import ops

from keras_vit import layers
from keras_vit.layers.sine import sines_2d
from keras_vit.ops.dtypes import wide_dtype


@keras.saving.register_keras_serializable(package="keras_vit")
class RelativeAttention(layers.MultiHeadSelfAttention):
    """Self-attention with relative positions (Table 8, "Rel. Pos. Emb.").

    The logit of every pair of tokens has a bias: the product of the query with
    a learned embedding of their distance i - j in the sequence, like a second
    attention whose keys are positions. The class token counts as position 0.
    Its arguments are those of `MultiHeadSelfAttention`.

    Input shape: `[B, T, D]`
    Output shape: `[B, T, D]`

    Reference:
        Dosovitskiy et al. 2021, appendix D.4.
    """

    adds_to_scores = True

    def build(self, input_shape):
        super().build(input_shape)
        self._token_shape = tuple(input_shape[1:])
        self.relative_embedding = self.add_weight(
            name="relative_embedding",
            shape=(self.num_heads, 2 * input_shape[1] - 1, self.head_size),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
        )

    def _scores(self, query, key):
        bias = self._bias(query * self.head_size**-0.5)
        return super()._scores(query, key) + bias

    def _bias(self, query):
        """Return the logits of the relative attention, `[B, A, T, T]`.

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
        return x[..., :tokens]


@keras.saving.register_keras_serializable(package="keras_vit")
class SincosPositionEmbs(layers.AddPositionEmbs):
    """Adds big_vision's sines and cosines to the patches.

    It has no variables. The arguments are those of `AddPositionEmbs`, with
    kind="learned_1d".

    Input shape: `[B, T, D]`
    Output shape: `[B, T, D]`

    Raises:
        ValueError: Also if D is no multiple of 4.

    Reference:
        Beyer et al. 2022 (2205.01580); checked against `posemb_sincos_2d` of
        big_vision/models/vit.py.
    """

    def _table(self, name, shape):
        table = sines_2d(
            self.grid_size, shape[-1], int(self.class_token), last=True
        )
        return table.astype(wide_dtype(self.compute_dtype))
