"""The text towers of OWL-ViT and OWLv2, in transformers.

Checked against owlvit and owlv2 of transformers 5.24. They are CLIP's, within
another prefix.
"""

from keras_vit.weights.rules import table, text_tower

TITLE = "OWL-ViT's text tower"
MODEL_TYPES = ("owlvit_text_model", "owlv2_text_model")
RESIZES: dict = {}
grid = table.no_grid
OUTER = ("owlv2.", "owlvit.")
_DEFAULTS = dict(
    hidden_act="quick_gelu", layer_norm_eps=1e-5, num_attention_heads=8
)


def _config_of(metadata):
    return dict(architectures=["Owlv2TextModel"], model_type=MODEL_TYPES[1])


FORMATS = {
    "huggingface": text_tower.make(
        "text_projection",
        _DEFAULTS,
        scalar_shape=(),
        settings=lambda config: {},
        config_of=_config_of,
        outer=OUTER,
        causal=True,
        pooling="largest",
        end_token=None,
        projection_bias=False,
    )
}
