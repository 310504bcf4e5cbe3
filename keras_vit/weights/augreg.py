"""The index of the 50,000 checkpoints of "How to train your ViT?"."""

import csv
import os

from keras_vit.weights import download, registry


def read_index() -> list[dict[str, str]]:
    """Return the rows of augreg/index.csv, fetched once.

    Its columns are: name, ds, aug, wd, do, sd, lr, best_val, final_val,
    final_test, adapt_ds, adapt_lr, adapt_steps, adapt_resolution,
    adapt_final_val, adapt_final_test, params, infer_samples_per_sec,
    filename, adapt_filename.

    Raises:
        ValueError, ConnectionError: As `download.fetch` does.

    Reference:
        Steiner et al. 2021 (2106.10270), and its vit_jax_augreg.ipynb.
    """
    entry = registry.Released(name="index", variant="", file="augreg/index.csv")
    return _rows(download.fetch(entry.url, entry.path, check=_rows))


def _rows(path):
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (UnicodeDecodeError, csv.Error):
        rows = []
    if not rows or not {"name", "ds", "filename"} <= rows[0].keys():
        raise ValueError(
            f"{path!r} must be augreg's index.csv, a table with the columns "
            "name, ds and filename"
        )
    return rows


def best(
    model: str,
    ds: str = "i21k",
    by: str = "final_val",
    adapt_ds: str | None = None,
    adapt_resolution: int | None = None,
) -> registry.Released:
    """Find the checkpoint with the highest score.

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

    Example:
        name = augreg.best(model="B_16", ds="i21k", by="final_val").name
        model = keras_vit.ViTB16(weights=name)
    """
    rows = read_index()
    if rows and by not in rows[0]:
        raise ValueError(
            f"`by` must be a column of augreg/index.csv, one of "
            f"{list(rows[0])}. Received: by={by!r}"
        )
    tuned = by.startswith("adapt_")
    wanted = dict(ds=ds)
    if adapt_ds is not None:
        wanted["adapt_ds"] = adapt_ds
    fitting = [
        row
        for row in rows
        if _plain(row["name"]) == _plain(model)
        and all(row[key] == value for key, value in wanted.items())
        and (
            adapt_resolution is None
            or _number(row["adapt_resolution"]) == adapt_resolution
        )
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
    # The names in the index have no directory.
    file = os.path.basename(row["adapt_filename" if tuned else "filename"])
    return registry.released_file("augreg", file)


def _plain(name):
    return name.replace("/", "_").replace("+", "_")


def _number(text):
    try:
        return float(text)
    except (TypeError, ValueError):
        return None
