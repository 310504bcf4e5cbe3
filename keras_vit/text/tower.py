"""Text towers: those of CLIP and SigLIP.

Radford et al. 2021 (2103.00020) and Zhai et al. 2023 (2303.15343). Checked
against clip, siglip and siglip2 of transformers.
"""

import dataclasses
import os
from typing import Any, Literal

import keras
import numpy as np

from keras_vit._arguments import Count, Epsilon, Natural, Rate, checked
from keras_vit.layers.mlp_block import Activation
from keras_vit.models import encoder
from keras_vit.models.build import own_paths, policy
from keras_vit.models.families import architecture, check_heads
from keras_vit.models.image_model import QuantizableModel
from keras_vit.ops.dtypes import wide_policy
from keras_vit.text.layers import EndOfText, TokenEmbedding
from keras_vit.text.tokenizers import Tokenizer


@architecture
class TextConfig:
    """The architecture of a text tower.

    Attributes:
        vocab_size: Number of tokens.
        context_length: Tokens L of each text, the rest of which is padding.
        hidden_size: Width D of the tokens.
        num_layers: Number of blocks.
        num_heads: Attention heads; divides `hidden_size`.
        mlp_dim: Width of the MLPs' hidden layer.
        embedding_size: Width E of the output; None leaves the projection out.
        causal: Whether tokens see only those before them.
        pooling: The token that is read: "end", the first `end_token`;
            "largest", the largest id; "last".
        end_token: The id that ends a text; only of pooling="end".
        projection_bias: Whether the projection has a bias.
        activation: Of the MLPs: see `MlpBlock`.
        layer_norm_epsilon: Epsilon of every LayerNorm.
        drop_path_rate: Stochastic depth of the last block.
    """

    vocab_size: Count
    context_length: Count
    hidden_size: Count
    num_layers: Count
    num_heads: Count
    mlp_dim: Count
    embedding_size: Count | None = None
    causal: bool = True
    pooling: Literal["end", "largest", "last"] = "end"
    end_token: Natural | None = None
    projection_bias: bool = False
    activation: Activation = "quick_gelu"
    layer_norm_epsilon: Epsilon = 1e-5
    drop_path_rate: Rate = 0.0

    def __post_init__(self):  # noqa: D105
        check_heads(self)
        if (self.pooling == "end") != (self.end_token is not None):
            raise ValueError(
                "`end_token` must be given with pooling='end', and only then. "
                f"Received: pooling={self.pooling!r}, "
                f"end_token={self.end_token}"
            )


# Kind -> the fields in which it differs from the other.
KINDS: dict[str, dict] = {
    "clip": dict(pooling="largest"),
    "siglip": dict(
        causal=False,
        pooling="last",
        projection_bias=True,
        activation="gelu_tanh",
        layer_norm_epsilon=1e-6,
    ),
}


@keras.saving.register_keras_serializable(package="keras_vit")
class TextMetadata(keras.layers.Layer):
    """Returns its input, and holds what a text tower is, and its tokenizer.

    The files of the tokenizer are part of a `.keras` file.

    Args:
        architecture: The fields of `TextConfig`.
    """

    @checked
    def __init__(self, architecture: dict, **kwargs):
        super().__init__(**kwargs)
        self.architecture = dict(architecture)
        self.tokenizer: Any = None

    def call(self, inputs):
        return inputs

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return super().get_config() | dict(architecture=self.architecture)

    def save_assets(self, folder):
        """Write the tokenizer's files to a folder of a `.keras` file."""
        if isinstance(self.tokenizer, Tokenizer):
            self.tokenizer.save(folder)

    def load_assets(self, folder):
        """Read the tokenizer's files, if the model was saved with some."""
        # Keras passes None, or an empty folder, for a layer without files.
        if folder is not None and os.listdir(folder):
            self.tokenizer = Tokenizer.load(folder)


@keras.saving.register_keras_serializable(package="keras_vit")
class TextModel(QuantizableModel):
    """A functional model from ids of tokens, `[B, L]`, to embeddings, `[B, E]`.

    It is saved, loaded and exported like any functional `keras.Model`.
    """

    def __call__(self, inputs, *args, **kwargs):
        """Call the model on ids; see `keras.Model.__call__`.

        Raises:
            ValueError: If there are too many for the positions, an id is not in
                the vocabulary, or none is the end that the model reads.
        """
        return super().__call__(self.check(inputs), *args, **kwargs)

    def predict(self, x, *args, **kwargs):
        """Return the embeddings of ids; see `keras.Model.predict`."""
        return super().predict(self.check(x), *args, **kwargs)

    @property
    def architecture(self) -> TextConfig:
        """Its architecture."""
        return TextConfig(**self._metadata.architecture)

    @property
    def file_family(self) -> str:
        """Name of the rules of its files, a key of `weights.rules.FAMILIES`."""
        return "clip_text" if self.architecture.causal else "siglip_text"

    @property
    def metadata(self) -> dict:
        """Its architecture, as the metadata of a checkpoint."""
        return dataclasses.asdict(self.architecture)

    @property
    def blocks(self) -> list[keras.layers.Layer]:
        """Its blocks, from the input on."""
        return [x for x in self.layers if isinstance(x, encoder.EncoderBlock)]

    @property
    def tokenizer(self):
        """From a list of strings to ids, `[B, L]`; None if unknown.

        It is saved with the model; a clone has none until it is set.
        """
        return self._metadata.tokenizer

    @tokenizer.setter
    def tokenizer(self, tokenizer):
        self._metadata.tokenizer = tokenizer

    def check(self, ids):
        """Return ids of the model's length, or raise a ValueError.

        A shorter text of a model that reads the end of the text is padded;
        what a tensor of a compiled program holds is not checked.

        Args:
            ids: `[B, L]`
        """
        if isinstance(ids, (list, tuple)) and len(ids) == 1:
            return [self.check(ids[0])]  # as Keras passes the one input
        if isinstance(ids, dict) and len(ids) == 1:
            return {name: self.check(one) for name, one in ids.items()}
        config, shape = self.architecture, getattr(ids, "shape", None)
        if shape is None:
            return ids
        length = config.context_length
        shape = tuple(shape)
        exact = config.pooling == "last"
        if len(shape) != 2 or (
            shape[1] is not None
            and (shape[1] > length or (exact and shape[1] != length))
        ):
            raise ValueError(
                f"`ids` must be of shape [B, {length}]"
                f"{'' if exact else ' or shorter'}: `{self.name}` has "
                f"positions for {length} tokens"
                f"{', and reads the last' * exact}. Received: shape {shape}"
            )
        values = _values(ids)
        if values is None:
            return ids
        if values.dtype.kind not in "iu" and (values % 1).any():
            raise ValueError(
                f"`ids` must be integers. Received: dtype={values.dtype}"
            )
        if values.size:
            _check_range(self.name, config.vocab_size, values)
        if config.pooling == "end":
            ends = (values == config.end_token).any(axis=1)
            if not ends.all():
                raise ValueError(
                    f"`ids` must have the token {config.end_token} in each "
                    f"row: `{self.name}` reads the end of a text. Received: "
                    f"none in row {int(ends.argmin())}"
                )
        if values.shape[1] == length:
            return ids
        padded = np.zeros((len(values), length), "int32")
        padded[:, : values.shape[1]] = values
        return padded

    @property
    def _metadata(self):
        (layer,) = (x for x in self.layers if isinstance(x, TextMetadata))
        return layer


def _check_range(name, size, ids):
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= size:
        wrong = low if low < 0 else high
        raise ValueError(
            f"`ids` must be from 0 to {size - 1}: `{name}` knows {size} "
            f"tokens. Received: an id of {wrong}. Is it of another tokenizer?"
        )


def _values(ids):
    """Return the numbers of ids; None within a program that is traced."""
    if isinstance(ids, keras.KerasTensor):
        return None
    try:
        return keras.ops.convert_to_numpy(ids)
    except Exception:  # each backend raises its own for a symbol
        return None


@checked
@own_paths()
def text_tower(
    kind: Literal["clip", "siglip"],
    *,
    tokenizer=None,
    dtype=None,
    remat: bool = False,
    name: str = "text_tower",
    **fields,
) -> TextModel:
    """Build the text tower of a CLIP or of a SigLIP, with random weights.

    Args:
        kind: "clip": each token sees those before it, and the end of the text
            is read, which is the largest id unless the tokenizer is of another
            kind; "siglip": all see all, and the last is read.
        tokenizer: From a list of strings to ids, `[B, L]`.
        dtype: Policy of the layers; the global one.
        remat: Whether blocks recompute their activations in the backward pass.
        name: Name of the model.
        **fields: Those of `keras_vit.text.TextConfig`.

    Raises:
        ValueError: If a field has an impossible value.
        TypeError: If one is absent or unknown.

    Example:
        text = keras_vit.text.text_tower(
            "siglip", vocab_size=100, context_length=16, hidden_size=64,
            num_layers=2, num_heads=2, mlp_dim=128, embedding_size=64)
    """
    if (
        kind == "clip"
        and isinstance(tokenizer, Tokenizer)
        and tokenizer.kind != "clip"
        and not {"pooling", "end_token"} & set(fields)
    ):
        fields |= dict(pooling="end", end_token=tokenizer.end_token)
    config = TextConfig(**(KINDS[kind] | fields))
    with policy(dtype):
        model = _assemble(config, name)
    for block in model.blocks:
        block.remat = remat
    model.tokenizer = tokenizer
    return model


def _assemble(config, name):
    ids = keras.Input((config.context_length,), name="ids", dtype="int32")
    x = TokenEmbedding(
        config.vocab_size, config.hidden_size, name="token_embedding"
    )(ids)
    attention = dict(layer="CausalAttention") if config.causal else {}
    x = encoder.encode(config, x, attention)
    x = encoder.norm(config, "encoder_norm")(x)
    if config.pooling == "last":
        x = x[:, -1]
    else:
        x = EndOfText(config.end_token, name="end_of_text")(x, ids)
    wide = wide_policy()
    x = TextMetadata(dataclasses.asdict(config), name="metadata", dtype=wide)(x)
    if config.embedding_size:
        x = projection(
            config.embedding_size,
            config.hidden_size,
            use_bias=config.projection_bias,
            name="projection",
        )(x)
    return TextModel(ids, x, name=name)


def projection(size: int, width: int, **kwargs) -> keras.layers.Layer:
    """Return the dense layer from a tower's output to the shared space.

    Args:
        size: Width E of the space.
        width: Width D of the tower.
        **kwargs: Other arguments of `Dense`.
    """
    return keras.layers.Dense(
        size,
        kernel_initializer=keras.initializers.RandomNormal(stddev=width**-0.5),
        dtype=wide_policy(),
        **kwargs,
    )
