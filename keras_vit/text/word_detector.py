"""OWL-ViT and OWLv2: detectors of what words, or examples, ask for.

Minderer et al. 2022 (2205.06230) and 2023 (2306.09683).
"""

from collections.abc import Sequence

import keras
import numpy as np
from keras import ops

from keras_vit.heads.owl import CompareQueries, with_queries
from keras_vit.heads.task_model import TaskModel
from keras_vit.text.layers import UnitLength
from keras_vit.text.tower import TextModel
from keras_vit.text.two_towers import TwoTowers
from keras_vit.text.zero_shot import class_embeddings


@keras.saving.register_keras_serializable(package="keras_vit")
class WordDetector(TwoTowers):
    """A functional model that finds boxes for texts.

    Its inputs are "images", `[B, H, W, C]`, and "ids", `[B, Q, L]`, the texts
    of each image; its outputs those of `keras_vit.heads.owl`, and
    "text_embeddings", `[B, Q, E]`, and "logits", `[B, N, Q]`. `for_words` and
    `for_examples` return detectors of fixed queries, without a text tower.
    """

    @property
    def image_tower(self) -> TaskModel:
        """From images to boxes and their embeddings."""
        return self.get_layer("image_tower")

    def for_words(
        self,
        class_names: Sequence[str],
        templates: str | Sequence[str] = "photo",
    ) -> TaskModel:
        """Return a detector of classes by their names.

        Args:
            class_names: Names of the classes.
            templates: See `keras_vit.zero_shot`.

        Raises:
            ValueError: As `keras_vit.zero_shot` does.
        """
        names = list(class_names)
        queries = class_embeddings(self, names, templates)
        return with_queries(self.image_tower, queries, names)

    def for_examples(
        self, images, class_names: Sequence[str] | None = None
    ) -> TaskModel:
        """Return a detector of what example images show.

        Args:
            images: Pixels of the examples, `[Q, H, W, C]`, of the model's size.
            class_names: A name for each.
        """
        queries = self.encode_examples(images)
        return with_queries(self.image_tower, queries, class_names)

    def encode_examples(self, images) -> np.ndarray:
        """Return the embedding of the object in each image, `[Q, E]`.

        It is that of the box with the largest objectness; without such a head
        (OWL-ViT), of the box that differs most from the mean of the boxes that
        cover most of the image.

        Args:
            images: Pixels, `[Q, H, W, C]`.
        """
        found = self.image_tower.predict(images, verbose=0)
        embeddings = found["class_embeddings"]
        if "objectness_logits" in found:
            best = found["objectness_logits"].argmax(axis=1)
            return embeddings[np.arange(len(best)), best]
        pairs = zip(embeddings, found["pred_boxes"], strict=True)
        return np.stack([_of_whole_image(x, boxes) for x, boxes in pairs])

    def encode_images(self, images, batch_size: int = 64):
        """Refuse: its images have an embedding for each box."""
        raise NotImplementedError(
            "A detector embeds boxes, not images: see `encode_examples`"
        )

    logits = encode_images  # type: ignore[assignment]


def _of_whole_image(embeddings, boxes):
    """Return the embedding of the query box of transformers' OWL-ViT.

    Of the boxes whose IoU with the entire image is at least 0.8 of the largest,
    it is the one whose embedding differs most from the mean of all.
    """
    centre, size = np.split(boxes.astype("float64"), 2, axis=1)
    low, high = centre - size / 2, centre + size / 2
    inside = np.clip(np.minimum(high, 1) - np.maximum(low, 0), 0, None)
    shared = inside.prod(axis=1)
    iou = shared / (size.prod(axis=1) + 1 - shared)
    chosen = np.flatnonzero(iou >= 0.8 * iou.max())
    mean = embeddings.mean(axis=0)
    return embeddings[chosen[np.argmin(embeddings[chosen] @ mean)]]


def word_detector(
    image_tower: TaskModel, text_tower: TextModel, name: str = "word_detector"
) -> WordDetector:
    """Join an `owl` and the tower of its texts."""
    length = text_tower.architecture.context_length
    images = keras.Input(image_tower.input_shape[1:], name="images")
    ids = keras.Input((None, length), name="ids", dtype="int32")
    image = TaskModel(image_tower.input, image_tower.output, name="image_tower")
    outputs = dict(image(images))
    texts = text_tower(FlattenTexts(name="flatten_texts")(ids))
    texts = UnitLength(name="text_length", dtype="float32")(texts)
    texts = GroupTexts(name="group_texts", dtype="float32")(texts, ids)
    compare = CompareQueries(name="compare_queries", dtype="float32")
    outputs |= dict(
        text_embeddings=texts,
        logits=compare(
            outputs["class_embeddings"],
            outputs["logit_shift"],
            outputs["logit_scale"],
            texts,
        ),
    )
    outputs["class_embeddings"] = UnitLength(
        name="class_length", dtype="float32"
    )(outputs["class_embeddings"])
    return WordDetector(dict(images=images, ids=ids), outputs, name=name)


@keras.saving.register_keras_serializable(package="keras_vit")
class FlattenTexts(keras.layers.Layer):
    """Puts the texts of all images into one batch.

    Input shape: `[B, Q, L]`
    Output shape: `[B x Q, L]`
    """

    def call(self, inputs):
        return ops.reshape(inputs, (-1, inputs.shape[-1]))

    def compute_output_shape(self, input_shape):
        return (None, input_shape[-1])

    def compute_output_spec(self, inputs):
        return keras.KerasTensor((None, inputs.shape[-1]), inputs.dtype)


@keras.saving.register_keras_serializable(package="keras_vit")
class GroupTexts(keras.layers.Layer):
    """Puts the embeddings of texts back to their images.

    Call arguments:
        inputs: `[B x Q, E]`
        ids: `[B, Q, L]`

    Output shape: `[B, Q, E]`
    """

    def call(self, inputs, ids):
        batch_size, count = ops.shape(ids)[0], ops.shape(ids)[1]
        return ops.reshape(inputs, (batch_size, count, inputs.shape[-1]))

    def compute_output_shape(self, inputs_shape, ids_shape):
        return (*ids_shape[:2], inputs_shape[-1])
