"""VideoMAEs with their decoders, in transformers."""

from keras_vit.weights.rules import heads, masked, table, videomae
from keras_vit.weights.rules.encoder import transformers

TITLE = "VideoMAE with its decoder"
MODEL_TYPES = videomae.MODEL_TYPES
HAS = r"encoder_to_decoder\..*"
ENCODER = "videomae"
grid = videomae.grid
RESIZES: dict = {}
# Of the norm of a classifier, which such files do not have.
_NAMES = videomae.NAMES | dict(fc_norm="no_norm_after_the_mean")
_DECODER = masked.decoder_names(videomae.NAMES, "decoder.decoder_layers.{i}.")
_OUTER = ("decoder.", "encoder_to_decoder.", "mask_token")


def _settings(config):
    decoder = masked.settings(config, num_heads=6, normalises=True)
    target = "channel" if decoder.pop("normalises") else "pixels"
    settings = videomae.settings(config) | decoder
    # Files do not say; 0.9 is the paper's.
    return settings | dict(target=target, mask_ratio=0.9)


def _flatten(arrays, metadata):
    arrays, _ = transformers.flatten(arrays, ("videomae.",), "")
    videomae.merge_frames(arrays, metadata["tubelet_size"])
    normed = f"{_NAMES['norm']}.weight" in arrays
    metadata["global_pool"] = "first" if normed else "avg"
    return arrays, metadata["tubelet_size"]


def _restore(arrays, tubelet_size):
    arrays = dict(arrays)
    videomae.split_frames(arrays, tubelet_size)
    return transformers.restore(arrays, "videomae.", _OUTER)


def _head_rows(metadata):
    embed = {"decoder_embed": "encoder_to_decoder"}
    return [
        *masked.decoder_rows(_DECODER, metadata),
        *table.layer_rows(embed, table.TORCH_DENSE, "kernel"),
        *table.layer_rows({"decoder_pred": "decoder.head"}, table.TORCH_DENSE),
        *table.layer_rows({"decoder_norm": "decoder.norm"}, table.TORCH_NORM),
        ("mask_tokens/mask_token", "mask_token"),
    ]


def _read_head(arrays, found):
    decoder = masked.read_decoder(arrays, _DECODER, "encoder_to_decoder")
    pooling = "first" if found["pooling"] == "first" else "gap_norm"
    sizes = videomae.sizes(dict(channels=found["channels"]), found)
    return decoder | sizes | dict(pooling=pooling)


def _config_of(metadata):
    return videomae.config_of(
        metadata, "VideoMAEForPreTraining", **masked.config_of(metadata)
    )


def _refused(metadata):
    target = metadata["target"]
    return videomae.refusals(metadata) | {
        f"target={target!r}": target not in ("pixels", "channel"),
        "a family other than VideoMAE": "tubelet_size" not in metadata,
    }


FORMATS = {
    "huggingface": heads.make(
        _NAMES,
        states_qv=True,
        head_rows=_head_rows,
        read_head=_read_head,
        read_config=_settings,
        config_of=_config_of,
        refused=_refused,
        unused=lambda metadata: (
            "" if metadata["pooling"] == "first" else r"no_norm.*"
        ),
        flatten=_flatten,
        restore=_restore,
        scheme=lambda metadata: metadata["tubelet_size"],
        resampling=lambda metadata: None,
        **videomae.MODEL,
    )
}
