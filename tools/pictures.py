"""What the pictures of several tools have in common."""

import pathlib


def axes_of(width: float, height: float):
    """Return a new figure in inches, and its only axes."""
    from keras_vit.inspection import figures

    figure = figures.new_figure(width, height)
    return figure, figure.add_subplot()


def name(axes, text: str, point: tuple[float, float], **style) -> None:
    """Write a text at a point, a little above and to the right."""
    place: dict = dict(xytext=(6, 4), textcoords="offset points")
    axes.annotate(text, point, **place, **style)


def plain(axes, **grid) -> None:
    """Draw a faint grid, and no lines above and on the right."""
    axes.grid(alpha=0.25, **grid)
    axes.spines[["top", "right"]].set_visible(False)


def save(figure, path: pathlib.Path) -> None:
    """Write a figure, whose folder is made, and print its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    print(path)
