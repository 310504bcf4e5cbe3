"""Models for detection and segmentation, and the same of transformers.

Their targets are `OBJECTS` of at most `MOST` objects in each image.
"""

from typing import Any

import keras
import numpy as np

import keras_vit

MODELS = ("YOLOSS16", "EoMTS14")
CLASSES, OBJECTS, MOST = 80, 8, 20
# EoMT-S of the paper.
QUERIES, BLOCKS = 200, 3
_SMALL: dict[str, Any] = dict(
    hidden_size=384,
    num_hidden_layers=12,
    num_attention_heads=6,
    hidden_dropout_prob=0.0,
)


def ours(model: str, side: int, dtype: str) -> keras.Model:
    """Return our model, without masked attention."""
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy(dtype)
    try:
        options: dict[str, Any] = dict(
            include_top=False,
            input_shape=(side, side, 3),
            include_preprocessing=False,
        )
        if model == "YOLOSS16":
            return keras_vit.heads.yolos(
                keras_vit.ViTS16(gelu_approximate=False, **options),
                classes=CLASSES,
                mid_positions=True,
            )
        return keras_vit.heads.eomt(
            keras_vit.DINOv2S14(num_registers=4, **options),
            classes=CLASSES,
            num_queries=QUERIES,
            num_blocks=BLOCKS,
        )
    finally:
        keras.config.set_dtype_policy(policy)


def trained(model: keras.Model) -> keras.Model:
    """Return the model that trains it, with its loss: EoMT with masks."""
    loss: keras_vit.training.TaskLoss
    if "num_blocks" in model.options:
        loss = keras_vit.training.SetSegmentationLoss()
        model = keras_vit.heads.mask_attention(model)
    else:
        loss = keras_vit.training.SetDetectionLoss()
    keras_vit.training.set_loss(model, loss)
    return model


def targets(model: str, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Return the targets of images of a shape, `[B, H, W, C]`."""
    rng = np.random.default_rng(1)
    labels = rng.integers(0, CLASSES, (shape[0], MOST))
    labels[:, OBJECTS:] = -1
    boxes = rng.uniform(0.2, 0.6, (*labels.shape, 4)).astype("float32")
    if model == "YOLOSS16":
        return dict(labels=labels, boxes=boxes)
    rows, columns = (
        np.abs((np.arange(n) + 0.5) / n - boxes[..., i, None])
        < boxes[..., 2 + i, None] / 2
        for i, n in ((1, shape[1]), (0, shape[2]))
    )
    masks = rows[..., :, None] & columns[..., None, :]
    return dict(labels=labels, masks=masks.astype("uint8"))


def theirs(model: str, side: int):
    """Return the model of transformers."""
    import transformers

    if model == "YOLOSS16":
        config = transformers.YolosConfig(
            **_SMALL,
            intermediate_size=1536,
            attention_probs_dropout_prob=0.0,
            image_size=[side, side],
            num_labels=CLASSES,
        )
        return transformers.YolosForObjectDetection(config)
    config = transformers.EomtConfig(
        **_SMALL,
        image_size=side,
        patch_size=14,
        num_queries=QUERIES,
        num_blocks=BLOCKS,
        num_upscale_blocks=1,
        num_labels=CLASSES,
    )
    found = transformers.EomtForUniversalSegmentation(config)
    return _with_masks_in_training(found)


def _with_masks_in_training(model):
    """Return an EoMT without masks in inference, as released files are."""
    train = model.train

    def switch(mode=True):
        model.attn_mask_probs.fill_(float(mode))
        return train(mode)

    model.train = switch
    return model


def as_theirs(found: dict[str, np.ndarray]) -> dict[str, list]:
    """Return targets as arguments of a model of transformers."""
    import torch

    labels = [torch.from_numpy(x[:OBJECTS]) for x in found["labels"]]
    if "boxes" in found:
        boxes = [torch.from_numpy(x[:OBJECTS]) for x in found["boxes"]]
        return dict(
            labels=[
                dict(class_labels=one, boxes=other)
                for one, other in zip(labels, boxes, strict=True)
            ]
        )
    masks = [torch.from_numpy(x[:OBJECTS]).float() for x in found["masks"]]
    return dict(class_labels=labels, mask_labels=masks)
