"""The workdir: a folder with all files of one run."""

import contextlib
import csv
import dataclasses
import datetime
import fcntl
import io
import json
import os
import pathlib
import re
import socket
import time
from collections.abc import Collection

import keras

from keras_vit import distribution
from recipes import fields

LOCK = "run.lock"


def default(model: str, dataset: str) -> str:
    """Return "runs/digits", or "runs/cifar10-ViTB16" for a named model.

    Args:
        model: The constructor; "ViT" is omitted.
        dataset: A name or a path.
    """
    name = pathlib.Path(os.path.expanduser(dataset)).resolve().name
    name = re.sub(r"[^\w.-]+", "_", name)
    return f"runs/{name}" if model == "ViT" else f"runs/{name}-{model}"


def path_of(workdir: str | os.PathLike) -> pathlib.Path:
    """Return the path of a workdir; "~" is the home directory.

    Raises:
        ValueError: If it is a URL, such as of a bucket, or a file.
    """
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", os.fspath(workdir)):
        raise ValueError(
            "`workdir` must be a directory. "
            f"Received: {os.fspath(workdir)!r}, a URL. Mount the bucket "
            "(with Cloud Storage FUSE, for example) and give the directory "
            "that it is mounted at, such as --workdir=/mnt/bucket/run."
        )
    path = pathlib.Path(os.path.expanduser(workdir))
    for part in (path, *path.parents):
        if part.exists() and not part.is_dir():
            raise ValueError(
                "`workdir` must be a directory. Received: "
                f"{os.fspath(workdir)!r}, where {str(part)!r} is a file"
            )
    return path


@contextlib.contextmanager
def lock(
    workdir: pathlib.Path,
    devices: distribution.Devices,
    argument: str = "workdir",
):
    """Hold a folder for one run, whose processes must all call it.

    The main process takes an advisory lock of the operating system (`flock`)
    on the file run.lock, which contains its name. The lock ends with its
    process, however that ends. It works between machines if the file system
    supports that: NFS 4 does; with Cloud Storage FUSE it only works within one
    machine.

    Args:
        workdir: The folder.
        devices: The result of `keras_vit.distribution.setup`.
        argument: Its name in the error message.

    Raises:
        ValueError: If another run holds it; nothing in it is changed then.
    """
    refusal, descriptor = None, None
    if devices.is_main:
        try:
            descriptor = _lock(workdir, argument)
        except Exception as error:  # the other processes wait for this one
            refusal = error
    if any(distribution.any_process(devices, refusal is not None)):
        raise refusal or ValueError(
            "The main process could not lock the workdir; it says why."
        )
    try:
        yield
    finally:
        if devices.is_main:
            _unlock(workdir, descriptor)


def refuse_other_config(
    workdir: pathlib.Path, config, free: tuple[str, ...] = ()
) -> bool:
    """Refuse a config that differs from the one a workdir was begun with.

    Args:
        free: Paths of the fields, and groups of them, that may differ.

    Returns:
        Whether the workdir was begun, with the same config.
    """
    try:
        text = (workdir / "config.json").read_text()
    except FileNotFoundError:
        if any(workdir.glob("checkpoints/*")):
            raise ValueError(
                "`workdir` must have the config.json of the run whose "
                f"checkpoints it has. Received: {str(workdir)!r} without. "
                "Restore it, or give another --workdir."
            ) from None
        return False
    try:
        there = fields.stored(json.loads(text)["config"])
        if "seed" in there and hasattr(config, "data"):
            # Earlier versions drew the split by it.
            there.setdefault("data.split_seed", there["seed"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(
            "`workdir` must be a new folder or that of a run. Received: "
            f"{str(workdir)!r}, whose config.json no run has written"
        ) from None
    # Fields that did not exist when the run was begun have their defaults.
    there = fields.flat(_as_json(type(config)())) | there
    here = fields.flat(_as_json(config))
    difference = [
        f"  {path}: {there.get(path)!r} there, {here.get(path)!r} here"
        for path in dict.fromkeys((*there, *here))
        if there.get(path) != here.get(path)
        and (path in here or there[path] not in (0, "", []))  # one that is gone
        and not fields.is_of(path, free)
    ]
    if difference:
        raise ValueError(
            "`workdir` must be new or begun with the same config. Received: "
            f"{str(workdir)!r}, begun with another:\n"
            + "\n".join(difference)
            + "\nGive another --workdir, or remove that one."
        )
    return True


def refuse_other_data(workdir: pathlib.Path, found: dict) -> None:
    """Refuse to resume on images other than those a run was begun with.

    Args:
        found: The images that are there now, as `derived["data"]` of
            config.json describes them; see `recipes.inputs.describe`.
    """
    there = read_derived(workdir).get("data")
    # The folder may have been moved, and earlier versions wrote nothing.
    parts = ("train", "evaluation")
    if there is None or all(there[part] == found[part] for part in parts):
        return
    changed = " and ".join(p for p in parts if there[p] != found[p])
    raise ValueError(
        "`dataset` must hold the images and labels that the run in "
        f"{str(workdir)!r} was begun with, because other images would be held "
        f"out for evaluation. Received: other images or labels in the "
        f"{changed} part; {there['train_images']} training and "
        f"{there['eval_images']} evaluation images there, "
        f"{found['train_images']} and {found['eval_images']} here. Restore the "
        "data set, or give another --workdir."
    )


def read_derived(workdir: pathlib.Path) -> dict:
    """Return what config.json has under "derived"; {} without the file."""
    try:
        content = json.loads((workdir / "config.json").read_text())
        return dict(content["derived"])
    except (FileNotFoundError, KeyError, TypeError, ValueError):
        return {}


def write_config(workdir: pathlib.Path, config, derived: dict) -> None:
    """Write config.json, and the folder for it.

    Args:
        derived: Values of fields that the config leaves open.
    """
    workdir.mkdir(parents=True, exist_ok=True)
    content = {"config": _as_json(config), "derived": derived}
    write_json(workdir / "config.json", content)


def write_json(path: pathlib.Path, content: dict) -> None:
    """Write a file atomically."""
    _replace(path, json.dumps(content, indent=2) + "\n")


def is_finished(workdir: pathlib.Path, devices: distribution.Devices) -> bool:
    """Return whether training in a workdir has reached its last step.

    Args:
        devices: The result of `keras_vit.distribution.setup`; every process
            must call this, and gets the answer of the main one.
    """
    found = devices.is_main and _is_finished(workdir)
    return any(distribution.any_process(devices, found))


def say_other_backend(workdir: pathlib.Path) -> None:
    """Print that a run was begun with another backend, if it was."""
    begun = read_derived(workdir).get("backend")
    backend = keras.backend.backend()
    if begun not in (None, backend):
        print(
            f"The run was begun with {begun}. With {backend} it resumes with "
            "its weights, optimizer and step; random masks and rounding "
            "differ from here on.",
            flush=True,
        )


def say_finished(workdir: pathlib.Path, devices: distribution.Devices) -> None:
    """Print what starting a finished run again does."""
    if devices.is_main:
        print(
            f"The run in {workdir} is finished: nothing is trained, its "
            "figures are drawn again. Give another --workdir for another run.",
            flush=True,
        )


def _is_finished(workdir):
    total_steps = read_derived(workdir).get("total_steps")
    if total_steps is None:
        return False
    rows = read_log(workdir / "metrics.csv")
    # A row is written after the models of its evaluation.
    return (
        bool(rows)
        and int(rows[-1]["step"]) >= total_steps
        and (workdir / "last.keras").exists()
    )


def refuse_missing_log(
    workdir: pathlib.Path, evaluated: Collection[int], *columns: str
) -> None:
    """Refuse to resume without what a run has written of its evaluations.

    Without them the best of the later ones would replace the best of all.

    Args:
        evaluated: The steps after which the run was evaluated.
        *columns: Columns that the log must have.
    """
    rows = read_log(workdir / "metrics.csv", *columns)
    there = {int(row["step"]) for row in rows}
    for step in evaluated:
        if step not in there:
            raise ValueError(
                "metrics.csv must have a row of each evaluation before the "
                "checkpoint that a run resumes from. Received: "
                f"{str(workdir)!r} without that of step {step}. Restore the "
                f"file, or remove the checkpoints from step {step} on: the "
                "evaluation is repeated."
            )
    if evaluated and not (workdir / "best.keras").exists():
        raise ValueError(
            "`workdir` must have the best.keras of the evaluations in "
            f"metrics.csv. Received: {str(workdir)!r} without. Restore it, or "
            "give another --workdir."
        )


def read_log(path: pathlib.Path, *columns: str) -> list[dict[str, str]]:
    """Return the complete rows of a log.

    Args:
        path: A CSV file, which need not exist.
        *columns: Columns that it must have besides "step". Their values, and
            those of evaluations, such as "val_loss", must be numbers.

    Raises:
        ValueError: If it is not as a run has written it.
    """
    rows: list = []
    try:
        reader = csv.DictReader(_complete_lines(path))
        for row in reader:
            if found := _what_is_wrong(row, columns):
                wrong = f"line {reader.line_num} with {found}"
                break
            rows.append(row)
        else:
            return rows
    except (UnicodeDecodeError, csv.Error) as error:
        wrong = f"which no run has written ({error})"
    raise ValueError(
        "metrics.csv must be as a run has written it, with a step in each row "
        f"and a value in each column. Received: {str(path)!r}, {wrong}. "
        "Restore it, or give another --workdir."
    )


def _what_is_wrong(row, columns):
    """Return what a row of a log has that no run writes, "" for nothing."""
    for name, text in row.items():
        if name is None or text is None:
            return "another number of values than the first line"
        is_read = name in columns or name.startswith("val_")
        if not (text.isdecimal() if name == "step" else _is_number(text)):
            if name == "step" or is_read:
                return f"{name}={text!r}"
    missing = {"step", *columns} - row.keys()
    return f"no {min(missing)!r}" if missing else ""


def _is_number(text):
    try:
        float(text)
    except ValueError:
        return False
    return True


def cut_log(path: pathlib.Path, step: int) -> list[dict[str, str]]:
    """Remove the rows after a step from a log, and return the others.

    Args:
        path: A CSV file with a column "step", which need not exist.
        step: The last step to keep.
    """
    if not path.exists():
        return []
    kept = [row for row in read_log(path) if int(row["step"]) <= step]
    text = io.StringIO()
    if kept:
        writer = csv.DictWriter(text, kept[0])
        writer.writeheader()
        writer.writerows(kept)
    _replace(path, text.getvalue())
    return kept


def _complete_lines(path):
    """Return the complete lines; the last one may be truncated."""
    try:
        with open(path, newline="") as file:
            lines = file.read().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    return [line for line in lines if line.endswith("\n")]


def _lock(workdir, argument="workdir"):
    """Return the descriptor of the locked file."""
    path = workdir / LOCK
    while True:
        workdir.mkdir(parents=True, exist_ok=True)
        try:
            # Opened for writing; otherwise NFS refuses the lock.
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:
            continue  # another run has just removed the empty folder
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(descriptor)
            os.close(descriptor)
            raise ValueError(
                f"`{argument}` must not be in use by another run. Received: "
                f"{str(workdir)!r}, in use by {holder}. Wait until that run "
                f"ends, stop it, or give another {argument}."
            ) from None
        except OSError as error:
            print(
                f"The file system of {workdir} has no locks ({error}): start "
                "no other run in this workdir.",
                flush=True,
            )
        # The run before may have removed the file between the two calls.
        if os.path.exists(path) and os.path.samestat(
            os.fstat(descriptor), os.stat(path)
        ):
            break
        os.close(descriptor)
    now = datetime.datetime.now().astimezone().isoformat(" ", "seconds")
    text = f"process {os.getpid()} on {socket.gethostname()} since {now}"
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, text.encode(), 0)
    return descriptor


def _unlock(workdir, descriptor):
    """Remove the file, then unlock: a process that has opened it retries."""
    (workdir / LOCK).unlink(missing_ok=True)
    os.close(descriptor)
    with contextlib.suppress(OSError):
        workdir.rmdir()  # if nothing was written


def _holder(descriptor):
    """Return the text that the holder of the lock has written."""
    for _ in range(10):
        if text := os.pread(descriptor, 1000, 0).decode(errors="replace"):
            return text
        time.sleep(0.1)  # it is about to write
    return "a process that has not given its name"


def _replace(path, text):
    """Write a file atomically."""
    part = path.with_name(path.name + ".part")
    with open(part, "w", newline="") as file:
        file.write(text)
    os.replace(part, path)


def _as_json(config):
    """Return the config as JSON reads it back, with lists for tuples."""
    return json.loads(json.dumps(dataclasses.asdict(config)))
