"""Compares the towers of CLIP and SigLIP with those of other libraries.

    python -m tools.benchmark_text [--batch_size=4] [--rounds=9] [--tower=text]

Measures inference of the image and the text tower of CLIP B/32 and SigLIP B/16
with random weights, in float32: `predict_on_batch` of keras_vit and keras-hub
on one backend, and a plain loop of transformers (PyTorch), as far as they are
installed, in turns. Prints milliseconds of an image or a text, and the speed of
keras_vit divided by that of the other, the median of the rounds.
"""

import functools
import statistics
import sys
import time
from collections.abc import Callable
from typing import Literal

import keras
import numpy as np

import keras_vit
from keras_vit_cli import command
from tools.benchmark import implementations, measure

LIBRARIES = ("keras_vit", "keras_hub", "transformers")
# Width, blocks, heads, and width of the MLP.
_BASE, _SMALL = (768, 12, 12, 3072), (512, 12, 8, 2048)
# Model -> pixels of a patch, tokens, vocabulary, and the size of its text
# tower; that of the image tower is _BASE.
MODELS: dict[str, tuple] = {
    "CLIPB32": (32, 77, 49_408, _SMALL),
    "SigLIPB16": (16, 64, 32_000, _BASE),
}
TOWERS = ("image", "text")


@command.entry
def main(arguments: list[str]) -> int:
    """Measure, and print a table."""
    parser = command.Parser(description=__doc__)
    parser.add_argument("--batch_size", type=command.count, default=4)
    parser.add_argument("--rounds", type=command.count, default=9)
    parser.add_argument("--tower", choices=TOWERS, help="by default both")
    shared = "measure processor time, where others use the machine: set\n"
    shared += "OMP_NUM_THREADS=1 and TF_NUM_INTRAOP_THREADS=1"
    parser.add_argument("--shared", action="store_true", help=shared)
    options = parser.parse_args(arguments)
    clock = time.process_time if options.shared else time.perf_counter
    there = implementations.importable(LIBRARIES)
    backend = keras.backend.backend()
    others = "".join(f" {name} | faster than it |" for name in there[1:])
    print(f"| {backend}, batch {options.batch_size} | keras_vit |{others}")
    print("| --- |" + " --- |" * (2 * len(there) - 1))
    for model in MODELS:
        for tower in (options.tower,) if options.tower else TOWERS:
            calls = {
                name: call(name, model, tower, options.batch_size)
                for name in there
            }
            found = measure.rounds(calls, options.rounds, clock)
            cells = _cells(found, options.batch_size)
            print(f"| {model}, {tower} | {' | '.join(cells)} |", flush=True)
    return 0


def _cells(seconds, batch_size):
    """Return milliseconds of each, and the ratios of speeds."""
    cells = []
    for name, of_rounds in seconds.items():
        each = 1e3 * statistics.median(of_rounds) / batch_size
        cells.append(f"{each:.1f} ms")
        if name != "keras_vit":
            ratio, *_ = measure.ratio(seconds["keras_vit"], of_rounds)
            cells.append(f"{ratio:.2f}")
    return cells


def call(
    library: str, model: str, tower: str, batch_size: int, side: int = 224
) -> Callable:
    """Return a function that embeds a batch of images of a side, or texts."""
    _, length, vocab_size, _ = MODELS[model]
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((batch_size, side, side, 3), "float32")
    if tower == "text":
        inputs = rng.integers(1, vocab_size, (batch_size, length), "int32")
    if library == "transformers":
        return _torch_call(_theirs(model, tower, side), inputs)
    make = _ours if library == "keras_vit" else _of_hub
    made = make(model, tower, side)
    return functools.partial(made.predict_on_batch, inputs)


def _sizes(model, tower, *names):
    """Return the size of a tower, by what a library calls its four parts."""
    size = _BASE if tower == "image" else MODELS[model][-1]
    return dict(zip(names, size, strict=True))


def _ours(model, tower, side):
    _, length, vocab_size, (width, *_) = MODELS[model]
    kind: Literal["clip", "siglip"] = "clip" if model == "CLIPB32" else "siglip"
    if tower == "text":
        names = ("hidden_size", "num_layers", "num_heads", "mlp_dim")
        return keras_vit.text.text_tower(
            kind,
            vocab_size=vocab_size,
            context_length=length,
            embedding_size=width,
            **_sizes(model, tower, *names),
        )
    return getattr(keras_vit, model)(
        input_shape=(side, side, 3),
        classes=512 if kind == "clip" else None,
        include_top=kind == "clip",  # the projection; SigLIP has none
        include_preprocessing=False,
    )


def _of_hub(model, tower, side):
    import keras_hub

    patch, length, vocab_size, (width, *_) = MODELS[model]
    names = ("hidden_dim", "num_layers", "num_heads", "intermediate_dim")
    arguments = _sizes(model, tower, *names)
    if tower == "image":
        arguments |= dict(patch_size=patch, image_shape=(side, side, 3))
    else:
        arguments |= dict(vocabulary_size=vocab_size, embedding_dim=width)
        arguments["max_sequence_length"] = length
    kind = "CLIP" if model == "CLIPB32" else "SigLIP"
    kind += "VisionEncoder" if tower == "image" else "TextEncoder"
    return getattr(keras_hub.models, kind)(**arguments)


def _theirs(model, tower, side):
    import transformers

    patch, length, vocab_size, _ = MODELS[model]
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads")
    arguments = _sizes(model, tower, *names, "intermediate_size")
    arguments["projection_dim"] = 512
    if tower == "image":
        arguments |= dict(image_size=side, patch_size=patch)
    else:
        arguments |= dict(vocab_size=vocab_size, max_position_embeddings=length)
    part = "Vision" if tower == "image" else "Text"
    kind = "CLIP" if model == "CLIPB32" else "Siglip"
    name = f"{kind}{part}Model" + "WithProjection" * (kind == "CLIP")
    config = getattr(transformers, f"{kind}{part}Config")(**arguments)
    return getattr(transformers, name)(config)


def _torch_call(module, inputs):
    import torch

    inputs = torch.from_numpy(inputs)
    if inputs.ndim == 4:
        inputs = inputs.permute(0, 3, 1, 2).contiguous()
    module.eval()

    def embed():
        with torch.inference_mode():
            return module(inputs)[0].numpy()

    return embed


if __name__ == "__main__":
    sys.exit(main())
