"""Adam's update as one operation of PyTorch."""

import functools

import keras

from keras_vit.training.derived import Derived


@functools.cache
def fuse_adam(optimizer_class: type) -> type:
    """Returns an optimizer class whose update is fast on CPUs with PyTorch.

    There Keras makes an array of all weights for each operation of Adam's
    update, which takes longer than the gradient of ViT-B/16 for an image
    (docs/benchmarks.md). PyTorch's own update makes one pass over the weights.
    Both compute the same, but for rounding. With other backends, on GPUs and
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

    class Fused(optimizer_class, metaclass=Derived):
        derived = fuse_adam, optimizer_class

        def _backend_update_step(self, grads, variables, learning_rate):
            if self.amsgrad or torch.compiler.is_compiling():
                super()._backend_update_step(grads, variables, learning_rate)
            else:
                _update(self, grads, variables, learning_rate)

    # Saved as the class that it computes.
    Fused.__name__ = optimizer_class.__name__
    Fused.__module__ = optimizer_class.__module__
    return Fused


def _update(optimizer, grads, variables, learning_rate):
    import torch
    from torch.optim.adam import adam

    at = [optimizer._get_variable_index(v) for v in variables]
    steps = torch.full((len(at),), float(optimizer.iterations))
    # The authors of Adam add epsilon before the second moment is corrected, as
    # Keras does; PyTorch adds it after.
    correction = 1 - optimizer.beta_2 ** (int(optimizer.iterations) + 1)
    momentums = [optimizer._momentums[i] for i in at]
    velocities = [optimizer._velocities[i] for i in at]
    updated = [v.value for v in (*variables, *momentums, *velocities)]
    with torch.no_grad():
        # The operation reads all memory in the same order.
        arrays = [x.contiguous() for x in updated]
        adam(
            arrays[: len(at)],
            [g.contiguous() for g in grads],
            arrays[len(at) : 2 * len(at)],
            arrays[2 * len(at) :],
            [],
            list(steps.unbind()),
            fused=True,
            amsgrad=False,
            beta1=optimizer.beta_1,
            beta2=optimizer.beta_2,
            lr=float(learning_rate),
            weight_decay=0.0,
            eps=optimizer.epsilon / correction**0.5,
            maximize=False,
        )
        for x, array in zip(updated, arrays, strict=True):
            if x is not array:
                x.copy_(array)
