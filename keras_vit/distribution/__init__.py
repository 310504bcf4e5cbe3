"""The same program on one device or on many."""

from keras_vit.distribution.devices import Devices, setup
from keras_vit.distribution.layouts import check_model, distribution
from keras_vit.distribution.preemption import preemption
from keras_vit.distribution.whole import whole

__all__ = [
    "Devices",
    "check_model",
    "distribution",
    "preemption",
    "setup",
    "whole",
]
