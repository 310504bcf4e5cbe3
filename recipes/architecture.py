"""The changes of a model's architecture that a config can make."""

import dataclasses


@dataclasses.dataclass(kw_only=True, slots=True)
class Architecture:
    """Changes of the model; 0, "" and () change nothing.

    The fields are the numbers, names and tuples of the models' dataclasses
    (keras_vit.models.vit.ViTConfig and those of the other families), and
    `representation_size`, the width of the tanh layer before the head. A model
    refuses fields of another family. Without `patch_size`, models for training
    from scratch have the largest one that leaves 8 patches per side, but at
    least 4 pixels.
    """

    # Of most families.
    representation_size: int = 0
    patch_size: int = 0
    patch_sizes: tuple[int, ...] = ()
    hidden_size: int = 0
    hidden_sizes: tuple[int, ...] = ()
    num_layers: int = 0
    depths: tuple[int, ...] = ()
    num_heads: int = 0
    mlp_dim: int = 0
    mlp_ratio: float = 0.0
    mlp_ratios: tuple[int, ...] = ()
    pooling: str = ""
    activation: str = ""
    normalization: str = ""
    layer_norm_epsilon: float = 0.0
    layer_scale: float = 0.0
    dropout_rate: float = 0.0
    attention_dropout_rate: float = 0.0
    stem_dropout_rate: float = 0.0
    head_dropout_rate: float = 0.0
    drop_path_rate: float = 0.0
    # Positions.
    position_embedding: str = ""
    embedding_init: str = ""
    position_placement: str = ""
    position_prefix: int = 0
    position_table_size: int = 0
    relative_dim: int = 0
    pretrained_image_size: int = 0
    rotary: str = ""
    rotary_theta: float = 0.0
    rotary_offset: float = 0.0
    rotary_order: str = ""
    # Transformers.
    qkv_bias: str = ""
    norm: str = ""
    num_registers: int = 0
    num_kv_heads: int = 0
    num_full_blocks: int = 0
    token_dim: int = 0
    pooling_heads: int = 0
    pooling_mlp_dim: int = 0
    # ResNets and hybrids.
    width_factor: float = 0.0
    activation_order: str = ""
    numerics: str = ""
    resnet_depths: tuple[int, ...] = ()
    resnet_width: float = 0.0
    resnet_numerics: str = ""
    # MLPs.
    tokens_mlp_dim: int = 0
    tokens_mlp_ratio: float = 0.0
    shift_size: int = 0
    stem_size: int = 0
    num_conv_blocks: int = 0
    region_sizes: tuple[int, ...] = ()
    roll_periods: tuple[int, ...] = ()
    roll_steps: tuple[int, ...] = ()
    raft_sizes: tuple[int, ...] = ()
    embedding_type: str = ""
    token_mixing_type: str = ""
    # Models of videos.
    tubelet_size: int = 0
    cube_size: tuple[int, ...] = ()
    cube_stride: tuple[int, ...] = ()
    pooling_mode: str = ""
    pooling_size: tuple[int, ...] = ()
    query_stride: tuple[int, ...] = ()
    key_value_stride: tuple[int, ...] = ()
