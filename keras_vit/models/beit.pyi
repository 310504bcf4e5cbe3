# Written by pytest tests/models/test_signatures.py --update-goldens.
import collections.abc
import dataclasses
import os
from typing import Literal

import keras

from keras_vit.models.families import Family
from keras_vit.models.image_model import ImageModel
from keras_vit.weights import Checkpoint

FAMILY: Family
VARIANTS: dict[str, dict]

@dataclasses.dataclass(frozen=True, kw_only=True)
class BEiTConfig:
    patch_size: int | tuple[int, int]
    hidden_size: int
    num_layers: int
    num_heads: int
    mlp_dim: int
    classifier: Literal['gap', 'gap_norm', 'token'] = 'gap_norm'
    class_token: bool = True
    relative_dim: int = 0
    post_norm: bool = False
    activation: Literal['gelu', 'gelu_tanh', 'quick_gelu', 'swiglu'] = 'gelu'
    layer_scale: float = 0.1
    qkv_bias: Literal['none', 'qkv', 'qv'] = 'qv'
    drop_path_rate: float = 0.0
    layer_norm_epsilon: float = 1e-06

def forward(config: BEiTConfig, x: keras.KerasTensor) -> keras.KerasTensor: ...
def BEiT(
    *,
    weights: str | os.PathLike | keras.Model | Checkpoint | None = None,
    include_top: bool = True,
    classes: int | None = None,
    input_shape: tuple[int | None, ...] | None = None,
    classifier_activation: str | collections.abc.Callable | None = None,
    include_preprocessing: bool = True,
    name: str | None = None,
    patch_size: int | tuple[int, int] | None = None,
    hidden_size: int | None = None,
    num_layers: int | None = None,
    num_heads: int | None = None,
    mlp_dim: int | None = None,
    classifier: Literal['gap', 'gap_norm', 'token'] | None = None,
    class_token: bool | None = None,
    relative_dim: int | None = None,
    post_norm: bool | None = None,
    activation: Literal['gelu', 'gelu_tanh', 'quick_gelu', 'swiglu'] | None = None,
    layer_scale: float | None = None,
    qkv_bias: Literal['none', 'qkv', 'qv'] | None = None,
    drop_path_rate: float = 0.0,
    layer_norm_epsilon: float | None = None,
    pooling: Literal['levels'] | None = None,
    representation_size: int | None = None,
    remat: bool = False,
    pixel_mean: float | collections.abc.Sequence[float] | None = None,
    pixel_std: float | collections.abc.Sequence[float] | None = None,
    head_bias_init: float = 0.0,
    class_names: tuple[str, ...] | None = None,
    position_grid: tuple[int, ...] | None = None,
    resize_patches: bool = False,
    dtype: str | keras.DTypePolicy | None = None,
) -> ImageModel: ...
def BEiTB16(
    *,
    weights: str | os.PathLike | keras.Model | Checkpoint | None = None,
    include_top: bool = True,
    classes: int | None = None,
    input_shape: tuple[int | None, ...] | None = None,
    classifier_activation: str | collections.abc.Callable | None = None,
    include_preprocessing: bool = True,
    name: str | None = None,
    patch_size: int | tuple[int, int] = 16,
    hidden_size: int = 768,
    num_layers: int = 12,
    num_heads: int = 12,
    mlp_dim: int = 3072,
    classifier: Literal['gap', 'gap_norm', 'token'] | None = None,
    class_token: bool | None = None,
    relative_dim: int | None = None,
    post_norm: bool | None = None,
    activation: Literal['gelu', 'gelu_tanh', 'quick_gelu', 'swiglu'] | None = None,
    layer_scale: float | None = None,
    qkv_bias: Literal['none', 'qkv', 'qv'] | None = None,
    drop_path_rate: float = 0.0,
    layer_norm_epsilon: float | None = None,
    pooling: Literal['levels'] | None = None,
    representation_size: int | None = None,
    remat: bool = False,
    pixel_mean: float | collections.abc.Sequence[float] | None = None,
    pixel_std: float | collections.abc.Sequence[float] | None = None,
    head_bias_init: float = 0.0,
    class_names: tuple[str, ...] | None = None,
    position_grid: tuple[int, ...] | None = None,
    resize_patches: bool = False,
    dtype: str | keras.DTypePolicy | None = None,
) -> ImageModel: ...
def BEiTL16(
    *,
    weights: str | os.PathLike | keras.Model | Checkpoint | None = None,
    include_top: bool = True,
    classes: int | None = None,
    input_shape: tuple[int | None, ...] | None = None,
    classifier_activation: str | collections.abc.Callable | None = None,
    include_preprocessing: bool = True,
    name: str | None = None,
    patch_size: int | tuple[int, int] = 16,
    hidden_size: int = 1024,
    num_layers: int = 24,
    num_heads: int = 16,
    mlp_dim: int = 4096,
    classifier: Literal['gap', 'gap_norm', 'token'] | None = None,
    class_token: bool | None = None,
    relative_dim: int | None = None,
    post_norm: bool | None = None,
    activation: Literal['gelu', 'gelu_tanh', 'quick_gelu', 'swiglu'] | None = None,
    layer_scale: float | None = None,
    qkv_bias: Literal['none', 'qkv', 'qv'] | None = None,
    drop_path_rate: float = 0.0,
    layer_norm_epsilon: float | None = None,
    pooling: Literal['levels'] | None = None,
    representation_size: int | None = None,
    remat: bool = False,
    pixel_mean: float | collections.abc.Sequence[float] | None = None,
    pixel_std: float | collections.abc.Sequence[float] | None = None,
    head_bias_init: float = 0.0,
    class_names: tuple[str, ...] | None = None,
    position_grid: tuple[int, ...] | None = None,
    resize_patches: bool = False,
    dtype: str | keras.DTypePolicy | None = None,
) -> ImageModel: ...
