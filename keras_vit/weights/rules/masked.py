"""What the files of masked autoencoders share, in transformers."""

import re

from keras_vit.weights.rules import configs, table
from keras_vit.weights.rules.encoder import rows

_BLOCK = "encoderblock_"


def decoder_rows(names: dict, metadata: dict) -> list:
    """Return the rows of the blocks of a decoder; see `table.expand`.

    Args:
        names: Those of its layers; see `rows.rules`.
        metadata: Of the model.
    """
    own = dict(
        num_layers=metadata["decoder_num_layers"],
        num_heads=metadata["decoder_num_heads"],
        hidden_size=metadata["decoder_hidden_size"],
        activation=metadata["activation"],
        qkv_bias=metadata.get("qkv_bias", "qkv"),
        classes=None,
        representation_size=None,
    )
    blocks = [x for x in rows.rules(names, own) if x.path.startswith(_BLOCK)]
    return [
        (x.path.replace("encoder", "decoder"), x.sources, x.transform)
        for x in blocks
    ]


def decoder_names(names: dict, layer: str) -> dict:
    """Return the names of the layers of a decoder.

    Args:
        names: Those of the encoder; see `rows.rules`.
        layer: What precedes those of a block, with "{i}".
    """
    old = "encoder.layer.{i}."

    def renamed(name):
        if isinstance(name, tuple):
            return tuple(map(renamed, name))
        return name.replace(old, layer)

    return {key: x and renamed(x) for key, x in names.items()}


def settings(config: dict, num_heads: int, normalises: bool) -> dict:
    """Return the metadata of the decoder in a config.

    Args:
        config: The config.
        num_heads: Of the decoder, where it specifies none.
        normalises: Whether targets are normalised where it does not say.
    """
    found = configs.flag(config, "norm_pix_loss")
    heads = configs.integer(config, "decoder_num_attention_heads")
    return configs.known(
        decoder_num_heads=heads or num_heads,
        normalises=normalises if found is None else found,
        decoder_num_layers=configs.integer(config, "decoder_num_hidden_layers"),
        decoder_hidden_size=configs.integer(config, "decoder_hidden_size"),
        decoder_mlp_dim=configs.integer(config, "decoder_intermediate_size"),
    )


def config_of(metadata: dict) -> dict:
    """Return the fields of a config of the decoder; inverts `settings`."""
    return dict(
        decoder_num_attention_heads=metadata["decoder_num_heads"],
        decoder_num_hidden_layers=metadata["decoder_num_layers"],
        decoder_hidden_size=metadata["decoder_hidden_size"],
        decoder_intermediate_size=metadata["decoder_mlp_dim"],
        norm_pix_loss=metadata["target"] != "pixels",
    )


def read_decoder(arrays: dict, names: dict, embed: str) -> dict:
    """Return the metadata that the arrays of a decoder show.

    Args:
        arrays: Of the checkpoint, flattened.
        names: See `decoder_rows`.
        embed: Name of its first layer.
    """
    prefix = names["fc1"].partition("{i}")[0]
    count = table.count(arrays, re.compile(rf"{re.escape(prefix)}(\d+)\."))
    if not count:
        raise KeyError(f"{names['fc1'].format(i=0)}.weight")
    return dict(
        decoder_num_layers=count,
        decoder_hidden_size=arrays[f"{embed}.weight"].shape[0],
        decoder_mlp_dim=arrays[f"{names['fc1'].format(i=0)}.weight"].shape[0],
    )
