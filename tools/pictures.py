"""What the pictures of several tools have in common."""

import pathlib


def plain(axes, **grid) -> None:
    """Draw a faint grid, and no lines above and on the right."""
    axes.grid(alpha=0.25, **grid)
    axes.spines[["top", "right"]].set_visible(False)


def save(figure, path: pathlib.Path) -> None:
    """Write a figure, whose folder is made, and print its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    print(path)
