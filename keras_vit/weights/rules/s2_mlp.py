"""S2-MLP in our own files: its authors released neither code nor weights."""

from keras_vit.weights.rules import keras_format, table

TITLE = "S2-MLP"
_ROWS = [("stem/kernel", ""), ("stem/bias", "")]
_ROWS += [
    (f"S2MLPBlock_{{i}}/{norm}/{variable}", "")
    for norm in ("norm1", "norm2")
    for variable in ("gamma", "beta")
]
_ROWS += [
    (f"S2MLPBlock_{{i}}/{dense}/{variable}", "")
    for dense in ("spatial_shift_fc1", "spatial_shift_fc2", "fc1", "fc2")
    for variable in ("kernel", "bias")
]
_ROWS += [("head/kernel", ""), ("head/bias", "")]


def _rules(metadata):
    return table.expand(
        _ROWS,
        num_layers=metadata["num_layers"],
        absent=table.without_top(metadata),
    )


grid = table.no_grid
RESIZES = {"stem/kernel": table.fit_pixels}
FORMATS = {
    "keras_vit": keras_format.derive(
        table.Format(requires=(), rules=_rules, read_arrays=lambda *_: {}),
        requires=(r"S2MLPBlock_0/spatial_shift_fc1/0",),
    )
}
