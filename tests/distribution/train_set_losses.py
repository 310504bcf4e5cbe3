"""Trains with the losses of sets on one device and on two, in one process."""

import math

import keras
import numpy as np
import start_recipe

from keras_vit import distribution, training

BATCH_SIZE, QUERIES, CLASSES, SIDE = 8, 5, 3, 6


def detection():
    """Returns the loss, the shapes of its outputs, and targets."""
    shapes = dict(logits=(QUERIES, CLASSES + 1), pred_boxes=(QUERIES, 4))
    boxes = np.random.default_rng(0).uniform(0.2, 0.6, (BATCH_SIZE, 3, 4))
    return training.SetDetectionLoss(), shapes, dict(boxes=boxes)


def segmentation():
    shapes = dict(
        class_queries_logits=(QUERIES, CLASSES + 1),
        masks_queries_logits=(SIDE, SIDE, QUERIES),
    )
    masks = np.random.default_rng(0).integers(0, 2, (BATCH_SIZE, 3, SIDE, SIDE))
    loss = training.SetSegmentationLoss(num_points=16)
    return loss, shapes, dict(masks=masks)


def step(devices, make):
    """Returns the loss and the weights after a step."""
    with devices.scope():
        keras.utils.set_random_seed(1)
        loss, shapes, targets = make()
        inputs = keras.Input((4,))
        outputs = {
            name: keras.layers.Reshape(shape)(
                keras.layers.Dense(math.prod(shape), "sigmoid")(inputs)
            )
            for name, shape in shapes.items()
        }
        model = keras.Model(inputs, outputs)
        training.set_loss(model, loss)
        # Tracing the steps of replicas takes longer.
        eager = keras.backend.backend() == "tensorflow"
        model.compile(keras.optimizers.SGD(1.0), run_eagerly=eager)
    distribution.synchronize(model)
    # The first device of two has no object.
    count = np.array([0, 0, 0, 0, 1, 2, 3, 3])[:, None]
    labels = np.where(np.arange(3) < count, np.arange(3), -1)
    images = np.random.default_rng(1).normal(size=(BATCH_SIZE, 4))
    of_batch = (
        images.astype("float32"),
        {k: v.astype("float32") for k, v in targets.items()}
        | dict(labels=labels),
    )
    first, count = devices.process_index, devices.num_processes
    with devices.training_scope():
        history = model.fit(
            *keras.tree.map_structure(lambda x: x[first::count], of_batch),
            batch_size=BATCH_SIZE // count,
            shuffle=False,
            verbose=0,
        )
    weights = map(keras.ops.convert_to_numpy, model.weights)
    return [np.array(history.history["loss"]), *weights]


def main():
    start_recipe.pretend_devices(2)
    one = distribution.Devices(kind="cpu", num_devices=1, num_replicas=1)
    two = distribution.setup("cpu")
    assert two.num_replicas == 2
    for make in (detection, segmentation):
        for ours, theirs in zip(step(two, make), step(one, make), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)
