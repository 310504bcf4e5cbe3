"""OWL-ViT and OWLv2: boxes for words or for an example.

Minderer et al. 2022 (2205.06230) and 2023 (2306.09683). Checked against owlvit
and owlv2 of transformers. Each patch of a CLIP's image tower gives a box, and
an embedding that is compared with those of the queries.
"""

from collections.abc import Sequence

import keras
import numpy as np
from keras import ops

from keras_vit._arguments import Count, Natural, checked
from keras_vit.heads import task_model, tokens
from keras_vit.heads.task_model import TaskModel
from keras_vit.models.build import own_paths
from keras_vit.models.image_model import ImageModel
from keras_vit.ops.dtypes import wide_policy


@checked
@own_paths()
def owl(
    backbone: keras.Model,
    *,
    embedding_size: Count,
    objectness: bool = True,
    pads: bool = True,
    unused_weights: dict | None = None,
    name: str | None = None,
) -> TaskModel:
    """Build an OWL-ViT or OWLv2 on the layers of a ViT, without queries.

    Args:
        backbone: A CLIP of this package, or another ViT with a class token; its
            head is left out.
        embedding_size: Width E of the embeddings of queries.
        objectness: Whether a head predicts if a box is around any object
            (OWLv2).
        pads: Whether images are padded to squares (OWLv2) instead of stretched.
        unused_weights: What a released file holds and no layer reads: name ->
            shape.
        name: Name of the model.

    Returns:
        A model from images to "class_embeddings", `[B, N, E]`, "logit_shift"
        and "logit_scale", `[B, N, 1]`, "pred_boxes", `[B, N, 4]`: centre x,
        centre y, width and height, in shares of the image; and
        "objectness_logits", `[B, N]`. `with_queries` makes a detector of it.

    Raises:
        ValueError: If the backbone has no class token, or other blocks.
    """
    inner = ImageModel.find(backbone, "backbone")
    blocks = tokens.token_blocks(inner, "owl")
    grid = tokens.grid_of(inner)
    if tokens.num_prefix_tokens(inner) != 1:
        raise ValueError(
            "`backbone` must have a class token, and no other tokens before "
            f"the patches. Received: {inner.name!r}, with "
            f"{tokens.num_prefix_tokens(inner)}"
        )
    x = task_model.mark(inner, tokens.normed(inner, blocks[-1].output))
    x = keras.layers.LayerNormalization(
        epsilon=inner.architecture.layer_norm_epsilon, name="merged_norm"
    )(x[:, 1:] * x[:, :1])
    wide = wide_policy()

    def dense(units, layer_name):
        return keras.layers.Dense(units, name=layer_name, dtype=wide)

    def mlp(x, kind, units):
        width = x.shape[-1]
        for i in range(2):
            x = keras.layers.Dense(
                width, activation="gelu", name=f"{kind}_mlp_{i}"
            )(x)
        return dense(units, f"{kind}_mlp_2")(x)

    boxes = BoxesAtPatches(grid, name="boxes_at_patches", dtype=wide)
    outputs = dict(
        class_embeddings=dense(embedding_size, "class_dense")(x),
        logit_shift=dense(1, "logit_shift")(x),
        logit_scale=ops.elu(dense(1, "logit_scale")(x)) + 1.0,
        pred_boxes=boxes(mlp(x, "box", 4)),
    )
    if objectness:
        logits = mlp(ops.stop_gradient(x), "objectness", 1)
        outputs["objectness_logits"] = logits[..., 0]
    options = dict(
        embedding_size=embedding_size,
        objectness=objectness,
        pads=pads,
        unused_weights=unused_weights,
    )
    head = "owlv2" if objectness else "owlvit"
    return task_model.finish(
        inner, outputs, head, "detection", options, None, name
    )


@checked
@own_paths()
def with_queries(
    model: TaskModel,
    queries,
    class_names: Sequence[str] | None = None,
    *,
    name: str | None = None,
) -> TaskModel:
    """Return a detector of an OWL-ViT or OWLv2 for fixed queries.

    No text tower is needed where it is served.

    Args:
        model: What `owl` returns.
        queries: Their embeddings, `[Q, E]`.
        class_names: Their names.
        name: Name of the model.

    Returns:
        A model from images to "logits", `[B, N, Q]`, "pred_boxes", and
        "objectness_logits". It shares the layers of `model`.

    Raises:
        ValueError: If queries are of another width.
    """
    queries = np.asarray(queries, "float32")
    size = model.options["embedding_size"]
    if queries.ndim != 2 or queries.shape[1] != size or not len(queries):
        raise ValueError(
            f"`queries` must be embeddings, [Q, {size}]. Received: shape "
            f"{queries.shape}"
        )
    outputs = dict(model.output)
    parts = [
        outputs.pop(key)
        for key in ("class_embeddings", "logit_shift", "logit_scale")
    ]
    compare = CompareQueries(len(queries), name="queries", dtype="float32")
    logits = compare(*parts)
    compare.queries.assign(queries)
    options = dict(pads=model.options["pads"], classes=len(queries))
    found = dict(logits=logits, **outputs)
    names = None if class_names is None else tuple(class_names)
    task_model.number_of_classes(len(queries), names)
    layer = task_model.Task(
        "queries", "detection", options, names, name="task_of_queries"
    )
    return TaskModel(
        model.input, layer(found), name=name or f"{model.name}_queries"
    )


@keras.saving.register_keras_serializable(package="keras_vit")
class BoxesAtPatches(keras.layers.Layer):
    """Puts boxes, given as logits, at their patches.

    Args:
        grid_size: (rows, columns) of the patches.

    Input shape: `[B, N, 4]`
    Output shape: `[B, N, 4]`, in shares of the image
    """

    @checked
    def __init__(self, grid_size: tuple[Count, Count], **kwargs):
        super().__init__(**kwargs)
        self.grid_size = tuple(grid_size)

    def call(self, inputs):
        rows, columns = self.grid_size
        y, x = np.divmod(np.arange(rows * columns), columns)
        one = np.ones(rows * columns)
        places = ((x + 1) / columns, (y + 1) / rows, one / columns, one / rows)
        # The last corner of each patch. In float32, as in the library: at the
        # border the logarithm differs by 1.7e-4 from the exact one.
        place = np.stack(places, axis=1).astype("float32")
        bias = np.log(place + 1e-4) - np.log1p(-place + 1e-4)
        return ops.sigmoid(inputs + ops.convert_to_tensor(bias, inputs.dtype))

    def compute_output_shape(self, input_shape):
        return input_shape


@keras.saving.register_keras_serializable(package="keras_vit")
class CompareQueries(keras.layers.Layer):
    """Compares the embedding of each patch with queries.

        logits = (cos(x, q) + shift) scale

    Args:
        num_queries: Number Q of queries that it holds; 0 takes them as input.

    Call arguments:
        embeddings: `[B, N, E]`
        shift, scale: `[B, N, 1]`
        queries: `[B, Q, E]`, if it holds none

    Output shape: `[B, N, Q]`
    """

    @checked
    def __init__(self, num_queries: Natural = 0, **kwargs):
        super().__init__(**kwargs)
        self.num_queries = num_queries

    def build(self, embeddings_shape, *others, **more):
        if self.num_queries:
            self.queries = self.add_weight(
                name="queries",
                shape=(self.num_queries, embeddings_shape[-1]),
                initializer="zeros",
            )

    def call(self, embeddings, shift, scale, queries=None):
        if self.num_queries:
            queries = self.queries[None]
        x, q = (v / (_length(v) + 1e-6) for v in (embeddings, queries))
        x = ops.matmul(x, ops.transpose(q, (0, 2, 1)))
        return (x + shift) * scale

    def compute_output_shape(self, embeddings_shape, *others, **more):
        return (*embeddings_shape[:-1], self.num_queries or None)


def _length(x):
    return ops.sqrt(ops.sum(ops.square(x), axis=-1, keepdims=True))


@checked
def interpret(
    model: TaskModel,
    outputs: dict[str, np.ndarray],
    image_size: tuple[int, int],
    threshold: float = 0.1,
    padded: bool | None = None,
) -> dict:
    """Return the boxes of one image, the best first; see `TaskModel`.

    Args:
        threshold: The least score, the sigmoid of the best logit.
        padded: Whether the image was padded to a square; None for what
            `prepare` does.
    """
    if "logits" not in outputs:
        raise ValueError(
            "`model` must have queries, of words or of an example; those of "
            "keras_vit.heads.with_queries have. Received: one without"
        )
    logits = outputs["logits"].astype("float64")
    labels, scores = logits.argmax(axis=1), 1 / (1 + np.exp(-logits.max(1)))
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] > threshold]
    if model.options["pads"] if padded is None else padded:
        image_size = (max(image_size),) * 2
    return task_model.boxes_of_image(
        model,
        outputs["pred_boxes"][order],
        scores[order].astype("float32"),
        labels[order],
        image_size,
    )


def prepare(model: TaskModel, image: np.ndarray) -> np.ndarray:
    """Return an image, padded to a square below and on the right if need be."""
    if not model.options["pads"]:
        return image
    height, width = image.shape[:2]
    side = max(height, width)
    padding = ((0, side - height), (0, side - width), (0, 0))
    return np.pad(image, padding)


for _name in ("owlvit", "owlv2", "queries"):
    task_model.register(task_model.Head(_name, interpret, prepare))
