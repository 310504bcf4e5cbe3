"""DPT: depth or classes of pixels, from four levels of a plain ViT.

Ranftl et al. 2021, "Vision Transformers for Dense Prediction" (2103.13413).
Checked against dpt of transformers. The tokens of four blocks are reassembled
into maps of four sizes, which are fused from the coarsest to the finest; a few
convolutions make the output.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict, Unpack

import keras
import numpy as np
from keras import ops

from keras_vit._arguments import Count, Rate, checked
from keras_vit.heads import maps, task_model
from keras_vit.heads.maps import Resize, batch_norm, convolution
from keras_vit.heads.task_model import TaskModel
from keras_vit.heads.tokens import num_prefix_tokens
from keras_vit.layers.mlp_block import ACTIVATIONS
from keras_vit.models.build import own_paths
from keras_vit.models.image_model import ImageModel
from keras_vit.ops import resize
from keras_vit.ops.dtypes import wide_policy

Readout = Literal["project", "add", "ignore"]
Four = tuple[Count, Count, Count, Count]
# The convolutions of depth have half of these channels.
Halved = Annotated[int, "an integer, at least 2", lambda n: n >= 2]
# By which the map of each level is larger than the grid of patches.
FACTORS = (4, 2, 1, 0.5)


class DPTOptions(TypedDict, total=False):
    """What the released files of DPT differ in; see `dpt`."""

    readout: Readout | None
    readout_activation: Literal["gelu", "gelu_tanh", "quick_gelu"]
    batch_norm: bool
    residual_bias: bool | None
    projection: bool
    head_dropout_rate: Rate
    unused_weights: dict | None


_DEFAULTS = dict(
    readout=None,
    readout_activation="gelu",
    batch_norm=False,
    residual_bias=None,
    projection=False,
    head_dropout_rate=0.1,
    unused_weights=None,
)


@checked
@own_paths()
def dpt(
    backbone: keras.Model,
    *,
    classes: Count | None = None,
    class_names: Sequence[str] | None = None,
    blocks: Sequence[int] | None = None,
    last_norm: bool = False,
    neck_sizes: Four = (96, 192, 384, 768),
    fusion_size: Halved = 256,
    name: str | None = None,
    **options: Unpack[DPTOptions],
) -> TaskModel:
    """Build a DPT on the layers of a backbone.

    Args:
        backbone: A model of images of this package; its head is left out. A
            pyramid such as MViT gives its levels, which are fused as they are.
        classes: Number C of classes, for segmentation; None, and no
            `class_names`, for depth.
        class_names: Their names.
        blocks: The four blocks whose maps are taken, counted from 1; by
            default at equal distances, such as 3, 6, 9 and 12 of 12.
        last_norm: Whether the backbone's last norm is applied to each map;
            False.
        neck_sizes: Widths of the four reassembled maps.
        fusion_size: Width of all maps that are fused; 256.
        name: Name of the model.
        **options: `readout`, what becomes of the class token: "project", it is
            joined to each patch and both are projected; "add"; "ignore"; by
            default "project" where there is one. `readout_activation`, after
            that projection; "gelu". `batch_norm`, whether the residual units
            have BatchNorms; False. `residual_bias`, whether their convolutions
            have a bias; by default without BatchNorms.
            `projection`, whether a convolution precedes the depth's; False.
            `head_dropout_rate`, before the last layer of segmentation; 0.1.
            `unused_weights`, names and shapes of what a released file holds
            and no layer reads, kept so that it is written back; None.

    Returns:
        A model from images to "predicted_depth", `[B, h, w]`, at least 0 and
        in the released files larger for what is near; or to "logits", `[B, h,
        w, C]`. (h, w) is 16 times the grid of patches, rounded up to even.

    Raises:
        ValueError: If the backbone is one of videos, has no such blocks, or no
            class token to read.

    Example:
        model = keras_vit.heads.dpt(
            keras_vit.DINOv2S14(input_shape=(448, 448, 3)), classes=150)
    """
    inner = ImageModel.find(backbone, "backbone")
    maps.check_images(inner, "dpt")
    numbers = maps.four_blocks(inner, blocks)
    found: dict = _DEFAULTS | options
    readout = found["readout"] = _readout(inner, found["readout"])
    if found["residual_bias"] is None:
        found["residual_bias"] = not found["batch_norm"]
    found |= dict(blocks=numbers, last_norm=last_norm, fusion_size=fusion_size)
    found["neck_sizes"] = list(neck_sizes)
    levels, tokens = maps.levels_of(
        inner, numbers, last_norm, readout != "ignore"
    )
    if tokens:
        levels = [
            _read(
                x, token, readout, found["readout_activation"], f"readout_{i}"
            )
            for i, (x, token) in enumerate(zip(levels, tokens, strict=True))
        ]
    if numbers is not None:
        levels = reassemble(levels, neck_sizes)
    x = fuse(
        levels,
        fusion_size,
        batch_norms=found["batch_norm"],
        use_bias=found["residual_bias"],
    )
    if classes is None and class_names is None:
        task, outputs = "depth", _depth(x, found["projection"])
    else:
        classes = task_model.number_of_classes(classes, class_names)
        task, found["classes"] = "segmentation", classes
        outputs = _classes(x, classes, found["head_dropout_rate"])
    return task_model.finish(
        inner, outputs, "dpt", task, found, class_names, name
    )


def _readout(inner, readout):
    """Return what becomes of the class token."""
    has_one = _has_class_token(inner)
    if readout is None:
        return "project" if has_one else "ignore"
    if readout != "ignore" and not has_one:
        raise ValueError(
            f"`readout` must be 'ignore' or None for {inner.name}, which has "
            f"no class token, or levels. Received: readout={readout!r}"
        )
    return readout


def _has_class_token(inner):
    if maps.is_pyramid(inner) or len(inner.blocks[0].output.shape) != 3:
        return False
    is_absent = getattr(inner.architecture, "class_token", True) is False
    return not is_absent and bool(num_prefix_tokens(inner))


def _read(x, token, readout, activation, name):
    """Return a map into which the class token was read (equation 3)."""
    token = token[:, None]  # [B, 1, 1, D]
    if readout == "add":
        return x + token
    for axis in (1, 2):
        token = ops.repeat(token, x.shape[axis], axis=axis)
    x = ops.concatenate([x, token], axis=-1)  # [B, H, W, 2 D]
    x = keras.layers.Dense(token.shape[-1], name=name)(x)
    return ACTIVATIONS[activation](x)


def reassemble(levels: list, sizes: Sequence[int]) -> list:
    """Return maps of 4, 2, 1 and 1/2 times the size (section 3.1).

    Args:
        levels: Four maps `[B, H, W, D]`.
        sizes: Widths of the results.
    """
    found = []
    for i, (x, size, factor) in enumerate(
        zip(levels, sizes, FACTORS, strict=True)
    ):
        x = convolution(x, size, 1, f"reassemble_{i}_projection")
        resized = f"reassemble_{i}_resize"
        if factor > 1:
            x = maps.transposed_convolution(
                x, size, int(factor), resized, int(factor)
            )
        elif factor < 1:
            # Keras' "same" would pad an even size after it alone.
            x = keras.layers.ZeroPadding2D(1, data_format="channels_last")(x)
            x = convolution(x, size, 3, resized, 2, "valid")
        found.append(x)
    return found


def fuse(
    levels: list,
    size: int,
    *,
    to_next: bool = False,
    batch_norms: bool = False,
    use_bias: bool = True,
):
    """Return the levels fused, twice as large as the finest (section 3.1).

    Args:
        levels: Maps, the finest first.
        size: Width of the result.
        to_next: Whether each map is resized to the size of the next one, where
            that differs from its double.
        batch_norms: Whether the residual units have BatchNorms.
        use_bias: Whether their convolutions have a bias.
    """

    def unit(x, name):
        """Apply a residual unit, with activations before convolutions."""
        y = x
        for i in (1, 2):
            y = ops.relu(y)
            y = convolution(y, size, 3, f"{name}_conv_{i}", use_bias=use_bias)
            if batch_norms:
                y = batch_norm(y, f"{name}_norm_{i}")
        return x + y

    levels = [
        convolution(x, size, 3, f"neck_{i}", use_bias=False)
        for i, x in enumerate(levels)
    ][::-1]
    fused = None
    for i, x in enumerate(levels):
        if fused is not None:
            x = Resize(fused.shape[1:3], name=f"fusion_{i}_fit")(x)
            x = fused + unit(x, f"fusion_{i}_unit_1")
        x = unit(x, f"fusion_{i}_unit_2")
        larger = maps.scaled(x, 2)
        if to_next and i + 1 < len(levels):
            larger = levels[i + 1].shape[1:3]
        x = Resize(larger, align_corners=True, name=f"fusion_{i}_resize")(x)
        fused = convolution(x, size, 1, f"fusion_{i}_projection")
    return fused


def _depth(x, projection):
    """Return the depth, at twice the size of the fused map."""
    size = x.shape[-1]
    if projection:
        x = ops.relu(convolution(x, size, 3, "depth_projection"))
    x = convolution(x, size // 2, 3, "depth_0")
    return depth_of(x, maps.scaled(x, 2), 32, ops.relu)


def depth_of(x, size: tuple[int, int], width: int, activation) -> dict:
    """Return the depth that the last convolutions make of a map.

    Args:
        x: `[B, H, W, C]`
        size: (h, w) of the depth.
        width: Of the hidden layer.
        activation: Of the depth.
    """
    wide = wide_policy()
    x = Resize(size, align_corners=True, name="depth_resize")(x)
    x = ops.relu(convolution(x, width, 3, "depth_1"))
    # About half of all random heads would give 0 everywhere, from
    # which a ReLU never learns.
    x = convolution(x, 1, 1, "depth_2", dtype=wide, bias=1.0)
    return dict(predicted_depth=activation(x[..., 0]))


def _classes(x, classes, dropout_rate):
    """Return the scores of classes, at twice the size of the fused map."""
    wide = wide_policy()
    x = convolution(x, x.shape[-1], 3, "segmentation_0", use_bias=False)
    x = ops.relu(batch_norm(x, "segmentation_norm"))
    x = keras.layers.Dropout(dropout_rate, name="segmentation_dropout")(x)
    x = convolution(x, classes, 1, "head", dtype=wide)
    x = Resize(
        maps.scaled(x, 2), align_corners=True, name="head_resize", dtype=wide
    )(x)
    return dict(logits=x)


def interpret(
    model: TaskModel,
    outputs: dict[str, np.ndarray],
    image_size: tuple[int, int],
) -> dict:
    """Return the depth, or the class, of each pixel; see `TaskModel`."""
    if "predicted_depth" in outputs:
        return maps.depth_map(outputs["predicted_depth"], image_size)
    logits = outputs["logits"]
    rows, columns = (
        resize.neighbours(m, n, align_corners=False)
        for m, n in zip(logits.shape[:2], image_size, strict=True)
    )
    low, high, share = columns
    classes = np.empty(image_size, "int32")
    for i, (first, second, part) in enumerate(zip(*rows, strict=True)):
        row = logits[first] + part * (logits[second] - logits[first])  # [w, C]
        row = row[low] + share[:, None] * (row[high] - row[low])
        classes[i] = row.argmax(axis=1)
    return dict(classes=classes)


task_model.register(task_model.Head("dpt", interpret))
