# Written by pytest tests/models/test_signatures.py --update-goldens.
import dataclasses
import os

import keras

from keras_vit.models.families import Family
from keras_vit.models.image_model import ImageModel
from keras_vit.weights import Checkpoint

FAMILY: Family
VARIANTS: dict[str, dict]

@dataclasses.dataclass(frozen=True, kw_only=True)
class EVA02Config:
    patch_size: int | tuple[int, int]
    hidden_size: int
    num_layers: int
    num_heads: int
    mlp_dim: int
    classifier: str = 'gap_norm'
    class_token: bool = True
    rotary: str = 'index'
    rotary_theta: float = 10000.0
    rotary_reference: tuple[int, int] | None = None
    rotary_offset: float = 0.0
    rotary_order: str = 'ij'
    pre_norm: bool = False
    post_norm: bool = False
    activation: str = 'swiglu'
    layer_scale: float = 0.0
    qkv_bias: str = 'qv'
    attention_norm: bool = False
    mlp_norm: bool = False
    pooling_heads: int = 0
    drop_path_rate: float = 0.0
    layer_norm_epsilon: float = 1e-06

def forward(config: EVA02Config, x: keras.KerasTensor) -> keras.KerasTensor: ...
def EVA02(
    *,
    weights: str | os.PathLike | keras.Model | Checkpoint | None = None,
    include_top: bool = True,
    classes: int | None = None,
    input_shape: tuple[int, ...] | None = None,
    classifier_activation: str | None = None,
    include_preprocessing: bool = True,
    name: str | None = None,
    patch_size: int | tuple[int, int] | None = None,
    hidden_size: int | None = None,
    num_layers: int | None = None,
    num_heads: int | None = None,
    mlp_dim: int | None = None,
    classifier: str | None = None,
    class_token: bool | None = None,
    rotary: str | None = None,
    rotary_theta: float | None = None,
    rotary_reference: tuple[int, int] | None = None,
    rotary_offset: float | None = None,
    rotary_order: str | None = None,
    pre_norm: bool | None = None,
    post_norm: bool | None = None,
    activation: str | None = None,
    layer_scale: float | None = None,
    qkv_bias: str | None = None,
    attention_norm: bool | None = None,
    mlp_norm: bool | None = None,
    pooling_heads: int | None = None,
    drop_path_rate: float = 0.0,
    layer_norm_epsilon: float | None = None,
    pooling: str | None = None,
    representation_size: int | None = None,
    remat: bool = False,
    pixel_mean: float | tuple[float, ...] | None = None,
    pixel_std: float | tuple[float, ...] | None = None,
    head_bias_init: float = 0.0,
    class_names: tuple[str, ...] | None = None,
    position_grid: tuple[int, ...] | None = None,
    resize_patches: bool = False,
    dtype: str | keras.DTypePolicy | None = None,
) -> ImageModel: ...
def EVA02S14(
    *,
    weights: str | os.PathLike | keras.Model | Checkpoint | None = None,
    include_top: bool = True,
    classes: int | None = None,
    input_shape: tuple[int, ...] | None = None,
    classifier_activation: str | None = None,
    include_preprocessing: bool = True,
    name: str | None = None,
    patch_size: int | tuple[int, int] = 14,
    hidden_size: int = 384,
    num_layers: int = 12,
    num_heads: int = 6,
    mlp_dim: int = 1024,
    classifier: str | None = None,
    class_token: bool | None = None,
    rotary: str | None = None,
    rotary_theta: float | None = None,
    rotary_reference: tuple[int, int] | None = (16, 16),
    rotary_offset: float | None = None,
    rotary_order: str | None = None,
    pre_norm: bool | None = None,
    post_norm: bool | None = None,
    activation: str | None = None,
    layer_scale: float | None = None,
    qkv_bias: str | None = None,
    attention_norm: bool | None = None,
    mlp_norm: bool | None = None,
    pooling_heads: int | None = None,
    drop_path_rate: float = 0.0,
    layer_norm_epsilon: float | None = None,
    pooling: str | None = None,
    representation_size: int | None = None,
    remat: bool = False,
    pixel_mean: float | tuple[float, ...] | None = None,
    pixel_std: float | tuple[float, ...] | None = None,
    head_bias_init: float = 0.0,
    class_names: tuple[str, ...] | None = None,
    position_grid: tuple[int, ...] | None = None,
    resize_patches: bool = False,
    dtype: str | keras.DTypePolicy | None = None,
) -> ImageModel: ...
def EVA02B14(
    *,
    weights: str | os.PathLike | keras.Model | Checkpoint | None = None,
    include_top: bool = True,
    classes: int | None = None,
    input_shape: tuple[int, ...] | None = None,
    classifier_activation: str | None = None,
    include_preprocessing: bool = True,
    name: str | None = None,
    patch_size: int | tuple[int, int] = 14,
    hidden_size: int = 768,
    num_layers: int = 12,
    num_heads: int = 12,
    mlp_dim: int = 2048,
    classifier: str | None = None,
    class_token: bool | None = None,
    rotary: str | None = None,
    rotary_theta: float | None = None,
    rotary_reference: tuple[int, int] | None = (16, 16),
    rotary_offset: float | None = None,
    rotary_order: str | None = None,
    pre_norm: bool | None = None,
    post_norm: bool | None = None,
    activation: str | None = None,
    layer_scale: float | None = None,
    qkv_bias: str | None = None,
    attention_norm: bool | None = None,
    mlp_norm: bool = True,
    pooling_heads: int | None = None,
    drop_path_rate: float = 0.0,
    layer_norm_epsilon: float | None = None,
    pooling: str | None = None,
    representation_size: int | None = None,
    remat: bool = False,
    pixel_mean: float | tuple[float, ...] | None = None,
    pixel_std: float | tuple[float, ...] | None = None,
    head_bias_init: float = 0.0,
    class_names: tuple[str, ...] | None = None,
    position_grid: tuple[int, ...] | None = None,
    resize_patches: bool = False,
    dtype: str | keras.DTypePolicy | None = None,
) -> ImageModel: ...
def EVA02L14(
    *,
    weights: str | os.PathLike | keras.Model | Checkpoint | None = None,
    include_top: bool = True,
    classes: int | None = None,
    input_shape: tuple[int, ...] | None = None,
    classifier_activation: str | None = None,
    include_preprocessing: bool = True,
    name: str | None = None,
    patch_size: int | tuple[int, int] = 14,
    hidden_size: int = 1024,
    num_layers: int = 24,
    num_heads: int = 16,
    mlp_dim: int = 2730,
    classifier: str | None = None,
    class_token: bool | None = None,
    rotary: str | None = None,
    rotary_theta: float | None = None,
    rotary_reference: tuple[int, int] | None = (16, 16),
    rotary_offset: float | None = None,
    rotary_order: str | None = None,
    pre_norm: bool | None = None,
    post_norm: bool | None = None,
    activation: str | None = None,
    layer_scale: float | None = None,
    qkv_bias: str | None = None,
    attention_norm: bool | None = None,
    mlp_norm: bool = True,
    pooling_heads: int | None = None,
    drop_path_rate: float = 0.0,
    layer_norm_epsilon: float | None = None,
    pooling: str | None = None,
    representation_size: int | None = None,
    remat: bool = False,
    pixel_mean: float | tuple[float, ...] | None = None,
    pixel_std: float | tuple[float, ...] | None = None,
    head_bias_init: float = 0.0,
    class_names: tuple[str, ...] | None = None,
    position_grid: tuple[int, ...] | None = None,
    resize_patches: bool = False,
    dtype: str | keras.DTypePolicy | None = None,
) -> ImageModel: ...
