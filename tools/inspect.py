r"""Draws filters, position embeddings and attention, as in the ViT paper.

    python -m tools.inspect runs/digits/last.keras image.jpg --out=inspection
    python -m tools.inspect ViTL16:imagenet21k photographs/ --out=inspection

MODEL is a .keras file, released weights as CONSTRUCTOR:NAME, or a checkpoint;
IMAGE a file, a folder or a pattern. The folder --out receives the filters'
principal components and the similarity of positions (Figure 7), the attended
distance by layer and head (Figures 7 and 11; 10 of the first edition), the
attention rollout by layer (Figures 6 and 14; 13), the attention of each head
for each of the first images, for MLP-Mixer and its relatives the weights of
the units over tokens, and all numbers in arrays.npz. Figures that do not apply
to the model are named.
"""

import pathlib
import sys

import numpy as np

from keras_vit import data, inspection
from keras_vit.inspection import pictures
from keras_vit_cli import command, files, opening

FEW = 4  # images drawn; distances use all images


@command.entry
def main(arguments: list[str]) -> int:
    """Draw all figures that apply to the model."""
    parser = command.Parser(description=__doc__)
    add = parser.add_argument
    add("model", metavar="MODEL")
    add("images", metavar="IMAGE", nargs="*")
    add("--out", default="inspection", type=pathlib.Path)
    add("--num_images", type=command.count, default=128, help="at most (128)")
    add("--batch_size", type=command.count, default=8)
    flags = parser.parse_args(arguments)

    # Before the model, whose weights may be downloaded.
    paths = files.find(flags.images)[: flags.num_images]
    model = opening.load(flags.model)
    images = read(flags.model, model, paths) if paths else None
    flags.out.mkdir(parents=True, exist_ok=True)
    arrays = {}
    for draw in (filters, positions, mixing):
        attempt(draw, arrays, model, flags.out)
    if images is not None:
        attempt(distances, arrays, model, images, flags.batch_size, flags.out)
        attempt(rollouts, arrays, model, images[:FEW], flags.out)
        attempt(heads, arrays, model, images[:FEW], flags.out)
    if not arrays:
        raise ValueError("MODEL must have something to show. See above.")
    np.savez(flags.out / "arrays.npz", **arrays)
    print(flags.out / "arrays.npz")
    return 0


def read(name: str, model, paths: list[str]):
    """Return images as `[B, H, W, C]`."""
    if len(model.input_shape) != 4:
        raise ValueError(
            "MODEL must take images where IMAGE is given. Received: "
            f"{name!r}, which takes {model.input_shape}"
        )
    opening.check_pixels(name, model)
    *size, channels = model.input_shape[1:]
    return np.stack([data.read_image(path, size, channels) for path in paths])


def attempt(draw, arrays: dict, *args) -> None:
    """Draw one kind of figure, or print why the model has none.

    `draw` returns name -> (array, path of its picture), which `arrays` gets.
    """
    try:
        found = draw(*args)
    except ValueError as error:
        print(f"no {draw.__name__}: {error}")
        return
    arrays |= {name: array for name, (array, _) in found.items()}
    for path in dict.fromkeys(path for _, path in found.values() if path):
        print(path)


def filters(model, out):
    """Draw the filters' principal components."""
    found, path = inspection.filter_components(model), out / "filters.png"
    pictures.plot_filters(found, path)
    return {"filters": (found, path)}


def positions(model, out):
    """Draw the similarity of position embeddings."""
    found = {}
    for name, array in inspection.position_similarity(model).items():
        path = out / f"positions_{name}.png"
        title = f"position embedding similarity ({name})"
        pictures.plot_position_similarity(array, title, path)
        found[f"positions_{name}"] = (array, path)
    return found


def mixing(model, out):
    """Draw the weights of the hidden units of MLPs over tokens."""
    found, path = inspection.token_mixing(model), out / "token_mixing.png"
    pictures.plot_token_mixing(found, path)
    return {f"token_mixing/{k}": (a, path) for k, a in found.items()}


def distances(model, images, batch_size, out):
    """Draw the attended distance by layer and head."""
    found = inspection.attended_distances(model, images, batch_size)
    path = out / "attended_distances.png"
    title = f"{model.name}, {len(images)} image{'s' * (len(images) > 1)}"
    uniform = inspection.uniform_distances(model)
    pictures.plot_attended_distances(found, uniform, title, path)
    return {f"distances/{i}": (a, path) for i, a in enumerate(found)}


def rollouts(model, images, out):
    """Draw the attention rollout by layer."""
    found = inspection.rollout_by_layer(model, images)
    pictures.plot_rollouts(images, found, out / "rollouts.png")
    return {"rollouts": (found, out / "rollouts.png")}


def heads(model, images, out):
    """Draw the attention of each head, a picture for each image."""
    found = inspection.attention_by_head(model, images)
    for i, image in enumerate(images):
        path = out / f"heads_{i}.png"
        pictures.plot_heads(image, [each[i] for each in found], path)
        print(path)
    return {f"heads/{i}": (array, None) for i, array in enumerate(found)}


if __name__ == "__main__":
    sys.exit(main())
