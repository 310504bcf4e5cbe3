"""Layers that the model families share."""

from keras_vit import _installation  # refuses another project's files
from keras_vit.layers.add_position_embs import AddPositionEmbs
from keras_vit.layers.axial_attention import AxialAttentionBN, AxialAttentionGN
from keras_vit.layers.class_token import ClassToken
from keras_vit.layers.classification_head import ClassificationHead
from keras_vit.layers.cube_embedding import CubeEmbedding
from keras_vit.layers.metadata import Metadata
from keras_vit.layers.mlp_block import MlpBlock
from keras_vit.layers.multi_head_self_attention import MultiHeadSelfAttention
from keras_vit.layers.multi_scale_embedding import MultiScaleEmbedding
from keras_vit.layers.multiscale_block import MultiscaleBlock
from keras_vit.layers.patch_embedding import PatchEmbedding
from keras_vit.layers.pooling_attention import PoolingAttention
from keras_vit.layers.quantizable import quantizable
from keras_vit.layers.resnet_v2_stem import BottleneckUnit, ResNetV2Stem
from keras_vit.layers.space_time_positions import SpaceTimePositions
from keras_vit.layers.std_conv import StdConv2D
from keras_vit.layers.token_pooling import TokenPooling
from keras_vit.layers.transformer_block import TransformerBlock

__all__ = [
    "AddPositionEmbs",
    "AxialAttentionBN",
    "AxialAttentionGN",
    "BottleneckUnit",
    "ClassToken",
    "ClassificationHead",
    "CubeEmbedding",
    "Metadata",
    "MlpBlock",
    "MultiHeadSelfAttention",
    "MultiScaleEmbedding",
    "MultiscaleBlock",
    "PatchEmbedding",
    "PoolingAttention",
    "ResNetV2Stem",
    "SpaceTimePositions",
    "StdConv2D",
    "TokenPooling",
    "TransformerBlock",
    "quantizable",
]
