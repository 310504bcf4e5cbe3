"""Adam's update as one operation of PyTorch."""

import functools

import keras


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
        Adam = keras_vit.training.fuse_adam(keras.optimizers.AdamW)
        model.compile(Adam(1e-4), "sparse_categorical_crossentropy")

    Reference:
        Kingma & Ba 2015 (1412.6980), section 2.
    """
    if keras.backend.backend() != "torch" or optimizer_class not in (
        keras.optimizers.Adam,
        keras.optimizers.AdamW,
    ):
        return optimizer_class
    import torch
    from torch.optim.adam import adam

    if torch.get_default_device().type != "cpu" or torch.cuda.is_available():
        return optimizer_class

    class Fused(optimizer_class):
        def _backend_update_step(self, grads, variables, learning_rate):
            if self.amsgrad or torch.compiler.is_compiling():
                super()._backend_update_step(grads, variables, learning_rate)
                return
            at = [self._get_variable_index(v) for v in variables]
            steps = torch.full((len(at),), float(self.iterations))
            # The authors of Adam add epsilon before the second moment is
            # corrected, as Keras does; PyTorch adds it after.
            correction = 1 - self.beta_2 ** (int(self.iterations) + 1)
            with torch.no_grad():
                adam(
                    [v.value for v in variables],
                    # The operation reads memory in order.
                    [g.contiguous() for g in grads],
                    [self._momentums[i].value for i in at],
                    [self._velocities[i].value for i in at],
                    [],
                    list(steps.unbind()),
                    fused=True,
                    amsgrad=False,
                    beta1=self.beta_1,
                    beta2=self.beta_2,
                    lr=float(learning_rate),
                    weight_decay=0.0,
                    eps=self.epsilon / correction**0.5,
                    maximize=False,
                )

    # Saved as the class that it computes.
    Fused.__name__ = optimizer_class.__name__
    Fused.__module__ = optimizer_class.__module__
    return Fused
