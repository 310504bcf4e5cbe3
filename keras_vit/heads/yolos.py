"""YOLOS: detection by a plain ViT.

Fang et al. 2021, "You Only Look at One Sequence" (2106.00666). Checked against
yolos of transformers. Detection tokens run through all blocks beside the
patches; two MLPs make a class and a box of each.
"""

from collections.abc import Sequence

import keras
import numpy as np
from keras import ops

from keras_vit import layers
from keras_vit._arguments import Count, checked
from keras_vit.heads import task_model, tokens
from keras_vit.heads.maps import check_images
from keras_vit.heads.task_model import TaskModel
from keras_vit.models.build import own_paths
from keras_vit.models.image_model import ImageModel
from keras_vit.ops.dtypes import wide_policy


@checked
@own_paths()
def yolos(
    backbone: keras.Model,
    *,
    classes: Count | None = None,
    class_names: Sequence[str] | None = None,
    num_detection_tokens: Count = 100,
    mid_positions: bool = False,
    anchors: bool = False,
    patch_classes: bool = False,
    auxiliary_blocks: Sequence[int] = (),
    name: str | None = None,
) -> TaskModel:
    """Build a YOLOS on the layers of a ViT.

    Args:
        backbone: A ViT of this package whose blocks take tokens; its head is
            left out.
        classes: Number of classes K, or `class_names`.
        class_names: Their names.
        num_detection_tokens: Number N of detection tokens, at most so many
            objects are found; 100.
        mid_positions: Whether learned positions are added after each block but
            the last (the released models); False.
        anchors: Whether each token begins as the mean of the patches around a
            place of a grid, and predicts a change of a learned box there
            (Zhu et al. 2020, 2010.04159, "two-stage"; Liu et al. 2022,
            2201.12329), with which training from scratch needs fewer steps;
            False.
        patch_classes: Whether a dense layer makes a class of each patch as
            well, for a loss in which an object has many patches instead of one
            token (Zong et al. 2022, 2211.12860); False.
        auxiliary_blocks: Blocks, counted from 1, of whose detection tokens
            classes and boxes are made as well, for losses.
        name: Name of the model.

    Returns:
        A model from images to "logits", `[B, N, K + 1]`, the last of which is
        that of "no object", and "pred_boxes", `[B, N, 4]`: centre x, centre y,
        width and height, in shares of the image. After block 4 of
        `auxiliary_blocks` also "logits_4" and "pred_boxes_4"; with
        `patch_classes` also "patch_logits", `[B, H, W, K + 1]`.

    Raises:
        ValueError: If the backbone is one of videos, its blocks do not take
            more tokens, or there is no such block, or no number of classes.

    Example:
        model = keras_vit.heads.yolos(
            keras_vit.DeiTS16(input_shape=(512, 512, 3)), classes=80)
    """
    inner = ImageModel.find(backbone, "backbone")
    classes = task_model.number_of_classes(classes, class_names)
    check_images(inner, "yolos")
    blocks = tokens.token_blocks(inner, "yolos")
    check_blocks(auxiliary_blocks, len(blocks) - 1)
    grid = tokens.grid_of(inner)
    prefix = tokens.num_prefix_tokens(inner) + num_detection_tokens
    predict = _predictor(classes, blocks[0].input.shape[-1], anchors)
    outputs = {}
    # The detection tokens come first here. Attention does not see the order.
    x = tokens.LearnedTokens(
        num_detection_tokens, positions=True, name="detection_tokens"
    )(blocks[0].input)
    if anchors:
        x = AnchoredTokens(num_detection_tokens, grid, name="anchored_tokens")(
            x
        )
    for i, block in enumerate(blocks):
        x = block(x)  # [B, N + T, D]
        if mid_positions and i < len(blocks) - 1:
            x = layers.AddPositionEmbs(
                grid, class_token=prefix, name=f"posembed_mid_{i}"
            )(x)
        if i + 1 in auxiliary_blocks:
            normed = tokens.normed(inner, x)
            found = predict(normed[:, :num_detection_tokens])
            outputs |= {f"{key}_{i + 1}": y for key, y in found.items()}
    x = task_model.mark(inner, tokens.normed(inner, x))
    outputs |= predict(x[:, :num_detection_tokens])
    if patch_classes:
        wide = dict(name="patch_head", dtype=wide_policy())
        head = keras.layers.Dense(classes + 1, **wide)
        outputs["patch_logits"] = head(tokens.as_map(x, grid))
    return task_model.finish(
        inner,
        outputs,
        "yolos",
        "detection",
        dict(
            classes=classes,
            num_detection_tokens=num_detection_tokens,
            mid_positions=mid_positions,
            anchors=anchors,
            patch_classes=patch_classes,
            auxiliary_blocks=list(auxiliary_blocks),
        ),
        class_names,
        name,
    )


def check_blocks(numbers: Sequence[int], last: int) -> None:
    """Check the numbers of blocks with auxiliary outputs."""
    possible = range(1, last + 1)
    if sorted({*numbers} & {*possible}) != sorted(numbers):
        raise ValueError(
            f"`auxiliary_blocks` must be from 1 to {last}, before the last "
            "block, and each once. Received: "
            f"auxiliary_blocks={list(numbers)}"
        )


def _predictor(classes, width, anchors):
    """Return the function from detection tokens to classes and boxes."""
    wide = wide_policy()

    def mlp(name, units, last):
        hidden = [
            keras.layers.Dense(width, activation="relu", name=f"{name}_{i}")
            for i in range(2)
        ]
        return [*hidden, keras.layers.Dense(units, name=last, dtype=wide)]

    to_class = mlp("class_mlp", classes + 1, "head")
    to_box = mlp("box_mlp", 4, "box_mlp_2")
    anchor = Anchors(name="anchors", dtype=wide) if anchors else None

    def predict(x):
        logits = boxes = x
        for of_class, of_box in zip(to_class, to_box, strict=True):
            logits, boxes = of_class(logits), of_box(boxes)
        boxes = boxes if anchor is None else anchor(boxes)
        return dict(logits=logits, pred_boxes=ops.sigmoid(boxes))

    return predict


@keras.saving.register_keras_serializable(package="keras_vit")
class AnchoredTokens(keras.layers.Layer):
    """Adds to the first tokens the patches around their places on a grid.

    Args:
        count: Number N of tokens.
        grid_size: (rows, columns) of the patches, which are the last tokens.

    Input shape: `[B, N + T, D]`
    Output shape: `[B, N + T, D]`
    """

    @checked
    def __init__(self, count: Count, grid_size: tuple[Count, Count], **kwargs):
        super().__init__(**kwargs)
        self.count = count
        self.grid_size = tuple(grid_size)

    def call(self, inputs):
        rows, columns = self.grid_size
        centres = _centres(self.count)  # [N, 4]
        y, x = np.divmod(np.arange(rows * columns), columns)
        near = 1 - np.abs(
            np.stack([(x + 0.5) / columns, (y + 0.5) / rows], 1)
            - centres[:, None, :2]
        ) / np.maximum(centres[:, None, 2:], (1 / columns, 1 / rows))
        weights = np.prod(np.maximum(near, 0), axis=-1)  # [N, patches]
        weights /= weights.sum(axis=1, keepdims=True)
        weights = ops.convert_to_tensor(weights, inputs.dtype)
        pooled = ops.matmul(weights, inputs[:, -rows * columns :])
        tokens = inputs[:, : self.count] + pooled
        return ops.concatenate([tokens, inputs[:, self.count :]], axis=1)

    def compute_output_shape(self, input_shape):
        return input_shape


@keras.saving.register_keras_serializable(package="keras_vit")
class Anchors(keras.layers.Layer):
    """Adds learned boxes, first on a grid, to the logits of boxes.

    Input shape: `[B, N, 4]`
    Output shape: `[B, N, 4]`

    Reference:
        Liu et al. 2022 (2201.12329), section 4.2.
    """

    def build(self, input_shape):
        self.anchors = self.add_weight(
            name="anchors", shape=input_shape[1:], initializer=_on_a_grid
        )

    def call(self, inputs):
        return inputs + self.anchors

    def compute_output_shape(self, input_shape):
        return input_shape


def _on_a_grid(shape, dtype=None):
    """Return the logits of the boxes of `_centres`."""
    boxes = _centres(shape[0])
    return ops.convert_to_tensor(np.log(boxes / (1 - boxes)), dtype)


def _centres(count):
    """Return the boxes of cells of a grid that covers the image, `[N, 4]`."""
    number = np.arange(count)
    columns = int(np.ceil(count**0.5))
    rows = -(-count // columns)
    x = (number % columns + 0.5) / columns
    y = (number // columns + 0.5) / rows
    sizes = [np.full(count, 1 / max(2, n)) for n in (columns, rows)]
    return np.stack([x, y, *sizes], axis=1)


@checked
def interpret(
    model: TaskModel,
    outputs: dict[str, np.ndarray],
    image_size: tuple[int, int],
    threshold: float = 0.5,
) -> dict:
    """Return the boxes of one image, the best first; see `TaskModel`.

    Args:
        threshold: The least score, the probability of the class.
    """
    scores = softmax(outputs["logits"])[:, :-1]
    labels, scores = scores.argmax(axis=1), scores.max(axis=1)
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] > threshold]
    return task_model.boxes_of_image(
        model,
        outputs["pred_boxes"][order],
        scores[order],
        labels[order],
        image_size,
    )


def softmax(x: np.ndarray) -> np.ndarray:
    """Return the softmax over the last axis."""
    x = np.exp(x - x.max(axis=-1, keepdims=True))
    return x / x.sum(axis=-1, keepdims=True)


task_model.register(task_model.Head("yolos", interpret))
