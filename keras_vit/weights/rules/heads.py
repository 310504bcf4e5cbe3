"""What the files of models with a head for a dense task share.

They are those of transformers: a backbone's arrays, as `encoder` names them,
and those of the head. Checked against transformers 5.23.
"""

import dataclasses
import re
from collections.abc import Callable

from keras_vit.weights.rules import configs, table
from keras_vit.weights.rules.encoder import formats, rows


def make(
    names: dict,
    *,
    head_rows: Callable,
    read_head: Callable,
    config_of: Callable,
    refused: Callable = lambda metadata: {},
    unused: Callable = lambda metadata: "",
    fields: tuple[str, ...] = ("activation", "qkv_bias"),
    fixed: dict | None = None,
    states_qv: bool = False,
    scheme: Callable | None = None,
    **kwargs,
) -> table.Format:
    """Return the format of transformers of a model with a head.

    Args:
        names: Those of the backbone; see `rows.rules`.
        head_rows: Returns the rows of the head, given metadata.
        read_head: Returns the metadata that the arrays of the head show, given
            the arrays and the metadata of the backbone.
        config_of: See `table.Format`.
        refused: Returns description -> whether a model has what the format has
            no place for, given metadata.
        unused: Returns the pattern of the names that files have and models do
            not read, such as those of a norm, given metadata.
        fields, fixed, **kwargs: See `formats.make`.
        states_qv: Whether its configs can state qkv_bias="qv".
        scheme: Returns the argument of `restore`, given metadata.
    """
    base = formats.make(
        names,
        requires=(),
        fields=fields,
        fixed=fixed,
        config_of=lambda metadata: config_of(as_later_family(metadata)),
        naming_schemes={"huggingface": scheme},
        refused=lambda metadata, format: table.listed(
            _backbone_refused(metadata, fields, fixed or {})
            | {
                "qkv_bias='qv'": not states_qv
                and metadata.get("qkv_bias") == "qv"
            }
            | refused(as_later_family(metadata))
        ),
        **kwargs,
    )

    def rules(metadata):
        metadata = as_later_family(metadata)
        absent = () if metadata.get("classes") else ("head/",)
        own = base.rules(metadata | dict(classes=None))
        own += table.expand(head_rows(metadata), absent=absent)
        pattern = unused(metadata)
        own = [x for x in own if not _is_unused(x, pattern)]
        return own + [
            table.Rule(f"task/{name_of_unused(name)}", (name,))
            for name in metadata.get("unused_weights") or ()
        ]

    def read_arrays(arrays, config, specified):
        found = base.read_arrays(arrays, config, specified)
        found |= read_head(arrays, specified | found)
        names = table.matching(unused(specified | found), arrays)
        shapes = {name: list(arrays[name].shape) for name in names}
        return found | dict(unused_weights=shapes)

    def adapt(arrays, found, wanted):
        """Leave out what the model does not keep."""
        kept = wanted.get("unused_weights") or ()
        left_out = set(found["unused_weights"]) - set(kept)
        arrays = base.adapt(arrays, found, wanted)
        return {n: a for n, a in arrays.items() if n not in left_out}

    return dataclasses.replace(
        base, rules=rules, read_arrays=read_arrays, adapt=adapt
    )


def _is_unused(rule, pattern):
    """Whether all arrays of a rule have names that a pattern matches."""
    matches = [re.fullmatch(pattern, name) for name in rule.sources]
    return bool(matches) and all(matches)


def name_of_unused(name: str) -> str:
    """Return the name of the variable of an unused array."""
    return name.replace(".", "-")  # PyTorch allows no dots


def as_later_family(metadata: dict) -> dict:
    """Return the metadata of a ViT with what that of later families has."""
    if "activation" in metadata or "gelu_approximate" not in metadata:
        return metadata
    tanh = metadata["gelu_approximate"]
    token = metadata["pooling"] == "token" or bool(metadata.get("class_token"))
    return metadata | dict(
        activation="gelu_tanh" if tanh else "gelu",
        class_token=token,
        qkv_bias="qkv",
    )


def _backbone_refused(metadata, fields, fixed):
    """Return what a backbone has that the format's backbones lack."""
    expected = {k: v for k, v in rows.DEFAULTS.items() if k not in fields}
    expected |= fixed
    token = metadata.get("class_token")
    token = metadata["pooling"] == "token" if token is None else token
    found = dict(position_prefix=int(token)) | metadata
    found["class_token"] = token
    refused = {
        f"{name}={found[name]!r}": bool(found[name]) != bool(value)
        if name == "layer_scale"
        else found[name] != value
        for name, value in expected.items()
        if name in found
    }
    positions = metadata.get("position_embedding", "learned_1d")
    return refused | {
        "post_norm=True": metadata.get("post_norm", False),
        "a ResNet stem": metadata.get("resnet_depths") is not None,
        f"position_embedding={positions!r}": positions != "learned_1d",
        "patches of unequal sides": len(set(metadata["patch_size"])) > 1,
        "no norm after the last block": metadata["pooling"].endswith(
            "_unnormed"
        ),
    }


def not_square(metadata: dict) -> dict:
    """Return description -> whether images have unequal sides."""
    height, width = metadata["image_size"]
    return {"images that are not square": height != width}


def refuse(config: dict, **expected) -> None:
    """Refuse a config whose values are not those that are supported.

    Args:
        config: The config.
        **expected: Key -> the one value that is supported; absent keys pass.

    Raises:
        ValueError: If one differs, with its name.
    """
    for key, value in expected.items():
        if config.get(key, value) != value:
            raise ValueError(
                f"{key}={config[key]!r} is not supported; expected {value!r}"
            )


def qkv_bias(config: dict) -> dict:
    """Return the metadata of `qkv_bias`, so that arrays can contradict it."""
    flag = configs.flag(config, "qkv_bias")
    return {} if flag is None else dict(qkv_bias="qkv" if flag else "none")
