"""Classifiers of the words for their classes, without examples.

Radford et al. 2021 (2103.00020), section 3.1.
"""

import warnings
from collections.abc import Sequence
from typing import Literal

import keras
import numpy as np

from keras_vit import layers
from keras_vit._arguments import check_class_names, checked
from keras_vit.layers.keras_layers import check_float
from keras_vit.models.build import own_paths
from keras_vit.models.image_model import ImageModel
from keras_vit.ops.dtypes import wide_dtype
from keras_vit.text.two_towers import NaFlexTowers, TwoTowers

# The 80 prompts of CLIP for ImageNet, in the order of its authors.
_IMAGENET = """
a bad photo of a {}.|a photo of many {}.|a sculpture of a {}.
a photo of the hard to see {}.|a low resolution photo of the {}.
a rendering of a {}.|graffiti of a {}.|a bad photo of the {}.
a cropped photo of the {}.|a tattoo of a {}.|the embroidered {}.
a photo of a hard to see {}.|a bright photo of a {}.|a photo of a clean {}.
a photo of a dirty {}.|a dark photo of the {}.|a drawing of a {}.
a photo of my {}.|the plastic {}.|a photo of the cool {}.
a close-up photo of a {}.|a black and white photo of the {}.
a painting of the {}.|a painting of a {}.|a pixelated photo of the {}.
a sculpture of the {}.|a bright photo of the {}.|a cropped photo of a {}.
a plastic {}.|a photo of the dirty {}.|a jpeg corrupted photo of a {}.
a blurry photo of the {}.|a photo of the {}.|a good photo of the {}.
a rendering of the {}.|a {} in a video game.|a photo of one {}.
a doodle of a {}.|a close-up photo of the {}.|a photo of a {}.
the origami {}.|the {} in a video game.|a sketch of a {}.
a doodle of the {}.|a origami {}.|a low resolution photo of a {}.
the toy {}.|a rendition of the {}.|a photo of the clean {}.
a photo of a large {}.|a rendition of a {}.|a photo of a nice {}.
a photo of a weird {}.|a blurry photo of a {}.|a cartoon {}.|art of a {}.
a sketch of the {}.|a embroidered {}.|a pixelated photo of a {}.
itap of the {}.|a jpeg corrupted photo of the {}.|a good photo of a {}.
a plushie {}.|a photo of the nice {}.|a photo of the small {}.
a photo of the weird {}.|the cartoon {}.|art of the {}.
a drawing of the {}.|a photo of the large {}.
a black and white photo of a {}.|the plushie {}.|a dark photo of a {}.
itap of a {}.|graffiti of the {}.|a toy {}.|itap of my {}.
a photo of a cool {}.|a photo of a small {}.|a tattoo of the {}.
"""
# Name -> prompts, in which {} is the name of a class.
TEMPLATES: dict[str, tuple[str, ...]] = {
    "imagenet": tuple(_IMAGENET.strip().replace("\n", "|").split("|")),
    "imagenet_7": (
        *("itap of a {}.", "a bad photo of the {}.", "a origami {}."),
        *("a photo of the large {}.", "a {} in a video game."),
        *("art of the {}.", "a photo of the small {}."),
    ),
    "photo": ("a photo of a {}.",),
    "siglip": ("This is a photo of {}.",),
    "name": ("{}",),
}


# What `templates` takes.
Templates = (
    Literal["imagenet", "imagenet_7", "photo", "siglip", "name"] | Sequence[str]
)


@checked
def zero_shot(
    model: TwoTowers,
    class_names: Sequence[str],
    templates: Templates = "photo",
    *,
    name: str | None = None,
) -> ImageModel:
    """Return a classifier whose head are the embeddings of its classes' names.

    The embedding of a class is the mean of those of its prompts, each of
    length 1, divided by its length. The kernel of the head are these, times
    the scale of the model, the bias that of the model. No text tower is needed
    where the classifier is evaluated, trained or served.

    Args:
        model: Two towers, with a tokenizer.
        class_names: Names of the classes.
        templates: Prompts, in which {} is the name of a class, or a name of
            some (`keras_vit.text.TEMPLATES`): "photo", "a photo of a {}.";
            "imagenet", CLIP's 80 for ImageNet; "imagenet_7", the 7 of these
            that its authors chose; "siglip", that of SigLIP's pipeline; "name",
            the name alone.
        name: Name of the model; that of the two towers.

    Returns:
        A model that shares the layers of the image tower. With a bias, as of
        SigLIP, it is compiled with `BinaryCrossentropy`, from which what
        predicts and exports knows that each class is right by itself: scores
        are sigmoids. It has no optimizer; compile it to train it.

    Raises:
        ValueError: If there are no such templates, or one has no place for a
            name, if names repeat, or are one alone of a model without a bias,
            if the model has no tokenizer, or if its projection is quantised:
            quantise the classifier.

    Example:
        text = keras_vit.text.text_tower(
            "clip", vocab_size=8, context_length=8, hidden_size=16,
            num_layers=1, num_heads=2, mlp_dim=16, embedding_size=8,
            tokenizer=keras_vit.text.word_tokenizer(["cat", "dog"], 8))
        image = keras_vit.ViTB16(input_shape=(32, 32, 3), include_top=False)
        towers = keras_vit.two_towers(image, text)
        classifier = keras_vit.zero_shot(towers, ["cat", "dog"])
    """
    _refuse_others(model)
    class_names = list(class_names)
    check_class_names(class_names, None)
    if len(set(class_names)) < len(class_names):
        raise ValueError(
            "`class_names` must differ from one another. Received: "
            f"class_names={class_names}"
        )
    tower, similarity = model.image_tower, model.similarity
    if tower.head:  # whose kernel is copied
        check_float(tower.head, "model")
    embeddings = class_embeddings(model, class_names, templates)  # [K, E]
    if len(class_names) < 2 and similarity.logit_bias is None:
        raise ValueError(
            "`class_names` must have at least two of a model without a bias, "
            "such as CLIP, whose scores are relative: that of one class alone "
            f"says nothing. Received: class_names={class_names}"
        )
    scale, bias = (
        0.0 if x is None else keras.ops.convert_to_numpy(x)
        for x in (similarity.scale(), similarity.logit_bias)
    )
    head = layers.SimilarityHead(
        len(class_names),
        class_names=tuple(class_names),
        projection_size=embeddings.shape[1] if tower.head else 0,
        name="head",
        dtype=wide_dtype(similarity.compute_dtype),
    )
    with own_paths():
        outputs = head(tower.representation)
    classifier = ImageModel(tower.input, outputs, name=name or model.name)
    head.kernel.assign(embeddings.T * scale)
    head.bias.assign(np.full(len(class_names), bias, "float32"))
    if tower.head:
        dense = tower.get_layer("head")
        for own, other in (
            (head.projection.kernel, dense.kernel),
            (head.projection.bias, dense.bias),
        ):  # copied, since JAX gives up the arrays of a model that it trains
            own.assign(keras.ops.convert_to_numpy(other))
    if similarity.logit_bias is not None:
        loss = keras.losses.BinaryCrossentropy(from_logits=True)
        classifier.compile(optimizer=None, loss=loss)  # type: ignore[call-arg]
    return classifier


def _refuse_others(model):
    """Refuse what does not compare images of one shape with texts."""
    if hasattr(getattr(model, "image_tower", None), "task"):
        raise ValueError(
            "`model` must compare entire images with texts. Received: a "
            "detector, whose `for_words` returns one for classes"
        )
    if isinstance(model, NaFlexTowers):
        raise ValueError(
            "`model` must take images of one shape. Received: one for any "
            "shape. Open it with keras_vit.from_pretrained(..., input_shape="
            "(256, 256, 3))"
        )
    if not isinstance(model, TwoTowers):
        raise ValueError(
            "`model` must have two towers, as keras_vit.from_pretrained gives "
            f"of CLIP and SigLIP. Received: {type(model).__name__}"
        )


def class_embeddings(
    model: TwoTowers,
    class_names: Sequence[str],
    templates: str | Sequence[str] = "photo",
) -> np.ndarray:
    """Return each class' embedding, of length 1, `[K, E]`; see `zero_shot`."""
    if isinstance(templates, str):
        if templates not in TEMPLATES:
            raise ValueError(
                f"`templates` must be one of {tuple(TEMPLATES)}, or prompts in "
                f"which {{}} is a name. Received: templates={templates!r}"
            )
        templates = TEMPLATES[templates]
    if not templates or not all("{}" in prompt for prompt in templates):
        raise ValueError(
            "`templates` must have {} in each, for the name of a class. "
            f"Received: templates={templates!r}"
        )
    prompts = [
        prompt.replace("{}", name)
        for name in class_names
        for prompt in templates
    ]
    ids = np.asarray(model.ids_of(prompts))
    rows, firsts = ids.reshape(len(class_names), -1), {}
    for name, row in zip(class_names, rows, strict=True):
        first = firsts.setdefault(row.tobytes(), name)
        if first != name:
            warnings.warn(
                f"The classes {first!r} and {name!r} have the same tokens, so "
                "that the first always wins. Are words of theirs unknown to "
                "the tokenizer, or cut off?",
                stacklevel=4,
            )
    each = model.encode_texts(ids)
    mean = each.reshape(len(class_names), len(templates), -1).mean(axis=1)
    return mean / np.linalg.norm(mean, axis=-1, keepdims=True)
