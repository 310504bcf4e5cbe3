"""The best classes of an image or a video, and how they are printed."""

import numpy as np


def best(names, scores, count: int) -> list[tuple[int, str, float]]:
    """Return the best classes as (index, name, score)."""
    top = np.argsort(-scores)[:count]
    return [(int(n), names[n], float(scores[n])) for n in top]


def print_table(path: str, rows: list) -> None:
    """Print the path and a line for each of `best`."""
    print(path)
    for _, name, score in rows:
        print(f"  {score:7.2%}  {name}")


def as_objects(rows: list) -> list[dict]:
    """Return each of `best` as an object of JSON."""
    keys = ("index", "class", "score")
    return [dict(zip(keys, row, strict=True)) for row in rows]
