"""Distilled DeiT, in timm and transformers.

Checked against timm/models/deit.py of timm 1.0, and deit of transformers 5.23.
"""

import functools

from keras_vit.weights.rules import patches, table
from keras_vit.weights.rules.encoder import formats, timm, transformers

TITLE = "distilled DeiT"
grid = patches.grid
RESIZES = formats.RESIZES
_MODEL: dict = dict(
    fields=("activation",),
    fixed=dict(distillation_token=True, position_prefix=2),
)
_TIMM_NAMES = timm.NAMES | dict(
    distillation_token="dist_token", head_distillation="head_dist"
)
_NAMES = transformers.BERT_NAMES | dict(
    distillation_token="embeddings.distillation_token",
    head_token="cls_classifier",
    head_distillation="distillation_classifier",
)
_KINDS = dict(deit=transformers.defaults(1e-12, image_size=224))


def _timm_settings(config):
    found = timm.settings(config, {r"deit_\w+_distilled_.*": (1e-6, {})})
    return found | dict(global_pool="distilled")


def _timm_config_of(metadata):
    return timm.config_of(
        metadata | dict(pooling="token"), "deit_base_distilled_patch16_224"
    )


def _timm_refused(metadata, format):
    pooling = metadata["pooling"]
    return timm.refused(metadata, format) + table.listed(
        {f"pooling={pooling!r}": pooling != "distilled"}
    )


def _flatten(arrays, metadata):
    """Remove the prefix; one classifier reads the class token alone."""
    arrays, prefix = transformers.flatten(arrays, ("deit.",))
    single = "classifier.weight" in arrays
    metadata["global_pool"] = "token" if single else "distilled"
    return arrays, prefix


def _config_of(metadata):
    name = "DeiTModel"
    if metadata["classes"] is not None:
        name = "DeiTForImageClassification"
        if metadata["pooling"] == "distilled":
            name += "WithTeacher"
    return transformers.config_of(
        metadata, "deit", name, **transformers.labels(metadata)
    )


FORMATS = {
    "timm": formats.timm_format(
        _timm_config_of,
        names=_TIMM_NAMES,
        requires=(r"blocks\.0\.norm1\.weight", r"dist_token"),
        read_config=_timm_settings,
        refused=_timm_refused,
        **_MODEL,
    ),
    "huggingface": formats.transformers_format(
        _NAMES,
        _config_of,
        requires=(
            r".*embeddings\.patch_embeddings\.projection\.weight",
            r".*embeddings\.distillation_token",
        ),
        forbids={
            r"(deit\.)?pooler\..*": "a DeiT with a pooler, a layer that "
            "no classifier of it reads, is"
        },
        defaults=_KINDS,
        prefix="deit.",
        heads=("cls_classifier.", "distillation_classifier.", "classifier."),
        flatten=_flatten,
        refused=functools.partial(transformers.refused, any_shape=True),
        **_MODEL,
    ),
}
FORMATS["keras_vit"] = formats.keras_files(
    FORMATS["timm"], r"distillation_token/0"
)
