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
class ASMLPConfig:
    depths: tuple[int, ...]
    hidden_sizes: tuple[int, ...]
    patch_size: int | tuple[int, int] = 4
    shift_size: int = 5
    mlp_ratio: float = 4
    drop_path_rate: float = 0.0

def forward(config: ASMLPConfig, x: keras.KerasTensor) -> keras.KerasTensor: ...
def ASMLP(
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
    patch_size: int | tuple[int, int] | None = None,
    shift_size: int | None = None,
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
def ASMLPT(
    *,
    weights: str | os.PathLike | keras.Model | Checkpoint | None = None,
    include_top: bool = True,
    classes: int | None = None,
    input_shape: tuple[int | None, ...] | None = None,
    classifier_activation: str | collections.abc.Callable | None = None,
    include_preprocessing: bool = True,
    name: str | None = None,
    depths: tuple[int, ...] = (2, 2, 6, 2),
    hidden_sizes: tuple[int, ...] = (96, 192, 384, 768),
    patch_size: int | tuple[int, int] | None = None,
    shift_size: int | None = None,
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
def ASMLPS(
    *,
    weights: str | os.PathLike | keras.Model | Checkpoint | None = None,
    include_top: bool = True,
    classes: int | None = None,
    input_shape: tuple[int | None, ...] | None = None,
    classifier_activation: str | collections.abc.Callable | None = None,
    include_preprocessing: bool = True,
    name: str | None = None,
    depths: tuple[int, ...] = (2, 2, 18, 2),
    hidden_sizes: tuple[int, ...] = (96, 192, 384, 768),
    patch_size: int | tuple[int, int] | None = None,
    shift_size: int | None = None,
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
def ASMLPB(
    *,
    weights: str | os.PathLike | keras.Model | Checkpoint | None = None,
    include_top: bool = True,
    classes: int | None = None,
    input_shape: tuple[int | None, ...] | None = None,
    classifier_activation: str | collections.abc.Callable | None = None,
    include_preprocessing: bool = True,
    name: str | None = None,
    depths: tuple[int, ...] = (2, 2, 18, 2),
    hidden_sizes: tuple[int, ...] = (128, 256, 512, 1024),
    patch_size: int | tuple[int, int] | None = None,
    shift_size: int | None = None,
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
