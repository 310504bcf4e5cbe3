"""The same program on one device or on many."""

from keras_vit.distribution.devices import Devices, setup
from keras_vit.distribution.gather import gather
from keras_vit.distribution.layouts import check_model, distribution
from keras_vit.distribution.preemption import (
    any_process,
    end_at_ctrl_c,
    preemption,
)
from keras_vit.distribution.torch_processes import synchronize

__all__ = [
    "Devices",
    "any_process",
    "check_model",
    "distribution",
    "end_at_ctrl_c",
    "gather",
    "preemption",
    "setup",
    "synchronize",
]
