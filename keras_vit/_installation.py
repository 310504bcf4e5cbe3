"""Refuses to run when files of another project of the same name are mixed
in."""

import os

# The modules of `keras_vit` 1.0 on the package index. This package has none of
# these names. The check looks for files, since metadata may be stale or
# missing.
OTHERS = ("config.py", "layers.py", "utils.py", "vit.py")


def refuse_other_package(directory: str | os.PathLike) -> None:
    """Refuses a package directory that two distributions were written to.

    The other distribution's `__init__.py` may have replaced ours, so this is
    called by the subpackages that all others import, not by
    `keras_vit/__init__.py`.

    Args:
        directory: The directory of the package.

    Raises:
        ImportError: If it holds modules of the other project.
    """
    found = [
        name for name in OTHERS if os.path.isfile(os.path.join(directory, name))
    ]
    if found:
        raise ImportError(
            f"{os.fspath(directory)!r} holds modules of another project, "
            f"`keras_vit` of the package index ({', '.join(found)}), mixed "
            "with those of keras-vision-transformer: run `pip uninstall "
            "keras_vit keras-vision-transformer` and install "
            "keras-vision-transformer again."
        )


refuse_other_package(os.path.dirname(os.path.abspath(__file__)))
