"""Measures MViT-B 16x4 beside torchvision's: forward and gradient.

    KERAS_BACKEND=jax python -m tools.benchmark_mvit [--threads 2]

Both have the same random weights and take the same clip, in float32. They run
in turns, each round once, and the table holds the median of the rounds.
"""

import os
import statistics
import sys
import tempfile
import time

import keras
import numpy as np

import keras_vit
from keras_vit_cli import command


@command.entry
def main(arguments: list[str]) -> int:
    """Measures, and prints the table."""
    parser = command.Parser(description=__doc__.split("\n")[0])
    parser.add_argument("--batch_size", type=int, default=1, help="clips")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2, help="of torchvision")
    options = parser.parse_args(arguments)
    model = random_model()
    rng = np.random.default_rng(0)
    clips = rng.normal(size=(options.batch_size, *model.input_shape[1:]))
    clips = clips.astype("float32")
    steps = {"keras_vit": our_step(model, clips)}
    steps["torchvision"] = their_step(model, clips, options.threads)
    losses = {name: step() for name, step in steps.items()}  # and compiles
    np.testing.assert_allclose(*losses.values(), rtol=1e-4)
    seconds = {name: [] for name in steps}
    for _ in range(options.rounds):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - start)
    ours, theirs = (statistics.median(seconds[name]) for name in steps)
    backend = keras.backend.backend()
    print(f"keras_vit on {backend:10s} {ours:8.2f} s")
    print(f"torchvision             {theirs:8.2f} s")
    print(f"torchvision / keras_vit {theirs / ours:8.2f}")
    return 0


def random_model() -> keras.Model:
    """Returns MViT-B 16x4 with a head that is not zero."""
    model = keras_vit.MViTB16x4(classes=400, include_preprocessing=False)
    kernel = model.head.kernel
    rng = np.random.default_rng(0)
    kernel.assign(rng.normal(size=kernel.shape) * 0.02)
    return model


def our_step(model, clips):
    """Returns a function that gives the loss, once gradients are there."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        def loss(trainable, others, clips):
            logits, _ = model.stateless_call(trainable, others, clips)
            return keras.ops.mean(logits**2)

        step = jax.jit(jax.value_and_grad(loss))
        values = [
            [v.value for v in variables]
            for variables in (
                model.trainable_variables,
                model.non_trainable_variables,
            )
        ]
        return lambda: float(jax.block_until_ready(step(*values, clips))[0])
    if backend == "tensorflow":
        import tensorflow as tf

        @tf.function(jit_compile=True)
        def step(clips):
            with tf.GradientTape() as tape:
                loss = keras.ops.mean(model(clips) ** 2)
            variables = [v.value for v in model.trainable_variables]
            return loss, tape.gradient(loss, variables)

        return lambda: float(step(clips)[0])
    return torch_step(model, clips)


def torch_step(model, clips):
    """Returns a function that gives the loss of a module of PyTorch."""
    import torch

    clips = torch.tensor(clips)

    def step():
        model.zero_grad()
        loss = (model(clips) ** 2).mean()
        loss.backward()
        return float(loss)

    return step


def their_step(model, clips, threads):
    """Returns the step of torchvision's MViT with the same weights."""
    import torch
    from torchvision.models import video

    torch.set_num_threads(threads)
    theirs = video.mvit_v1_b().eval()  # without dropout
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "mvit.pth")
        keras_vit.save_checkpoint(model, path, "torchvision")
        theirs.load_state_dict(torch.load(path))
    return torch_step(theirs, clips.transpose(0, 4, 1, 2, 3))


if __name__ == "__main__":
    sys.exit(main())
