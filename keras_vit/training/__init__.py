"""What training needs beyond Keras."""

from keras_vit.training.accumulation import accumulate
from keras_vit.training.averages import SwapAverages
from keras_vit.training.checkpoints import Checkpoints
from keras_vit.training.clipping import clip_whole_gradient
from keras_vit.training.losses import SigmoidCrossentropy
from keras_vit.training.progress import Preempted, Progress
from keras_vit.training.schedules import LinearDecay

__all__ = [
    "Checkpoints",
    "LinearDecay",
    "Preempted",
    "Progress",
    "SigmoidCrossentropy",
    "SwapAverages",
    "accumulate",
    "clip_whole_gradient",
]
