"""Holds out a part of every class for evaluation."""

import numpy as np


def hold_out(
    labels: np.ndarray,
    fraction: float,
    seed: int,
    *,
    name: str,
    class_names: tuple[str, ...],
) -> tuple[np.ndarray, np.ndarray]:
    """Split examples so that the same share of each class is held out.

    Args:
        labels: Class of each example, `[N]`. With several labels per example,
            `[N, K]`, a share of all examples is held out.
        fraction: Share of each class to hold out; at least one example of each
            class is held out, and at least one is not.
        seed: Seed of the choice.
        name, class_names: Of the data set, in messages.

    Returns:
        Indices kept and indices held out, both in ascending order.
    """
    rng = np.random.default_rng(seed)
    groups, needed = [np.arange(len(labels))], "images"
    if labels.ndim == 1:
        groups = [np.flatnonzero(labels == x) for x in np.unique(labels)]
        needed = "images of each class"
    held_out = []
    for members in groups:
        if len(members) < 2:
            found = str(len(members))
            if labels.ndim == 1:
                found = f"1 image of class {class_names[labels[members[0]]]!r}"
            raise ValueError(
                f"Holding out `eval_fraction` of {name!r} needs at least 2 "
                f"{needed}. Received: {found}"
            )
        count = min(max(1, round(fraction * len(members))), len(members) - 1)
        held_out.append(rng.permutation(members)[:count])
    held_out = np.sort(np.concatenate(held_out))
    kept = np.setdiff1d(np.arange(len(labels)), held_out)
    return kept, held_out


def split(whole: dict, fraction: float, seed: int) -> tuple[dict, dict]:
    """Hold out a part of the fields of a `Source` of files or arrays.

    The training part alone lists the files that are not examples.
    """

    def part(chosen):
        found = whole | dict(num_examples=len(chosen))
        found["labels"] = whole["labels"][chosen]
        if "paths" in whole:
            found["paths"] = tuple(whole["paths"][i] for i in chosen)
        else:
            found["images"] = whole["images"][chosen]
        return found

    kept, held_out = hold_out(
        whole["labels"],
        fraction,
        seed,
        name=whole["name"],
        class_names=whole["class_names"],
    )
    return part(kept), part(held_out) | dict(skipped={}, ignored={})
