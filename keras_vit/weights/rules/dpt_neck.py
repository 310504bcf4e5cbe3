"""The neck of DPT and Depth Anything, and their backbone, in transformers.

The neck reassembles and fuses four maps; the backbone is a DINOv2, or a plain
ViT with names of its own.
"""

import re

import numpy as np

from keras_vit.weights.rules import configs, dinov2, heads, table, torch_modules
from keras_vit.weights.rules.encoder import transformers

_DINOV2 = transformers.defaults(1e-6)
NECK = "neck.reassemble_stage."
FUSION = "neck.fusion_stage.layers."
_HEADS = ("neck.", "head.", "auxiliary_head.")
_FIRST_UNIT = rf"{re.escape(FUSION)}0\.residual_layer1\..*"
_BATCH_NORM = dict(weight=1, bias=0, running_mean=0, running_var=1)
LAYER = r"encoder\.layer\.{}\..*"


def neck_rows(use_bias: bool = True, batch_norm: bool = False) -> list[tuple]:
    """Return the rows of the reassembled and fused maps, of four levels."""
    layers = {
        f"reassemble_{i}_{part}": f"{NECK}layers.{i}.{name}"
        for i in range(4)
        for part, name in (("projection", "projection"), ("resize", "resize"))
        if (i, part) != (2, "resize")
    }
    layers |= {
        f"fusion_{i}_projection": f"{FUSION}{i}.projection" for i in range(4)
    }
    found = table.layer_rows(layers, table.TORCH_CONVOLUTION)
    for i in range(4):
        found += torch_modules.product(
            f"neck_{i}", f"neck.convs.{i}", "convolution", bias=False
        )
        # The coarsest map is fused with no other.
        for unit in (1, 2) if i else (2,):
            path, name = f"fusion_{i}_unit_{unit}", f"{FUSION}{i}."
            name += f"residual_layer{unit}."
            for n in (1, 2):
                found += torch_modules.product(
                    f"{path}_conv_{n}",
                    f"{name}convolution{n}",
                    "convolution",
                    bias=use_bias,
                )
                if batch_norm:
                    found += torch_modules.norm(
                        f"{path}_norm_{n}", f"{name}batch_norm{n}", batch=True
                    )
    return found


def read_neck(arrays: dict) -> dict:
    """Return the widths of reassembled and fused maps."""
    shapes = [arrays[f"{NECK}layers.{i}.projection.weight"] for i in range(4)]
    return dict(
        neck_sizes=[array.shape[0] for array in shapes],
        fusion_size=arrays["neck.convs.0.weight"].shape[0],
    )


def check_neck(config: dict) -> None:
    """Refuse a config with another neck."""
    heads.refuse(config, head_in_index=-1, reassemble_factors=[4, 2, 1, 0.5])
    sizes = config.get("neck_hidden_sizes")
    if sizes is not None and len(sizes) != 4:
        raise ValueError(
            f"expected `neck_hidden_sizes` to be four; found {sizes}"
        )


def stages_of(inner: dict) -> list[int]:
    """Return the numbers of maps in the config of a backbone; see `block_of`.

    Args:
        inner: With `out_indices`, `out_features`, or neither for the last.
    """
    stages = inner.get("out_indices")
    if stages is None:
        names = inner.get("out_features") or ["stage-1"]
        stages = [int(name.replace("stem", "stage0")[5:]) for name in names]
    return list(stages)


def block_of(stage: int, num_layers: int) -> int:
    """Return the block after which a map is read, counted from 1.

    Args:
        stage: Its number, counted from 1, or from -1 back.
        num_layers: Number of blocks.

    Raises:
        ValueError: If there is no such block.
    """
    found = stage if stage >= 0 else num_layers + 1 + stage
    if not 1 <= found <= num_layers:
        raise ValueError(
            f"expected the map of one of its {num_layers} blocks; found that "
            f"of {stage}"
        )
    return found


def blocks_of(stages: list[int], num_layers: int) -> list[int]:
    """Return the blocks whose maps are read, counted from 1.

    Args:
        stages: Numbers in a config, counted from 1, or from -1 back.
        num_layers: Number of blocks.

    Raises:
        ValueError: If they are not four, in order.
    """
    found = [block_of(stage, num_layers) for stage in stages]
    if len(found) != 4 or sorted(set(found)) != found:
        raise ValueError(
            f"expected the maps of four of its {num_layers} blocks, in order; "
            f"found those after blocks {found}"
        )
    return found


def dinov2_settings(config: dict) -> dict:
    """Return the metadata in the config of a head on a DINOv2.

    Raises:
        ValueError: If the backbone is another one.
    """
    inner = configs.section(config, "backbone_config")
    kind = inner.get("model_type") or config.get("backbone")
    if kind != "dinov2":
        raise ValueError(
            f"a backbone of the kind {kind!r} is not supported; expected "
            "'dinov2'"
        )
    heads.refuse(inner, reshape_hidden_states=False)
    found = transformers.settings(
        inner | {key: config.get(key) for key in ("id2label", "preprocessor")},
        dict(dinov2=_DINOV2),
    )
    found |= heads.qkv_bias(inner)
    return found | dict(
        layer_scale=1e-5,
        last_norm=configs.flag(inner, "apply_layernorm") is not False,
        stages=stages_of(inner),
    )


def unused(metadata: dict, extra: str = r"auxiliary_head\..*") -> str:
    """Return the pattern of names that no layer reads; see `heads.make`.

    Args:
        metadata: Of the model; `blocks` is where the backbone may end, and
            `last_norm` whether its last norm is read.
        extra: Pattern of further names.
    """
    last = metadata["blocks"][-1]
    later = range(last, metadata["num_layers"])
    parts = [extra, r"embeddings\.mask_token", _FIRST_UNIT]
    parts += [LAYER.format(i) for i in later]
    if not metadata["last_norm"]:
        parts.append(r"layernorm\..*")
    return "|".join(parts)


def flatten(arrays: dict, metadata: dict, prefix: str = "backbone."):
    """Remove the prefix of the backbone's names; a `flatten`."""
    arrays, _ = transformers.flatten(arrays, (prefix,), ignored="")
    dinov2.cut_swiglu(arrays)
    return arrays, (prefix, {})


def restore(arrays: dict, scheme: tuple[str, dict]) -> dict:
    """Invert `flatten`, and add what the library requires."""
    prefix, required = scheme
    arrays = required | arrays
    dinov2.join_swiglu(arrays)
    arrays = transformers.restore(arrays, prefix, _HEADS)
    return torch_modules.restore(arrays, None)


def scheme(metadata: dict, prefix: str = "backbone.") -> tuple[str, dict]:
    """Return the argument of `restore`.

    A model that was not read from a file lacks what no layer reads.
    """
    if metadata.get("unused_weights") is not None:
        return prefix, {}
    width, size = metadata["hidden_size"], metadata["fusion_size"]
    vectors, bias = {}, metadata.get("residual_bias", True)
    if not metadata["last_norm"]:
        vectors |= {"layernorm.weight": np.ones(width, "float32")}
        vectors |= {"layernorm.bias": np.zeros(width, "float32")}
    unit = f"{FUSION}0.residual_layer1."
    for n in (1, 2):
        kernel = np.zeros((size, size, 3, 3), "float32")
        vectors[f"{unit}convolution{n}.weight"] = kernel
        if bias:
            vectors[f"{unit}convolution{n}.bias"] = np.zeros(size, "float32")
        if metadata.get("batch_norm"):
            for name, value in _BATCH_NORM.items():
                vectors[f"{unit}batch_norm{n}.{name}"] = np.full(
                    size, value, "float32"
                )
    return prefix, vectors


def neck_config(metadata: dict) -> dict:
    """Return the fields of a config about the neck."""
    return dict(
        reassemble_factors=[4, 2, 1, 0.5],
        neck_hidden_sizes=list(metadata["neck_sizes"]),
        fusion_hidden_size=metadata["fusion_size"],
        head_in_index=-1,
    )


def num_layers(metadata: dict, last: int) -> int:
    """Return how many blocks a file has, given the last that is read."""
    kept = metadata.get("unused_weights") or {}
    later = any(re.match(LAYER.format(last), name) for name in kept)
    return metadata["num_layers"] if later else last


def dinov2_config(metadata: dict) -> dict:
    """Return the config of a DINOv2 as a backbone; with "preprocessor"."""
    blocks = metadata["blocks"]
    kept = metadata.get("unused_weights") or {}
    config = transformers.config_of(
        metadata | dict(num_layers=num_layers(metadata, blocks[-1])),
        "dinov2",
        "Dinov2Backbone",
        qkv_bias=metadata["qkv_bias"] == "qkv",
        layerscale_value=metadata["layer_scale"],
        use_mask_token="embeddings.mask_token" in kept,
        apply_layernorm=metadata["last_norm"],
        reshape_hidden_states=False,
        out_indices=list(blocks),
        out_features=[f"stage{n}" for n in blocks],
    )
    return dinov2.with_ratio(config, metadata)


def dinov2_refused(metadata: dict) -> dict:
    """Return description -> whether a file on a DINOv2 has no place for it."""
    hidden = metadata["mlp_dim"]
    return neck_refused(metadata) | {
        "no LayerScale": not metadata["layer_scale"],
        f"mlp_dim={hidden}": hidden != dinov2.mlp_dim(metadata),
    }


def neck_refused(metadata: dict) -> dict:
    """Return description -> whether no file with this neck has a place."""
    return heads.not_square(metadata) | {
        "maps of fewer than four blocks": len(set(metadata["blocks"])) < 4,
    }


def processor(config: dict, title: str, multiple: int) -> dict:
    """Turn the processor's config that ViTs have into one of DPT's.

    Args:
        config: With "preprocessor", if pixels are scaled.
        title: Class of the processor.
        multiple: Of which height and width are multiples.
    """
    if "preprocessor" in config:
        own = config["preprocessor"]
        del own["do_center_crop"]
        own |= dict(
            image_processor_type=title,
            keep_aspect_ratio=False,
            ensure_multiple_of=multiple,
        )
    return config
