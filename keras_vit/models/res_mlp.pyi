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
class ResMLPConfig:
    patch_size: int | tuple[int, int]
    num_layers: int
    hidden_size: int
    mlp_dim: int
    layer_scale_init: float = 0.0001
    drop_path_rate: float = 0.0

def forward(config: ResMLPConfig, x: keras.KerasTensor) -> keras.KerasTensor: ...
def ResMLP(
    *,
    weights: str | os.PathLike | keras.Model | Checkpoint | None = None,
    include_top: bool = True,
    classes: int | None = None,
    input_shape: tuple[int | None, ...] | None = None,
    classifier_activation: str | collections.abc.Callable | None = None,
    include_preprocessing: bool = True,
    name: str | None = None,
    patch_size: int | tuple[int, int] | None = None,
    num_layers: int | None = None,
    hidden_size: int | None = None,
    mlp_dim: int | None = None,
    layer_scale_init: float = 0.0001,
    drop_path_rate: float = 0.0,
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
def ResMLPS12(
    *,
    weights: str | os.PathLike | keras.Model | Checkpoint | None = None,
    include_top: bool = True,
    classes: int | None = None,
    input_shape: tuple[int | None, ...] | None = None,
    classifier_activation: str | collections.abc.Callable | None = None,
    include_preprocessing: bool = True,
    name: str | None = None,
    patch_size: int | tuple[int, int] = 16,
    num_layers: int = 12,
    hidden_size: int = 384,
    mlp_dim: int = 1536,
    layer_scale_init: float = 0.1,
    drop_path_rate: float = 0.0,
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
def ResMLPS24(
    *,
    weights: str | os.PathLike | keras.Model | Checkpoint | None = None,
    include_top: bool = True,
    classes: int | None = None,
    input_shape: tuple[int | None, ...] | None = None,
    classifier_activation: str | collections.abc.Callable | None = None,
    include_preprocessing: bool = True,
    name: str | None = None,
    patch_size: int | tuple[int, int] = 16,
    num_layers: int = 24,
    hidden_size: int = 384,
    mlp_dim: int = 1536,
    layer_scale_init: float = 1e-05,
    drop_path_rate: float = 0.0,
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
def ResMLPS36(
    *,
    weights: str | os.PathLike | keras.Model | Checkpoint | None = None,
    include_top: bool = True,
    classes: int | None = None,
    input_shape: tuple[int | None, ...] | None = None,
    classifier_activation: str | collections.abc.Callable | None = None,
    include_preprocessing: bool = True,
    name: str | None = None,
    patch_size: int | tuple[int, int] = 16,
    num_layers: int = 36,
    hidden_size: int = 384,
    mlp_dim: int = 1536,
    layer_scale_init: float = 1e-06,
    drop_path_rate: float = 0.0,
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
def ResMLPB24(
    *,
    weights: str | os.PathLike | keras.Model | Checkpoint | None = None,
    include_top: bool = True,
    classes: int | None = None,
    input_shape: tuple[int | None, ...] | None = None,
    classifier_activation: str | collections.abc.Callable | None = None,
    include_preprocessing: bool = True,
    name: str | None = None,
    patch_size: int | tuple[int, int] = 8,
    num_layers: int = 24,
    hidden_size: int = 768,
    mlp_dim: int = 3072,
    layer_scale_init: float = 1e-06,
    drop_path_rate: float = 0.0,
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
