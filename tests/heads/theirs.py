"""Small random models of transformers with heads, as the library saves them."""

import json

import numpy as np
import realistic

PIXELS = dict(
    do_rescale=True,
    rescale_factor=1 / 255,
    do_normalize=True,
    image_mean=[0.485, 0.456, 0.406],
    image_std=[0.229, 0.224, 0.225],
)
SIZES = dict(hidden_size=32, num_hidden_layers=4, num_attention_heads=2)
VIT = dict(SIZES, intermediate_size=64, patch_size=8)
MLP = dict(SIZES, mlp_ratio=2, patch_size=8)
NECK = dict(neck_hidden_sizes=[8, 12, 16, 16], fusion_hidden_size=16)
EOMT = dict(num_queries=5, num_blocks=2, num_upscale_blocks=2, num_labels=3)
# Case: model_type, class, options of the config, (height, width).
CASES = {
    "yolos": (
        "yolos",
        "YolosForObjectDetection",
        dict(VIT, num_detection_tokens=5, num_labels=3),
        (24, 40),
    ),
    "yolos, no middle positions": (
        "yolos",
        "YolosForObjectDetection",
        dict(
            VIT,
            num_detection_tokens=3,
            num_labels=7,
            use_mid_position_embeddings=False,
            qkv_bias=False,
            hidden_act="gelu_new",
            layer_norm_eps=1e-6,
        ),
        (32, 32),
    ),
    "eomt": (
        "eomt",
        "EomtForUniversalSegmentation",
        dict(MLP, **EOMT, num_register_tokens=2),
        (32, 32),
    ),
    "eomt, SwiGLU": (
        "eomt",
        "EomtForUniversalSegmentation",
        dict(MLP, **EOMT, use_swiglu_ffn=True) | dict(mlp_ratio=4),
        (24, 24),
    ),
    "eomt on DINOv3": (
        "eomt_dinov3",
        "EomtDinov3ForUniversalSegmentation",
        dict(VIT, **EOMT, hidden_act="gelu_new"),
        (32, 32),
    ),
    "eomt on DINOv3, gated": (
        "eomt_dinov3",
        "EomtDinov3ForUniversalSegmentation",
        dict(
            VIT,
            **EOMT,
            hidden_act="silu",
            use_gated_mlp=True,
            key_bias=True,
            layer_norm_eps=1e-5,
        ),
        (24, 24),
    ),
    "dpt, depth": (
        "dpt",
        "DPTForDepthEstimation",
        dict(
            VIT,
            **NECK,
            backbone_out_indices=[0, 1, 2, 3],
            use_batch_norm_in_fusion_residual=True,
            readout_type="add",
            qkv_bias=False,
        ),
        (32, 32),
    ),
    "dpt, segmentation": (
        "dpt",
        "DPTForSemanticSegmentation",
        dict(
            VIT | dict(num_hidden_layers=6),
            **NECK,
            backbone_out_indices=[0, 1, 3, 4],
            num_labels=5,
            use_batch_norm_in_fusion_residual=True,
            use_bias_in_fusion_residual=True,
            hidden_act="gelu_new",
        ),
        (40, 40),
    ),
    "dpt on dinov2": (
        "dpt",
        "DPTForDepthEstimation",
        dict(
            NECK,
            readout_type="ignore",
            add_projection=True,
            backbone_config=dict(
                MLP,
                model_type="dinov2",
                out_indices=[1, 2, -2, -1],
                apply_layernorm=False,
                reshape_hidden_states=False,
            ),
        )
        | dict(fusion_hidden_size=256),  # of which the projection is
        (24, 24),
    ),
    "depth anything": (
        "depth_anything",
        "DepthAnythingForDepthEstimation",
        dict(
            NECK,
            reassemble_hidden_size=32,
            patch_size=8,
            depth_estimation_type="metric",
            max_depth=80,
            backbone_config=dict(
                MLP | dict(num_hidden_layers=6, mlp_ratio=4),
                model_type="dinov2",
                out_features=["stage1", "stage2", "stage3", "stage5"],
                reshape_hidden_states=False,
                use_swiglu_ffn=True,
            ),
        ),
        (40, 40),
    ),
    "vitpose": (
        "vitpose",
        "VitPoseForPoseEstimation",
        dict(
            num_labels=3,
            scale_factor=2,
            backbone_config=dict(
                MLP | dict(patch_size=[8, 8]),
                model_type="vitpose_backbone",
                out_indices=[3],
            ),
        ),
        (32, 24),
    ),
    "vitpose, classic": (
        "vitpose",
        "VitPoseForPoseEstimation",
        dict(
            num_labels=5,
            use_simple_decoder=False,
            backbone_config=dict(
                MLP | dict(patch_size=[8, 8]),
                model_type="vitpose_backbone",
                out_features=["stage4"],
                qkv_bias=False,
            ),
        ),
        (24, 24),
    ),
}
# Case -> another size of the images.
OTHER_SIZES = {
    "yolos": (40, 48),
    "eomt on DINOv3": (40, 40),
    "dpt, segmentation": (24, 24),
    "dpt on dinov2": (40, 56),
    "depth anything": (56, 40),
}
WITH_CLASSES = ["yolos", "eomt", "dpt, segmentation", "vitpose"]


def make(transformers, case, folder, **changes):
    """Save a model of a case; return it and the size of its images."""
    import torch

    kind, name, options, size = CASES[case]
    options = dict(options, **changes)
    if "backbone_config" in options:
        inner = dict(options["backbone_config"])
        inner = transformers.AutoConfig.for_model(
            **inner, image_size=image_size(inner["model_type"], size)
        )
        config = transformers.AutoConfig.for_model(
            kind, **options | dict(backbone_config=inner)
        )
    else:
        config = transformers.AutoConfig.for_model(
            kind, **options, image_size=image_size(kind, size)
        )
    model = realistic.fill_torch(getattr(transformers, name)(config))
    generator = torch.Generator().manual_seed(1)
    for key, value in model.named_buffers():
        if key.endswith(("running_mean", "empty_weight")):
            value.copy_(torch.randn(value.shape, generator=generator))
        elif key.endswith("running_var"):
            value.copy_(0.5 + torch.rand(value.shape, generator=generator))
        elif key == "attn_mask_probs":
            value.zero_()
    model.save_pretrained(folder)
    height, width = size
    processor = dict(PIXELS, size=dict(height=height, width=width))
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return model, size


def at_size(model, folder, size):
    """Return the model for images of another size."""
    if not type(model).__name__.startswith("Eomt"):
        return model
    # The config has the size of its masks.
    return type(model).from_pretrained(folder, image_size=size[0]).eval()


def image_size(kind, size):
    return list(size) if kind in ("yolos", "vitpose_backbone") else size[0]


def pixels(size, count=2):
    rng = np.random.default_rng(0)
    return rng.uniform(0, 255, (count, *size, 3)).astype("float32")


def outputs(model, x, mean=PIXELS["image_mean"], std=PIXELS["image_std"]):
    """Return the model's outputs on pixels, channels last."""
    import torch

    mean, std = (np.array(k, "float32") for k in (mean, std))
    x = (x / 255 - mean) / std
    with torch.no_grad():
        found = model(torch.from_numpy(x.transpose(0, 3, 1, 2).copy()))
    return {
        name: channels_last(name, value.numpy())
        for name, value in found.items()
        if name not in ("last_hidden_state", "hidden_states", "loss")
    }


def channels_last(name, value):
    moves = name in ("masks_queries_logits", "heatmaps") or (
        name == "logits" and value.ndim == 4
    )
    return value.transpose(0, 2, 3, 1) if moves else value
