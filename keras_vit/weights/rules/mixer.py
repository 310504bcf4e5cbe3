"""MLP-Mixer in the authors' npz files and in timm.

Checked against the files of gs://mixer_models and timm/models/mlp_mixer.py.
The authors' GELU is the tanh form, timm's the exact one.
"""

from keras_vit.weights.rules import table

_NORMS = ("LayerNorm_0", "LayerNorm_1")
_MLPS = ("token_mixing", "channel_mixing")


def authors() -> list[tuple]:
    """Returns the table of the authors' npz files."""
    block = "MixerBlock_{i}"
    dense = [f"{block}/{mlp}/Dense_{n}" for mlp in _MLPS for n in (0, 1)]
    norms = [f"{block}/{norm}" for norm in _NORMS] + ["pre_head_layer_norm"]
    rows = []
    for layer in ("stem", "head", *dense):
        rows += [(f"{layer}/{part}",) * 2 for part in ("kernel", "bias")]
    for layer in norms:
        rows.append((f"{layer}/gamma", f"{layer}/scale"))
        rows.append((f"{layer}/beta", f"{layer}/bias"))
    return rows


def timm() -> list[tuple]:
    """Returns the table of timm's state dicts."""
    ours, theirs = "MixerBlock_{i}", "blocks.{i}"
    dense = {"head": "head"}
    for mlp, name in zip(_MLPS, ("mlp_tokens", "mlp_channels"), strict=True):
        for n in (0, 1):
            dense[f"{ours}/{mlp}/Dense_{n}"] = f"{theirs}.{name}.fc{n + 1}"
    norms = {
        f"{ours}/LayerNorm_0": f"{theirs}.norm1",
        f"{ours}/LayerNorm_1": f"{theirs}.norm2",
        "pre_head_layer_norm": "norm",
    }
    rows = [
        ("stem/kernel", "stem.proj.weight", table.CONVOLUTION),
        ("stem/bias", "stem.proj.bias"),
    ]
    for layer, name in dense.items():
        rows.append((f"{layer}/kernel", f"{name}.weight", table.TRANSPOSED))
        rows.append((f"{layer}/bias", f"{name}.bias"))
    for layer, name in norms.items():
        rows.append((f"{layer}/gamma", f"{name}.weight"))
        rows.append((f"{layer}/beta", f"{name}.bias"))
    return rows
