"""Labelled images and videos as tf.data pipelines, for every backend."""

from keras_vit import _installation  # refuses another project's files
from keras_vit.data.action_files import load_actions
from keras_vit.data.batches import (
    ClipOptions,
    CropOptions,
    ShardOptions,
    as_pairs,
    eval_batches,
    train_batches,
)
from keras_vit.data.checks import (
    check_pixels,
    describe_ignored,
    explain_broken,
    warn_if_scaled,
)
from keras_vit.data.clips import shuffle_frames
from keras_vit.data.coco import AnnotatedImage, pad_objects, read_coco
from keras_vit.data.crops import bit_hyper_rule
from keras_vit.data.decode import decode_image, find_broken, read_image
from keras_vit.data.exclusions import leave_out
from keras_vit.data.exclusions import read as read_exclusions
from keras_vit.data.identity import count_shared, digest
from keras_vit.data.joint import jitter_scale
from keras_vit.data.multi_crop import Crops, crop_batches, crop_eval_batches
from keras_vit.data.pair_pipelines import pair_batches, pair_eval_batches
from keras_vit.data.pairs import PairSource, load_pairs
from keras_vit.data.sources import Source, load, sample
from keras_vit.data.subsets import hold_out_dev, keep_images, keep_shots
from keras_vit.data.task_pipelines import task_batches, task_eval_batches
from keras_vit.data.task_sources import TaskSource, load_task
from keras_vit.data.task_windows import task_windows

__all__ = [
    "AnnotatedImage",
    "ClipOptions",
    "CropOptions",
    "Crops",
    "PairSource",
    "ShardOptions",
    "Source",
    "TaskSource",
    "as_pairs",
    "bit_hyper_rule",
    "check_pixels",
    "count_shared",
    "crop_batches",
    "crop_eval_batches",
    "decode_image",
    "describe_ignored",
    "digest",
    "eval_batches",
    "explain_broken",
    "find_broken",
    "hold_out_dev",
    "jitter_scale",
    "keep_images",
    "keep_shots",
    "leave_out",
    "load",
    "load_actions",
    "load_task",
    "load_pairs",
    "pad_objects",
    "pair_batches",
    "pair_eval_batches",
    "read_coco",
    "read_exclusions",
    "read_image",
    "sample",
    "shuffle_frames",
    "task_batches",
    "task_eval_batches",
    "task_windows",
    "train_batches",
    "warn_if_scaled",
]
