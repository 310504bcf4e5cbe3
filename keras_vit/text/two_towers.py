"""A tower of images and one of texts, which meet in one space."""

import math
from collections.abc import Sequence

import keras
import numpy as np

from keras_vit import layers
from keras_vit._arguments import Count, checked
from keras_vit.models.build import own_paths
from keras_vit.models.image_model import ImageModel, QuantizableModel
from keras_vit.ops.dtypes import wide_policy
from keras_vit.text.layers import Similarity, UnitLength
from keras_vit.text.naflex import NaFlexModel
from keras_vit.text.tower import TextModel


@keras.saving.register_keras_serializable(package="keras_vit")
class TwoTowers(QuantizableModel):
    """A functional model that compares images with texts.

    Its inputs are "images", `[B, H, W, C]`, and "ids", `[C, L]`; its outputs
    "image_embeddings", `[B, E]`, and "text_embeddings", `[C, E]`, of length 1,
    and "logits", `[B, C]`. It is saved, loaded and cloned like any functional
    `keras.Model`; `image_tower` and `text_tower` are models of their own.
    """

    @property
    def image_tower(self) -> ImageModel:
        """From images to embeddings of any length, `[B, E]`."""
        return self.get_layer("image_tower")

    @property
    def text_tower(self) -> TextModel:
        """From ids to embeddings of any length, `[C, E]`."""
        return self.get_layer("text_tower")

    @property
    def similarity(self) -> Similarity:
        """The layer with the scale and the bias of logits."""
        return self.get_layer("similarity")

    @property
    def tokenizer(self):
        """From a list of strings to ids, `[C, L]`; None if unknown."""
        return self.text_tower.tokenizer

    @tokenizer.setter
    def tokenizer(self, tokenizer):
        self.text_tower.tokenizer = tokenizer

    @checked
    def encode_images(self, images, batch_size: Count = 64) -> np.ndarray:
        """Return the embeddings of images, of length 1, `[B, E]`.

        Args:
            images: Pixels, `[B, H, W, C]`, as `image_tower` takes them.
            batch_size: Images in each step.

        Raises:
            ValueError: If `batch_size` is below 1.
        """
        return _unit(
            self.image_tower.predict(images, batch_size=batch_size, verbose=0)
        )

    @checked
    def encode_texts(
        self, texts: str | Sequence[str] | np.ndarray, batch_size: Count = 256
    ) -> np.ndarray:
        """Return the embeddings of texts, of length 1, `[C, E]`.

        Args:
            texts: Strings, or ids, `[C, L]`.
            batch_size: Texts in each step.

        Raises:
            ValueError: If texts are strings and the model has no tokenizer, ids
                are not of this model, or `batch_size` is below 1.
        """
        ids = self.ids_of(texts)
        return _unit(
            self.text_tower.predict(ids, batch_size=batch_size, verbose=0)
        )

    def ids_of(self, texts: str | Sequence[str] | np.ndarray):
        """Return the ids of strings, `[C, L]`; ids are returned unchanged.

        Args:
            texts: A string, strings, or ids.

        Raises:
            ValueError: If texts are strings and the model has no tokenizer.
        """
        if isinstance(texts, str):
            texts = [texts]
        if not len(texts) or not isinstance(texts[0], str):
            return np.asarray(texts) if isinstance(texts, list) else texts
        if self.tokenizer is None:
            raise ValueError(
                "`texts` must be ids, `[C, L]`: the model has no tokenizer. "
                "Received: strings. Set `model.tokenizer`, which clones and "
                "models from a configuration do not have, or open the model "
                "from a directory with the tokenizer's files"
            )
        return self.tokenizer(list(texts))

    def logits(self, images, texts) -> np.ndarray:
        """Return how well each text fits each image, `[B, C]`.

        Args:
            images: Pixels, `[B, H, W, C]`.
            texts: Strings, or ids, `[C, L]`.
        """
        embeddings = self.encode_images(images), self.encode_texts(texts)
        tensors = (keras.ops.convert_to_tensor(x) for x in embeddings)
        return keras.ops.convert_to_numpy(self.similarity.logits(*tensors))


@keras.saving.register_keras_serializable(package="keras_vit")
class NaFlexTowers(TwoTowers):
    """Two towers, of which that of images takes any shape (SigLIP 2, NaFlex).

    Its inputs are those of `NaFlexModel`, and "ids".
    """

    def encode_images(
        self, images: Sequence[np.ndarray], batch_size: int = 64
    ) -> np.ndarray:
        """Return the embeddings of images, of length 1, `[B, E]`.

        Args:
            images: Pixels in [0, 255] of images of any shape, `[H, W, C]`; or
                what `image_tower.patches` makes of them.
            batch_size: Images in each step.
        """
        if not isinstance(images, dict):
            images = self.image_tower.patches(images)
        return super().encode_images(images, batch_size)


def _unit(x):
    x = np.asarray(x)
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)


@checked
@own_paths()
def two_towers(
    image_tower: keras.Model,
    text_tower: TextModel,
    *,
    logit_scale: float = math.log(1 / 0.07),
    logit_bias: float | None = None,
    projection: bool | None = None,
    name: str = "two_towers",
) -> TwoTowers:
    """Join a tower of images and one of texts.

    Args:
        image_tower: A model of this package. A classifier's head is left out,
            unless it already is the projection to the width of the texts.
        text_tower: A `TextModel`.
        logit_scale: First value of the logarithm of the scale: log(1 / 0.07)
            (CLIP), log(10) (SigLIP).
        logit_bias: That of the bias: -10 (SigLIP); None without one (CLIP).
        projection: Whether a dense layer without a bias ends the image tower;
            None for where its width is not that of the texts.
        name: Name of the model.

    Returns:
        A model that shares the layers of both.

    Raises:
        ValueError: If the widths differ and `projection` is False, or the
            image tower makes maps in place of a vector.

    Example:
        text = keras_vit.text.text_tower(
            "clip", vocab_size=100, context_length=16, hidden_size=64,
            num_layers=2, num_heads=2, mlp_dim=128, embedding_size=64)
        image = keras_vit.ViT(
            patch_size=8, hidden_size=64, num_layers=2, num_heads=2,
            mlp_dim=128, input_shape=(32, 32, 3), include_top=False)
        model = keras_vit.two_towers(image, text)
    """
    inner = ImageModel.find(image_tower, "image_tower")
    size = text_tower.output_shape[-1]
    image = _image_tower(inner, size, projection)
    images = keras.Input(
        inner.input_shape[1:], name="images", dtype=inner.inputs[0].dtype
    )
    similarity = dict(logit_scale=logit_scale, logit_bias=logit_bias)
    inputs, outputs = _join(image, images, text_tower, similarity)
    return TwoTowers(dict(images=images) | inputs, outputs, name=name)


def naflex_towers(
    image_tower: NaFlexModel, text_tower: TextModel, name: str = "two_towers"
) -> NaFlexTowers:
    """Join a tower of images of any shape and one of texts."""
    images = {
        one.name: keras.Input(one.shape[1:], name=one.name, dtype=one.dtype)
        for one in image_tower.inputs
    }
    similarity = dict(logit_scale=math.log(10), logit_bias=-10.0)
    inputs, outputs = _join(image_tower, images, text_tower, similarity)
    return NaFlexTowers(images | inputs, outputs, name=name)


def _join(image, images, text, similarity):
    """Return the inputs of texts, and the outputs of both towers."""
    if text.name != "text_tower":
        text = TextModel(text.input, text.output, name="text_tower")
    wide = wide_policy()
    ids = keras.Input(text.input_shape[1:], name="ids", dtype="int32")
    x, y = (
        UnitLength(name=f"{kind}_length", dtype=wide)(tower(inputs))
        for kind, tower, inputs in (
            ("image", image, images),
            ("text", text, ids),
        )
    )
    logits = Similarity(**similarity, name="similarity", dtype=wide)(x, y)
    outputs = dict(image_embeddings=x, text_embeddings=y, logits=logits)
    return dict(ids=ids), outputs


def _image_tower(inner, size: Count, projects):
    """Return an image tower that ends in embeddings of a size."""
    if len(inner.representation.shape) != 2:
        raise ValueError(
            "`image_tower` must make one vector of an image. Received: "
            f"{inner.name!r}, which makes {inner.representation.shape}"
        )
    head = inner.head
    if head is not None and head.units == size and projects is not False:
        head.bias.trainable = False  # of zeros, which files do not have
        return ImageModel(inner.input, inner.output, name="image_tower")
    x = inner.representation
    width = x.shape[-1]
    if projects is False and width != size:
        raise ValueError(
            "`projection` must not be False where the towers have other "
            f"widths. Received: {width} of images, {size} of texts"
        )
    if projects or width != size:
        x = layers.ClassificationHead(
            size,
            kernel_initializer=keras.initializers.RandomNormal(
                stddev=width**-0.5
            ),
            frozen=("bias",),  # of zeros: the projection has none
            name="head",
            dtype=wide_policy(),
        )(x)
    return ImageModel(inner.input, x, name="image_tower")
