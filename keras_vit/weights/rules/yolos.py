"""YOLOS, in transformers."""

import numpy as np

from keras_vit.weights.rules import heads, patches, table
from keras_vit.weights.rules.encoder import formats, transformers

TITLE = "YOLOS"
MODEL_TYPES = ("yolos",)
grid = patches.grid
RESIZES = formats.RESIZES | {
    r"posembed_mid_\d+/pos_embedding": table.fit_positions
}
_TOKENS = "embeddings.detection_tokens"
_POSITIONS = "embeddings.position_embeddings"
_OWN_POSITIONS = "embeddings.detection_positions"
_MID = "encoder.mid_position_embeddings"
_DEFAULTS = transformers.defaults(
    1e-12, image_size=[512, 864], use_mid_position_embeddings=True
)
_HEADS = ("class_labels_classifier.", "bbox_predictor.")


def _settings(config):
    return transformers.settings(config, dict(yolos=_DEFAULTS)) | (
        heads.qkv_bias(config)
    )


def _flatten(arrays, metadata):
    """Give detection tokens, and each block, positions of their own."""
    arrays, _ = transformers.flatten(arrays, ("vit.",))
    count = arrays[_TOKENS].shape[1]
    every = arrays[_POSITIONS]
    for name, rows_ in (
        (_POSITIONS, slice(None, -count)),
        (_OWN_POSITIONS, slice(-count, None)),
    ):
        size = len(range(*rows_.indices(every.shape[1])))
        arrays[name] = every.map(
            lambda a, rows_=rows_: a[:, rows_], (1, size, every.shape[2])
        )
    if _MID in arrays:
        blocks = range(arrays[_MID].shape[0])
        table.cut(arrays, _MID, {f"{_MID}.{i}": 1 for i in blocks})
    return arrays, None


def _restore(arrays, scheme):
    """Invert `_flatten`."""
    arrays = dict(arrays)
    both = [arrays.pop(name) for name in (_POSITIONS, _OWN_POSITIONS)]
    arrays[_POSITIONS] = np.concatenate(both, axis=1)
    mid = sorted(
        (name for name in arrays if name.startswith(_MID)),
        key=lambda name: int(name.rpartition(".")[2]),
    )
    if mid:
        table.join(arrays, mid, _MID)
    return transformers.restore(arrays, "vit.", _HEADS)


def _head_rows(metadata):
    count = metadata["num_detection_tokens"]
    # In the file detection tokens are the last, in the model the first.
    turned = table.Transform(
        lambda a: np.roll(a[0], count, axis=1),
        lambda a: (np.roll(a, -count, axis=1)[None],),
    )
    layers = {
        f"{path}_{i}": f"{name}layers.{i}"
        for path, name in zip(("class_mlp", "box_mlp"), _HEADS, strict=True)
        for i in range(3)
    }
    layers["head"] = layers.pop("class_mlp_2")
    found = table.layer_rows(layers, table.TORCH_DENSE)
    found += [
        ("detection_tokens/tokens", _TOKENS),
        ("detection_tokens/positions", _OWN_POSITIONS),
    ]
    if metadata["mid_positions"]:
        found += [
            (f"posembed_mid_{i}/pos_embedding", f"{_MID}.{i}", turned)
            for i in range(metadata["num_layers"] - 1)
        ]
    return found


def _read_head(arrays, found):
    return dict(
        classes=arrays[f"{_HEADS[0]}layers.2.bias"].shape[0] - 1,
        num_detection_tokens=arrays[_TOKENS].shape[1],
        mid_positions=f"{_MID}.0" in arrays,
    )


def _config_of(metadata):
    config = transformers.config_of(
        metadata,
        "yolos",
        "YolosForObjectDetection",
        num_detection_tokens=metadata["num_detection_tokens"],
        use_mid_position_embeddings=metadata["mid_positions"],
        qkv_bias=metadata["qkv_bias"] == "qkv",
        **transformers.labels(metadata),
    )
    return config | dict(image_size=list(metadata["image_size"]))


FORMATS = {
    "huggingface": heads.make(
        transformers.BERT_NAMES,
        head_rows=_head_rows,
        read_head=_read_head,
        read_config=_settings,
        config_of=_config_of,
        flatten=_flatten,
        restore=_restore,
        resampling=lambda metadata: "bicubic",
    )
}
