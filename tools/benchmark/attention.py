r"""Compares the fused attention of the backend with explicit products.

KERAS_BACKEND=torch python -m tools.benchmark.attention

For each dtype and size of the layer of ViT-B, prints the time of "fused"
divided by that of "explicit" (`set_attention_implementation`), called in turns:
inference and a training step.
"""

import sys

import keras
import numpy as np

from keras_vit import layers
from keras_vit_cli import command
from tools.benchmark import measure

NUM_HEADS, HIDDEN_SIZE = 12, 768
SIZES = ((1, 197), (8, 197), (4, 577), (4, 1025))  # images, tokens


@command.entry
def main(arguments: list[str]) -> int:
    """Measure and print the table; return 0."""
    parser = command.Parser(description=__doc__)
    parser.add_argument("--rounds", type=command.count, default=9)
    flags = parser.parse_args(arguments)
    device = measure.device()
    print(f"{keras.backend.backend()} on {device}: fused / explicit")
    for dtype in ("float32", "bfloat16"):
        for batch_size, tokens in SIZES:
            size = 4 * batch_size * NUM_HEADS * tokens**2 / 2**20
            ratios = compare(dtype, batch_size, tokens, flags.rounds)
            found = ", ".join(f"{k} {v:.2f}" for k, v in ratios.items())
            print(f"{dtype}, {batch_size}x{tokens} ({size:.0f} MiB): {found}")
    return 0


def compare(
    dtype: str, batch_size: int, tokens: int, rounds: int
) -> dict[str, float]:
    """Return the median ratio for "inference" and for "training"."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((batch_size, tokens, HIDDEN_SIZE), "float32")

    def function(implementation, task):
        model = keras.Sequential(
            [
                keras.layers.Input((tokens, HIDDEN_SIZE)),
                layers.MultiHeadSelfAttention(NUM_HEADS, dtype=dtype),
            ]
        )
        model.compile(keras.optimizers.SGD(), "mse")

        def call():
            layers.set_attention_implementation(implementation)
            if task == "inference":
                model.predict_on_batch(x)
            else:
                model.train_on_batch(x, x)

        return call

    ratios = {}
    for task in ("inference", "training"):
        names = ("explicit", "fused")
        seconds = measure.rounds({n: function(n, task) for n in names}, rounds)
        ratios[task], *_ = measure.ratio(*seconds.values())
    layers.set_attention_implementation("auto")
    return ratios


if __name__ == "__main__":
    sys.exit(main())
