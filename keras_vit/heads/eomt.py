"""EoMT: segmentation by a plain ViT.

Kerssies et al. 2025, "Your ViT is Secretly an Image Segmentation Model"
(2503.19108). Checked against eomt and eomt_dinov3 of transformers. Queries run
through the last blocks beside the patches; each makes a class and a mask.
"""

import math
from collections.abc import Sequence

import keras
from keras import ops

from keras_vit._arguments import Count, Natural, as_pair, checked
from keras_vit.heads import segments, task_model, tokens
from keras_vit.heads.task_model import TaskModel
from keras_vit.layers.core import Dense, LayerNorm
from keras_vit.models.image_model import ImageModel
from keras_vit.ops import linear
from keras_vit.ops.common import wide_dtype

_ACTIVATIONS = dict(
    gelu=linear.gelu,
    gelu_tanh=linear.gelu_tanh,
    quick_gelu=linear.quick_gelu,
    silu=keras.activations.silu,
)


@checked
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
    kind: segments.Kind = "panoptic",
    name: str | None = None,
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
            `query_mask_{i}/probability`. It is 1 at first; lower it to 0 in
            training, and a model without masks has the same outputs.
        auxiliary_blocks: Blocks, counted from 1, after which classes and masks
            are predicted as well, for losses: those before each of the last L.
        kind: What `interpret` makes of the outputs: "panoptic", "instance" or
            "semantic".
        name: Name of the model.

    Returns:
        A model from images to "class_queries_logits", `[B, Q, K + 1]`, the last
        of which is that of "no object", and "masks_queries_logits", `[B, h, w,
        Q]`. After block 8 of `auxiliary_blocks` also "class_queries_logits_8"
        and "masks_queries_logits_8".

    Raises:
        ValueError: If the backbone's blocks do not take more tokens, if it has
            fewer blocks, or no number of classes.

    Example:
        model = keras_vit.heads.eomt(
            keras_vit.DINOv2S14(input_shape=(224, 224, 3)), classes=150)
    """
    inner = ImageModel.find(backbone, "backbone")
    classes = task_model.number_of_classes(classes, class_names)
    blocks = tokens.token_blocks(inner, "eomt")
    first = len(blocks) - num_blocks
    _check_blocks(first, len(blocks), num_blocks, auxiliary_blocks)
    if num_upscale_blocks is None:
        patch_size = max(as_pair(inner.architecture.patch_size))
        num_upscale_blocks = max(1, int(math.log2(patch_size)) - 2)
    norm = tokens.last_norm(inner) or _unchanged
    predict = _predictor(inner, classes, num_queries, num_upscale_blocks)
    outputs = {}
    x = tokens.LearnedTokens(num_queries, stddev=1.0, name="queries")(
        blocks[first].input
    )  # [B, Q + T, D]
    for i, block in enumerate(blocks[first:], first):
        bias = {}
        if masked_attention or i in auxiliary_blocks:
            found = predict(norm(x))
            if i in auxiliary_blocks:
                outputs |= {f"{key}_{i}": y for key, y in found.items()}
            if masked_attention:
                mask = QueryMask(
                    tokens.grid_of(inner),
                    tokens.num_prefix_tokens(inner),
                    name=f"query_mask_{i - first}",
                )
                bias["attention_bias"] = mask(found["masks_queries_logits"])
        x = block(x, **bias)
    x = task_model.mark(inner, norm(x))
    outputs |= predict(x)
    return task_model.finish(
        inner,
        outputs,
        "eomt_dinov3" if inner.family == "dinov3" else "eomt",
        "segmentation",
        dict(
            classes=classes,
            num_queries=num_queries,
            num_blocks=num_blocks,
            num_upscale_blocks=num_upscale_blocks,
            masked_attention=masked_attention,
            auxiliary_blocks=list(auxiliary_blocks),
            kind=kind,
        ),
        class_names,
        name,
    )


def _check_blocks(first, total, num_blocks, auxiliary_blocks):
    if first < 0:
        raise ValueError(
            f"`num_blocks` must be at most {total}, the blocks of the "
            f"backbone. Received: num_blocks={num_blocks}"
        )
    if any(not first <= n < total for n in auxiliary_blocks):
        raise ValueError(
            f"`auxiliary_blocks` must be from {first} to {total - 1}: queries "
            f"run through the last {num_blocks} blocks. Received: "
            f"auxiliary_blocks={list(auxiliary_blocks)}"
        )


def _unchanged(x):
    return x


def _predictor(inner, classes, num_queries, num_upscale_blocks):
    """Return the function from normed tokens to classes and masks."""
    grid, width = tokens.grid_of(inner), inner.architecture.hidden_size
    activation = getattr(inner.architecture, "activation", "gelu")
    if activation == "swiglu":  # as in transformers
        activation = "silu" if inner.family == "dinov3" else "gelu"
    activation = _ACTIVATIONS[activation]
    head = ClassHead(
        classes + 1,
        name="head",
        dtype=wide_dtype(keras.config.dtype_policy().compute_dtype),
    )
    mlp = [
        Dense(width, activation if i < 2 else None, name=f"mask_mlp_{i}")
        for i in range(3)
    ]
    upscale = [
        layer
        for i in range(num_upscale_blocks)
        for layer in _upscale_block(width, activation, f"upscale_{i}")
    ]

    def predict(x):
        queries, pixels = x[:, :num_queries], tokens.as_map(x, grid)
        logits = head(queries)  # [B, Q, K + 1]
        for layer in mlp:
            queries = layer(queries)
        for layer in upscale:
            pixels = layer(pixels)
        masks = ops.einsum("bhwd,bqd->bhwq", pixels, queries)
        return dict(class_queries_logits=logits, masks_queries_logits=masks)

    return predict


def _upscale_block(width, activation, name):
    """Return the layers that double the resolution of `[B, h, w, D]`."""
    last = dict(data_format="channels_last")
    return [
        keras.layers.Conv2DTranspose(
            width,
            2,
            2,
            activation=activation,
            name=f"{name}_transposed",
            **last,
        ),
        keras.layers.DepthwiseConv2D(
            3, padding="same", use_bias=False, name=f"{name}_depthwise", **last
        ),
        LayerNorm(epsilon=1e-6, name=f"{name}_norm"),
    ]


@keras.saving.register_keras_serializable(package="keras_vit")
class ClassHead(keras.layers.Dense):
    """The classes of queries, the last of which is "no object".

    It holds the weight of each class in the loss, `class_weights`, as released
    files do. Only they use it: `SetSegmentationLoss` has its own.

    Input shape: `[B, Q, D]`
    Output shape: `[B, Q, units]`
    """

    def build(self, input_shape):
        super().build(input_shape)
        self.class_weights = self.add_weight(
            name="class_weights",
            shape=(self.units,),
            initializer="ones",
            trainable=False,
        )
        self.class_weights.assign([1.0] * (self.units - 1) + [0.1])

    # Keras writes and reads only the kernel and the bias of a dense layer.
    def save_own_variables(self, store):
        keras.layers.Layer.save_own_variables(self, store)

    def load_own_variables(self, store):
        keras.layers.Layer.load_own_variables(self, store)


@keras.saving.register_keras_serializable(package="keras_vit")
class QueryMask(keras.layers.Layer):
    """Forbids queries the patches outside their masks (section 3.2).

    In training, each query with a probability, the weight `probability`;
    otherwise all queries, unless that is 0. They always attend to each other
    and to the tokens before the patches.

    Args:
        grid: (rows, columns) of the patches.
        num_prefix_tokens: Number of tokens between queries and patches.
        seed: Of the choice of queries.

    Input shape: `[B, h, w, Q]`, logits of the masks
    Output shape: `[B, 1, T, T]`, to add to the logits of the attention
    """

    @checked
    def __init__(
        self,
        grid: tuple[Count, Count],
        num_prefix_tokens: Natural,
        seed: int = 0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.grid = tuple(grid)
        self.num_prefix_tokens = num_prefix_tokens
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, input_shape):
        self.probability = self.add_weight(
            name="probability", shape=(1,), initializer="ones", trainable=False
        )

    def call(self, inputs, training=None):
        num_queries = inputs.shape[-1]
        masks = ops.image.resize(
            inputs,
            self.grid,
            interpolation="bilinear",
            data_format="channels_last",
        )
        masks = ops.reshape(masks, (-1, math.prod(self.grid), num_queries))
        allowed = ops.transpose(masks, (0, 2, 1)) > 0  # [B, Q, N]
        draw = 0.0
        if training:
            shape = (ops.shape(inputs)[0], num_queries, 1)
            draw = keras.random.uniform(
                shape, dtype="float32", seed=self.seed_generator
            )
        allowed = ops.logical_or(allowed, draw >= self.probability)
        least = -6e4 if self.compute_dtype == "float16" else -1e9
        bias = ops.where(allowed, 0.0, least)
        before = num_queries + self.num_prefix_tokens
        after = before - num_queries + math.prod(self.grid)
        bias = ops.pad(bias, ((0, 0), (0, after), (before, 0)))
        return ops.cast(bias[:, None], self.compute_dtype)

    def compute_output_shape(self, input_shape):
        tokens = input_shape[-1] + self.num_prefix_tokens + math.prod(self.grid)
        return (input_shape[0], 1, tokens, tokens)


for _name in ("eomt", "eomt_dinov3"):  # the names of their files
    task_model.register(task_model.Head(_name, segments.interpret))
