"""Depth Anything: relative or metric depth, by a DPT without class tokens.

Yang et al. 2024, "Depth Anything" (2401.10891) and "Depth Anything V2"
(2406.09414). Checked against depth_anything of transformers. The two versions
differ in their weights and in the blocks whose maps they read.
"""

from collections.abc import Sequence
from typing import Literal

import keras
import numpy as np
from keras import ops

from keras_vit._arguments import Count, Positive, checked
from keras_vit.heads import dpt, maps, task_model, tokens
from keras_vit.heads.maps import convolution
from keras_vit.heads.task_model import TaskModel
from keras_vit.models.build import own_paths
from keras_vit.models.image_model import ImageModel


@checked
@own_paths()
def depth_anything(
    backbone: keras.Model,
    *,
    kind: Literal["relative", "metric"] = "relative",
    max_depth: Positive = 1.0,
    blocks: Sequence[int] | None = None,
    last_norm: bool = True,
    neck_sizes: dpt.Four = (48, 96, 192, 384),
    fusion_size: dpt.Halved = 64,
    head_size: Count = 32,
    unused_weights: dict | None = None,
    name: str | None = None,
) -> TaskModel:
    """Build a Depth Anything on the layers of a backbone.

    Args:
        backbone: A model of images of this package, such as a DINOv2; its head
            is left out. A pyramid gives its levels.
        kind: "relative", larger for what is near, up to a scale and a shift of
            each image; or "metric", metres.
        max_depth: By what the depth is multiplied: the largest metric depth,
            20 indoors and 80 outdoors in the released models; 1.
        blocks: The four blocks whose maps are taken, counted from 1; by
            default at equal distances.
        last_norm: Whether the backbone's last norm is applied to each map;
            True, except in a pyramid or where there is none.
        neck_sizes: Widths of the four reassembled maps; those of the small
            model.
        fusion_size: Width of all maps that are fused.
        head_size: Width of the head's hidden layer.
        unused_weights: Names and shapes of what a released file holds and no
            layer reads, kept so that it is written back; None.
        name: Name of the model.

    Returns:
        A model from images to "predicted_depth", `[B, H, W]`, of the size of
        the images.

    Raises:
        ValueError: If the backbone is one of videos, or has no such blocks.

    Example:
        model = keras_vit.heads.depth_anything(
            keras_vit.DINOv2S14(input_shape=(518, 518, 3)))
    """
    inner = ImageModel.find(backbone, "backbone")
    maps.check_images(inner, "depth_anything")
    numbers = maps.four_blocks(inner, blocks)
    has_norm = numbers is not None and tokens.last_norm(inner) is not None
    last_norm = last_norm and has_norm
    levels, _ = maps.levels_of(inner, numbers, last_norm, class_tokens=False)
    if numbers is not None:
        levels = dpt.reassemble(levels, neck_sizes)
    x = dpt.fuse(levels, fusion_size, to_next=True)
    x = convolution(x, fusion_size // 2, 3, "depth_0")
    activation = ops.sigmoid if kind == "metric" else ops.relu
    outputs = dpt.depth_of(
        x,
        inner.image_shape[:2],
        head_size,
        lambda depth: activation(depth) * max_depth,
    )
    return task_model.finish(
        inner,
        outputs,
        "depth_anything",
        "depth",
        dict(
            kind=kind,
            max_depth=max_depth,
            blocks=numbers,
            last_norm=last_norm,
            neck_sizes=list(neck_sizes),
            fusion_size=fusion_size,
            head_size=head_size,
            unused_weights=unused_weights,
        ),
        name=name,
    )


def interpret(
    model: TaskModel,
    outputs: dict[str, np.ndarray],
    image_size: tuple[int, int],
) -> dict:
    """Return the depth of each pixel; see `TaskModel`."""
    found = maps.depth_map(outputs["predicted_depth"], image_size)
    return found | dict(is_relative=model.options["kind"] == "relative")


task_model.register(task_model.Head("depth_anything", interpret))
