"""The index of the 50,000 checkpoints of "How to train your ViT?".

Reference:
    Steiner et al. 2021 (2106.10270), and its vit_jax_augreg.ipynb.
"""

import csv
import os

from keras_vit._arguments import Count, checked
from keras_vit.weights import download
from keras_vit.weights.released import Released, augreg_file


def _read_index(path):
    """Return the rows of augreg/index.csv."""
    try:
        with open(path, newline="", encoding="utf-8") as content:
            rows = list(csv.DictReader(content))
    except (UnicodeDecodeError, csv.Error):
        rows = []
    if not rows or not {"name", "ds", "filename"} <= rows[0].keys():
        raise ValueError(
            f"{path!r} must be augreg's index.csv, a table with the columns "
            "name, ds and filename"
        )
    return rows


@checked
def best(
    model: str,
    ds: str = "i21k",
    by: str = "final_val",
    adapt_ds: str | None = None,
    adapt_resolution: Count | None = None,
) -> Released:
    """Find the checkpoint with the highest score in the index, fetched once.

    Args:
        model: "Ti_16", "S_32", "S_16", "B_32", "B_16", "B_8", "L_16",
            "R_Ti_16", "R26_S_32" or "R50_L_32".
        ds: Data of pre-training: "i21k", "i21k_30" or "i1k".
        by: Column of the score. With one of fine-tuning ("adapt_final_val",
            ...) the fine-tuned checkpoint is returned.
        adapt_ds: Only checkpoints fine-tuned on this data set, such as
            "imagenet2012".
        adapt_resolution: Only checkpoints fine-tuned at this resolution, in
            pixels per side.

    Returns:
        Its entry: `best(...).name` is what `weights` takes.

    Raises:
        ValueError: If no row fits, or there is no such column.
        ConnectionError: If the network fails.

    Example:
        name = augreg.best(model="B_16", ds="i21k", by="final_val").name
        model = keras_vit.ViTB16(weights=name)
    """
    index = Released(name="index", variant="", file="augreg/index.csv")
    rows = _read_index(download.fetch(index.url, index.path, check=_read_index))
    if by not in rows[0]:
        raise ValueError(
            f"`by` must be a column of augreg/index.csv, one of "
            f"{list(rows[0])}. Received: by={by!r}"
        )
    fitting = [
        row
        for row in rows
        if _plain(row["name"]) == _plain(model)
        and row["ds"] == ds
        and adapt_ds in (None, row.get("adapt_ds"))
        and adapt_resolution in (None, _number(row.get("adapt_resolution")))
        and _number(row[by]) is not None
    ]
    if not fitting:
        raise ValueError(
            "No checkpoint of augreg fits. Received: "
            f"model={model!r}, ds={ds!r}, adapt_ds={adapt_ds!r}, "
            f"adapt_resolution={adapt_resolution}. Models are "
            f"{sorted({_plain(row['name']) for row in rows})}"
        )
    row = max(fitting, key=lambda row: _number(row[by]))
    column = "adapt_filename" if by.startswith("adapt_") else "filename"
    # The names in the index have no directory.
    return augreg_file(os.path.basename(row[column]))


def _plain(name):
    return name.replace("/", "_").replace("+", "_")


def _number(text):
    try:
        return float(text)
    except (TypeError, ValueError):
        return None
