"""ViTPose, in transformers."""

import numpy as np

from keras_vit.weights.rules import (
    configs,
    dpt_neck,
    heads,
    patches,
    table,
    torch_modules,
)
from keras_vit.weights.rules.encoder import formats, transformers

TITLE = "ViTPose"
MODEL_TYPES = ("vitpose",)
grid = patches.grid
RESIZES = formats.RESIZES
_KIND = "vitpose_backbone"
_LAYER = "encoder.layer.{i}."
_NAMES = transformers.BERT_NAMES | dict(
    fc1=f"{_LAYER}mlp.fc1", fc2=f"{_LAYER}mlp.fc2"
)
_POSITIONS = "embeddings.position_embeddings"
_SHARED = "embeddings.shared_position"
_DEFAULTS = transformers.defaults(1e-12, image_size=[256, 192], patch_size=16)


def _settings(config):
    inner = configs.section(config, "backbone_config")
    kind = inner.get("model_type", _KIND)
    if kind != _KIND:
        raise ValueError(
            f"a backbone of the kind {kind!r} is not supported; expected "
            f"{_KIND!r}"
        )
    if inner.get("num_experts", 1) != 1:
        raise ValueError(
            "a mixture of experts (ViTPose++) is not supported; expected "
            f"num_experts=1; found {inner['num_experts']}"
        )
    found = transformers.settings(
        dict(inner, model_type=_KIND)
        | {key: config.get(key) for key in ("id2label", "preprocessor")},
        {_KIND: _DEFAULTS},
    )
    scale = configs.integer(config, "scale_factor")
    found |= heads.qkv_bias(inner)
    return found | dict(
        scale_factor=4 if scale is None else scale,
        shifted_patches=True,
        stage=dpt_neck.stages_of(inner)[-1],
    )


def _flatten(arrays, metadata):
    """Give the first position, which is added to all patches, a name."""
    arrays, _ = transformers.flatten(arrays, ("backbone.",))
    every = arrays[_POSITIONS]
    _, tokens, width = every.shape
    arrays[_SHARED] = every.map(lambda a: a[:, :1], (1, 1, width))
    arrays[_POSITIONS] = every.map(lambda a: a[:, 1:], (1, tokens - 1, width))
    return arrays, None


def _restore(arrays, scheme):
    """Invert `_flatten`."""
    arrays = dict(arrays)
    both = [arrays.pop(_SHARED), arrays.pop(_POSITIONS)]
    arrays[_POSITIONS] = np.concatenate(both, axis=1)
    arrays = transformers.restore(arrays, "backbone.", ("head.",))
    return torch_modules.restore(arrays, scheme)


def _head_rows(metadata):
    convolutions, rows = {"head": "head.conv"}, []
    if metadata["decoder"] == "classic":
        for i in (1, 2):
            rows += torch_modules.product(
                f"decoder_{i}", f"head.deconv{i}", "convolution", bias=False
            )
            rows += torch_modules.norm(
                f"decoder_norm_{i}", f"head.batchnorm{i}", batch=True
            )
    return [
        *rows,
        *table.layer_rows(convolutions, table.TORCH_CONVOLUTION),
        ("shared_position/position", _SHARED),
    ]


def _read_head(arrays, metadata):
    is_classic = "head.deconv1.weight" in arrays
    return dict(
        classes=arrays["head.conv.weight"].shape[0],
        decoder="classic" if is_classic else "simple",
        block=dpt_neck.block_of(metadata["stage"], metadata["num_layers"]),
    )


def _unused(metadata):
    """Return the pattern of the names of blocks after the last one read."""
    count = metadata["num_layers"]
    last = dpt_neck.block_of(metadata["block"], count)
    return "|".join(dpt_neck.LAYER.format(i) for i in range(last, count))


def _config_of(metadata):
    last = dpt_neck.block_of(metadata["block"], metadata["num_layers"])
    inner = transformers.config_of(
        metadata | dict(num_layers=dpt_neck.num_layers(metadata, last)),
        _KIND,
        "VitPoseBackbone",
        mlp_ratio=metadata["mlp_dim"] // metadata["hidden_size"],
        num_experts=1,
        qkv_bias=metadata["qkv_bias"] == "qkv",
        out_indices=[last],
        out_features=[f"stage{last}"],
    )
    inner |= dict(
        image_size=list(metadata["image_size"]),
        patch_size=list(metadata["patch_size"]),
    )
    del inner["intermediate_size"]
    config = dict(
        architectures=["VitPoseForPoseEstimation"],
        model_type="vitpose",
        scale_factor=metadata["scale_factor"],
        use_simple_decoder=metadata["decoder"] == "simple",
        **transformers.labels(metadata),
    )
    if "preprocessor" in inner:
        config["preprocessor"] = inner.pop("preprocessor")
        for key in ("do_resize", "resample", "do_center_crop"):
            del config["preprocessor"][key]
        config["preprocessor"] |= dict(
            image_processor_type="VitPoseImageProcessor",
            do_affine_transform=True,
            normalize_factor=200.0,
        )
    config["backbone_config"] = inner
    return config


def _refused(metadata):
    mlp_dim, width = metadata["mlp_dim"], metadata["hidden_size"]
    return {
        "shifted_patches=False": not metadata["shifted_patches"],
        f"mlp_dim={mlp_dim}": mlp_dim % width > 0,
    }


FORMATS = {
    "huggingface": heads.make(
        _NAMES,
        fixed=dict(class_token=False, position_prefix=0),
        head_rows=_head_rows,
        read_head=_read_head,
        read_config=_settings,
        config_of=_config_of,
        unused=_unused,
        flatten=_flatten,
        restore=_restore,
        resampling=lambda metadata: "bicubic",
        refused=_refused,
    )
}
