"""The formats of text towers in transformers, with the scale of similarities.

Checked against clip, siglip and siglip2 of transformers 5.24.
"""

import functools
import re
from collections.abc import Callable

from keras_vit.weights.rules import configs, table
from keras_vit.weights.rules.encoder import rows, transformers

PREFIX = "text_model."
_NAMES = transformers.TOWER_NAMES | dict(norm="final_layer_norm")
_SCALARS = ("logit_scale", "logit_bias")
_EMBEDDINGS = {
    "token_embedding": "embeddings.token_embedding.weight",
    "pos_embedding": "embeddings.position_embedding.weight",
}
_BLOCK = re.compile(r"encoder\.layers\.(\d+)\.")
# Metadata -> key of a config, and how its value is read.
_FIELDS = transformers.FIELDS | dict(
    vocab_size=("vocab_size", configs.integer),
    context_length=("max_position_embeddings", configs.integer),
)


def make(
    projection: str,
    defaults: dict,
    *,
    scalar_shape: tuple[int, ...],
    settings: Callable,
    config_of: Callable,
    outer: tuple[str, ...] = (),
    **fixed,
) -> table.Format:
    """Return the format of a text tower.

    Args:
        projection: The name of its projection, without ".weight".
        defaults: What config files may omit, by their own keys.
        scalar_shape: The shape of the scale and the bias in files.
        settings: Returns the metadata that only this kind's configs hold,
            given the config of the tower.
        config_of: Returns the keys of such, given metadata.
        outer: Prefixes of all names, of which a file has one.
        **fixed: The fields that all its towers have in common.
    """

    def read_config(config):
        section = transformers.tower_config(config, "text", defaults)
        return fixed | _fields(section) | settings(section)

    def config(metadata):
        found = {key: metadata[name] for name, (key, _) in _FIELDS.items()}
        act = transformers.NAMES_OF[metadata["activation"]]
        return dict(hidden_act=act, **found, **config_of(metadata))

    return table.Format(
        requires=(),
        rules=functools.partial(_rules, projection, scalar_shape),
        read_arrays=functools.partial(_read_arrays, projection),
        read_config=read_config,
        flatten=functools.partial(_flatten, outer),
        restore=_restore,
        naming_schemes={
            "huggingface": lambda metadata: metadata.get("outer", "")
        },
        config_of=config,
        refused=lambda metadata, format: table.listed(
            {
                f"{name}={metadata[name]!r} of texts": metadata[name] != value
                for name, value in fixed.items()
            }
        ),
    )


def _fields(section):
    kind = configs.choice(section, "hidden_act", transformers.ACTIVATIONS)
    found = {n: read(section, key) for n, (key, read) in _FIELDS.items()}
    return dict(activation=transformers.ACTIVATIONS[kind or ""], **found)


def _flatten(outer, arrays, specified):
    arrays, first = transformers.flatten(arrays, outer, ignored="")
    if first:  # beside heads for boxes
        arrays = {n: a for n, a in arrays.items() if n.startswith("text_")}
    kept = {
        name: array
        for name, array in arrays.items()
        if not name.endswith(".position_ids")
        and not name.startswith((transformers.TOWER, "visual_projection."))
    }
    kept = table.rename(kept, lambda name: name.removeprefix(PREFIX))
    return kept, PREFIX


def _rules(projection, scalar_shape, metadata):
    layers = rows.rules(_NAMES, metadata | dict(classes=None))
    own = [
        rule
        for rule in layers
        if rule.path.startswith(("encoderblock_", "encoder_norm/"))
    ]
    more: list = [
        (f"token_embedding/{path}", name) for path, name in _EMBEDDINGS.items()
    ]
    dense = table.TORCH_DENSE
    parts = dense if metadata["projection_bias"] else ("kernel",)
    if metadata["embedding_size"]:
        more += table.layer_rows({"projection": projection}, dense, *parts)
    scalar = table.Transform(
        lambda array: array.reshape(()),
        lambda array: (array.reshape(scalar_shape),),
    )
    more += [
        (f"similarity/{name}", name, scalar)
        for name in _SCALARS
        if metadata.get(name)
    ]
    return own + table.expand(more)


def _read_arrays(projection, arrays, config, specified):
    table_of = {key: arrays[n].shape for key, n in _EMBEDDINGS.items()}
    weight = f"{projection}.weight"
    return dict(
        vocab_size=table_of["token_embedding"][0],
        hidden_size=table_of["token_embedding"][1],
        context_length=table_of["pos_embedding"][0],
        num_layers=table.count(arrays, _BLOCK),
        mlp_dim=arrays["encoder.layers.0.mlp.fc1.weight"].shape[0],
        embedding_size=arrays[weight].shape[0] if weight in arrays else None,
        classes=None,
        **{name: name in arrays for name in _SCALARS},
    )


def _restore(arrays, outer):
    arrays = transformers.restore(
        arrays, PREFIX, ("text_projection.", *_SCALARS)
    )
    return {f"{outer}{name}": array for name, array in arrays.items()}
