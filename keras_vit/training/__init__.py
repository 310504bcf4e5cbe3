"""Schedules, losses, callbacks and training steps that Keras lacks."""

from keras_vit.training import masked_images, masked_patch
from keras_vit.training.accumulation import accumulate
from keras_vit.training.averages import SwapAverages
from keras_vit.training.checkpoints import Checkpoints
from keras_vit.training.clipping import clip_whole_gradient
from keras_vit.training.contrastive_loss import (
    ContrastiveLoss,
    sigmoid_contrastive_loss,
    softmax_contrastive_loss,
)
from keras_vit.training.depth_loss import MetricDepthLoss, RelativeDepthLoss
from keras_vit.training.detection_loss import (
    SetDetectionLoss,
    generalized_iou,
)
from keras_vit.training.freezing import train_head_only, train_low_rank
from keras_vit.training.fused_adam import fuse_adam
from keras_vit.training.layer_decay import depth_factor, scale_rates
from keras_vit.training.losses import SigmoidCrossentropy
from keras_vit.training.mask_annealing import MaskAnnealing
from keras_vit.training.masked_images import OutputLoss
from keras_vit.training.matching import linear_assignment
from keras_vit.training.progress import Preempted, Progress
from keras_vit.training.schedules import LinearDecay, StepDecay, WarmUp
from keras_vit.training.segmentation_loss import (
    PixelCrossentropy,
    SetSegmentationLoss,
    masks_of_classes,
)
from keras_vit.training.task_loss import TaskLoss, set_loss

__all__ = [
    "Checkpoints",
    "ContrastiveLoss",
    "LinearDecay",
    "MaskAnnealing",
    "MetricDepthLoss",
    "OutputLoss",
    "PixelCrossentropy",
    "Preempted",
    "Progress",
    "RelativeDepthLoss",
    "SetDetectionLoss",
    "SetSegmentationLoss",
    "SigmoidCrossentropy",
    "StepDecay",
    "SwapAverages",
    "TaskLoss",
    "WarmUp",
    "accumulate",
    "clip_whole_gradient",
    "depth_factor",
    "fuse_adam",
    "generalized_iou",
    "linear_assignment",
    "masked_images",
    "masked_patch",
    "masks_of_classes",
    "scale_rates",
    "set_loss",
    "sigmoid_contrastive_loss",
    "softmax_contrastive_loss",
    "train_head_only",
    "train_low_rank",
]
