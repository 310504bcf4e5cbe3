"""The text towers of SigLIP and SigLIP 2, in transformers.

Checked against siglip and siglip2 of transformers 5.24.
"""

from keras_vit.weights.rules import table, text_tower

TITLE = "SigLIP's text tower"
MODEL_TYPES = ("siglip_text_model", "siglip2_text_model")
RESIZES: dict = {}
grid = table.no_grid
_DEFAULTS = dict(
    hidden_act="gelu_pytorch_tanh", layer_norm_eps=1e-6, num_attention_heads=12
)


def _config_of(metadata):
    return dict(
        architectures=["SiglipTextModel"],
        model_type=MODEL_TYPES[0],
        projection_size=metadata["embedding_size"],
    )


FORMATS = {
    "huggingface": text_tower.make(
        "head",
        _DEFAULTS,
        scalar_shape=(1,),
        settings=lambda config: {},
        config_of=_config_of,
        causal=False,
        pooling="last",
        end_token=None,
        projection_bias=True,
    )
}
