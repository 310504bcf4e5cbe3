"""Every public layer and model, with small arguments and an input shape.

The properties in tests/test_catalogue.py run over this table; a public layer
or constructor that is not in it fails there.
"""

import keras_vit
from keras_vit import layers
from keras_vit.models import (
    as_mlp,
    axial_attention,
    axial_resnet,
    axial_vit,
    bit,
    conv_mlp,
    cycle_mlp,
    dinov3,
    eamlp,
    encoder,
    eva02,
    families,
    ff_only,
    gmlp,
    hire_mlp,
    mixer,
    mvit_attention,
    mvit_block,
    mvit_embedding,
    mvit_pooling,
    raft_mlp,
    raft_mlp_embedding,
    res_mlp,
    s2_mlp,
    videomae,
    vit_positions,
)

TINY = dict(
    patch_size=4,
    hidden_size=16,
    num_layers=2,
    num_heads=2,
    mlp_dim=32,
    input_shape=(16, 8, 3),
    classes=5,
)

# The sizes of each family, by its constructor; others are those of TINY.
_SIZES: dict[str, dict] = {
    "ViT": TINY,
    "MLPMixer": dict(
        patch_size=4,
        hidden_size=16,
        num_layers=2,
        tokens_mlp_dim=12,
        mlp_dim=32,
    ),
    "MViT": dict(
        depths=(1, 2),
        hidden_sizes=(8, 16),
        num_heads=(1, 2),
        key_value_stride=(1, 2, 2),
        input_shape=(4, 16, 24, 3),
    ),
    "BiT": dict(
        depths=(1, 2),
        width_factor=0.5,
        input_shape=(32, 24, 3),
    ),
    "RaftMLP": dict(
        depths=(1, 1),
        hidden_sizes=(8, 12),
        patch_sizes=(4, 2),
        raft_sizes=(2, 2),
        embedding_type="emb_cross_mlp",
        embedding_kernels=((4, 8), (2,)),
    ),
    "ResMLP": dict(
        patch_size=4,
        hidden_size=16,
        num_layers=2,
        mlp_dim=32,
    ),
    "GMLP": dict(
        patch_size=4,
        hidden_size=8,
        num_layers=1,
        mlp_dim=16,
    ),
    "CycleMLP": dict(
        depths=(1, 1),
        hidden_sizes=(8, 12),
        mlp_ratios=(2, 2),
        input_shape=(16, 24, 3),
    ),
    "EAMLP": dict(
        hidden_size=8,
        num_layers=1,
        num_heads=2,
        mlp_dim=16,
        token_dim=4,
        input_shape=(32, 16, 3),
    ),
    "FFOnly": dict(
        patch_size=4,
        hidden_size=8,
        num_layers=2,
        mlp_ratio=2.0,
        position_table_size=3,
    ),
    "AxialViT": TINY,
    **dict.fromkeys(
        (
            *("DeiT", "DeiT3", "DINOv2", "DINOv3", "EVA02", "CLIP", "SigLIP"),
            *("BEiT", "PerceptionEncoder"),
        ),
        TINY,
    ),
    "VideoMAE": TINY | dict(input_shape=(4, 16, 8, 3)),
    "AxialResNet": dict(
        depths=(1,),
        width_factor=0.25,
        num_heads=2,
        input_shape=(16, 24, 3),
    ),
    "ASMLP": dict(
        depths=(1, 1),
        hidden_sizes=(8, 12),
        input_shape=(24, 16, 3),
    ),
    "S2MLP": dict(
        patch_size=4,
        hidden_size=16,
        num_layers=1,
        mlp_ratio=2,
    ),
    "ConvMLP": dict(
        depths=(1, 1),
        hidden_sizes=(8, 12),
        stem_size=8,
        num_conv_blocks=1,
        input_shape=(32, 24, 3),
    ),
    "HireMLP": dict(
        depths=(1, 1),
        hidden_sizes=(8, 12),
        region_sizes=(2, 2),
        roll_periods=(2, 2),
        roll_steps=(1, 1),
        input_shape=(32, 20, 3),
    ),
}
TINY_OF = {
    title: dict(input_shape=TINY["input_shape"], classes=TINY["classes"])
    | sizes
    for title, sizes in _SIZES.items()
}

# Name -> (layer class, arguments, input shape without the batch).
LAYERS = {
    "EnsureShape": (layers.EnsureShape, {}, (8, 12, 3)),
    "Rescaling": (
        layers.Rescaling,
        dict(scale=[0.5, 2.0, 3.0], offset=-1.0),
        (8, 12, 3),
    ),
    "PatchEmbedding": (
        layers.PatchEmbedding,
        dict(patch_size=(4, 2), hidden_size=6),
        (8, 12, 3),
    ),
    "TubeletEmbedding": (
        videomae.TubeletEmbedding,
        dict(patch_size=(4, 2), hidden_size=6, tubelet_size=2),
        (4, 8, 12, 3),
    ),
    "ClassToken": (layers.ClassToken, {}, (4, 6)),
    "AddPositionEmbs": (
        layers.AddPositionEmbs,
        dict(grid_size=(2, 3)),
        (7, 6),
    ),
    "AddPositionEmbs 2-D": (
        layers.AddPositionEmbs,
        dict(grid_size=(2, 3), kind="learned_2d"),
        (7, 6),
    ),
    "SincosPositionEmbs": (
        vit_positions.SincosPositionEmbs,
        dict(grid_size=(2, 3), class_token=False),
        (6, 8),
    ),
    "AddPositionEmbs 2-D gap": (
        layers.AddPositionEmbs,
        dict(grid_size=(2, 3), kind="learned_2d", class_token=False),
        (6, 6),
    ),
    "MultiHeadSelfAttention": (
        layers.MultiHeadSelfAttention,
        dict(num_heads=2, dropout_rate=0.1),
        (5, 6),
    ),
    "RelativeAttention": (
        vit_positions.RelativeAttention,
        dict(num_heads=2, dropout_rate=0.1),
        (5, 6),
    ),
    "MlpBlock": (
        layers.MlpBlock,
        dict(mlp_dim=9, dropout_rate=0.1, activation="gelu"),
        (5, 6),
    ),
    "TransformerBlock": (
        layers.TransformerBlock,
        dict(
            num_heads=2,
            mlp_dim=9,
            dropout_rate=0.1,
            drop_path_rate=0.1,
            attention_options=dict(dropout_rate=0.1),
        ),
        (5, 6),
    ),
    "RegisterTokens": (
        layers.RegisterTokens,
        dict(num_tokens=2),
        (4, 6),
    ),
    "LayerScale": (layers.LayerScale, dict(initial=0.5), (5, 6)),
    "EVA02Mlp": (
        eva02.EVA02Mlp,
        dict(mlp_dim=9, activation="quick_gelu", norm_epsilon=1e-6),
        (5, 6),
    ),
    "EVA02Attention": (
        eva02.EVA02Attention,
        dict(num_heads=2, head_norm=True, qkv_bias="none"),
        (5, 6),
    ),
    "BEiTAttention": (
        layers.BEiTAttention,
        dict(num_heads=2, grid_size=(2, 2), qkv_bias="qv"),
        (5, 6),
    ),
    "BEiTAttention computed": (
        layers.BEiTAttention,
        dict(num_heads=2, grid_size=(2, 2), relative_dim=3),
        (6, 8),
    ),
    "DINOv3Attention groups": (
        dinov3.DINOv3Attention,
        dict(num_heads=4, num_kv_heads=2, query_key_norm="rms"),
        (6, 8),
    ),
    "DINOv3Attention mixed": (
        dinov3.DINOv3Attention,
        dict(num_heads=2, mixed_grid=(2, 2)),
        (5, 8),
    ),
    "EncoderBlock": (
        encoder.EncoderBlock,
        dict(
            num_heads=2,
            mlp_dim=9,
            layer_scale=(0.1, 0.2),
            attention_options=dict(
                rotary=dict(kind="centered", grid_size=(2, 2), theta=100.0)
            ),
            mlp_options=dict(
                layer="EVA02Mlp", activation="swiglu", norm_epsilon=1e-6
            ),
            drop_path_rate=0.1,
        ),
        (5, 8),
    ),
    "TransformerBlock parallel": (
        layers.TransformerBlock,
        dict(
            num_heads=2,
            mlp_dim=9,
            layer_scale=0.1,
            norm_placement="shared",
            norm="rms",
            attention_options=dict(query_key_norm="rms"),
            drop_path_rate=0.1,
        ),
        (5, 8),
    ),
    "AttentionPooling": (
        layers.AttentionPooling,
        dict(num_heads=2, mlp_dim=9),
        (5, 6),
    ),
    "StdConv2D": (
        layers.StdConv2D,
        dict(filters=4, kernel_size=3, strides=2),
        (7, 6, 3),
    ),
    "GroupNorm": (layers.GroupNorm, dict(groups=2), (7, 6, 4)),
    "BottleneckUnit": (
        layers.BottleneckUnit,
        dict(filters=32, strides=2),
        (7, 6, 32),
    ),
    "StdConv2D symmetric": (
        layers.StdConv2D,
        dict(filters=4, kernel_size=3, strides=2, padding="symmetric"),
        (7, 6, 3),
    ),
    "PreActivationUnit": (
        bit.PreActivationUnit,
        dict(filters=32, strides=2),
        (7, 6, 32),
    ),
    "MixerMlp": (mixer.MixerMlp, dict(mlp_dim=9), (5, 6)),
    "MixerBlock": (
        mixer.MixerBlock,
        dict(
            tokens_mlp_dim=4,
            mlp_dim=9,
            drop_path_rate=0.1,
            gelu_approximate=False,
        ),
        (5, 6),
    ),
    "MultiScaleEmbedding": (
        raft_mlp_embedding.MultiScaleEmbedding,
        dict(patch_size=2, hidden_size=6, kernel_sizes=(2, 4)),
        (8, 5, 3),
    ),
    "AxialAttentionBN": (
        axial_attention.AxialAttentionBN,
        dict(axis="height", num_heads=2),
        (4, 3, 8),
    ),
    "AxialAttentionGN": (
        axial_attention.AxialAttentionGN,
        dict(axis="width", num_heads=2),
        (4, 3, 32),
    ),
    "AddAxialPositionEmbs": (axial_vit.AddAxialPositionEmbs, {}, (4, 3, 6)),
    "AxialTransformerBlock": (
        axial_vit.AxialTransformerBlock,
        dict(
            num_heads=2,
            mlp_dim=9,
            dropout_rate=0.1,
            attention_dropout_rate=0.1,
        ),
        (4, 3, 6),
    ),
    "AxialSelfAttention": (
        axial_vit.AxialSelfAttention,
        dict(num_heads=2, axis="height", dropout_rate=0.1),
        (4, 3, 6),
    ),
    "AxialUnitBN": (
        axial_resnet.AxialUnitBN,
        dict(filters=8, strides=2, num_heads=2),
        (4, 6, 16),
    ),
    "AxialUnitGN": (
        axial_resnet.AxialUnitGN,
        dict(filters=32, strides=2, num_heads=2),
        (3, 4, 32),
    ),
    "RaftMLPMlp": (raft_mlp.RaftMLPMlp, dict(mlp_dim=9), (5, 6)),
    "RaftMLPBlock": (
        raft_mlp.RaftMLPBlock,
        dict(grid_size=(4, 3), dropout_rate=0.1, drop_path_rate=0.1),
        (4, 3, 6),
    ),
    "RaftMLPBlock resized": (
        raft_mlp.RaftMLPBlock,
        dict(grid_size=(3, 3), raft_size=None),
        (4, 3, 6),
    ),
    "GMLPBlock": (
        gmlp.GMLPBlock,
        dict(mlp_dim=8, drop_path_rate=0.1),
        (5, 6),
    ),
    "ResizedPositions": (
        ff_only.ResizedPositions,
        dict(grid_size=(2, 3), table_size=(4, 5)),
        (6, 4),
    ),
    "FFOnlyBlock": (
        ff_only.FFOnlyBlock,
        dict(mlp_ratio=2.0, drop_path_rate=0.1),
        (5, 6),
    ),
    "SoftSplit": (eamlp.SoftSplit, dict(kernel_size=3), (5, 4, 2)),
    "ExternalAttention": (
        layers.ExternalAttention,
        dict(num_heads=2),
        (5, 6),
    ),
    "TokenPerformer": (layers.TokenPerformer, dict(token_dim=4), (5, 6)),
    "SinusoidPositions": (
        eamlp.SinusoidPositions,
        dict(grid_size=(2, 3), kind="table"),
        (6, 4),
    ),
    "EAMLPBlock": (
        eamlp.EAMLPBlock,
        dict(num_heads=2, mlp_dim=9, drop_path_rate=0.1),
        (5, 6),
    ),
    "CycleMLPBlock": (
        cycle_mlp.CycleMLPBlock,
        dict(mlp_dim=9, drop_path_rate=0.1),
        (4, 3, 8),
    ),
    "DeiTMlp": (layers.DeiTMlp, dict(mlp_dim=9, dropout_rate=0.1), (5, 6)),
    "Affine": (res_mlp.Affine, {}, (5, 6)),
    "ResMLPBlock": (
        res_mlp.ResMLPBlock,
        dict(mlp_dim=9, layer_scale=0.1, drop_path_rate=0.1),
        (5, 6),
    ),
    "ASMLPBlock": (
        as_mlp.ASMLPBlock,
        dict(shift_size=3, drop_path_rate=0.1),
        (4, 3, 8),
    ),
    "S2MLPBlock": (s2_mlp.S2MLPBlock, dict(mlp_ratio=2), (4, 3, 8)),
    "ConvMLPBlock": (
        conv_mlp.ConvMLPBlock,
        dict(mlp_ratio=2, drop_path_rate=0.1),
        (4, 3, 8),
    ),
    "HireMLPBlock": (
        hire_mlp.HireMLPBlock,
        dict(region_size=2, roll=1, drop_path_rate=0.1),
        (4, 3, 8),
    ),
    "ResNetV2Stem": (
        layers.ResNetV2Stem,
        dict(depths=(1, 1), width_factor=0.5),
        (16, 17, 3),
    ),
    "ResNetV2Stem root": (
        layers.ResNetV2Stem,
        dict(depths=(), width_factor=0.5),
        (9, 8, 3),
    ),
    "CubeEmbedding": (
        mvit_embedding.CubeEmbedding,
        dict(kernel_size=(3, 5, 4), strides=(2, 3, 4), hidden_size=6),
        (5, 7, 8, 3),
    ),
    "SpaceTimePositions": (
        mvit_embedding.SpaceTimePositions,
        dict(grid_size=(2, 1, 3)),
        (6, 4),
    ),
    "SpaceTimePositions joint": (
        mvit_embedding.SpaceTimePositions,
        dict(grid_size=(2, 1, 3), kind="joint", class_token=False),
        (6, 4),
    ),
    "TokenPooling": (
        mvit_pooling.TokenPooling,
        dict(grid_size=(2, 3, 4), kernel_size=(2, 3, 1), num_heads=2),
        (25, 6),
    ),
    "TokenPooling max": (
        mvit_pooling.TokenPooling,
        dict(grid_size=(2, 3, 4), mode="max", class_token=False),
        (24, 6),
    ),
    "PoolingAttention": (
        mvit_attention.PoolingAttention,
        dict(
            grid_size=(2, 3, 4),
            num_heads=2,
            pooling_size=(1, 3, 1),
            query_stride=(1, 2, 2),
        ),
        (25, 6),
    ),
    "MultiscaleBlock": (
        mvit_block.MultiscaleBlock,
        dict(
            grid_size=(2, 3, 4),
            num_heads=2,
            mlp_dim=9,
            output_size=5,
            query_stride=(1, 2, 1),
            key_value_stride=(1, 2, 2),
            dropout_rate=0.1,
            drop_path_rate=0.1,
        ),
        (25, 6),
    ),
    "ClassificationHead": (
        layers.ClassificationHead,
        dict(units=3, class_names=("cat", "dog", "frog")),
        (6,),
    ),
    "SimilarityHead": (
        layers.SimilarityHead,
        dict(units=3, projection_size=4, class_names=("a", "b", "c")),
        (6,),
    ),
    "DistilledHead": (
        layers.DistilledHead,
        dict(units=3, class_names=("cat", "dog", "frog")),
        (2, 6),
    ),
    "Metadata": (
        layers.Metadata,
        dict(
            family="vit",
            architecture=dict(patch_size=[4, 2], num_layers=1),
            pixel_mean=[1.0, 2.0, 3.0],
            provenance="augreg",
            resampling="bicubic",
        ),
        (6,),
    ),
}

# Name -> arguments of keras_vit.ViT on top of TINY.
MODELS = {
    "token": dict(),
    "gap": dict(pooling="gap"),
    "token_gap": dict(pooling="gap_norm", class_token=True),
    "map": dict(pooling="map"),
    "unpooled": dict(pooling="unpooled"),
    "pre_logits": dict(representation_size=12, class_names=tuple("abcde")),
    "features": dict(include_top=False),
    "probabilities": dict(classifier_activation="softmax"),
    "dropout": dict(
        dropout_rate=0.1, attention_dropout_rate=0.1, drop_path_rate=0.1
    ),
    "scaled input": dict(include_preprocessing=False),
    "no positions": dict(position_embedding="none"),
    "relative": dict(position_embedding="relative"),
    "2-D": dict(position_embedding="learned_2d"),
    "1-D every layer": dict(position_placement="every_layer"),
    "1-D shared": dict(position_placement="every_layer_shared"),
    "2-D every layer": dict(
        position_embedding="learned_2d", position_placement="every_layer"
    ),
    "2-D shared": dict(
        position_embedding="learned_2d",
        position_placement="every_layer_shared",
    ),
    "hybrid": dict(
        patch_size=1,
        resnet_depths=(1, 1),
        resnet_width=0.5,
        input_shape=(16, 24, 3),
    ),
    "hybrid root": dict(
        patch_size=(2, 1),
        resnet_depths=(),
        resnet_width=0.5,
        input_shape=(16, 24, 1),
    ),
}

# Name -> constructor of any size of another family, and arguments on top of
# those of TINY_OF.
OTHER_FAMILIES = {
    "mixer": ("MLPMixer", dict(drop_path_rate=0.1)),
    "mixer exact": ("MLPMixer", dict(gelu_approximate=False, remat=True)),
    "mvit": ("MViT", dict(dropout_rate=0.1, drop_path_rate=0.1)),
    "mvit image": (
        "MViT",
        dict(
            input_shape=(32, 24, 3),
            cube_size=(1, 7, 7),
            cube_stride=(1, 4, 4),
            pooling_mode="max",
            position_embedding="joint",
            pooling="gap",
            remat=True,
        ),
    ),
    "bit": ("BiT", dict()),
    "bit post-activation": (
        "BiT",
        dict(activation_order="post_activation", numerics="scenic"),
    ),
    "raft": ("RaftMLP", dict(dropout_rate=0.1, drop_path_rate=0.1)),
    "raft shortcut": (
        "RaftMLP",
        dict(
            shortcut=True,
            pretrained_image_size=12,
            remat=True,
            token_mixing_type="original_tm",
            embedding_type="emb_mixer",
            raft_sizes=None,
            embedding_kernels=None,
        ),
    ),
    "cycle_mlp": ("CycleMLP", dict(drop_path_rate=0.1, remat=True)),
    "eamlp": ("EAMLP", dict(drop_path_rate=0.1, remat=True)),
    "gmlp": ("GMLP", dict(drop_path_rate=0.1, remat=True)),
    "ff_only": ("FFOnly", dict(drop_path_rate=0.1, remat=True)),
    "res_mlp": ("ResMLP", dict(drop_path_rate=0.1, remat=True)),
    "deit": ("DeiT", dict(num_layers=1)),
    "dinov2": (
        "DINOv2",
        dict(num_layers=1, num_registers=2, drop_path_rate=0.1),
    ),
    "dinov3": (
        "DINOv3",
        dict(num_layers=1, rotary="mixed", positions=True, hidden_size=8),
    ),
    "eva02": ("EVA02", dict(num_layers=1, post_norm=True, hidden_size=8)),
    "clip": ("CLIP", dict(num_layers=1, remat=True)),
    "beit": ("BEiT", dict(num_layers=1)),
    "siglip": ("SigLIP", dict(num_layers=1)),
    "videomae": ("VideoMAE", dict(num_layers=1, remat=True)),
    "axial vit": (
        "AxialViT",
        dict(
            num_layers=1,
            dropout_rate=0.1,
            attention_dropout_rate=0.1,
            remat=True,
        ),
    ),
    "axial resnet": ("AxialResNet", dict(remat=True)),
    "axial resnet group norm": (
        "AxialResNet",
        dict(width_factor=0.5, normalization="group_norm"),
    ),
    "as mlp": ("ASMLP", dict(remat=True)),
    "s2 mlp": ("S2MLP", dict(remat=True)),
    "conv mlp": ("ConvMLP", dict(remat=True)),
    "hire mlp": ("HireMLP", dict(remat=True)),
}

# The families of `encoder.EncoderBlock`.
ENCODERS = [
    name
    for name, (title, _) in OTHER_FAMILIES.items()
    for family in families.FAMILIES.values()
    if family.title == title and family.block is encoder.EncoderBlock
]

# Shrinks the named constructors of a family to test their wiring.
SHRUNK = {
    family.name: {
        name: value
        for name, value in TINY_OF[family.title].items()
        if name not in ("patch_size", "input_shape", "classes")
    }
    for family in families.FAMILIES.values()
} | {
    "mvit": dict(
        depths=(1,),
        hidden_sizes=(8,),
        num_heads=(1,),
        query_stride=((1, 1, 1),),
        key_value_stride=((1, 1, 1),),
    ),
    # A multiple of GroupNorm's groups.
    "axial_resnet": dict(depths=(1,), width_factor=0.5),
}


def make_layer(name, **kwargs):
    """Returns the layer of that name in the table, and its input shape."""
    layer_class, arguments, shape = LAYERS[name]
    return layer_class(**{**arguments, **kwargs}), shape


def make_model(name, **kwargs):
    """Returns the model of that name in the table."""
    constructor, arguments = "ViT", MODELS.get(name)
    if name in OTHER_FAMILIES:
        constructor, arguments = OTHER_FAMILIES[name]
    build = getattr(keras_vit, constructor)
    return build(**{**TINY_OF[constructor], **arguments, **kwargs})
