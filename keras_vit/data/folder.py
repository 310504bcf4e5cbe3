"""Images or videos in one folder for each class."""

import collections
import os
import pathlib

import numpy as np

from keras_vit._paths import require_file
from keras_vit.data import decode, video_files
from keras_vit.data.split import hold_out

EVALUATION_FOLDERS = ("test", "val", "validation", "eval")


def find(
    path: str, eval_fraction: float, seed: int, broken: str = "error"
) -> tuple[dict, dict]:
    """Finds `train/class/*` and `test/class/*`, or `class/*` to be split.

    A class has the images in its folder and in all folders below it, as in
    Keras' `image_dataset_from_directory` and torchvision's `ImageFolder`.
    Hidden files, linked folders, files outside the class folders and files with
    another extension are ignored and counted. If a folder has more videos than
    images, its images are ignored; otherwise its videos are.

    Args:
        path: The folder.
        eval_fraction: Share of each class held out if the folder has no `test`
            (or `val`, `validation`, `eval`).
        seed: Seed of that choice.
        broken: "skip" skips files that do not decode.

    Returns:
        The fields of a training and an evaluation `Source`.

    Raises:
        ValueError: If the folder is empty, a class has no image (or none
            that decodes, when skipping), there are fewer than two classes, or
            evaluation has other classes.
    """
    root = pathlib.Path(path)
    train_root = root / "train" if (root / "train").is_dir() else root
    is_video = _has_videos(train_root)
    paths, labels, names, ignored = _classes(train_root, is_video, broken)
    if len(names) < 2:
        raise ValueError(
            f"`dataset` {str(train_root)!r} must have a folder for each of at "
            f"least 2 classes. Received: {list(names)}"
        )
    paths, labels, skipped = _without_broken(paths, labels, broken, is_video)
    lost = [name for i, name in enumerate(names) if i not in labels]
    if lost:
        raise ValueError(
            f"Every class in {str(train_root)!r} must have a file that "
            f"decodes. Received: none in {lost}, {len(skipped)} broken "
            f"files in all, such as {_first(skipped)}"
        )
    evaluation_roots = [
        root / name for name in EVALUATION_FOLDERS if (root / name).is_dir()
    ]
    if train_root != root:
        used = [train_root.name, *(x.name for x in evaluation_roots[:1])]
        ignored += _ignored_beside(root, used, is_video)
    if train_root == root or not evaluation_roots:
        kept, held_out = hold_out(
            labels,
            eval_fraction,
            seed,
            name=str(train_root),
            class_names=names,
        )
        return (
            _fields(
                train_root,
                paths[kept],
                labels[kept],
                names,
                skipped,
                ignored,
                is_video,
            ),
            _fields(
                train_root,
                paths[held_out],
                labels[held_out],
                names,
                {},
                {},
                is_video,
            ),
        )
    eval_root = evaluation_roots[0]
    eval_paths, eval_labels, eval_names, eval_ignored = _classes(
        eval_root, is_video, broken
    )
    unknown = sorted(set(eval_names) - set(names))
    if unknown:
        raise ValueError(
            f"The classes in {str(eval_root)!r} must be among those in "
            f"{str(train_root)!r}. Received also: {unknown}"
        )
    in_train = np.array([names.index(name) for name in eval_names])
    eval_paths, eval_labels, eval_skipped = _without_broken(
        eval_paths, in_train[eval_labels], broken, is_video
    )
    if not len(eval_paths):
        raise ValueError(
            f"{str(eval_root)!r} must have a file that decodes. Received: "
            f"{len(eval_skipped)} broken files, such as {_first(eval_skipped)}"
        )
    return (
        _fields(train_root, paths, labels, names, skipped, ignored, is_video),
        _fields(
            eval_root,
            eval_paths,
            eval_labels,
            names,
            eval_skipped,
            eval_ignored,
            is_video,
        ),
    )


def describe(ignored: dict[tuple[str, str], int]) -> str:
    """Returns "34 files ignored (hidden: 1 .jpg; unsupported: 33 .heic)".

    Args:
        ignored: Number of files by reason and extension.
    """
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


def find_broken(paths, is_video: bool) -> dict[str, str]:
    """Returns the files that do not decode and why, after trying every one.

    Args:
        paths: Image files or video files.
        is_video: Whether they are videos.
    """
    return (video_files if is_video else decode).find_broken(paths)


def _has_videos(root):
    """Whether a folder has more videos than images in its class folders."""
    count = collections.Counter(
        _extension(name)
        for _, _, files in os.walk(root)
        for name in files
        if not name.startswith(".")
    )
    videos, images = (
        sum(count[extension] for extension in extensions)
        for extensions in (video_files.EXTENSIONS, decode.EXTENSIONS)
    )
    return videos > images


def _extensions(is_video):
    return (video_files if is_video else decode).EXTENSIONS


def _classes(root, is_video, broken):
    """Returns paths, labels and class names of the files under a folder.

    Also returns the number of ignored files, by reason and extension.
    """
    folders = sorted(
        entry
        for entry in root.iterdir()
        if entry.is_dir() and not entry.name.startswith(".")
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
    return np.array(paths, dtype=object), np.array(labels), names, ignored


def _ignored_beside(root, used, is_video):
    """Counts the files below a folder outside of the class folders."""
    images, ignored = _scan(root, is_video, without=used)
    for image in images:
        ignored["outside the class folders", _extension(image.name)] += 1
    return ignored


def _scan(folder, is_video, without=()):
    """Returns the entries of a kind below a folder, and counts others."""
    images, ignored = [], collections.Counter()
    pending = [(folder, without)]
    while pending:
        parent, used = pending.pop()
        with os.scandir(parent) as entries:
            for entry in entries:
                hidden = entry.name.startswith(".")
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
    """Returns a name with its bytes that are not UTF-8 escaped."""
    return name.encode(errors="backslashreplace").decode()


def _without_broken(paths, labels, broken, is_video):
    if broken != "skip":
        return paths, labels, {}
    skipped = find_broken(paths, is_video)
    valid = np.array([path not in skipped for path in paths])
    return paths[valid], labels[valid], skipped


def _first(skipped):
    path, reason = next(iter(skipped.items()))
    return f"{path!r}: {reason}"


def _fields(root, paths, labels, names, skipped, ignored, is_video):
    return dict(
        name=str(root),
        class_names=names,
        num_examples=len(paths),
        is_video=is_video,
        paths=tuple(paths),
        labels=labels,
        skipped=skipped,
        ignored=dict(ignored),
    )
