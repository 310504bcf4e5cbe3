"""Videos listed in the published files of Kinetics, SSv2 and Charades.

Kinetics: `train.csv` and `val.csv` (or `validate.csv`, `test.csv`) with the
columns label, youtube_id, time_start and time_end. A video is called
`ID_000010_000020.mp4`, by its seconds, or `ID.mp4`.

Something-Something v2: `something-something-v2-labels.json`, `-train.json` and
`-validation.json`, or `labels.json`, `train.json` and `validation.json`. The
class of a video is that of its template. A video is called `ID.webm`.

Charades: `Charades_v1_classes.txt`, `Charades_v1_train.csv` and
`Charades_v1_test.csv`. A video has all classes of its column `actions`, and is
called `ID.mp4`.

The lists lie in the folder or in its `annotations` or `labels`, videos anywhere
below it.
"""

import csv
import json
import os
import pathlib
from collections.abc import Callable, Iterator

import numpy as np

from keras_vit._paths import is_hidden
from keras_vit.data import folder, video_files
from keras_vit.data.tables import read_rows, read_text

_KINETICS = ("label", "youtube_id", "time_start", "time_end")
_SSV2 = ("something-something-v2-", "")
_CHARADES = "Charades_v1_"
# The names of a video, the first that is there counts; its classes.
Row = tuple[tuple[str, ...], list[str]]


def find(
    path: str, form: tuple[pathlib.Path, Callable], broken: str = "error"
) -> tuple[dict, dict]:
    """Return the fields of a training and an evaluation `Source`.

    Videos that are listed and not there are left out, and counted among the
    ignored files: many of Kinetics are no longer published.

    Args:
        path: The folder.
        form: What `form_of` returns for it.
        broken: See `sources.load`.

    Raises:
        ValueError: If a list is missing or wrong, or none of its videos is
            there.
    """
    root, read = form
    names, parts, several = read(root)
    there = videos_below(path)
    train, evaluation = (
        _fields(path, file, rows, names, several, there, broken)
        for file, rows in parts
    )
    return train, evaluation


def form_of(path: str) -> tuple[pathlib.Path, Callable] | None:
    """Return the folder of such lists and what reads them; None without."""
    for name in ("", "annotations", "labels"):
        root = pathlib.Path(path) / name
        if (root / f"{_CHARADES}train.csv").is_file():
            return root, _charades
        if _prefix(root) is not None:
            return root, _ssv2
        train = root / "train.csv"
        if train.is_file() and set(_KINETICS) <= set(_header(train)):
            return root, _kinetics
    return None


def _prefix(root):
    """Return what the names of the lists of Something-Something v2 begin with.

    Folders of other kinds may have a labels.json too.
    """
    for prefix in _SSV2:
        files = (root / f"{prefix}{part}.json" for part in ("labels", "train"))
        if all(file.is_file() for file in files):
            return prefix
    return None


def _header(file):
    with open(file, encoding="utf-8-sig", errors="replace") as lines:
        return next(csv.reader([lines.readline(4096)]), [])


def videos_below(path: str) -> dict[str, str]:
    """Return the path of each video below a folder, by its name."""
    found = {}
    for parent, folders, files in os.walk(path, followlinks=True):
        folders[:] = sorted(x for x in folders if not is_hidden(x))
        for file in sorted(files):
            stem, extension = os.path.splitext(file)
            if extension.lower() in video_files.EXTENSIONS:
                found.setdefault(stem, os.path.join(parent, file))
    return found


def _kinetics(root):
    evaluation = [
        root / f"{name}.csv"
        for name in ("val", "validate", "test")
        if (root / f"{name}.csv").is_file()
    ]
    if not evaluation:
        raise ValueError(
            "Beside train.csv there must be val.csv, validate.csv or test.csv. "
            f"Received: {str(root)!r}, without"
        )

    def rows(file) -> Iterator[Row]:
        for line, row in read_rows(file, _KINETICS):
            try:
                seconds = [int(float(row[name])) for name in _KINETICS[2:]]
            except (OverflowError, ValueError) as error:
                raise ValueError(
                    f"`time_start` and `time_end` of {str(file)!r} must be "
                    f"seconds. Received: line {line}, {row}"
                ) from error
            if not row["label"]:
                raise ValueError(
                    f"`label` of {str(file)!r} must name a class. Received: "
                    f"line {line}, {row}"
                )
            number = row["youtube_id"]
            timed = f"{number}_{seconds[0]:06d}_{seconds[1]:06d}"
            yield (timed, number), [row["label"]]

    parts = [(f, list(rows(f))) for f in (root / "train.csv", evaluation[0])]
    names = {name for _, of_row in parts[0][1] for name in of_row}
    return tuple(sorted(names)), parts, False


def _ssv2(root):
    prefix = _prefix(root)
    numbers = _json(root / f"{prefix}labels.json", dict)
    by_number = {str(number): name for name, number in numbers.items()}
    if {*by_number} != {*map(str, range(len(numbers)))}:
        raise ValueError(
            f"{str(root / f'{prefix}labels.json')!r} must number its "
            f"{len(numbers)} templates from 0 on. Received: "
            f"{sorted(by_number)[:5]}"
        )
    names = tuple(by_number[str(i)] for i in range(len(numbers)))

    def rows(file) -> Iterator[Row]:
        for video in _json(file, list):
            try:
                template = video["template"].replace("[", "").replace("]", "")
                yield (str(video["id"]),), [template]
            except (KeyError, TypeError, AttributeError) as error:
                raise ValueError(
                    f"Each video of {str(file)!r} must have an `id` and a "
                    f"`template`. Received: {video}"
                ) from error

    files = [root / f"{prefix}{part}.json" for part in ("train", "validation")]
    return names, [(file, list(rows(file))) for file in files], False


def _charades(root):
    lines = read_text(root / f"{_CHARADES}classes.txt").splitlines()
    both = (line.split(None, 1) for line in lines)
    by_code = {cells[0]: cells[1] for cells in both if len(cells) == 2}
    if len({*by_code.values()}) < len(by_code):
        raise ValueError(
            f"{_CHARADES}classes.txt in {str(root)!r} must name each class "
            "once. Received: a name twice"
        )

    def rows(file) -> Iterator[Row]:
        for line, row in read_rows(file, ("id", "actions")):
            actions = filter(str.strip, row["actions"].split(";"))
            # A code, and the seconds between which it is seen.
            codes = list(dict.fromkeys(text.split()[0] for text in actions))
            unknown = [code for code in codes if code not in by_code]
            if unknown:
                raise ValueError(
                    f"`actions` of {str(file)!r} must be among the "
                    f"{len(by_code)} classes of {_CHARADES}classes.txt. "
                    f"Received: line {line}, {unknown}"
                )
            yield (row["id"],), [by_code[code] for code in codes]

    files = [root / f"{_CHARADES}{part}.csv" for part in ("train", "test")]
    parts = [(file, list(rows(file))) for file in files]
    return tuple(by_code.values()), parts, True


def _json(file, kind):
    text = read_text(file)
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(
            f"{str(file)!r} must be JSON. Received: {error}"
        ) from error
    if not isinstance(found, kind):
        raise ValueError(
            f"{str(file)!r} must hold a {kind.__name__}. Received: "
            f"{type(found).__name__}"
        )
    return found


def _fields(path, file, rows, names, several, there, broken):
    index = {name: i for i, name in enumerate(names)}
    unknown = {name for _, own in rows for name in own} - {*names}
    if unknown:
        raise ValueError(
            f"The classes of {str(file)!r} must be among the {len(names)} that "
            f"are trained. Received also: {sorted(unknown)[:5]}"
        )
    paths, classes = [], []
    found: dict = {}
    for video, own in rows:
        known = [there[name] for name in video if name in there]
        if known:
            paths.append(known[0])
            classes.append([index[name] for name in own])
            if found.setdefault(known[0], own) != own:
                raise ValueError(
                    f"A video of {str(file)!r} must have the same classes "
                    f"everywhere. Received: {known[0]!r} as "
                    f"{found[known[0]]} and {own}"
                )
    if not paths:
        raise ValueError(
            f"A video of {str(file)!r} must lie below {str(path)!r}. Received: "
            f"none of {len(rows)}, such as {rows[0][0][0] if rows else None!r}"
        )
    missing = len(rows) - len(paths)
    skipped = {}
    if broken == "skip":
        skipped = folder.find_broken(paths, is_video=True)
        kept = [i for i, each in enumerate(paths) if each not in skipped]
        paths, classes = [paths[i] for i in kept], [classes[i] for i in kept]
    labels = np.array([own[0] for own in classes if own], "int64")
    if several:
        labels = np.zeros((len(paths), len(names)), "uint8")
        for row, own in zip(labels, classes, strict=True):
            row[own] = 1
    return dict(
        name=str(path),
        class_names=names,
        num_examples=len(paths),
        is_video=True,
        paths=tuple(paths),
        labels=labels,
        multi_label=several,
        skipped=skipped,
        ignored={("listed, not there", "videos"): missing} if missing else {},
    )
