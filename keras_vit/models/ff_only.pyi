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
class FFOnlyConfig:
    patch_size: int | tuple[int, int]
    hidden_size: int
    num_layers: int
    mlp_ratio: float = 4.0
    position_table_size: int | tuple[int, int] = 14
    drop_path_rate: float = 0.0

def forward(config: FFOnlyConfig, x: keras.KerasTensor) -> keras.KerasTensor: ...
def FFOnly(
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
    mlp_ratio: float | None = None,
    position_table_size: int | tuple[int, int] | None = None,
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
def FFOnlyTi16(
    *,
    weights: str | os.PathLike | keras.Model | Checkpoint | None = None,
    include_top: bool = True,
    classes: int | None = None,
    input_shape: tuple[int | None, ...] | None = None,
    classifier_activation: str | collections.abc.Callable | None = None,
    include_preprocessing: bool = True,
    name: str | None = None,
    patch_size: int | tuple[int, int] = 16,
    hidden_size: int = 192,
    num_layers: int = 12,
    mlp_ratio: float | None = None,
    position_table_size: int | tuple[int, int] | None = None,
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
def FFOnlyB16(
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
    mlp_ratio: float | None = None,
    position_table_size: int | tuple[int, int] | None = None,
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
def FFOnlyL32(
    *,
    weights: str | os.PathLike | keras.Model | Checkpoint | None = None,
    include_top: bool = True,
    classes: int | None = None,
    input_shape: tuple[int | None, ...] | None = None,
    classifier_activation: str | collections.abc.Callable | None = None,
    include_preprocessing: bool = True,
    name: str | None = None,
    patch_size: int | tuple[int, int] = 32,
    hidden_size: int = 1024,
    num_layers: int = 24,
    mlp_ratio: float | None = None,
    position_table_size: int | tuple[int, int] | None = None,
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
