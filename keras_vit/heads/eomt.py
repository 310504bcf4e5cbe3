"""EoMT: segmentation by a plain ViT.

Kerssies et al. 2025, "Your ViT is Secretly an Image Segmentation Model"
(2503.19108). Checked against eomt and eomt_dinov3 of transformers. Queries run
through the last blocks beside the patches; each makes a class and a mask.
"""

import math
from collections.abc import Sequence
from typing import Unpack

import keras
from keras import ops

from keras_vit._arguments import Count, Natural, as_pair, checked
from keras_vit.heads import segments, task_model, tokens
from keras_vit.heads.maps import check_images
from keras_vit.heads.query_mask import QueryMask
from keras_vit.heads.task_model import TaskModel
from keras_vit.layers.keras_layers import (
    Conv2DTranspose,
    Dense,
    DepthwiseConv2D,
    LayerNorm,
)
from keras_vit.layers.mlp_block import ACTIVATIONS
from keras_vit.models.build import own_paths
from keras_vit.models.image_model import ImageModel
from keras_vit.ops.dtypes import wide_policy

_ACTIVATIONS = ACTIVATIONS | dict(silu=keras.activations.silu)


@checked
@own_paths()
def eomt(
    backbone: keras.Model,
    *,
    classes: Count | None = None,
    class_names: Sequence[str] | None = None,
    num_queries: Count = 200,
    num_blocks: Count = 4,
    num_upscale_blocks: Natural | None = None,
    masked_attention: bool = False,
    auxiliary_blocks: Sequence[int] = (),
    name: str | None = None,
    **answer: Unpack[segments.AnswerOptions],
) -> TaskModel:
    """Build an EoMT on the layers of a ViT.

    Args:
        backbone: A ViT of this package whose blocks take tokens; its head is
            left out.
        classes: Number of classes K, or `class_names`.
        class_names: Their names.
        num_queries: Number Q of queries, at most so many segments are found;
            200, or 100 for semantic segmentation in the paper.
        num_blocks: Number of last blocks L through which queries run; 4 (3 of
            the paper's S and B, 5 of its g).
        num_upscale_blocks: How often patches are upscaled by 2 for masks; None
            for a stride of at most 8 pixels, at least once.
        masked_attention: Whether each of these blocks forbids queries the
            patches outside their masks, with a probability, its weight
            `query_mask_{i}/probability`. It is 1 at first. `mask_attention`
            makes a model for training of one without masks.
        auxiliary_blocks: Blocks, counted from 1, after which classes and masks
            are predicted as well, for losses: those before each of the last L.
        name: Name of the model.
        **answer: `kind` and `view`; see `heads.segments.AnswerOptions`.

    Returns:
        A model from images to "class_queries_logits", `[B, Q, K + 1]`, the last
        of which is that of "no object", and "masks_queries_logits", `[B, h, w,
        Q]`. After block 8 of `auxiliary_blocks` also "class_queries_logits_8"
        and "masks_queries_logits_8".

    Raises:
        ValueError: If the backbone is one of videos, its blocks do not take
            more tokens, or it has fewer, or no number of classes.

    Example:
        model = keras_vit.heads.eomt(
            keras_vit.DINOv2S14(input_shape=(224, 224, 3)), classes=150)
    """
    inner = ImageModel.find(backbone, "backbone")
    classes = task_model.number_of_classes(classes, class_names)
    check_images(inner, "eomt")
    blocks = tokens.token_blocks(inner, "eomt")
    first = len(blocks) - num_blocks
    _check_blocks(first, len(blocks), num_blocks, auxiliary_blocks)
    answer = segments.AnswerOptions(kind="panoptic", view="stretched") | answer
    _check_view(answer, inner.image_shape[:2])
    if num_upscale_blocks is None:
        patch_size = max(as_pair(inner.architecture.patch_size))
        num_upscale_blocks = max(1, int(math.log2(patch_size)) - 2)
    head = _made_layers(inner, classes, num_upscale_blocks)
    queries = tokens.LearnedTokens(num_queries, stddev=1.0, name="queries")
    return _model(
        inner,
        queries(blocks[first].input),  # [B, Q + T, D]
        head,
        dict(
            classes=classes,
            num_queries=num_queries,
            num_blocks=num_blocks,
            num_upscale_blocks=num_upscale_blocks,
            masked_attention=masked_attention,
            auxiliary_blocks=list(auxiliary_blocks),
            **answer,
        ),
        class_names,
        name,
    )


@own_paths()
def mask_attention(model: TaskModel) -> TaskModel:
    """Return the model that trains an EoMT, with masks and further outputs.

    It has the layers and variables of `model`. Before each of the last blocks
    it also predicts classes and masks, for losses, and forbids queries the
    patches outside their masks; see `masked_attention` and `auxiliary_blocks`
    of `eomt`. Once `keras_vit.training.MaskAnnealing` has lowered the
    probabilities to 0, both have the same outputs; save and use `model`.

    Args:
        model: An EoMT without masked attention.

    Raises:
        ValueError: If it is none, or has masks.

    Example:
        model = keras_vit.heads.eomt(
            keras_vit.DINOv2S14(input_shape=(224, 224, 3)), classes=150)
        trained = keras_vit.heads.mask_attention(model)
    """
    options = getattr(model, "options", {})
    if "num_blocks" not in options or options["masked_attention"]:
        raise ValueError(
            "`model` must be a model of `keras_vit.heads.eomt` with "
            f"masked_attention=False. Received: {model.name!r}"
        )
    total, count = len(model.blocks), options["num_blocks"]
    options.pop("unused_weights", None)
    options |= dict(
        masked_attention=True,
        auxiliary_blocks=list(range(total - count, total)),
    )
    return _model(
        model,
        model.get_layer("queries").output,
        _found_layers(model),
        options,
        model.class_names,
        f"{model.name}_masked",
    )


def _model(inner, x, head, options, class_names, name):
    """Return the model whose queries and tokens `x` enter the last blocks."""
    blocks, num_blocks = inner.blocks, options["num_blocks"]
    grid, num_queries = tokens.grid_of(inner), options["num_queries"]
    num_prefix = x.shape[1] - num_queries - math.prod(grid)
    first = len(blocks) - num_blocks
    outputs = {}
    for i, block in enumerate(blocks[first:], first):
        bias = {}
        auxiliary = i in options["auxiliary_blocks"]
        if options["masked_attention"] or auxiliary:
            found = _predict(head, tokens.normed(inner, x), num_queries, grid)
            if auxiliary:
                outputs |= {f"{key}_{i}": y for key, y in found.items()}
            if options["masked_attention"]:
                mask = QueryMask(
                    grid, num_prefix, name=f"query_mask_{i - first}"
                )
                bias["attention_bias"] = mask(found["masks_queries_logits"])
        x = block(x, **bias)
    x = task_model.mark(inner, tokens.normed(inner, x))
    outputs |= _predict(head, x, num_queries, grid)
    return task_model.finish(
        inner,
        outputs,
        "eomt_dinov3" if inner.family == "dinov3" else "eomt",
        "segmentation",
        options,
        class_names,
        name,
    )


def _check_blocks(first, total, num_blocks, auxiliary_blocks):
    if first < 0:
        raise ValueError(
            f"`num_blocks` must be at most {total}, the blocks of the "
            f"backbone. Received: num_blocks={num_blocks}"
        )
    possible = range(first, total)
    if sorted({*auxiliary_blocks} & {*possible}) != sorted(auxiliary_blocks):
        raise ValueError(
            f"`auxiliary_blocks` must be from {first} to {total - 1}, each "
            f"once: queries run through the last {num_blocks} blocks. "
            f"Received: auxiliary_blocks={list(auxiliary_blocks)}"
        )


def _check_view(answer, image_size):
    fits = answer["kind"] == "semantic" and len(set(image_size)) == 1
    if answer["view"] == "windows" and not fits:
        raise ValueError(
            "`view` must be 'stretched' or 'padded', or for kind='semantic' of "
            f"square images 'windows'. Received: {answer} for images of "
            f"{image_size[0]} x {image_size[1]}"
        )


def _made_layers(inner, classes, num_upscale_blocks):
    """Return new layers: of classes, of queries' masks, and of pixels."""
    width = inner.architecture.hidden_size
    activation = getattr(inner.architecture, "activation", "gelu")
    if activation == "swiglu":  # as in transformers
        activation = "silu" if inner.family == "dinov3" else "gelu"
    activation = _ACTIVATIONS[activation]
    head = ClassHead(classes + 1, name="head", dtype=wide_policy())
    mlp = [
        Dense(width, activation if i < 2 else None, name=f"mask_mlp_{i}")
        for i in range(3)
    ]
    upscale = [
        layer
        for i in range(num_upscale_blocks)
        for layer in _upscale_block(width, activation, f"upscale_{i}")
    ]
    return head, mlp, upscale


def _found_layers(model):
    """Return those of a model."""
    upscale = [x for x in model.layers if x.name.startswith("upscale_")]
    mlp = [model.get_layer(f"mask_mlp_{i}") for i in range(3)]
    return model.get_layer("head"), mlp, upscale


def _predict(layers, x, num_queries, grid):
    """Return the classes and masks of normed tokens."""
    head, mlp, upscale = layers
    queries, pixels = x[:, :num_queries], tokens.as_map(x, grid)
    logits = head(queries)  # [B, Q, K + 1]
    for layer in mlp:
        queries = layer(queries)
    for layer in upscale:
        pixels = layer(pixels)
    masks = ops.einsum("bhwd,bqd->bhwq", pixels, queries)
    return dict(class_queries_logits=logits, masks_queries_logits=masks)


def _upscale_block(width, activation, name):
    """Return the layers that double the resolution of `[B, h, w, D]`."""
    last = dict(data_format="channels_last")
    return [
        Conv2DTranspose(
            width,
            2,
            2,
            activation=activation,
            name=f"{name}_transposed",
            **last,
        ),
        DepthwiseConv2D(
            3, padding="same", use_bias=False, name=f"{name}_depthwise", **last
        ),
        LayerNorm(epsilon=1e-6, name=f"{name}_norm"),
    ]


@keras.saving.register_keras_serializable(package="keras_vit")
class ClassHead(Dense):
    """The classes of queries, the last of which is "no object".

    It holds the weight of each class in the loss, `class_weights`, as released
    files do. Only they use it: `SetSegmentationLoss` has its own.

    Input shape: `[B, Q, D]`
    Output shape: `[B, Q, units]`
    """

    def build(self, input_shape):
        # Keras takes no more variables once it has quantised the layer.
        self.class_weights = self.add_weight(
            name="class_weights",
            shape=(self.units,),
            initializer="ones",
            trainable=False,
        )
        self.class_weights.assign([1.0] * (self.units - 1) + [0.1])
        super().build(input_shape)

    # Keras numbers the variables that it knows of a dense layer; this follows.
    def save_own_variables(self, store):
        super().save_own_variables(store)
        store[str(_count_numbers(store))] = self.class_weights

    def load_own_variables(self, store):
        super().load_own_variables(store)
        self.class_weights.assign(store[str(_count_numbers(store) - 1)])


def _count_numbers(store):
    return sum(key.isdigit() for key in store.keys())


for _name in ("eomt", "eomt_dinov3"):  # the names of their files
    task_model.register(
        task_model.Head(
            _name, segments.interpret, segments.prepare, segments.find_in
        )
    )
