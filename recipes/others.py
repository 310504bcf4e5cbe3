"""What a run reads besides its images: a teacher, a tokenizer, other data."""

import os
import pathlib
from typing import Any

from keras_vit import data
from keras_vit._paths import digest
from recipes import fields, inputs, probes
from recipes import workdir as workdirs

# Fields of the configs of some recipes that name them.
DATASETS = ("evaluation.fewshot_dataset", "probe.dataset")
PATHS = ("distill.teacher", "text.tokenizer")


def described(config: Any) -> dict[str, Any]:
    """Return what config.json holds of them: a digest of each, by field."""
    found: dict[str, Any] = {}
    for path in (*DATASETS, *PATHS):
        try:
            name = fields.get(config, path)
        except AttributeError:  # of another recipe
            continue
        if path in DATASETS and name:
            parts = inputs.load_source(probes.source_of(config, name))
            found[path] = [data.digest(part) for part in parts]
        elif name:
            found[path] = digest(name)  # None of released weights
    return found


def refuse_changed(workdir: str | os.PathLike, config: Any) -> None:
    """Refuse to resume with others than those a run was begun with.

    Raises:
        ValueError: If one of them has changed.
    """
    workdir = pathlib.Path(workdir)
    there = workdirs.read_derived(workdir).get("others")
    if not there:  # a new run, or one of an earlier version
        return
    here = described(config)
    for path in there:
        if there[path] != here[path]:
            raise ValueError(
                f"`{path}` must be as when the run in {str(workdir)!r} was "
                f"begun. Received: {path}={fields.get(config, path)!r}, which "
                "has changed since. Restore it, or give another --workdir."
            )
