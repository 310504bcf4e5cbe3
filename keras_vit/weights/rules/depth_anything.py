"""Depth Anything on DINOv2, in transformers."""

from keras_vit.weights.rules import configs, dpt_neck, heads, patches, table
from keras_vit.weights.rules.encoder import formats, transformers

TITLE = "Depth Anything"
MODEL_TYPES = ("depth_anything",)
grid = patches.grid
RESIZES = formats.RESIZES
# Of `DepthAnythingConfig` without a backbone.
_BACKBONE = dict(
    model_type="dinov2",
    image_size=518,
    hidden_size=384,
    num_attention_heads=6,
    out_indices=[9, 10, 11, 12],
)


def _settings(config):
    dpt_neck.check_neck(config)
    if not (config.get("backbone_config") or config.get("backbone")):
        config = config | dict(backbone_config=_BACKBONE)
    kinds = ("relative", "metric")
    depth = configs.number(config, "max_depth", 0.0, 1e6)
    return dpt_neck.dinov2_settings(config) | dict(
        kind=configs.choice(config, "depth_estimation_type", kinds)
        or "relative",
        max_depth=1.0 if depth is None else depth,
    )


def _head_rows(metadata):
    convolutions = {f"depth_{i}": f"head.conv{i + 1}" for i in range(3)}
    return dpt_neck.neck_rows() + table.layer_rows(
        convolutions, table.TORCH_CONVOLUTION
    )


def _read_head(arrays, metadata):
    return dpt_neck.read_neck(arrays) | dict(
        blocks=dpt_neck.blocks_of(metadata["stages"], metadata["num_layers"]),
        head_size=arrays["head.conv2.weight"].shape[0],
    )


def _config_of(metadata):
    inner = dpt_neck.dinov2_config(metadata)
    depth, patch = metadata["max_depth"], metadata["patch_size"][0]
    config = dict(
        architectures=["DepthAnythingForDepthEstimation"],
        model_type="depth_anything",
        **dpt_neck.neck_config(metadata),
        patch_size=patch,
        reassemble_hidden_size=metadata["hidden_size"],
        head_hidden_size=metadata["head_size"],
        depth_estimation_type=metadata["kind"],
        # The library takes integers alone.
        max_depth=int(depth) if depth == int(depth) else depth,
    )
    if "preprocessor" in inner:
        config["preprocessor"] = inner.pop("preprocessor")
    config["backbone_config"] = inner
    return dpt_neck.processor(config, "DPTImageProcessor", patch)


FORMATS = {
    "huggingface": heads.make(
        transformers.DINOV2_NAMES,
        fields=("activation", "qkv_bias", "layer_scale"),
        head_rows=_head_rows,
        read_head=_read_head,
        read_config=_settings,
        config_of=_config_of,
        unused=dpt_neck.unused,
        flatten=dpt_neck.flatten,
        restore=dpt_neck.restore,
        scheme=dpt_neck.scheme,
        resampling=lambda metadata: "bicubic",
        refused=dpt_neck.dinov2_refused,
    )
}
