"""Gathers the variables of a model from many processes."""

import keras

from keras_vit.distribution.devices import Devices


def gather(model: keras.Model, devices: Devices) -> keras.Model:
    """Return a model that one process can save; all processes must call it.

    Args:
        model: A model.
        devices: The result of `setup`.

    Returns:
        `model` itself if this process can read all of its variables; otherwise,
        in the main process, a copy on one device.
    """
    if keras.backend.backend() != "jax" or all(
        v.value.is_fully_addressable or v.value.is_fully_replicated
        for v in model.variables
    ):
        return model
    from jax.experimental import multihost_utils

    values = [
        multihost_utils.process_allgather(v.value, tiled=True)
        for v in model.variables
    ]
    if not devices.is_main:
        return model
    before = keras.distribution.distribution()
    keras.distribution.set_distribution(None)
    try:
        copy = keras.models.clone_model(model)
        for variable, value in zip(copy.variables, values, strict=True):
            variable.assign(value)
    finally:
        keras.distribution.set_distribution(before)
    return copy
