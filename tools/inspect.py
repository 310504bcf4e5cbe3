r"""Draws filters, position embeddings and attention, as in the ViT paper.

    python -m tools.inspect runs/digits/last.keras image.jpg --out=inspection
    python -m tools.inspect ViTL16:imagenet21k photographs/ --out=inspection

MODEL is a .keras file, released weights as CONSTRUCTOR:NAME, or a checkpoint;
IMAGE a file, a folder or a pattern. The folder --out receives the filters'
principal components and the similarity of positions (Figure 7), the attended
distance by layer and head (Figures 7 and 11; 10 of the first edition), the
attention rollout by layer (Figures 6 and 14; 13), the attention of each head
for each of the first images, for MLP-Mixer and RaftMLP the weights of the units
over tokens, and all numbers in arrays.npz. Figures that do not apply to the
model are named.
"""

import argparse
import pathlib
import sys

from keras_vit_cli import command

FEW = 4  # images drawn; distances use all images


@command.entry
def main(arguments: list[str]) -> int:
    """Draws all figures that apply to the model."""
    parser = command.Parser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("images", metavar="IMAGE", nargs="*")
    parser.add_argument("--out", default="inspection", type=pathlib.Path)
    parser.add_argument(
        "--num_images", type=int, default=128, help="at most (128)"
    )
    parser.add_argument("--batch_size", type=int, default=8)
    flags = parser.parse_args(arguments)

    import numpy as np

    from keras_vit_cli import predict

    # Before the model, whose weights may be downloaded.
    paths = predict.find(flags.images)[: flags.num_images]
    model = predict.load(flags.model)
    images = read(model, paths) if paths else None
    flags.out.mkdir(parents=True, exist_ok=True)
    arrays = {}
    for draw in (filters, positions, mixing):
        run(draw, arrays, model, flags.out)
    if images is not None:
        run(distances, arrays, model, images, flags.batch_size, flags.out)
        run(rollouts, arrays, model, images[:FEW], flags.out)
        run(heads, arrays, model, images[:FEW], flags.out)
    if not arrays:
        raise ValueError("MODEL must have something to show. See above.")
    np.savez(flags.out / "arrays.npz", **arrays)
    print(flags.out / "arrays.npz")
    return 0


def read(model, paths: list[str]):
    """Returns images as `[B, H, W, C]`.

    Args:
        model: The model, which determines their size and channels.
        paths: Files.
    """
    import numpy as np

    from keras_vit import data

    if len(model.input_shape) != 4:
        raise ValueError(
            "IMAGE must not be given for a model of videos. Received: a model "
            f"of {model.input_shape[1:]}"
        )
    if not any(layer.name == "preprocessing" for layer in model.layers):
        raise ValueError(
            "MODEL must scale pixels itself. Received: one that was built with "
            "include_preprocessing=False"
        )
    return np.stack(
        [
            data.read_image(path, model.input_shape[1:3], model.input_shape[3])
            for path in paths
        ]
    )


def run(draw, arrays: dict, *args) -> None:
    """Draws one kind of figure, or prints why the model has none.

    Args:
        draw: Returns name -> (array, path of its picture).
        arrays: Receives the arrays.
        args: Arguments of `draw`.
    """
    try:
        found = draw(*args)
    except ValueError as error:
        print(f"no {draw.__name__}: {error}")
        return
    for name, (array, path) in found.items():
        arrays[name] = array
        if path:
            print(path)


def filters(model, out):
    """Filters' principal components."""
    from keras_vit import inspection
    from keras_vit.inspection import pictures

    found = inspection.filter_components(model)
    path = out / "filters.png"
    pictures.plot_filters(found, path)
    return {"filters": (found, path)}


def positions(model, out):
    """Similarity of position embeddings."""
    from keras_vit import inspection
    from keras_vit.inspection import pictures

    found = {}
    for name, array in inspection.position_similarity(model).items():
        path = out / f"positions_{name}.png"
        title = f"position embedding similarity ({name})"
        pictures.plot_position_similarity(array, title, path)
        found[f"positions_{name}"] = (array, path)
    return found


def mixing(model, out):
    """Weights of the hidden units of MLPs over tokens."""
    from keras_vit import inspection
    from keras_vit.inspection import pictures

    found = inspection.token_mixing(model)
    path = out / "token_mixing.png"
    pictures.plot_token_mixing(found, path)
    named = {f"token_mixing/{name}": (a, None) for name, a in found.items()}
    last = list(named)[-1]
    return named | {last: (named[last][0], path)}


def distances(model, images, batch_size, out):
    """Attended distance by layer and head."""
    from keras_vit import inspection
    from keras_vit.inspection import pictures

    found = inspection.attended_distances(model, images, batch_size)
    path = out / "attended_distances.png"
    title = f"{model.name}, {len(images)} image{'s' * (len(images) > 1)}"
    uniform = inspection.uniform_distances(model)
    pictures.plot_attended_distances(found, uniform, title, path)
    named = {f"distances/{i}": (a, None) for i, a in enumerate(found)}
    return named | {"distances/0": (found[0], path)}


def rollouts(model, images, out):
    """Attention rollout by layer."""
    from keras_vit import inspection
    from keras_vit.inspection import pictures

    found = inspection.rollout_by_layer(model, images)
    path = out / "rollouts.png"
    pictures.plot_rollouts(images, found, path)
    return {"rollouts": (found, path)}


def heads(model, images, out):
    """Attention of each head, a picture for each image."""
    from keras_vit import inspection
    from keras_vit.inspection import pictures

    found = inspection.attention_by_head(model, images)
    named = {f"heads/{i}": (a, None) for i, a in enumerate(found)}
    for i, image in enumerate(images):
        path = out / f"heads_{i}.png"
        pictures.plot_heads(image, [each[i] for each in found], path)
        print(path)
    return named


if __name__ == "__main__":
    sys.exit(main())
