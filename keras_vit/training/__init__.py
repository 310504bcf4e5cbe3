"""Schedules, losses, callbacks and training steps that Keras lacks."""

from keras_vit.training import masked_images, masked_patch
from keras_vit.training.accumulation import accumulate
from keras_vit.training.action_loss import ActionLoss
from keras_vit.training.adafactor import MomentumAdafactor
from keras_vit.training.averages import SwapAverages
from keras_vit.training.checkpoints import Checkpoints
from keras_vit.training.clipping import (
    clip_whole_gradient,
    multiply_head_decay,
    schedule_decay,
)
from keras_vit.training.contrastive_loss import (
    ContrastiveLoss,
    sigmoid_contrastive_loss,
    softmax_contrastive_loss,
)
from keras_vit.training.depth_loss import MetricDepthLoss, RelativeDepthLoss
from keras_vit.training.detection_loss import SetDetectionLoss, generalized_iou
from keras_vit.training.dino_loss import cosine
from keras_vit.training.distillation import (
    DistillationLoss,
    DistilledAccuracy,
    distilled,
    is_function_of_files,
    open_teacher,
    with_predictions,
)
from keras_vit.training.freezing import train_head_only, train_low_rank
from keras_vit.training.fused_adam import fuse_adam
from keras_vit.training.layer_decay import depth_factor, scale_rates
from keras_vit.training.losses import SigmoidCrossentropy
from keras_vit.training.mask_annealing import MaskAnnealing
from keras_vit.training.masked_images import OutputLoss
from keras_vit.training.matching import linear_assignment
from keras_vit.training.muon import ConvMuon
from keras_vit.training.progress import Preempted, Progress
from keras_vit.training.schedules import (
    InverseSquareRoot,
    LinearDecay,
    StepDecay,
    WarmUp,
)
from keras_vit.training.segmentation_loss import (
    PixelCrossentropy,
    SetSegmentationLoss,
    masks_of_classes,
)
from keras_vit.training.self_distillation import (
    DINO,
    SelfDistillation,
    SwapTeacher,
)
from keras_vit.training.task_loss import TaskLoss, clear_all_gradients, set_loss

__all__ = [
    "DINO",
    "ActionLoss",
    "Checkpoints",
    "ContrastiveLoss",
    "ConvMuon",
    "DistillationLoss",
    "DistilledAccuracy",
    "InverseSquareRoot",
    "LinearDecay",
    "MaskAnnealing",
    "MetricDepthLoss",
    "MomentumAdafactor",
    "OutputLoss",
    "PixelCrossentropy",
    "Preempted",
    "Progress",
    "RelativeDepthLoss",
    "SelfDistillation",
    "SetDetectionLoss",
    "SetSegmentationLoss",
    "SigmoidCrossentropy",
    "StepDecay",
    "SwapAverages",
    "SwapTeacher",
    "TaskLoss",
    "WarmUp",
    "accumulate",
    "clear_all_gradients",
    "clip_whole_gradient",
    "cosine",
    "depth_factor",
    "distilled",
    "fuse_adam",
    "generalized_iou",
    "is_function_of_files",
    "linear_assignment",
    "masked_images",
    "masked_patch",
    "masks_of_classes",
    "multiply_head_decay",
    "open_teacher",
    "scale_rates",
    "schedule_decay",
    "set_loss",
    "sigmoid_contrastive_loss",
    "softmax_contrastive_loss",
    "train_head_only",
    "train_low_rank",
    "with_predictions",
]
