"""ImageNet's mean and standard deviation, by which many families scale."""

import numpy as np

from keras_vit.weights.rules import table

MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
PIXELS = dict(pixel_mean=MEAN, pixel_std=STD)


def differences(metadata: dict) -> list:
    """List how a library that always scales so differs from a model."""
    mean, std = metadata.get("pixel_mean"), metadata.get("pixel_std")
    if mean is None or std is None or len(mean) != 3:
        return table.pixel_differences(metadata)
    same = np.allclose((mean, std), (MEAN, STD), rtol=1e-3)
    return [] if same else [f"it scales pixels by {MEAN} and {STD}"]
