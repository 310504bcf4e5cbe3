"""Evaluation of frozen representations and of classifiers."""

from keras_vit.evaluation.callback import FewShot, MeanAveragePrecision, Probe
from keras_vit.evaluation.dense import (
    DepthErrors,
    MeanIoU,
    predict_windows,
)
from keras_vit.evaluation.features import (
    features,
    predictions,
    representation,
)
from keras_vit.evaluation.few_shot import (
    L2,
    SHOTS,
    FewShotResult,
    few_shot,
)
from keras_vit.evaluation.frames import FrameAveragePrecision
from keras_vit.evaluation.image_index import ImageIndex, index_images
from keras_vit.evaluation.least_squares import LeastSquares, few_shot_subset
from keras_vit.evaluation.multi_label import (
    PrecisionAt1,
    mean_average_precision,
    precision_at_1,
    scores_and_targets,
)
from keras_vit.evaluation.neighbours import nearest_neighbours
from keras_vit.evaluation.objectnet import load_objectnet
from keras_vit.evaluation.objects import CocoAveragePrecision, PanopticQuality
from keras_vit.evaluation.pair_scores import PairScores, pair_scores
from keras_vit.evaluation.real_labels import load_real, real_accuracy
from keras_vit.evaluation.task_scores import TaskScores, task_scores
from keras_vit.evaluation.views import average_scores, highest_scores
from keras_vit.evaluation.vtab import vtab_scores

__all__ = [
    "L2",
    "SHOTS",
    "CocoAveragePrecision",
    "DepthErrors",
    "FewShot",
    "FewShotResult",
    "FrameAveragePrecision",
    "ImageIndex",
    "LeastSquares",
    "MeanAveragePrecision",
    "MeanIoU",
    "PairScores",
    "PanopticQuality",
    "PrecisionAt1",
    "Probe",
    "TaskScores",
    "average_scores",
    "features",
    "few_shot",
    "few_shot_subset",
    "highest_scores",
    "index_images",
    "load_objectnet",
    "load_real",
    "mean_average_precision",
    "nearest_neighbours",
    "pair_scores",
    "precision_at_1",
    "predict_windows",
    "predictions",
    "real_accuracy",
    "representation",
    "scores_and_targets",
    "task_scores",
    "vtab_scores",
]
