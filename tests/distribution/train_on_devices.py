"""Trains a tiny ViT on one device and on eight.

For a process of its own, because XLA fixes the number of its virtual devices
when it starts. Writes into the directory `{run}.npz` (losses and weights of
five steps) and `results.json`.
"""

import collections
import contextlib
import json
import math
import re

import jax
import keras
import numpy as np
import start_recipe

import keras_vit
from keras_vit.distribution import layouts

TINY = dict(
    patch_size=4,
    hidden_size=32,
    num_layers=1,
    num_heads=8,
    mlp_dim=64,
    dropout_rate=0.1,
    attention_dropout_rate=0.1,
    input_shape=(8, 8, 3),
    classes=8,
)
# Run -> strategy and model_parallel.
RUNS = {
    "one": None,
    "fsdp": ("fsdp", 1),
    "tensor_4": ("tensor", 4),
}
BATCH_SIZE, NUM_STEPS = 16, 5


def make_optimizer():
    # Epsilon is far above rounding: the gradient of a key's bias is zero but
    # for rounding, and Adam would make steps of it.
    return keras.optimizers.Adam(
        1e-2,
        epsilon=1e-3,
        weight_decay=1e-2,
        global_clipnorm=1.0,
        use_ema=True,
        ema_momentum=0.9,
    )


def make_model(run):
    """Returns the scope to train in, and a compiled model."""
    scope = contextlib.nullcontext
    layout = None
    if RUNS[run]:
        strategy, model_parallel = RUNS[run]
        layout = layouts.distribution(strategy, jax.devices(), model_parallel)
        scope = layout.scope
    with scope():
        keras.utils.set_random_seed(1)
        model = keras_vit.ViT(**TINY)
        # It starts from zeros, with which nothing before it would learn.
        kernel = model.get_layer("head").kernel
        kernel.assign(np.random.default_rng(1).normal(size=kernel.shape))
        if layout is not None:
            layouts.check_model(layout, model)
        model.compile(
            make_optimizer(),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=[
                "accuracy",
                keras.metrics.MeanIoU(8, sparse_y_pred=False),
            ],
        )
    return scope, model


def examples(model, steps):
    rng = np.random.default_rng(0)
    shape = (steps * BATCH_SIZE, *model.input_shape[1:])
    images = rng.integers(0, 256, shape, "uint8")
    return images, rng.integers(0, 8, shape[:1], "int32")


class Losses(keras.callbacks.Callback):
    """Keeps the mean loss of the epoch so far after each step."""

    def __init__(self):
        super().__init__()
        self.losses = []

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(logs["loss"])


def train(model, scope, steps):
    losses = Losses()
    with scope():
        model.fit(
            *examples(model, steps),
            batch_size=BATCH_SIZE,
            shuffle=False,
            verbose=0,
            callbacks=[losses],
        )
    return losses.losses


def weights_of(model):
    return {v.path: np.asarray(v.value) for v in model.weights}


def largest_share(model):
    """The largest part of weights and optimizer state on any one device."""
    held = collections.Counter()
    total = 0
    for variable in model.weights + model.optimizer.variables:
        total += variable.value.nbytes
        for shard in variable.value.addressable_shards:
            held[shard.device] += shard.data.nbytes
    return max(held.values()) / total


def sizes_of(model):
    return [math.prod(v.shape) for v in model.trainable_variables]


def is_replicated(variables):
    return all(v.value.is_fully_replicated for v in variables)


def collectives(compiled):
    """Lists [operation, shape] of what devices send one another."""
    kinds = "all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute"
    found = []
    for shapes, kind in re.findall(
        rf"= (.*?) ({kinds})(?:-start)?\(", compiled.as_text()
    ):
        for dtype, dims in re.findall(r"(\w+)\[([\d,]*)\]", shapes):
            assert dtype in ("f32", "u32", "s32"), dtype
            found.append([kind, [int(n) for n in dims.split(",") if n]])
    return found


def arguments_of(model, scope):
    """Returns a model's state and a batch, where training has them."""
    state = tuple(
        [v.value for v in variables]
        for variables in (
            model.trainable_variables,
            model.non_trainable_variables,
            model.optimizer.variables,
            model.metrics_variables,
        )
    )
    with scope():
        layout = keras.distribution.distribution()
        batch = [
            jax.device_put(x, layout.get_data_layout(x.shape).backend_layout)
            for x in examples(model, 1)
        ]
    return state, batch


def training_collectives(model, scope):
    state, batch = arguments_of(model, scope)
    shardings = jax.tree.map(lambda x: x.sharding, state)
    with scope():
        # As `fit` compiles it, so that it is in the cache of programs.
        step = jax.jit(
            model.train_step,
            donate_argnums=0,
            out_shardings=(None, shardings),
        )
        return collectives(step.lower(state, batch).compile())


def inference_collectives(model, scope):
    state, (images, _) = arguments_of(model, scope)
    with scope():
        call = jax.jit(model.stateless_call)
        return collectives(call.lower(*state[:2], images).compile())


def main(directory, checkpoint):
    start_recipe.pretend_devices(8)
    results = {"devices": jax.device_count()}
    for run in ("one", "fsdp"):
        scope, model = make_model(run)
        losses = train(model, scope, NUM_STEPS)
        np.savez(directory / f"{run}.npz", losses=losses, **weights_of(model))
    results["fsdp"] = {
        "largest_share": largest_share(model),
        "replicated": is_replicated(
            model.metrics_variables + model.non_trainable_variables
        ),
        "training": training_collectives(model, scope),
        "sizes": sizes_of(model),
    }
    scope, model = make_model("tensor_4")
    results["tensor_4"] = {"inference": inference_collectives(model, scope)}
    plain = keras_vit.ViT(weights=checkpoint)
    with layouts.distribution("fsdp", jax.devices()).scope():
        sharded = keras_vit.ViT(weights=checkpoint)
    pairs = zip(plain.weights, sharded.weights, strict=True)
    results["loaded"] = {
        "same": all(np.array_equal(a.value, b.value) for a, b in pairs),
        "cut": sum(not is_replicated([v]) for v in sharded.weights),
        "divisible": sum(
            any(n % 8 == 0 for n in v.shape) for v in plain.weights
        ),
    }
    (directory / "results.json").write_text(json.dumps(results))
