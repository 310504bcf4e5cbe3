"""Random weights of realistic size, so that no zero or one hides a mistake."""

import keras
import numpy as np


def fill(model, seed: int = 0):
    """Fills a Keras model and returns it: kernels by their fan-in, the rest
    around one."""
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        shape = weight.shape
        scale = 0.3 if len(shape) == 1 else np.prod(shape[:-1]) ** -0.5
        weight.assign(rng.normal(size=shape) * scale + (len(shape) == 1))
    return model


def fill_torch(model):
    """Fills a PyTorch model in the same way and returns it, for inference."""
    import torch

    generator = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        with torch.no_grad():
            if parameter.ndim == 1:
                parameter += 0.3 * noise
            else:
                fan_in = parameter[0].numel()
                parameter.copy_(noise * 1.5 / fan_in**0.5)
    return model.eval()


def run(model, inputs):
    """Return outputs in the way whose first call is fastest.

    That is eagerly, except on JAX, which compiles each operation separately.
    """
    if keras.backend.backend() == "jax":
        return model.predict_on_batch(inputs)
    return model(inputs, training=False)
