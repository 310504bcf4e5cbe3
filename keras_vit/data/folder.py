"""Images or videos in one folder for each class."""

import collections
import dataclasses
import os
import pathlib
import re
from collections.abc import Iterable

import numpy as np

from keras_vit._paths import is_hidden, require_file
from keras_vit.data import decode, video_files
from keras_vit.data.split import split

EVALUATION_FOLDERS = ("test", "val", "valid", "validation", "eval")
# Names of the parts of many data sets, such as "Training" and "test_set".
_PART = re.compile(
    r"(train|test|val|valid|eval)(ing|idation|uation)?([ _-]?(set|data))?",
    re.IGNORECASE,
)


def evaluation_folder(
    root: pathlib.Path, split: str, holds: str = ""
) -> pathlib.Path | None:
    """Return the first folder of evaluation beside `train`, or None.

    Args:
        root: The folder of the data set.
        split: Name of the one to return, such as "val" beside "test"; "" is
            the first.
        holds: A file that it must have.

    Raises:
        ValueError: If there is none of this name.
    """
    folders = {name: root / name for name in EVALUATION_FOLDERS}
    if not holds and not (root / "train").is_dir():
        folders = {}  # they are classes
    found = {
        name: folder
        for name, folder in folders.items()
        if folder.is_dir() and (folder / holds).exists()
    }
    if split and split not in found:
        raise ValueError(
            f"`eval_split` must be one of {list(found)}, the folders of "
            f"{str(root)!r} beside `train`, or ''. Received: "
            f"eval_split={split!r}"
        )
    return found.get(split or next(iter(found), ""))


@dataclasses.dataclass
class _Files:
    """The labelled files below a folder.

    Attributes:
        root: The folder.
        names: Names of its classes.
        paths: The files, an array of str.
        labels: Class of each.
        ignored: Number of other files, by reason and extension.
        skipped: Files that do not decode, with the decoder's reason.
    """

    root: pathlib.Path
    names: tuple[str, ...]
    paths: np.ndarray
    labels: np.ndarray
    ignored: collections.Counter
    skipped: dict[str, str] = dataclasses.field(default_factory=dict)

    def skip_broken(self, is_video):
        """Skip the files that do not decode."""
        self.skipped = find_broken(self.paths, is_video)
        valid = np.array([path not in self.skipped for path in self.paths])
        self.paths, self.labels = self.paths[valid], self.labels[valid]

    def first_skipped(self):
        """Return the number of skipped files and an example, as text."""
        path, reason = next(iter(self.skipped.items()))
        return f"{len(self.skipped)} broken files, such as {path!r}: {reason}"

    def fields(self, is_video):
        """Return the fields of a `Source`."""
        return dict(
            name=str(self.root),
            class_names=self.names,
            num_examples=len(self.paths),
            is_video=is_video,
            paths=tuple(self.paths),
            labels=self.labels,
            skipped=self.skipped,
            ignored=dict(self.ignored),
        )


def find(
    path: str,
    eval_fraction: float,
    seed: int,
    broken: str = "error",
    eval_split: str = "",
) -> tuple[dict, dict]:
    """Find `train/class/*` and `test/class/*`, or `class/*` to be split.

    A class has the images in its folder and in all folders below it, as in
    Keras' `image_dataset_from_directory` and torchvision's `ImageFolder`.
    Hidden files, folders of systems such as `__MACOSX`, linked folders, files
    outside the class folders and files with another extension are ignored and
    counted. If a folder has more videos than images, its images are ignored;
    otherwise its videos are.

    Args:
        path: The folder.
        eval_fraction, seed, broken, eval_split: See `sources.load`; a share is
            held out if the folder has no `test` (or `val`, `valid`,
            `validation`, `eval`).

    Returns:
        The fields of a training and an evaluation `Source`.

    Raises:
        ValueError: If the folder is empty, a class has no image (or none
            that decodes, when skipping), there are fewer than two classes, all
            have names of parts of a data set, or evaluation has other classes.
    """
    root = pathlib.Path(path)
    train_root = root / "train" if (root / "train").is_dir() else root
    is_video = _has_videos(train_root)
    train = _train_files(train_root, is_video, broken)
    eval_root = evaluation_folder(root, eval_split)
    if train_root != root:
        used = [x.name for x in (train_root, eval_root) if x]
        train.ignored += _ignored_beside(root, used, is_video)
    if train_root != root and eval_root:
        evaluation = _eval_files(eval_root, train, is_video, broken)
        return train.fields(is_video), evaluation.fields(is_video)
    return split(train.fields(is_video), eval_fraction, seed)


def _train_files(root, is_video, broken):
    files = _classes(root, is_video, broken)
    if len(files.names) < 2:
        raise ValueError(
            f"`dataset` {str(root)!r} must have a folder for each of at least "
            f"2 classes. Received: {list(files.names)}"
        )
    if all(map(_PART.fullmatch, files.names)):
        raise ValueError(
            f"The parts in `dataset` {str(root)!r} must be named 'train' and "
            f"one of {EVALUATION_FOLDERS}. Received: {list(files.names)}, "
            "which are no classes; rename them"
        )
    if broken == "skip":
        files.skip_broken(is_video)
    lost = [n for i, n in enumerate(files.names) if i not in files.labels]
    if lost:
        raise ValueError(
            f"Every class in {str(root)!r} must have a file that decodes. "
            f"Received: none in {lost}, {files.first_skipped()}"
        )
    return files


def _eval_files(root, train, is_video, broken):
    files = _classes(root, is_video, broken)
    unknown = sorted(set(files.names) - set(train.names))
    if unknown:
        raise ValueError(
            f"The classes in {str(root)!r} must be among those in "
            f"{str(train.root)!r}. Received also: {unknown}"
        )
    in_train = np.array([train.names.index(name) for name in files.names])
    files.labels, files.names = in_train[files.labels], train.names
    if broken == "skip":
        files.skip_broken(is_video)
    if not len(files.paths):
        raise ValueError(
            f"{str(root)!r} must have a file that decodes. Received: "
            f"{files.first_skipped()}"
        )
    return files


def describe(ignored: dict[tuple[str, str], int]) -> str:
    """Return "34 files ignored (hidden: 1 .jpg; unsupported: 33 .heic)"."""
    if not ignored:
        return "no file ignored"
    by_reason = collections.defaultdict(list)
    for (reason, extension), count in sorted(ignored.items()):
        by_reason[reason].append(f"{count} {extension}")
    reasons = "; ".join(
        f"{reason}: {', '.join(counts)}" for reason, counts in by_reason.items()
    )
    count = sum(ignored.values())
    return f"{count} file{'s' if count > 1 else ''} ignored ({reasons})"


def unlisted(
    root: str | os.PathLike, listed: Iterable[str], is_video: bool
) -> dict[tuple[str, str], int]:
    """Count the images, or videos, below a folder that no list names."""
    known = {os.path.abspath(path) for path in listed}
    return collections.Counter(
        ("not listed", _extension(entry.name))
        for entry in _scan(root, is_video)[0]
        if os.path.abspath(entry.path) not in known
    )


def find_broken(paths, is_video: bool) -> dict[str, str]:
    """Return the files that do not decode and why, after trying every one."""
    return (video_files if is_video else decode).find_broken(paths)


def _has_videos(root):
    """Whether a folder has more videos than images in its class folders."""
    # A class folder may be a link, which `os.walk` does not follow.
    linked = [x for x in root.iterdir() if x.is_symlink() and x.is_dir()]
    count = collections.Counter(
        _extension(name)
        for folder in (root, *linked)
        for _, _, files in os.walk(folder)
        for name in files
        if not is_hidden(name)
    )
    videos, images = (
        sum(count[extension] for extension in extensions)
        for extensions in (video_files.EXTENSIONS, decode.EXTENSIONS)
    )
    return videos > images


def _extensions(is_video):
    return (video_files if is_video else decode).EXTENSIONS


def _classes(root, is_video, broken):
    """Return the files of the class folders."""
    folders = sorted(
        entry
        for entry in root.iterdir()
        if entry.is_dir() and not is_hidden(entry.name)
    )
    names = tuple(entry.name for entry in folders)
    ignored = _ignored_beside(root, names, is_video)
    if not folders:
        raise ValueError(
            "`dataset` must be a folder with a folder of images for each "
            f"class. Received: {str(root)!r}, which has no folder in it; "
            f"{describe(ignored)}"
        )
    paths, labels = [], []
    for label, entry in enumerate(folders):
        images, others = _scan(entry, is_video)
        if not images:
            raise ValueError(
                f"Every class folder must have files {_extensions(is_video)}. "
                f"Received: {str(entry)!r}, which has none; {describe(others)}"
            )
        if broken != "skip":
            for image in images:
                # Of most entries the type is known without a look at the file.
                if not image.is_file() or not image.path.isascii():
                    require_file(image.path)
        paths += [image.path for image in images]
        labels += [label] * len(images)
        ignored += others
    paths = np.array(paths, dtype=object)
    return _Files(root, names, paths, np.array(labels), ignored)


def _ignored_beside(root, used, is_video):
    """Count the files below a folder outside of the class folders."""
    images, ignored = _scan(root, is_video, without=used)
    for image in images:
        ignored["outside the class folders", _extension(image.name)] += 1
    return ignored


def _scan(folder, is_video, without=()):
    """Return the entries of a kind below a folder, and counts others."""
    images, ignored = [], collections.Counter()
    pending = [(folder, without)]
    while pending:
        parent, used = pending.pop()
        with os.scandir(parent) as entries:
            for entry in entries:
                hidden = is_hidden(entry.name)
                if entry.is_dir() and entry.name in used:
                    continue
                if entry.is_dir() and not (hidden or entry.is_symlink()):
                    pending.append((entry.path, ()))
                elif entry.is_dir():
                    reason = "hidden" if hidden else "linked"
                    ignored[reason, f"{_printable(entry.name)}/"] += 1
                elif hidden:
                    ignored["hidden", _extension(entry.name)] += 1
                elif _extension(entry.name) in _extensions(is_video):
                    images.append(entry)
                else:
                    ignored["unsupported", _extension(entry.name)] += 1
    return sorted(images, key=lambda entry: entry.path), ignored


def _extension(path):
    extension = os.path.splitext(path)[1].lower()
    return _printable(extension) or "without extension"


def _printable(name):
    """Return a name with its bytes that are not UTF-8 escaped."""
    return name.encode(errors="backslashreplace").decode()
