"""The folder that holds everything of a run, and only of that run."""

import csv
import dataclasses
import json
import os
import pathlib
import re


def default(model: str, dataset: str) -> str:
    """Returns "runs/digits", or "runs/cifar10-ViTB16" for a named model.

    Args:
        model: The constructor; "ViT" goes without saying.
        dataset: A name or a path.
    """
    name = pathlib.Path(dataset).expanduser().resolve().name
    name = re.sub(r"[^\w.-]+", "_", name)
    return f"runs/{name}" if model == "ViT" else f"runs/{name}-{model}"


def refuse_other_config(
    workdir: pathlib.Path, config, free: tuple[str, ...] = ()
) -> bool:
    """Stops a run whose config is not the one that its workdir was begun with.

    Args:
        workdir: The folder, which need not exist.
        config: The dataclass.
        free: Fields that may differ.

    Returns:
        Whether the workdir was begun, with this same config.

    Raises:
        ValueError: If it was begun with another; the difference is shown.
    """
    try:
        text = (workdir / "config.json").read_text()
    except FileNotFoundError:
        return False
    try:
        there = _flat(json.loads(text)["config"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(
            "`workdir` must be a new folder or that of a run. Received: "
            f"{str(workdir)!r}, whose config.json no run has written"
        ) from None
    here = _flat(_as_json(config))
    difference = [
        f"  {name}: {there.get(name)!r} there, {here.get(name)!r} here"
        for name in dict.fromkeys((*there, *here))
        if there.get(name) != here.get(name) and name.split(".")[0] not in free
    ]
    if difference:
        raise ValueError(
            "`workdir` must be new or begun with the same config. Received: "
            f"{str(workdir)!r}, begun with another:\n"
            + "\n".join(difference)
            + "\nGive another --workdir, or remove that one."
        )
    return True


def write_config(workdir: pathlib.Path, config, derived: dict) -> None:
    """Writes config.json, and the folder for it.

    Args:
        workdir: The folder.
        config: The dataclass.
        derived: What became of fields that were left open.
    """
    workdir.mkdir(parents=True, exist_ok=True)
    content = {"config": _as_json(config), "derived": derived}
    write_json(workdir / "config.json", content)


def write_json(path: pathlib.Path, content: dict) -> None:
    """Writes a file that is there as a whole or not at all.

    Args:
        path: The file.
        content: What to write.
    """
    _replace(path, json.dumps(content, indent=2) + "\n")


def cut_log(path: pathlib.Path, step: int) -> list[dict[str, str]]:
    """Takes what comes after a step off a log, and returns what is left.

    Args:
        path: A CSV file with a column "step", which need not exist.
        step: The last step to keep.
    """
    try:
        with open(path, newline="") as file:
            header, *lines = file.read().splitlines(keepends=True) or [""]
    except FileNotFoundError:
        return []
    rows = list(csv.DictReader([header, *lines]))
    kept = [
        i
        for i, line in enumerate(lines)
        # The last line may have been cut off with the process.
        if line.endswith("\n") and int(rows[i]["step"]) <= step
    ]
    text = "".join([header, *(lines[i] for i in kept)]) if kept else ""
    _replace(path, text)
    return [rows[i] for i in kept]


def _replace(path, text):
    """Writes a file that is there as a whole or not at all."""
    part = path.with_name(path.name + ".part")
    with open(part, "w", newline="") as file:
        file.write(text)
    os.replace(part, path)


def _as_json(config):
    """The config as JSON reads it back: tuples are lists there."""
    return json.loads(json.dumps(dataclasses.asdict(config)))


def _flat(tree, prefix=""):
    flat = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat
