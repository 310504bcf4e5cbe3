"""Layers that the model families share."""

from keras_vit import _installation  # refuses another project's files
from keras_vit.layers.attention_pooling import AttentionPooling
from keras_vit.layers.beit_attention import BEiTAttention
from keras_vit.layers.distilled_head import DistilledHead
from keras_vit.layers.embedding import (
    AddPositionEmbs,
    ClassToken,
    PatchEmbedding,
    RegisterTokens,
)
from keras_vit.layers.external_attention import (
    ExternalAttention,
    TokenPerformer,
)
from keras_vit.layers.keras_layers import (
    ClassificationHead,
    EnsureShape,
    GroupNorm,
    LayerScale,
    Metadata,
    Rescaling,
    quantizable,
)
from keras_vit.layers.mlp_block import DeiTMlp, MlpBlock
from keras_vit.layers.multi_head_self_attention import MultiHeadSelfAttention
from keras_vit.layers.resnet_v2_stem import BottleneckUnit, ResNetV2Stem
from keras_vit.layers.similarity_head import SimilarityHead
from keras_vit.layers.std_conv import StdConv2D
from keras_vit.layers.transformer_block import TransformerBlock
from keras_vit.ops.attention import set_attention_implementation

__all__ = [
    "AddPositionEmbs",
    "AttentionPooling",
    "BEiTAttention",
    "BottleneckUnit",
    "ClassToken",
    "ClassificationHead",
    "DeiTMlp",
    "DistilledHead",
    "EnsureShape",
    "ExternalAttention",
    "GroupNorm",
    "LayerScale",
    "Metadata",
    "MlpBlock",
    "MultiHeadSelfAttention",
    "PatchEmbedding",
    "RegisterTokens",
    "Rescaling",
    "ResNetV2Stem",
    "SimilarityHead",
    "StdConv2D",
    "TokenPerformer",
    "TransformerBlock",
    "quantizable",
    "set_attention_implementation",
]
