"""Distilled DeiT, in timm and transformers.

Checked against timm/models/deit.py of timm 1.0, and deit of transformers 5.23.
"""

import functools

from keras_vit.weights.rules import encoder, patches
from keras_vit.weights.rules.encoder import timm, transformers

TITLE = "distilled DeiT"
grid = patches.grid
RESIZES = encoder.RESIZES
_FIELDS = ("activation",)
_FIXED = dict(distillation_token=True, position_prefix=2)
_TIMM_NAMES = timm.NAMES | dict(
    distillation_token="dist_token", head_distillation="head_dist"
)
_NAMES = transformers.BERT_NAMES | dict(
    distillation_token="embeddings.distillation_token",
    head_token="cls_classifier",
    head_distillation="distillation_classifier",
)
_HEADS = ("cls_classifier.", "distillation_classifier.", "classifier.")
_DEFAULTS = dict(
    hidden_act="gelu",
    layer_norm_eps=1e-12,
    num_attention_heads=12,
    image_size=224,
)


def _timm_settings(config):
    found = timm.settings(config, r"deit_\w+_distilled_.*", 1e-6)
    return found | dict(pooling="distilled")


def _timm_config_of(metadata):
    return timm.config_of(
        metadata | dict(classifier="token"),
        "deit_base_distilled_patch16_224",
        mlp_ratio=metadata["mlp_dim"] / metadata["hidden_size"],
        **(
            {}
            if metadata["activation"] == "gelu"
            else dict(act_layer=metadata["activation"])
        ),
    )


def _timm_refused(metadata, format):
    found = timm.refused(metadata, format)
    if metadata["classifier"] != "distilled":
        found.append(f"classifier={metadata['classifier']!r}")
    return found


def _flatten(arrays, metadata):
    """Remove the prefix; one classifier reads the class token alone."""
    arrays, prefix = transformers.flatten(
        arrays, ("deit.",), r".*embeddings\.mask_token"
    )
    single = "classifier.weight" in arrays
    metadata["pooling"] = "token" if single else "distilled"
    return arrays, prefix


def _config_of(metadata):
    name = "DeiTModel"
    if metadata["classes"] is not None:
        name = "DeiTForImageClassification"
        if metadata["classifier"] == "distilled":
            name += "WithTeacher"
    return transformers.config_of(
        metadata, "deit", name, **transformers.labels(metadata)
    )


FORMATS = {
    "timm": timm.with_heads(
        encoder.formats(
            _TIMM_NAMES,
            fields=_FIELDS,
            fixed=_FIXED,
            requires=(
                r"(module\.)?patch_embed\.proj\.weight",
                r"(module\.)?blocks\.0\.norm1\.weight",
                r"(module\.)?dist_token",
            ),
            read_config=_timm_settings,
            flatten=timm.flatten,
            restore=timm.restore,
            naming_schemes={"timm": frozenset()},
            config_of=_timm_config_of,
            refused=_timm_refused,
            differences=functools.partial(timm.differences, epsilon=1e-6),
        )
    ),
    "huggingface": encoder.formats(
        _NAMES,
        fields=_FIELDS,
        fixed=_FIXED,
        resampling=lambda metadata: "bicubic",
        requires=(
            r".*embeddings\.patch_embeddings\.projection\.weight",
            r".*embeddings\.distillation_token",
        ),
        forbids={
            r"(deit\.)?pooler\..*": "a DeiT with a pooler, a layer that "
            "no classifier of it reads, is"
        },
        read_config=functools.partial(
            transformers.settings, defaults=dict(deit=_DEFAULTS)
        ),
        flatten=_flatten,
        restore=lambda arrays, prefix: transformers.restore(
            arrays, prefix, _HEADS
        ),
        naming_schemes={
            "huggingface": lambda metadata: (
                "" if metadata["classes"] is None else "deit."
            )
        },
        config_of=_config_of,
        refused=transformers.refused,
    ),
}
FORMATS["keras_vit"] = encoder.keras_files(
    FORMATS["timm"], r"distillation_token/0"
)
