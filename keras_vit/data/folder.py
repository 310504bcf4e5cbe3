"""A person's images, in one folder for each class."""

import pathlib

import numpy as np

from keras_vit.data.decode import find_broken
from keras_vit.data.split import hold_out

EXTENSIONS = (".bmp", ".gif", ".jpeg", ".jpg", ".png")
EVALUATION_FOLDERS = ("test", "val", "validation", "eval")


def find(
    path: str, eval_fraction: float, seed: int, broken: str = "error"
) -> tuple[dict, dict]:
    """Finds `train/class/*` and `test/class/*`, or `class/*` to be split.

    Hidden files and files that are no JPEG, PNG, BMP or GIF by their ending
    are passed over.

    Args:
        path: The folder.
        eval_fraction: Share of each class held out where the folder has no
            `test` (or `val`, `validation`, `eval`).
        seed: Seed of that choice.
        broken: "skip" leaves out files that do not decode.

    Returns:
        The fields of a training and an evaluation `Source`.

    Raises:
        ValueError: If the folder is empty, a class has no image (or none
            that decodes, when skipping), there are fewer than two classes, or
            evaluation has classes of its own.
    """
    root = pathlib.Path(path)
    train_root = root / "train" if (root / "train").is_dir() else root
    paths, labels, names = _classes(train_root)
    if len(names) < 2:
        raise ValueError(
            f"`dataset` {str(train_root)!r} must have a folder for each of at "
            f"least 2 classes. Received: {list(names)}"
        )
    paths, labels, skipped = _without_broken(paths, labels, broken)
    lost = [name for i, name in enumerate(names) if i not in labels]
    if lost:
        raise ValueError(
            f"Every class in {str(train_root)!r} must have an image that "
            f"decodes. Received: none in {lost}, {len(skipped)} broken "
            f"files in all, such as {skipped[0]!r}"
        )
    evaluation_roots = [
        root / name for name in EVALUATION_FOLDERS if (root / name).is_dir()
    ]
    if train_root == root or not evaluation_roots:
        kept, held_out = hold_out(
            labels,
            eval_fraction,
            seed,
            name=str(train_root),
            class_names=names,
        )
        return (
            _fields(train_root, paths[kept], labels[kept], names, skipped),
            _fields(train_root, paths[held_out], labels[held_out], names),
        )
    eval_root = evaluation_roots[0]
    eval_paths, eval_labels, eval_names = _classes(eval_root)
    unknown = sorted(set(eval_names) - set(names))
    if unknown:
        raise ValueError(
            f"The classes in {str(eval_root)!r} must be among those in "
            f"{str(train_root)!r}. Received also: {unknown}"
        )
    in_train = np.array([names.index(name) for name in eval_names])
    eval_paths, eval_labels, eval_skipped = _without_broken(
        eval_paths, in_train[eval_labels], broken
    )
    if not len(eval_paths):
        raise ValueError(
            f"{str(eval_root)!r} must have an image that decodes. Received: "
            f"{len(eval_skipped)} broken files, such as {eval_skipped[0]!r}"
        )
    return (
        _fields(train_root, paths, labels, names, skipped),
        _fields(eval_root, eval_paths, eval_labels, names, eval_skipped),
    )


def _classes(root):
    """Returns paths, labels and class names of the images under a folder."""
    folders = sorted(
        entry
        for entry in root.iterdir()
        if entry.is_dir() and not entry.name.startswith(".")
    )
    if not folders:
        raise ValueError(
            "`dataset` must be a folder with a folder of images for each "
            f"class. Received: {str(root)!r}, which has no folder in it"
        )
    paths, labels = [], []
    for label, entry in enumerate(folders):
        images = sorted(
            str(file)
            for file in entry.iterdir()
            if file.suffix.lower() in EXTENSIONS
            and not file.name.startswith(".")
        )
        if not images:
            raise ValueError(
                f"Every class folder must have images {EXTENSIONS}. "
                f"Received: {str(entry)!r}, which has none"
            )
        paths += images
        labels += [label] * len(images)
    return (
        np.array(paths, dtype=object),
        np.array(labels),
        tuple(entry.name for entry in folders),
    )


def _without_broken(paths, labels, broken):
    if broken != "skip":
        return paths, labels, ()
    skipped = find_broken(paths)
    sound = ~np.isin(paths, skipped)
    return paths[sound], labels[sound], skipped


def _fields(root, paths, labels, names, skipped=()):
    return dict(
        name=str(root),
        class_names=names,
        num_examples=len(paths),
        paths=tuple(paths),
        labels=labels,
        skipped=skipped,
    )
