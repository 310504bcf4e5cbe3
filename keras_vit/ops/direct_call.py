"""Calls of layers that cost PyTorch nothing beside their operations."""

import functools
import inspect
import logging

import keras

_IS_TORCH = keras.backend.backend() == "torch"
if _IS_TORCH:
    import torch

    with keras.device("cpu"):
        # Its dtype is that of the autocast scope, and float64 outside of one.
        _PROBE = keras.Variable(0.0, dtype="float64", name="probe")
        _MASKED = keras.layers.Masking()(torch.ones(1, 1, 1))
    # Whether Keras keeps a tensor's mask where `_is_plain` looks for it. A
    # constant, since torch.compile follows a call into Keras.
    _KNOWS_MASKS = hasattr(_MASKED, "_keras_mask")


_name = functools.cache(keras.backend.standardize_dtype)


class DirectCall:
    """A layer that runs `call` at once where Keras would do nothing else.

    With PyTorch, which does not trace programs, Keras looks in each call for
    masks, symbols, dtypes, names and the phase of training. This takes 0.1 ms,
    for one image and ViT-B/16 an eighth of the time. A layer that is built and
    receives a tensor of its dtype, and `training` if it uses it, needs none of
    that, unless it has hooks or is quantised, recomputed or regularised.

    Layers within such a layer must be given `training` where they use it.
    """

    # Whether `call` has an argument `training` that it does not use.
    ignores_training = False

    def __call__(self, *args, **kwargs):
        if _IS_TORCH and len(args) == 1 and _is_direct(self, args[0], kwargs):
            return self.call(args[0], **kwargs)
        return super().__call__(*args, **kwargs)


def _is_direct(layer, x, kwargs):
    if type(x) is not torch.Tensor or not layer.built:
        return False
    dtype = _name(x.dtype)
    scope = _PROBE.dtype
    if scope == "float64":
        scope = layer.variable_dtype
    return (
        dtype == layer.compute_dtype == scope
        and _has_training(layer, kwargs)
        and _fits(x, layer.input_spec)
        and layer.quantization_mode is None
        and layer.activity_regularizer is None
        and _is_plain(layer, x)
    )


def _has_training(layer, kwargs):
    if layer.ignores_training or not _takes_training(type(layer)):
        return not kwargs
    return list(kwargs) == ["training"] and kwargs["training"] is not None


@functools.cache
def _takes_training(layer_class):
    return "training" in inspect.signature(layer_class.call).parameters


def _fits(x, spec):
    # Of what does not fit, Keras' message is clear.
    return spec is None or (
        (spec.ndim or x.ndim) == x.ndim >= (spec.min_ndim or 0)
        and all(spec.axes[i] in (None, x.shape[i]) for i in spec.axes)
    )


def _is_plain(layer, x):
    """Returns whether neither Keras nor PyTorch does more in a call.

    They say so in private names alone. Where a release has others, Keras calls
    the layer.
    """
    try:
        return (
            _KNOWS_MASKS
            and getattr(x, "_keras_mask", None) is None
            and layer._remat_mode is None
            and not (
                layer._forward_hooks
                or layer._forward_pre_hooks
                or layer._backward_hooks
                or layer._backward_pre_hooks
                or torch.nn.modules.module._has_any_global_hook()
            )
        )
    except AttributeError as error:
        _say_once(str(error))
        return False


@functools.cache
def _say_once(reason):
    logging.getLogger("keras_vit").debug("Keras calls all layers: %s", reason)
