"""Masked autoencoders of images, in transformers."""

from keras_vit.weights.rules import configs, heads, masked, patches, table
from keras_vit.weights.rules.encoder import formats, transformers

TITLE = "masked autoencoder"
MODEL_TYPES = ("vit_mae",)
# Without it a file is that of an encoder.
HAS = r"decoder\.decoder_pred\.weight"
ENCODER = "vit"
grid = patches.grid
RESIZES = formats.RESIZES | {
    "decoder_posembed/pos_embedding": table.fit_positions
}
_BLOCK = "decoder.decoder_encoder.layer."
# As transformers 4 writes it.
_OLD_BLOCK = "decoder.decoder_layers."
_NAMES = masked.decoder_names(transformers.BERT_NAMES, f"{_BLOCK}{{i}}.")
_DEFAULTS = transformers.defaults(
    1e-12, hidden_size=768, image_size=224, patch_size=16
)


def _settings(config):
    found = transformers.settings(config, dict(vit_mae=_DEFAULTS))
    found |= heads.qkv_bias(config)
    decoder = masked.settings(config, num_heads=16, normalises=False)
    target = "patch" if decoder.pop("normalises") else "pixels"
    ratio = configs.number(config, "mask_ratio", 0.0, 1.0)
    return found | decoder | dict(target=target, mask_ratio=ratio or 0.75)


def _flatten(arrays, metadata):
    arrays, _ = transformers.flatten(arrays, ("vit.",))
    return table.rename(
        arrays, lambda name: name.replace(_OLD_BLOCK, _BLOCK)
    ), None


def _head_rows(metadata):
    dense = {
        path: f"decoder.{path}" for path in ("decoder_embed", "decoder_pred")
    }
    norm = {"decoder_norm": "decoder.decoder_norm"}
    return [
        *masked.decoder_rows(_NAMES, metadata),
        *table.layer_rows(dense, table.TORCH_DENSE),
        *table.layer_rows(norm, table.TORCH_NORM),
        ("mask_tokens/mask_token", "decoder.mask_token"),
        ("decoder_posembed/pos_embedding", "decoder.decoder_pos_embed"),
    ]


def _config_of(metadata):
    return transformers.config_of(
        metadata,
        "vit_mae",
        "ViTMAEForPreTraining",
        qkv_bias=metadata["qkv_bias"] == "qkv",
        mask_ratio=metadata["mask_ratio"],
        **masked.config_of(metadata),
    )


def _refused(metadata):
    target, pooling = metadata["target"], metadata["pooling"]
    return heads.not_square(metadata) | {
        f"target={target!r}": target not in ("pixels", "patch"),
        f"pooling={pooling!r}": pooling not in ("token", "gap"),
    }


FORMATS = {
    "huggingface": heads.make(
        transformers.BERT_NAMES,
        head_rows=_head_rows,
        read_head=lambda arrays, found: masked.read_decoder(
            arrays, _NAMES, "decoder.decoder_embed"
        ),
        read_config=_settings,
        config_of=_config_of,
        refused=_refused,
        flatten=_flatten,
        restore=lambda arrays, scheme: transformers.restore(
            arrays, "vit.", ("decoder.",)
        ),
        resampling=lambda metadata: "bicubic",
    )
}
