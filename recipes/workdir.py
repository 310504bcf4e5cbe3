"""The folder that holds everything of a run, and only of that run."""

import dataclasses
import json
import pathlib
import re
import shutil


def default(model: str, dataset: str) -> str:
    """Returns "runs/digits", or "runs/cifar10-ViTB16" for a named model.

    Args:
        model: The constructor; "ViT" goes without saying.
        dataset: A name or a path.
    """
    name = pathlib.Path(dataset).expanduser().resolve().name
    name = re.sub(r"[^\w.-]+", "_", name)
    return f"runs/{name}" if model == "ViT" else f"runs/{name}-{model}"


def refuse_other_config(workdir: pathlib.Path, config) -> bool:
    """Stops a run whose config is not the one that its workdir was begun with.

    Args:
        workdir: The folder, which need not exist.
        config: The dataclass.

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
        if there.get(name) != here.get(name)
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
    """Begins a workdir: writes config.json, removes an earlier run's files.

    Args:
        workdir: The folder.
        config: The dataclass.
        derived: What became of fields that were left open.
    """
    if (workdir / "config.json").exists():
        print(f"{workdir} holds a run with this config: it is replaced.")
        for name in ("tensorboard", "examples"):
            shutil.rmtree(workdir / name, ignore_errors=True)
        for name in ("best.keras", "curves.png", "predictions.png"):
            (workdir / name).unlink(missing_ok=True)
    workdir.mkdir(parents=True, exist_ok=True)
    content = {"config": _as_json(config), "derived": derived}
    (workdir / "config.json").write_text(json.dumps(content, indent=2) + "\n")


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
