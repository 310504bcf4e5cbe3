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
class RaftMLPConfig:
    depths: tuple[int, ...]
    hidden_sizes: tuple[int, ...]
    patch_sizes: tuple[int, ...]
    raft_sizes: tuple[int, ...] | None = None
    embedding_type: Literal['emb_cross_mlp', 'emb_mixer'] = 'emb_mixer'
    embedding_kernels: tuple[tuple[int, ...], ...] | None = None
    token_mixing_type: Literal['original_tm', 'ser_pm'] = 'ser_pm'
    shortcut: bool = False
    pretrained_image_size: int | tuple[int, int] | None = None
    token_expansion_factor: int = 2
    channel_expansion_factor: int = 4
    dropout_rate: float = 0.0
    drop_path_rate: float = 0.0

def forward(config: RaftMLPConfig, x: keras.KerasTensor) -> keras.KerasTensor: ...
def RaftMLP(
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
    patch_sizes: tuple[int, ...] | None = None,
    raft_sizes: tuple[int, ...] | None = None,
    embedding_type: Literal['emb_cross_mlp', 'emb_mixer'] | None = None,
    embedding_kernels: tuple[tuple[int, ...], ...] | None = None,
    token_mixing_type: Literal['original_tm', 'ser_pm'] | None = None,
    shortcut: bool | None = None,
    pretrained_image_size: int | tuple[int, int] | None = None,
    token_expansion_factor: int | None = None,
    channel_expansion_factor: int | None = None,
    dropout_rate: float = 0.0,
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
def RaftMLPS(
    *,
    weights: str | os.PathLike | keras.Model | Checkpoint | None = None,
    include_top: bool = True,
    classes: int | None = None,
    input_shape: tuple[int | None, ...] | None = None,
    classifier_activation: str | collections.abc.Callable | None = None,
    include_preprocessing: bool = True,
    name: str | None = None,
    depths: tuple[int, ...] = (2, 2, 6, 2),
    hidden_sizes: tuple[int, ...] = (64, 128, 256, 512),
    patch_sizes: tuple[int, ...] = (4, 2, 2, 2),
    raft_sizes: tuple[int, ...] | None = (2, 2, 2, 2),
    embedding_type: Literal['emb_cross_mlp', 'emb_mixer'] = 'emb_cross_mlp',
    embedding_kernels: tuple[tuple[int, ...], ...] | None = ((4, 8), (2, 4), (2, 4), (2,)),
    token_mixing_type: Literal['original_tm', 'ser_pm'] | None = None,
    shortcut: bool | None = None,
    pretrained_image_size: int | tuple[int, int] | None = None,
    token_expansion_factor: int | None = None,
    channel_expansion_factor: int | None = None,
    dropout_rate: float = 0.0,
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
def RaftMLPM(
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
    patch_sizes: tuple[int, ...] = (4, 2, 2, 2),
    raft_sizes: tuple[int, ...] | None = (2, 2, 2, 2),
    embedding_type: Literal['emb_cross_mlp', 'emb_mixer'] = 'emb_cross_mlp',
    embedding_kernels: tuple[tuple[int, ...], ...] | None = ((4, 8), (2, 4), (2, 4), (2,)),
    token_mixing_type: Literal['original_tm', 'ser_pm'] | None = None,
    shortcut: bool | None = None,
    pretrained_image_size: int | tuple[int, int] | None = None,
    token_expansion_factor: int | None = None,
    channel_expansion_factor: int | None = None,
    dropout_rate: float = 0.0,
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
def RaftMLPL(
    *,
    weights: str | os.PathLike | keras.Model | Checkpoint | None = None,
    include_top: bool = True,
    classes: int | None = None,
    input_shape: tuple[int | None, ...] | None = None,
    classifier_activation: str | collections.abc.Callable | None = None,
    include_preprocessing: bool = True,
    name: str | None = None,
    depths: tuple[int, ...] = (2, 2, 6, 2),
    hidden_sizes: tuple[int, ...] = (128, 192, 512, 1024),
    patch_sizes: tuple[int, ...] = (4, 2, 2, 2),
    raft_sizes: tuple[int, ...] | None = (2, 2, 2, 2),
    embedding_type: Literal['emb_cross_mlp', 'emb_mixer'] = 'emb_cross_mlp',
    embedding_kernels: tuple[tuple[int, ...], ...] | None = ((4, 8), (2, 4), (2, 4), (2,)),
    token_mixing_type: Literal['original_tm', 'ser_pm'] | None = None,
    shortcut: bool | None = None,
    pretrained_image_size: int | tuple[int, int] | None = None,
    token_expansion_factor: int | None = None,
    channel_expansion_factor: int | None = None,
    dropout_rate: float = 0.0,
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
