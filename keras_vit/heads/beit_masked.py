"""BEiT's pre-training: the visual tokens of masked patches.

Bao et al. 2022, "BEiT: BERT Pre-Training of Image Transformers" (2106.08254).
Checked against BeitForMaskedImageModeling of transformers. The visual tokens
are numbers that a tokenizer of images gives to patches; it is not part of this
package.
"""

import math

import keras
from keras import ops

from keras_vit import layers
from keras_vit._arguments import Count, checked
from keras_vit.heads import task_model, tokens
from keras_vit.heads.masked import MaskedInput
from keras_vit.layers.keras_layers import Dense, LayerNorm
from keras_vit.models.build import own_paths
from keras_vit.models.image_model import ImageModel
from keras_vit.ops.dtypes import wide_policy


@keras.saving.register_keras_serializable(package="keras_vit")
class MaskEmbedding(keras.layers.Layer):
    """Replaces the embeddings of masked patches by a learned one.

    Call arguments:
        inputs: `[B, N, D]`
        masked: 1 or true where a patch is masked, `[B, N]`.

    Output shape: `[B, N, D]`
    """

    def build(self, inputs_shape, masked_shape):
        self.mask_token = self.add_weight(
            name="mask_token",
            shape=(1, 1, inputs_shape[-1]),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
        )

    def call(self, inputs, masked):
        token = ops.cast(self.mask_token, inputs.dtype)
        return ops.where(ops.cast(masked, "bool")[..., None], token, inputs)

    def compute_output_shape(self, inputs_shape, masked_shape):
        return inputs_shape


@checked
@own_paths()
def beit_masked(
    backbone: keras.Model,
    *,
    vocab_size: Count = 8192,
    shared_positions: bool = False,
    name: str | None = None,
) -> MaskedInput:
    """Build the model that predicts visual tokens, on the layers of a BEiT.

    Args:
        backbone: A BEiT, or another ViT, of this package; its head is left out.
            Its layers are shared, so that training changes it.
        vocab_size: Number V of visual tokens.
        shared_positions: Whether all blocks have the same table of relative
            positions in files; it must not be trained then.
        name: Name of the model.

    Returns:
        A model of {"images": `[B, H, W, C]`, "mask": `[B, N]`, 1 where a patch
        is masked}, with the output "logits", `[B, N, V]`. Its loss is the
        cross-entropy with the visual tokens, weighted with the mask.

    Raises:
        ValueError: If the backbone is not a sequence of layers from the
            patches on.

    Example:
        model = keras_vit.heads.beit_masked(
            keras_vit.BEiTB16(include_top=False))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss=dict(logits=loss))

    Reference:
        Bao et al. 2022 (2106.08254), section 2.3.
    """
    inner = ImageModel.find(backbone, "backbone")
    stem, *rest = _sequence(inner)
    mask = keras.Input((stem.output.shape[1],), name="mask", dtype="int32")
    x = MaskEmbedding(name="mask_embedding")(stem.output, mask)
    for layer in rest:
        x = layer(x)
    if inner.architecture.pooling != "gap_norm":
        x = tokens.normed(inner, x)
    x = task_model.mark(inner, x)
    epsilon = inner.architecture.layer_norm_epsilon
    x = LayerNorm(epsilon=epsilon, name="visual_norm")(x)
    x = x[:, x.shape[1] - math.prod(tokens.grid_of(inner)) :]
    logits = Dense(vocab_size, name="visual_tokens", dtype=wide_policy())(x)
    return task_model.finish(
        inner,
        dict(logits=logits),
        "beit_masked",
        "masked_images",
        dict(vocab_size=vocab_size, shared_positions=shared_positions),
        name=name,
        more_inputs=dict(mask=mask),
        kind=MaskedInput,
    )


def _sequence(inner):
    """Return the layers from the embedding of patches to the last block."""
    names = [layer.name for layer in inner.layers]
    blocks = inner.blocks
    found = []
    if "embedding" in names and blocks:
        last = names.index(blocks[-1].name) + 1
        found = inner.layers[names.index("embedding") : last]
    pairs = zip(found, found[1:], strict=False)
    if (
        not found
        or not isinstance(found[0], layers.PatchEmbedding)
        or any(after.input is not before.output for before, after in pairs)
    ):
        raise ValueError(
            "`backbone` must be a ViT, a sequence of layers from an embedding "
            f"of patches on. Received: {inner.name!r}, of the family "
            f"{inner.family!r}"
        )
    return found


task_model.register(task_model.Head("beit_masked", lambda *_, **__: {}))
