"""Heads for detection, segmentation, depth and pose on any backbone."""

from keras_vit.heads import released as _released
from keras_vit.heads.actions import actions as actions
from keras_vit.heads.beit_masked import beit_masked as beit_masked
from keras_vit.heads.depth_anything import depth_anything as depth_anything
from keras_vit.heads.dpt import dpt as dpt
from keras_vit.heads.eomt import eomt as eomt
from keras_vit.heads.eomt import mask_attention as mask_attention
from keras_vit.heads.feature_pyramid import PyramidModel as PyramidModel
from keras_vit.heads.feature_pyramid import (
    simple_feature_pyramid as simple_feature_pyramid,
)
from keras_vit.heads.linear import linear as linear
from keras_vit.heads.masked import MaskedModel as MaskedModel
from keras_vit.heads.masked import mae as mae
from keras_vit.heads.owl import owl as owl
from keras_vit.heads.owl import with_queries as with_queries
from keras_vit.heads.task_model import TaskModel as TaskModel
from keras_vit.heads.vitpose import vitpose as vitpose
from keras_vit.heads.yolos import yolos as yolos
