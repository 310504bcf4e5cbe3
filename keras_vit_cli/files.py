"""Finds the files that the command line names, and checks those it writes."""

import glob
import os
import sys
from collections.abc import Iterator

from keras_vit._paths import can_be_written, is_hidden
from keras_vit.data.decode import EXTENSIONS
from keras_vit.inspection import figures


def find(
    images: list[str], extensions: tuple[str, ...] = EXTENSIONS
) -> list[str]:
    """Return the files that the command line names, in a stable order.

    Args:
        extensions: Extensions of the files to read in a folder.

    Raises:
        ValueError: If a folder has no such file.
    """
    paths = []
    for name in images:
        if os.path.isdir(name):
            found = sorted(files_below(name, extensions))
            if not found:
                raise ValueError(
                    "IMAGE must be a folder with files of "
                    f"{', '.join(extensions)}. Received: {name!r}, which has "
                    "none"
                )
        elif os.path.exists(name):
            found = [name]
        else:
            # A missing file is reported among the others, not here.
            found = sorted(glob.glob(name, recursive=True)) or [name]
        paths += found
    return paths


def files_below(name: str, extensions: tuple[str, ...]) -> Iterator[str]:
    """Yield the files of a folder; a link may lead back, and is left out.

    So is a folder that cannot be read, and what is hidden.

    Args:
        name: The folder.
        extensions: Those of the files, in lower case.
    """

    def left_out(error):
        print(f"Left out: {error.filename}: {error.strerror}", file=sys.stderr)

    hidden = 0
    for folder, below, files in os.walk(name, onerror=left_out):
        files = [x for x in files if x.lower().endswith(extensions)]
        hidden += sum(map(is_hidden, below + files))
        below[:] = (x for x in below if not is_hidden(x))
        for each in (os.path.join(folder, x) for x in below):
            if os.path.islink(each):
                print(f"Left out: {each}, a link to a folder", file=sys.stderr)
        for file in files:
            if not is_hidden(file):
                yield os.path.join(folder, file)
    if hidden:
        print(f"Left out: {hidden} hidden files or folders", file=sys.stderr)


def check_picture(option: str, path: str) -> None:
    """Refuse a picture that could not be written, before the work."""
    kinds = figures.new_figure(1, 1).canvas.get_supported_filetypes()
    ending = os.path.splitext(path)[1].removeprefix(".").lower()
    if ending not in kinds or not can_be_written(path):
        raise ValueError(
            f"--{option} must be a file in an existing folder, which can be "
            f"written and ends in .{', .'.join(kinds)}. Received: {path!r}"
        )
