"""Draws attention by head on two photographs, as the documentation shows it.

    python -m tools.attention_picture runs/cifar/last.keras

MODEL is the ViT of docs/inspection.md, which has the command that trains it.
The photographs are those of scikit-learn, which are fitted to 192x128 pixels.
"""

import pathlib
import sys

import numpy as np

from keras_vit_cli import command
from tools import pictures

SIZE = (128, 192)
# File -> (layer, head) of the maps, from 1, selected by hand.
SHOWN = {
    "china.jpg": ((1, 1), (2, 2), (3, 2), (5, 2)),
    "flower.jpg": ((1, 1), (3, 1), (3, 2), (5, 2)),
}


@command.entry
def main(arguments: list[str]) -> int:
    """Draw the picture."""
    parser = command.Parser(description=__doc__)
    add = parser.add_argument
    add("model", metavar="MODEL")
    add("--output", default="docs/images/attention.jpg", type=pathlib.Path)
    flags = parser.parse_args(arguments)

    import sklearn.datasets

    import keras_vit
    from keras_vit import data, inspection

    folder = pathlib.Path(sklearn.datasets.__file__).parent / "images"
    images = np.stack(
        [data.read_image(str(folder / name), SIZE, 3) for name in SHOWN]
    )
    model = keras_vit.from_pretrained(flags.model, input_shape=(*SIZE, 3))
    by_head = inspection.attention_by_head(model, images)
    rows = [
        (images[n], {(i, j): by_head[i - 1][n, j - 1] for i, j in shown})
        for n, shown in enumerate(SHOWN.values())
    ]
    pictures.save(draw(rows), flags.output)
    return 0


def draw(rows: list[tuple[np.ndarray, dict]]):
    """Draw each image beside its maps, (layer, head) -> `[rows, columns]`."""
    from matplotlib import figure as figures  # no display, no global state

    figure = figures.Figure(figsize=(12.5, 3.5), dpi=100)
    edges = dict(left=0.002, right=0.998, bottom=0.005, top=0.93)
    spaces = dict(wspace=0.02, hspace=0.13)
    columns = 1 + len(rows[0][1])
    grid = figure.subplots(len(rows), columns, gridspec_kw=edges | spaces)
    for (image, maps), (first, *others) in zip(rows, grid, strict=True):
        first.imshow(image.astype("uint8"))
        for axes, ((layer, head), shares) in zip(
            others, maps.items(), strict=True
        ):
            axes.imshow(_overlay(image, shares))
            axes.set_title(f"layer {layer}, head {head}", fontsize=9, pad=3)
    for axes in grid.flat:
        axes.set_axis_off()
    return figure


def _overlay(image, shares):
    """Return the image in grey, lit by the attention on each patch.

    The brightest colour is the 99th percentile of the map.
    """
    from matplotlib import colormaps

    light = np.clip(shares / np.percentile(shares, 99), 0, 1) ** 0.7
    patch = [n // m for n, m in zip(image.shape, light.shape, strict=False)]
    light = np.kron(light, np.ones(patch))[..., None]
    grey = 0.35 * image.mean(axis=-1, keepdims=True) / 255
    color = colormaps["inferno"](0.25 + 0.75 * light[..., 0])[..., :3]
    return np.clip(grey * (1 - light) + color * light, 0, 1)


if __name__ == "__main__":
    sys.exit(main())
