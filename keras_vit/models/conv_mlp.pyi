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
class ConvMLPConfig:
    depths: tuple[int, ...]
    hidden_sizes: tuple[int, ...]
    stem_size: int = 64
    num_conv_blocks: int = 2
    mlp_ratio: float = 2
    drop_path_rate: float = 0.0

def forward(config: ConvMLPConfig, x: keras.KerasTensor) -> keras.KerasTensor: ...
def ConvMLP(
    *,
    weights: str | os.PathLike | keras.Model | Checkpoint | None = None,
    include_top: bool = True,
    classes: int | None = None,
    input_shape: tuple[int | None, ...] | None = None,
    classifier_activation: str | collections.abc.Callable | None = None,
    include_preprocessing: bool = True,
    name: str | None = None,
    depths: tuple[int, ...] | None = None,
    hidden_sizes: tuple[int, ...] | None = None,
    stem_size: int | None = None,
    num_conv_blocks: int | None = None,
    mlp_ratio: float | None = None,
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
def ConvMLPS(
    *,
    weights: str | os.PathLike | keras.Model | Checkpoint | None = None,
    include_top: bool = True,
    classes: int | None = None,
    input_shape: tuple[int | None, ...] | None = None,
    classifier_activation: str | collections.abc.Callable | None = None,
    include_preprocessing: bool = True,
    name: str | None = None,
    depths: tuple[int, ...] = (2, 4, 2),
    hidden_sizes: tuple[int, ...] = (128, 256, 512),
    stem_size: int = 64,
    num_conv_blocks: int = 2,
    mlp_ratio: float = 2,
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
def ConvMLPM(
    *,
    weights: str | os.PathLike | keras.Model | Checkpoint | None = None,
    include_top: bool = True,
    classes: int | None = None,
    input_shape: tuple[int | None, ...] | None = None,
    classifier_activation: str | collections.abc.Callable | None = None,
    include_preprocessing: bool = True,
    name: str | None = None,
    depths: tuple[int, ...] = (3, 6, 3),
    hidden_sizes: tuple[int, ...] = (128, 256, 512),
    stem_size: int = 64,
    num_conv_blocks: int = 3,
    mlp_ratio: float = 3,
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
def ConvMLPL(
    *,
    weights: str | os.PathLike | keras.Model | Checkpoint | None = None,
    include_top: bool = True,
    classes: int | None = None,
    input_shape: tuple[int | None, ...] | None = None,
    classifier_activation: str | collections.abc.Callable | None = None,
    include_preprocessing: bool = True,
    name: str | None = None,
    depths: tuple[int, ...] = (4, 8, 3),
    hidden_sizes: tuple[int, ...] = (192, 384, 768),
    stem_size: int = 96,
    num_conv_blocks: int = 3,
    mlp_ratio: float = 3,
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
