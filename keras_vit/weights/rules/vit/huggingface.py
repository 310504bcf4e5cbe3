"""Names of ViTModel and ViTForImageClassification of transformers.

In the form that `save_pretrained` writes; checked against transformers 5.23.
"""

import re
import warnings

from keras_vit.weights.formats.guard import Stored
from keras_vit.weights.rules import configs, table
from keras_vit.weights.rules.encoder import rows, transformers
from keras_vit.weights.rules.vit.architecture import fields

# Of ViTMAEForPreTraining.
_MAE_DECODER = re.compile(r"decoder\.(decoder_\w+|mask_token)(\..*)?")
_BLOCK = re.compile(r"encoder\.layer\.(\d+)\.")
# Defaults of `ViTConfig`, which published files omit. An encoder of MAE or MSN
# has the same arrays.
_VIT = transformers.defaults(1e-12)
_DEFAULTS = dict(vit=_VIT, vit_mae=_VIT, vit_msn=transformers.defaults(1e-6))
_GELU = {None: None, "gelu": False, "gelu_tanh": True}


def flatten(
    arrays: dict[str, Stored], metadata: dict
) -> tuple[dict[str, Stored], bool]:
    """Remove the `vit.` of the names of ViTForImageClassification.

    The decoder of ViTMAEForPreTraining is left out, with a warning.

    Returns:
        The arrays, and whether names had it.
    """
    decoder = sum(bool(_MAE_DECODER.fullmatch(name)) for name in arrays)
    if decoder:
        warnings.warn(
            f"{decoder} arrays `decoder.*` of the masked autoencoder are not "
            "loaded: the model is its encoder, without masking.",
            stacklevel=2,
        )
    plain, prefix = transformers.flatten(
        arrays, ("vit.",), _MAE_DECODER.pattern
    )
    return plain, bool(prefix)


def restore(arrays: dict, prefixed: bool) -> dict:
    """Invert `flatten`."""
    prefix = "vit." if prefixed else ""
    return transformers.restore(arrays, prefix, ("classifier.",))


def read_architecture(arrays: dict[str, Stored], config: dict) -> dict:
    """Return the metadata that names and config show."""
    return dict(
        num_layers=table.count(arrays, _BLOCK),
        pooling="token",
        representation_size="pooler.dense.bias" in arrays,
        classes="classifier.bias" in arrays,
    )


def settings(config: dict) -> dict:
    """Return the metadata in config.json and preprocessor_config.json."""
    configs.choice(config, "pooler_act", ("tanh",))
    found = transformers.settings(config, _DEFAULTS)
    activation = found.pop("activation", None)
    if activation not in _GELU:
        given = config.get("hidden_act", activation)
        raise ValueError(f"a ViT of hidden_act {given!r} is not supported")
    return found | configs.known(gelu_approximate=_GELU[activation])


def config_of(metadata: dict) -> dict:
    """Return the config of transformers for a model; inverts `settings`."""
    approximate = metadata["gelu_approximate"]
    head = metadata["classes"] is not None
    config = transformers.config_of(
        metadata | dict(activation="gelu_tanh" if approximate else "gelu"),
        "vit",
        "ViTForImageClassification" if head else "ViTModel",
        qkv_bias=True,
        **transformers.labels(metadata),
    )
    if "preprocessor" in config:
        del config["preprocessor"]["do_center_crop"]
        config["preprocessor"] |= dict(
            image_processor_type="ViTImageProcessor", resample=2
        )
    return config


def rules(metadata: dict) -> list[table.Rule]:
    """Return the expanded table of a model."""
    names = transformers.BERT_NAMES | dict(pre_logits="pooler.dense")
    return rows.rules(names, fields(metadata))


def refused(metadata: dict, format: str) -> list[str]:
    """List the parts of a model that transformers cannot store."""
    pooling = metadata["pooling"]
    head = metadata.get("classes") is not None
    has = {
        "resnet_stem": metadata.get("resnet_depths") is not None,
        "pre_logits_and_head": metadata.get("representation_size") and head,
        "patch_of_unequal_sides": len(set(metadata["patch_size"])) > 1,
        pooling: pooling != "token",
    }
    return table.listed(has)
