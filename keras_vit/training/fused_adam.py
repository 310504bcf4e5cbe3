"""Adam's update as one operation of PyTorch."""

import functools

import keras

from keras_vit._arguments import OptimizerClass, checked
from keras_vit.ops.adam import FusedAdam
from keras_vit.training.derived import derive


@checked
@functools.cache
def fuse_adam(optimizer_class: OptimizerClass) -> type:
    """Return an optimizer class whose update is fast on CPUs with PyTorch.

    There Keras allocates an array of all weights for each operation of the
    update, which takes longer than the gradient of ViT-B/16 for one image
    (docs/benchmarks.md). PyTorch's own update makes one pass over the weights.
    The results are the same up to rounding. With other backends, on GPUs and
    for other optimizers the class is returned unchanged.

    Args:
        optimizer_class: A class of `keras.optimizers`.

    Example:
        AdamW = keras_vit.training.fuse_adam(keras.optimizers.AdamW)
        model.compile(
            AdamW(1e-4),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        model.fit(images, labels)

    Reference:
        Kingma & Ba 2015 (1412.6980), section 2.
    """
    if keras.backend.backend() != "torch" or optimizer_class not in (
        keras.optimizers.Adam,
        keras.optimizers.AdamW,
    ):
        return optimizer_class
    import torch

    if torch.get_default_device().type != "cpu" or torch.cuda.is_available():
        return optimizer_class

    return derive(fuse_adam, optimizer_class, FusedAdam)
