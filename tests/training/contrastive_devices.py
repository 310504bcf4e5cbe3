"""Computes both contrastive losses on one device and on several.

For a process of its own, since backends fix the number of their devices. Writes
`losses.json`: by name the losses, the gradients, and what devices send.
"""

import json

import keras
import numpy as np
import start_recipe

from keras_vit import training
from tests.distribution.train_on_devices import collectives

# Tracing the step of a replica takes seconds on TensorFlow.
DEVICES = 2 if keras.backend.backend() == "tensorflow" else 4
B, D = 8, 16


def embeddings():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, B, D)).astype("float32")
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    return x[0], x[1], np.array([1] * (B - 1) + [0], "float32")


def losses_of(images, texts, scale, bias, valid):
    return dict(
        softmax=training.softmax_contrastive_loss(images, texts, scale, valid),
        sigmoid=training.sigmoid_contrastive_loss(
            images, texts, scale, bias, valid
        ),
    )


def on_jax():
    import jax

    from keras_vit.distribution import layouts

    found = {}
    images, texts, valid = embeddings()
    for name in ("softmax", "sigmoid"):

        def loss(images, texts, scale, bias, valid, name=name):
            return losses_of(images, texts, scale, bias, valid)[name]

        for devices in (1, DEVICES):
            layout = layouts.distribution("data", jax.devices()[:devices])
            with layout.scope():
                rows = [
                    jax.device_put(
                        x, layout.get_data_layout(x.shape).backend_layout
                    )
                    for x in (images, texts, valid)
                ]
                step = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2, 3)))
                arguments = (*rows[:2], 12.0, -3.0, rows[2])
                compiled = step.lower(*arguments).compile()
                value, gradients = compiled(*arguments)
            found[f"{name}_{devices}"] = dict(
                loss=float(value),
                gradients=[np.asarray(g).tolist() for g in gradients],
                sent=collectives(compiled),
            )
    return found


def on_tensorflow():
    import tensorflow as tf

    found = {}
    rows = embeddings()
    for devices in (1, DEVICES):
        strategy = tf.distribute.MirroredStrategy(
            [f"CPU:{i}" for i in range(devices)]
        )
        part = B // devices

        def value_of(context, part=part):
            i = context.replica_id_in_sync_group
            return tuple(x[i * part : (i + 1) * part] for x in rows)

        values = strategy.experimental_distribute_values_from_function(value_of)

        def step(values):
            images, texts, valid = map(tf.convert_to_tensor, values)
            scale, bias = tf.constant(12.0), tf.constant(-3.0)
            watched = [images, texts, scale, bias]
            with tf.GradientTape(persistent=True) as tape:
                tape.watch(watched)
                losses = losses_of(images, texts, scale, bias, valid)
            return {
                name: (
                    loss,
                    tape.gradient(loss, watched, unconnected_gradients="zero"),
                )
                for name, loss in losses.items()
            }

        @tf.function
        def run(values, strategy=strategy, step=step):
            return strategy.run(step, (values,))

        for name, (loss, gradients) in run(values).items():
            parts = [strategy.experimental_local_results(g) for g in gradients]
            found[f"{name}_{devices}"] = dict(
                loss=float(sum(strategy.experimental_local_results(loss))),
                gradients=[
                    np.concatenate(parts[0]).tolist(),
                    np.concatenate(parts[1]).tolist(),
                    float(sum(parts[2])),
                    float(sum(parts[3])),
                ],
            )
    return found


def main(path):
    start_recipe.pretend_devices(DEVICES)
    on = dict(jax=on_jax, tensorflow=on_tensorflow)
    path.write_text(json.dumps(on[keras.backend.backend()]()))
