"""Schedules, losses, callbacks and training steps that Keras lacks."""

from keras_vit.training import masked_patch
from keras_vit.training.accumulation import accumulate
from keras_vit.training.averages import SwapAverages
from keras_vit.training.checkpoints import Checkpoints
from keras_vit.training.clipping import clip_whole_gradient
from keras_vit.training.freezing import train_head_only, train_low_rank
from keras_vit.training.fused_adam import fuse_adam
from keras_vit.training.layer_decay import depth_factor, scale_rates
from keras_vit.training.losses import SigmoidCrossentropy
from keras_vit.training.progress import Preempted, Progress
from keras_vit.training.schedules import LinearDecay, StepDecay, WarmUp

__all__ = [
    "Checkpoints",
    "LinearDecay",
    "Preempted",
    "Progress",
    "SigmoidCrossentropy",
    "StepDecay",
    "SwapAverages",
    "WarmUp",
    "accumulate",
    "clip_whole_gradient",
    "depth_factor",
    "fuse_adam",
    "masked_patch",
    "scale_rates",
    "train_head_only",
    "train_low_rank",
]
