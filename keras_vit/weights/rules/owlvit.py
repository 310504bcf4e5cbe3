"""OWL-ViT, in transformers: the image tower and the heads.

Checked against owlvit of transformers 5.24.
"""

from keras_vit.weights.rules import configs, heads, owl_text, patches, table
from keras_vit.weights.rules.encoder import formats, transformers

TITLE = "OWL-ViT"
MODEL_TYPES = ("owlvit",)
TEXT_TOWER = "owl_text"
grid = patches.grid
RESIZES = formats.RESIZES
_NAMES = transformers.TOWER_NAMES | dict(
    class_token="embeddings.class_embedding", pre_norm="pre_layernorm"
)
_HEADS = ("class_head.", "box_head.", "objectness_head.", "layer_norm.")
# Of the two towers' embeddings of an entire image, which no box needs.
_UNUSED = ("visual_projection.weight", "logit_scale")


def _flatten(arrays, metadata):
    ignored = r".*position_ids"
    arrays, outer = transformers.flatten(arrays, owl_text.OUTER, ignored)
    arrays, _ = transformers.flatten(arrays, (transformers.TOWER,), r"text_.*")
    return arrays, outer


def _restore(arrays, outer):
    return {
        name
        if name.startswith(_HEADS)
        else f"{outer}{name}"
        if name in _UNUSED
        else f"{outer}{transformers.TOWER}{name}": array
        for name, array in arrays.items()
    }


def _head_rows(metadata):
    kinds = ("box", "objectness") if metadata["objectness"] else ("box",)
    layers = {
        f"{kind}_mlp_{i}": f"{kind}_head.dense{i}"
        for kind in kinds
        for i in range(3)
    }
    layers |= {
        "class_dense": "class_head.dense0",
        "logit_shift": "class_head.logit_shift",
        "logit_scale": "class_head.logit_scale",
    }
    norm = table.layer_rows({"merged_norm": "layer_norm"}, table.TORCH_NORM)
    return table.layer_rows(layers, table.TORCH_DENSE) + norm


def _read_head(arrays, found):
    objectness = "objectness_head.dense0.weight" in arrays
    return dict(
        classes=None,
        embedding_size=arrays["class_head.dense0.weight"].shape[0],
        objectness=objectness,
        pads=objectness,
    )


def joined_config(image: dict, text: dict) -> dict:
    """Return the config of both towers, given those of each."""
    kind = image["model_type"].removesuffix("_vision_model")
    text |= dict(model_type=f"{kind}_text_model")
    return configs.known(
        architectures=[f"{_CLASSES[kind]}ForObjectDetection"],
        model_type=kind,
        projection_dim=image.pop("projection_dim"),
        preprocessor=image.pop("preprocessor", None),
        text_config=text,
        vision_config=image,
    )


_CLASSES = dict(owlvit="OwlViT", owlv2="Owlv2")


def make(kind: str) -> dict[str, table.Format]:
    """Return the formats of a kind, "owlvit" or "owlv2"."""
    # Arrays show the size of patches, which is another for each kind.
    defaults = transformers.defaults(1e-5, "quick_gelu", image_size=768)

    def config_of(metadata):
        unused = metadata.get("unused_weights") or {}
        shape = unused.get("visual_projection.weight", [512])
        return transformers.config_of(
            metadata,
            f"{kind}_vision_model",
            f"{_CLASSES[kind]}VisionModel",
            projection_dim=shape[0],
        )

    return {
        "huggingface": heads.make(
            _NAMES,
            head_rows=_head_rows,
            read_head=_read_head,
            config_of=config_of,
            fields=("activation",),
            fixed=dict(pre_norm=True, patch_bias=False),
            unused=lambda metadata: "|".join(_UNUSED),
            scheme=lambda metadata: f"{kind}.",
            read_config=lambda config: transformers.settings(
                config, {kind: defaults}
            ),
            flatten=_flatten,
            restore=_restore,
            resampling=lambda metadata: "bicubic",
        )
    }


FORMATS = make("owlvit")
