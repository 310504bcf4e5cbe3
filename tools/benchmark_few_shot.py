"""Measures the time, memory and accuracy of few-shot regression.

python -m tools.benchmark_few_shot [--classes 10000] [--shots 5] [--width 1024]

Solves for float32 features whose mean is far from 0 and whose scales span
three orders of magnitude, and compares some of the classes with the normal
equations, solved in float64 with explicit targets.
"""

import resource
import sys
import time

import numpy as np

from keras_vit import evaluation
from keras_vit_cli import command

PENALTIES = (1e-2, 1.0, 1e2)
NUM_COMPARED = 50


@command.entry
def main(arguments: list[str]) -> int:
    """Print time, memory and differences."""
    parser = command.Parser(description=__doc__)
    parser.add_argument("--classes", type=command.count, default=10_000)
    parser.add_argument("--shots", type=command.count, default=5)
    parser.add_argument("--width", type=command.count, default=1024)
    options = parser.parse_args(arguments)
    labels = np.repeat(np.arange(options.classes), options.shots)
    features = _features(labels, options.width)
    print(f"features: {features.nbytes / 2**30:.2f} GiB")

    start = time.perf_counter()
    solver = evaluation.LeastSquares(features, labels, options.classes)
    found = {l2: solver.weights(l2) for l2 in PENALTIES}
    seconds = time.perf_counter() - start
    # Linux counts in KiB and macOS in bytes.
    unit = 2**30 if sys.platform == "darwin" else 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"solved for {len(PENALTIES)} penalties in {seconds:.1f} s; peak of "
        f"the process {peak / unit:.2f} GiB"
    )

    compared = np.linspace(0, options.classes - 1, NUM_COMPARED)
    compared = np.unique(compared.astype(int))
    for l2, (kernel, bias) in found.items():
        expected, intercept = _solve(features, labels, compared, l2)
        print(
            f"l2={l2:g}: largest difference of {len(compared)} classes "
            f"{_difference(kernel[:, compared], expected):.1e} of the largest "
            f"weight, {_difference(bias[compared], intercept):.1e} of the "
            "largest bias"
        )
    return 0


def _features(labels, width):
    """Return features with a cluster for each class."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((labels.max() + 1, width), "float32")
    features = 0.5 * rng.standard_normal((len(labels), width), "float32")
    features += centres[labels]
    features *= np.logspace(0, -3, width, dtype="float32")
    features += 5
    return features


def _solve(features, labels, classes, l2):
    mean = features.mean(axis=0, dtype="float64")
    centred = features - mean
    targets = np.where(labels[:, None] == classes, 1.0, -1.0)
    gram = centred.T @ centred + l2 * np.eye(len(mean))
    kernel = np.linalg.solve(gram, centred.T @ (targets - targets.mean(axis=0)))
    return kernel, targets.mean(axis=0) - mean @ kernel


def _difference(found, expected):
    return np.abs(found - expected).max() / np.abs(expected).max()


if __name__ == "__main__":
    sys.exit(main())
