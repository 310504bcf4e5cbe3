"""DPT on a plain ViT or on DINOv2, in transformers."""

import dataclasses
import functools
from typing import Any

from keras_vit.weights.rules import (
    configs,
    dpt_neck,
    heads,
    patches,
    table,
    torch_modules,
)
from keras_vit.weights.rules.encoder import formats, transformers

TITLE = "DPT"
MODEL_TYPES = ("dpt",)
grid = patches.grid
RESIZES = formats.RESIZES
# What `DPTConfig` omits where it is the default.
_PLAIN = transformers.defaults(
    1e-12, image_size=384, patch_size=16, backbone_out_indices=[2, 5, 8, 11]
)


def _settings(config):
    if config.get("is_hybrid"):
        raise ValueError(
            "a hybrid DPT, whose ViT reads the maps of a ResNet, is not "
            "supported; expected a plain one, such as Intel/dpt-large"
        )
    dpt_neck.check_neck(config)
    readout = configs.choice(
        config, "readout_type", ("project", "add", "ignore")
    )
    rate = config.get("semantic_classifier_dropout", 0.1)
    kinds = transformers.ACTIVATIONS
    activation = configs.choice(config, "hidden_act", kinds) or "gelu"
    found = dict(
        readout=readout or "project",
        readout_activation=kinds[activation],
        head_dropout_rate=rate,
    )
    if config.get("backbone_config") or config.get("backbone"):
        return dpt_neck.dinov2_settings(config) | found
    stages = (_PLAIN | configs.known(**config))["backbone_out_indices"]
    own = transformers.settings(config, dict(dpt=_PLAIN))
    own |= heads.qkv_bias(config) | found
    return own | dict(
        layer_scale=0.0, last_norm=False, stages=[n + 1 for n in stages]
    )


def _head_rows(metadata):
    rows = dpt_neck.neck_rows(metadata["residual_bias"], metadata["batch_norm"])
    if metadata["readout"] == "project":
        dense = {
            f"readout_{i}": f"{dpt_neck.NECK}readout_projects.{i}.0"
            for i in range(4)
        }
        rows += table.layer_rows(dense, table.TORCH_DENSE)
    if metadata["task"] == "segmentation":
        rows += torch_modules.product(
            "segmentation_0", "head.head.0", "convolution", bias=False
        )
        rows += torch_modules.norm(
            "segmentation_norm", "head.head.1", batch=True
        )
        convolutions = {"head": "head.head.4"}
    else:
        convolutions = {
            f"depth_{i}": f"head.head.{n}" for i, n in enumerate((0, 2, 4))
        }
        if metadata["projection"]:
            convolutions["depth_projection"] = "head.projection"
    return rows + table.layer_rows(convolutions, table.TORCH_CONVOLUTION)


def _read_head(arrays, metadata):
    is_depth = "head.head.1.weight" not in arrays
    unit = f"{dpt_neck.FUSION}1.residual_layer1."
    return dpt_neck.read_neck(arrays) | dict(
        task="depth" if is_depth else "segmentation",
        classes=None if is_depth else arrays["head.head.4.weight"].shape[0],
        blocks=dpt_neck.blocks_of(metadata["stages"], metadata["num_layers"]),
        batch_norm=f"{unit}batch_norm1.weight" in arrays,
        residual_bias=f"{unit}convolution1.bias" in arrays,
        projection="head.projection.weight" in arrays,
    )


def _config_of(metadata):
    """Return the config, also with that of a DINOv2."""
    is_depth, last = metadata["task"] == "depth", metadata["blocks"][-1]
    title = (
        "DPTForDepthEstimation" if is_depth else "DPTForSemanticSegmentation"
    )
    kept = metadata.get("unused_weights") or {}
    fields = dpt_neck.neck_config(metadata) | dict(
        readout_type=metadata["readout"],
        use_batch_norm_in_fusion_residual=metadata["batch_norm"],
        use_bias_in_fusion_residual=metadata["residual_bias"],
        add_projection=metadata["projection"],
        semantic_classifier_dropout=metadata["head_dropout_rate"],
        use_auxiliary_head=any(n.startswith("auxiliary_head.") for n in kept),
        is_hybrid=False,
        **({} if is_depth else transformers.labels(metadata)),
    )
    if metadata.get("layer_scale"):
        inner = dpt_neck.dinov2_config(metadata)
        own = dict(
            architectures=[title],
            model_type="dpt",
            hidden_act=transformers.NAMES_OF[metadata["readout_activation"]],
            backbone_out_indices=None,
            **fields,
        )
        if "preprocessor" in inner:
            own["preprocessor"] = inner.pop("preprocessor")
        own["backbone_config"] = inner
    else:
        own = transformers.config_of(
            metadata | dict(num_layers=dpt_neck.num_layers(metadata, last)),
            "dpt",
            title,
            qkv_bias=metadata["qkv_bias"] == "qkv",
            backbone_out_indices=[n - 1 for n in metadata["blocks"]],
            **fields,
        )
    return dpt_neck.processor(own, "DPTImageProcessor", 1)


def _refused(metadata):
    size = metadata["fusion_size"]
    return {
        "last_norm=True of a plain ViT": metadata["last_norm"]
        and not metadata.get("layer_scale"),
        f"projection=True with fusion_size={size}": metadata["projection"]
        and size != 256,
    }


_COMMON: dict[str, Any] = dict(
    head_rows=_head_rows,
    read_head=_read_head,
    read_config=_settings,
    config_of=_config_of,
    restore=dpt_neck.restore,
    unused=dpt_neck.unused,
)
_ON_VIT = heads.make(
    transformers.BERT_NAMES,
    flatten=functools.partial(dpt_neck.flatten, prefix="dpt."),
    resampling=lambda metadata: "bilinear",
    refused=lambda metadata: (
        dpt_neck.neck_refused(metadata) | _refused(metadata)
    ),
    **_COMMON,
)
_ON_DINOV2 = heads.make(
    transformers.DINOV2_NAMES,
    fields=("activation", "qkv_bias", "layer_scale"),
    flatten=dpt_neck.flatten,
    resampling=lambda metadata: "bicubic",
    refused=lambda metadata: (
        dpt_neck.dinov2_refused(metadata) | _refused(metadata)
    ),
    **_COMMON,
)


def _format(metadata):
    """Return the format of a model, by its backbone."""
    return _ON_DINOV2 if metadata.get("layer_scale") else _ON_VIT


def _differences(metadata):
    """List what the library computes differently."""
    own = metadata["readout_activation"]
    inner = heads.as_later_family(metadata)["activation"]
    # A ViT's config has one activation for both; a DINOv2 has its own.
    shared = not metadata.get("layer_scale")
    if metadata["readout"] != "project" or own == inner or not shared:
        return []
    return [f"it uses the ViT's activation {inner!r} for the readout"]


FORMATS = {
    "huggingface": dataclasses.replace(
        _ON_VIT,
        differences=_differences,
        rules=lambda metadata: _format(metadata).rules(metadata),
        read_arrays=lambda arrays, config, specified: _format(
            specified
        ).read_arrays(arrays, config, specified),
        flatten=lambda arrays, specified: _format(specified).flatten(
            arrays, specified
        ),
        resampling=lambda metadata: _format(metadata).resampling(metadata),
        refused=lambda metadata, format: _format(metadata).refused(
            metadata, format
        ),
        naming_schemes={
            "huggingface": lambda metadata: dpt_neck.scheme(
                metadata, "backbone." if metadata.get("layer_scale") else "dpt."
            )
        },
    )
}
