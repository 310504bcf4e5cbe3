"""What the runs of recipes.miniature show, beside what the paper says."""

import pathlib

import keras
import numpy as np
from scipy import stats

import keras_vit
from keras_vit import inspection
from keras_vit.inspection import pictures
from recipes import experiment, inputs, miniature_claims, miniature_figures
from recipes.miniature_claims import choices_of_sizes, result_of

NUM_IMAGES = 128  # whose attended distances are averaged, as the paper's


def measure(
    planned: dict[str, experiment.Config],
    accuracies: dict[str, float],
    workdir: pathlib.Path,
) -> dict:
    """Return all numbers, and draw the figures of the trained ViT.

    Args:
        planned: The config of each run by name, "MODEL_SIZE_SEED" or
            "ViT_CHOICE_SEED".
        accuracies: The accuracy of each run on the evaluation images.

    Returns:
        "costs", each model's MACs and parameters; "sizes", the numbers of
        training images; "eval_images", their number; "accuracies", model to
        size or choice to the accuracies of the seeds; and of the first ViT of
        all images "positions", see `position_structure`, "distances",
        `[layer][head]` in pixels, and "uniform_distance", that of a head that
        attends to all patches alike.
    """
    seed = min(config.seed for config in planned.values())
    config = planned[f"ViT_all_{seed}"]
    train, evaluation = inputs.load(config)
    models = {
        name: keras.models.load_model(
            workdir / f"{name}_all_{seed}" / "last.keras", compile=False
        )
        for name in miniature_figures.COLORS
    }
    images = _evaluation_images(config, train, evaluation)
    vit = models["ViT"]
    distances = inspection.attended_distances(vit, images, batch_size=32)
    title = f"attended distance, {len(images)} images"
    uniform = inspection.uniform_distances(vit)
    pictures.plot_attended_distances(
        distances, uniform, title, workdir / "distances.png"
    )
    (similarity,) = inspection.position_similarity(vit).values()
    sizes = {config.data.train_images for config in planned.values()}
    title = "position embedding similarity"
    pictures.plot_position_similarity(
        similarity, title, workdir / "positions.png"
    )
    return dict(
        costs={
            name: dict(
                macs=keras_vit.cost(model).macs,
                parameters=model.count_params(),
            )
            for name, model in models.items()
        },
        sizes=[*sorted(sizes - {0}), train.num_examples],
        eval_images=evaluation.num_examples,
        accuracies=_by_model(accuracies),
        positions=position_structure(similarity),
        distances=[each.tolist() for each in distances],
        uniform_distance=uniform[0],
    )


def _by_model(accuracies):
    """Turn "MODEL_CHOICE_SEED" into model -> choice -> list by seed."""
    found = {}
    for name in sorted(accuracies):
        model, _, rest = name.partition("_")
        choice, _, _ = rest.rpartition("_")
        found.setdefault(model, {}).setdefault(choice, []).append(
            accuracies[name]
        )
    return found


def _evaluation_images(config, train, evaluation):
    """Return some evaluation images, `[B, H, W, C]`, from all classes."""
    info = inputs.dataset_info(config, train)
    _, batches = inputs.pipelines(config, info, train, evaluation)
    every = max(1, evaluation.num_examples // NUM_IMAGES)
    examples = batches().unbatch().filter(lambda x: x["weights"] > 0)
    chosen = examples.shard(every, 0).take(NUM_IMAGES)
    return np.stack([x["images"] for x in chosen.as_numpy_iterator()])


def position_structure(similarity: np.ndarray) -> dict[str, float]:
    """Return how much of the grid is in the position embeddings.

    Args:
        similarity: One of `inspection.position_similarity`,
            `[rows, columns, rows, columns]`.

    Returns:
        "correlation" of similarity with distance in the grid, by ranks;
        "nearest_adjacent", the share of patches whose most similar other one
        is adjacent (diagonals included), and "nearest_adjacent_by_chance";
        "same_line" and "elsewhere", the mean similarity of two patches in one
        row or column, and of others.
    """
    rows, columns = similarity.shape[:2]
    row, column = np.divmod(np.arange(rows * columns), columns)
    apart = np.hypot(row[:, None] - row, column[:, None] - column)
    flat = similarity.reshape(rows * columns, -1).astype("float64")
    others = ~np.eye(rows * columns, dtype=bool)
    adjacent = (apart < 1.5) & others
    best = np.where(others, flat, -np.inf).argmax(axis=1)
    line = (row[:, None] == row) | (column[:, None] == column)
    return dict(
        correlation=float(stats.spearmanr(flat[others], apart[others])[0]),
        nearest_adjacent=float(
            np.take_along_axis(adjacent, best[:, None], axis=1).mean()
        ),
        nearest_adjacent_by_chance=float(adjacent.sum() / others.sum()),
        same_line=float(flat[line & others].mean()),
        elsewhere=float(flat[~line].mean()),
    )


def write(results: dict, workdir: pathlib.Path) -> None:
    """Write report.md, accuracy.png and choices.png, and print the report."""
    miniature_figures.draw_accuracies(results, workdir / "accuracy.png")
    miniature_figures.draw_choices(results, workdir / "choices.png")
    text = report(results)
    (workdir / "report.md").write_text(text, encoding="utf-8")
    print(f"\n{text}\n{workdir / 'report.md'}", flush=True)


def report(results: dict) -> str:
    """Return the tables and the claims as Markdown."""
    header = ["", *(f"{size:,} images" for size in results["sizes"])]
    rows = [
        [
            name,
            *(
                _text(results, results["accuracies"][name][choice])
                for choice in choices_of_sizes(results)
            ),
        ]
        for name in miniature_figures.COLORS
    ]
    costs = [
        [name, f"{cost['macs'] / 1e6:.1f} M", f"{cost['parameters']:,}"]
        for name, cost in results["costs"].items()
    ]
    variants = [
        [label.replace("\n", " "), _text(results, sample)]
        for choice, label in miniature_figures.CHOICES.items()
        for sample in [results["accuracies"]["ViT"][choice]]
    ]
    judged = [
        [claim, place, found, f"**{verdict}**"]
        for claim, place, found, verdict in miniature_claims.claims(results)
    ]
    tables = [
        (["claim", "paper", "here", ""], judged),
        (header, rows),
        (["", "multiply-accumulates", "parameters"], costs),
        (["ViT, all images", "accuracy"], variants),
    ]
    return "\n".join(_table(*table) for table in tables)


def _text(results, sample):
    mean, error = result_of(results, sample)
    return f"{mean:.1%} +- {error:.1%}"


def _table(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
