"""Masked autoencoders: a decoder draws the patches that the encoder misses.

He et al. 2021, "Masked Autoencoders Are Scalable Vision Learners" (2111.06377);
Tong et al. 2022, "VideoMAE" (2203.12602). Checked against vit_mae and videomae
of transformers. The encoder sees the visible patches alone, a quarter or a
tenth of all: its cost falls with them.
"""

import math

import keras
import numpy as np
from keras import ops

from keras_vit import layers
from keras_vit._arguments import Count, Natural, Rate, checked
from keras_vit._keras import nested_layers
from keras_vit.heads import patch_errors, task_model, tokens
from keras_vit.heads.masked_patches import Mask, MaskTokens, TakePatches
from keras_vit.heads.patch_errors import PatchErrors, Target
from keras_vit.heads.task_model import PIXELS, TaskModel
from keras_vit.layers.keras_layers import Dense, LayerNorm, check_float
from keras_vit.layers.sine import FixedPositionEmbs, SequencePositions, sines_2d
from keras_vit.models.build import build, own_paths
from keras_vit.models.families import FAMILIES
from keras_vit.models.image_model import ImageModel
from keras_vit.ops.dtypes import wide_policy


@keras.saving.register_keras_serializable(package="keras_vit")
class MaskedInput(TaskModel):
    """A model of images, or videos, and of which patches are masked.

    Its inputs are a dictionary.
    """

    @property
    def blocks(self) -> list[keras.layers.Layer]:
        """The encoder's blocks, from the input on."""
        return [x for x in super().blocks if not x.name.startswith("decoder")]

    def encoder(self, **changes) -> ImageModel:
        """Return the encoder with the present weights, a model of its own.

        Args:
            **changes: Arguments of the family's constructor, such as
                `classes`; without them the model has no head.

        Returns:
            A model of all patches. A norm that only a classifier has begins
            anew. Updates of low rank are part of its kernels.

        Raises:
            ValueError: If the model is quantised.
        """
        check_float(self, "model")
        own = dict(
            input_shape=self._pixels.shape[1:],
            include_preprocessing=self.includes_preprocessing,
            pixel_mean=self.pixel_mean,
            pixel_std=self.pixel_std,
        )
        if not {"classes", "class_names", "include_top"} & set(changes):
            own["include_top"] = False
        fields = self._metadata.architecture
        model = build(FAMILIES[self.family], {**fields, **own, **changes})
        values = {weight.path: weight.value for weight in self.weights}
        for layer in nested_layers(self):
            if getattr(layer, "lora_enabled", False):
                values[f"{layer.path}/kernel"] = layer.kernel
        for weight in model.weights:
            if weight.path in values:
                # Of its own: JAX' `predict` gives up the arrays that it reads.
                weight.assign(ops.copy(values[weight.path]))
        return model


@keras.saving.register_keras_serializable(package="keras_vit")
class MaskedModel(MaskedInput):
    """A model that predicts patches which it does not see.

    Its inputs are a dictionary; `inputs_of` makes it.
    """

    @property
    def patch_size(self) -> tuple[int, int, int]:
        """(frames, height, width) of a patch."""
        return self.get_layer("patch_errors").patch_size

    @property
    def num_patches(self) -> int:
        """Number N of patches."""
        return self.get_layer("mask").num_patches

    @property
    def num_visible(self) -> int:
        """Number V of visible patches that its `mask_ratio` leaves."""
        return self.num_patches - self._num_masked()

    @checked
    def inputs_of(
        self,
        pixels,
        *,
        noise: np.ndarray | None = None,
        mask: np.ndarray | None = None,
        seed: Natural = 0,
    ) -> dict:
        """Return the inputs of the model: the pixels and visible patches.

        Args:
            pixels: Images or videos.
            noise: Random numbers `[B, N]`; the patches with the lowest are
                visible, as many as `mask_ratio` leaves.
            mask: Which patches are not visible, `[B, N]`, true or 1; in each
                image as many.
            seed: Of the choice without `noise` and `mask`.

        Raises:
            ValueError: If images have different numbers of masked patches, or
                `noise` or `mask` is not of all patches.
        """
        shape = (len(pixels), self.num_patches)
        for kind, values in (("noise", noise), ("mask", mask)):
            if values is not None and np.shape(values) != shape:
                raise ValueError(
                    f"`{kind}` must be [B, N], {shape}. Received: shape "
                    f"{np.shape(values)}"
                )
        if mask is None and noise is None:
            generator = np.random.default_rng(seed)
            mask = np.stack([self._draw(generator) for _ in range(len(pixels))])
        if mask is None:
            visible = np.argsort(np.asarray(noise), axis=1, kind="stable")
            visible = visible[:, : self.num_visible]
        else:
            mask = np.asarray(mask).astype(bool)
            counts = (~mask).sum(axis=1)
            if len(set(counts.tolist())) > 1:
                raise ValueError(
                    "`mask` must mask as many patches of each image. Received: "
                    f"{mask.sum(axis=1).tolist()} masked patches"
                )
            visible = np.argsort(mask, axis=1, kind="stable")[:, : counts[0]]
        (name,) = (key for key in self.input if key in PIXELS)
        return {name: pixels, "visible": visible.astype("int32")}

    def _num_masked(self):
        """Return the number of masked patches, as each library rounds it."""
        ratio, frames = self.options["mask_ratio"], self.num_frames
        if frames is None:
            return self.num_patches - int(self.num_patches * (1 - ratio))
        columns = frames // self.patch_size[0]
        return columns * int(ratio * (self.num_patches // columns))

    def _draw(self, generator):
        """Return a mask; of a video, the same in all its frames (tubes)."""
        frames = self.num_frames
        columns = 1 if frames is None else frames // self.patch_size[0]
        mask = np.arange(self.num_patches // columns)
        mask = mask < self._num_masked() // columns
        return np.tile(generator.permutation(mask), columns)

    def reconstruct(
        self, inputs: dict, outputs: dict | None = None
    ) -> np.ndarray:
        """Return the pixels with the predictions of masked patches.

        A target that is normalised gets the mean and the variance of the true
        patch back, as in the pictures of the paper.

        Args:
            inputs: Of the model.
            outputs: Of the model on them; None computes them.

        Returns:
            Pixels in [0, 255], or in the scale of the input of a model without
            preprocessing, of the shape of the images.
        """
        if outputs is None:
            outputs = self.predict(inputs, verbose=0)
        layer = self.get_layer("patch_errors")
        scaled = keras.Model(self.input, layer.input[0])(inputs)
        true = patch_errors.cut(scaled, self.patch_size)
        mask, predicted = (
            ops.convert_to_numpy(outputs[name]) for name in ("mask", "logits")
        )
        drawn = np.array(ops.convert_to_numpy(true))
        masked = mask.astype(bool)
        if predicted.shape[1] == mask.shape[1]:
            predicted = predicted[masked]  # not only of the masked patches
        drawn[masked] = predicted.reshape(-1, *drawn.shape[2:])
        pixels = layer.original(ops.convert_to_tensor(drawn), scaled)
        true, pixels = (ops.convert_to_numpy(x) for x in (true, pixels))
        drawn = np.where(mask[..., None, None] > 0, pixels, true)
        drawn = patch_errors.join(
            drawn, self._pixels.shape[1:], self.patch_size
        )
        if self.includes_preprocessing:
            drawn = drawn * np.asarray(self.pixel_std) + self.pixel_mean
            drawn = np.clip(drawn, 0, 255)
        return drawn


@checked
@own_paths()
def mae(
    backbone: keras.Model,
    *,
    decoder_num_layers: Count = 8,
    decoder_hidden_size: Count = 512,
    decoder_num_heads: Count = 16,
    decoder_mlp_dim: Count = 2048,
    mask_ratio: Rate = 0.75,
    target: Target = "patch",
    fixed_positions: bool = True,
    name: str | None = None,
) -> MaskedModel:
    """Build a masked autoencoder on the layers of a ViT.

    The encoder sees the visible patches alone. Its outputs, and a learned
    token in the place of each other patch, go through the blocks of the
    decoder, which predict the pixels. On a VideoMAE, of videos.

    Args:
        backbone: A ViT of this package whose blocks take tokens, without
            relative or rotary positions; its head is left out. Its layers are
            shared, so that training changes it.
        decoder_num_layers, decoder_hidden_size, decoder_num_heads,
            decoder_mlp_dim: Of the decoder's blocks; those of MAE, 8, 512, 16
            and 2048. Those of VideoMAE-B are 4, 384, 6 and 1536.
        mask_ratio: Share of the patches that are not visible, for
            `MaskedModel.inputs_of`; 0.75. That of VideoMAE is 0.9.
        target: What is predicted: "patch", the pixels of a patch normalised by
            their mean and variance (`norm_pix_loss`); "channel", those of each
            channel alone (VideoMAE); or "pixels". "patch".
        fixed_positions: Whether the encoder's positions become MAE's sines and
            cosines, which are not trained; False for a backbone that is
            trained already. VideoMAE has its own.
        name: Name of the model.

    Returns:
        A model of {"images": `[B, H, W, C]`, "visible": `[B, V]`, indices of
        patches, int32}; of videos, "videos": `[B, T, H, W, C]`. Its outputs
        are "logits", the predictions of all patches, `[B, N, P * P * C]` (of
        VideoMAE those of the masked ones alone, in raster order); "mask",
        `[B, N]`, 1 where a patch is not visible; and "loss", `[B]`, the mean
        squared error of each image's masked patches.

    Raises:
        ValueError: If the backbone is no such ViT, has no learned table of
            positions that can be fixed, or no patch is visible or masked.

    Example:
        vit = keras_vit.ViTB16(include_top=False)
        model = keras_vit.heads.mae(vit)
        inputs = model.inputs_of(images)
        model.predict(inputs)["loss"]
        drawn = model.reconstruct(inputs)

    Reference:
        He et al. 2021 (2111.06377), section 3 and appendix A.
    """
    inner = ImageModel.find(backbone, "backbone")
    options = dict(
        decoder_num_layers=decoder_num_layers,
        decoder_hidden_size=decoder_hidden_size,
        decoder_num_heads=decoder_num_heads,
        decoder_mlp_dim=decoder_mlp_dim,
        mask_ratio=mask_ratio,
        target=target,
        fixed_positions=fixed_positions,
    )
    blocks = _blocks_of_visible(inner)
    positions = None
    if fixed_positions and not _is_video(inner):
        positions = _table_of_positions(inner)
    visible = keras.Input((None,), name="visible", dtype="int32")
    x = blocks[0].input  # [B, F + N, D]
    count = math.prod(inner.metadata["grid"])
    x = TakePatches(count, name="visible_patches")(x, visible)
    for block in blocks:
        x = block(x)  # [B, F + V, D]
    # The last norm of a classifier follows the mean.
    if not inner.architecture.pooling.startswith("gap_"):
        x = tokens.normed(inner, x)
    x = task_model.mark(inner, x)
    x = _decode(inner, x, visible, options)
    whole = task_model.finish(
        inner,
        _outputs(inner, x, visible, target),
        "videomae_pretraining" if _is_video(inner) else "vit_mae",
        "masked_images",
        options,
        name=name,
        more_inputs=dict(visible=visible),
        kind=MaskedModel,
    )
    if not 0 < whole.num_visible < count:
        raise ValueError(
            "`mask_ratio` must leave a patch visible and a patch masked. "
            f"Received: mask_ratio={mask_ratio}, which leaves "
            f"{whole.num_visible} of {count} patches visible"
        )
    if positions is not None:
        _fix(positions)
    return whole


def _is_video(inner):
    return inner.num_frames is not None


def _blocks_of_visible(inner):
    """Return the blocks, which may see some of the patches alone."""
    blocks = tokens.token_blocks(inner, "mae")
    stem = inner.get_layer("embedding")
    reasons = {
        "rotary positions, which are of all patches": any(
            block.attention.rotary is not None for block in blocks
        ),
        "a ResNet stem, which sees beyond a patch": any(
            isinstance(x, layers.ResNetV2Stem) for x in inner.layers
        ),
        "no embedding of patches": not isinstance(stem, layers.PatchEmbedding),
    }
    found = [reason for reason, is_so in reasons.items() if is_so]
    if found:
        raise ValueError(
            "`backbone` must be a ViT that can see the visible patches alone. "
            f"Received: {inner.name!r}, of the family {inner.family!r}, with "
            + "; ".join(found)
        )
    return blocks


def _table_of_positions(inner):
    """Return the layer of positions that can be MAE's."""
    names = [layer.name for layer in inner.layers]
    layer = "posembed_input" in names and inner.get_layer("posembed_input")
    if not layer or layer.kind != "learned_1d" or not layer.weights:
        raise ValueError(
            "`fixed_positions` must be False unless the backbone has a learned "
            "table of positions before its blocks. Received: "
            f"{inner.name!r}, of the family {inner.family!r}, without one"
        )
    return layer


def _fix(layer):
    """Set the table of positions to MAE's, and freeze it."""
    table = layer.pos_embedding
    prefix = int(layer.class_token)
    table.assign(sines_2d(layer.grid_size, table.shape[-1], prefix))
    layer.trainable = False


def _decode(inner, x, visible, options):
    """Return the tokens of the decoder, the patches in raster order."""
    size, first = options["decoder_hidden_size"], inner.blocks[0]
    count = math.prod(inner.metadata["grid"])
    prefix = first.input.shape[1] - count
    x = Dense(size, use_bias=not _is_video(inner), name="decoder_embed")(x)
    x = MaskTokens(count, prefix, name="mask_tokens")(x, visible)
    if _is_video(inner):
        x = SequencePositions(name="decoder_posembed")(x)
    else:
        x = FixedPositionEmbs(
            tokens.grid_of(inner), prefix, name="decoder_posembed"
        )(x)
    epsilon = first.layer_norm_epsilon
    for i in range(options["decoder_num_layers"]):
        x = layers.TransformerBlock(
            options["decoder_num_heads"],
            options["decoder_mlp_dim"],
            layer_norm_epsilon=epsilon,
            attention_options=dict(qkv_bias=first.attention.qkv_bias),
            mlp_options=dict(activation=first.mlp.activation),
            remat=first.remat,
            name=f"decoderblock_{i}",
        )(x)
    return LayerNorm(
        # PyTorch's default, which VideoMAE has here.
        epsilon=1e-5 if _is_video(inner) else epsilon,
        name="decoder_norm",
    )(x)


def _outputs(inner, x, visible, target):
    """Return the predictions, the mask and the loss of each image."""
    wide = wide_policy()
    *_, height, width, channels = inner.input.shape
    grid = inner.metadata["grid"]
    count, (rows, columns) = math.prod(grid), grid[-2:]
    frames = getattr(inner.architecture, "tubelet_size", 1)
    patch_size = (frames, height // rows, width // columns)
    size = math.prod(patch_size) * channels
    x = x[:, x.shape[1] - count :]
    logits = Dense(size, name="decoder_pred", dtype=wide)(x)  # [B, N, size]
    names = [layer.name for layer in inner.layers]
    scaled = "preprocessing" if "preprocessing" in names else "ensure_shape"
    errors = PatchErrors(
        patch_size,
        target,
        unscale=_is_video(inner),
        name="patch_errors",
        dtype=wide,
    )(inner.get_layer(scaled).output, logits)
    mask = Mask(count, name="mask", dtype=wide)(visible)
    loss = ops.sum(errors * mask, axis=1) / ops.sum(mask, axis=1)
    if _is_video(inner):
        taken = TakePatches(count, masked=True, name="masked_patches")
        logits = taken(logits, visible)
    return dict(logits=logits, mask=mask, loss=loss)


task_model.register(task_model.Head("vit_mae", lambda *_, **__: {}))
