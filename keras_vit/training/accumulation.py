"""Gradient accumulation inside the training step.

The paper trains with batches of 4096 images. If such a batch does not fit in
memory, it is computed in parts, one after the other; their gradients are
averaged and applied once, with the same result as one large batch. Keras'
`gradient_accumulation_steps` calls the optimizer for every part, so that steps,
weight decay and averages advance with each part; it also fails under
tf.distribute.
"""

import keras
from keras import ops

from keras_vit._arguments import Count, checked
from keras_vit.models import ImageModel
from keras_vit.ops import xla
from keras_vit.training.task_loss import clear_gradients

# What a model of layers of another does not take over.
_OWN = ("compute_loss", "train_step", "test_step", "compute_metrics")


@checked
def accumulate(model: keras.Model, micro_batches: Count) -> keras.Model:
    """Return a model to train, which runs each batch in parts.

    The gradient of a batch is the mean of the gradients of its k parts. Only
    one part at a time is in memory:

        g = (g_1 + ... + g_k) / k

    Part i contains the examples i, i + k, i + 2 k, ..., so that the parts of a
    batch that is divided among devices are divided in the same way.

    The returned model shares the layers and weights of `model`. Compile and fit
    the returned model, with tf.distribute in the scope in which `model` was
    built, and save `model`.

    Optimizer, metrics and logs behave as with the full batch, provided that the
    loss is a mean over the examples. A layer that depends on other examples,
    such as BatchNormalization, sees only those of its part.

    Args:
        model: A functional model.
        micro_batches: Number of parts k; divides the batch of each replica.
            With 1 the model itself is returned.

    Raises:
        ValueError: If `micro_batches` is not a positive integer, the model is
            not functional or has a loss or a step of its own or, in training,
            if `micro_batches` does not divide the batch of a replica.

    Example:
        trained = keras_vit.training.accumulate(model, micro_batches=8)
        trained.compile(
            "adam",
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        trained.fit(batches_of_4096)
        model.save("model.keras")
    """
    if micro_batches == 1:
        return model
    if not hasattr(model, "input") or not hasattr(model, "output"):
        raise ValueError(
            "`model` must be functional. Received: "
            f"{model.name!r} of {type(model)}"
        )
    if own := [name for name in _OWN if _overrides(model, name)]:
        remedy = ""
        if own == ["compute_loss"]:
            remedy = " Call `set_loss` on the returned model instead."
        raise ValueError(
            "`model` must leave its loss and its steps to `compile` and `fit`, "
            "because the returned model has layers of it alone. Received: "
            f"{model.name!r} with its own `{own[0]}`.{remedy}"
        )
    trained = _OF_BACKEND(model.input, model.output, name=model.name)
    trained.micro_batches = micro_batches
    return trained


def _overrides(model, name):
    """Return whether a model has a method of the user's own, or `set_loss`'s.

    A model of this package only clears gradients in its training step.
    """
    usual = [getattr(base, name) for base in (keras.Model, ImageModel)]
    return name in vars(model) or getattr(type(model), name) not in usual


class _Accumulation(keras.Model):
    """The base class of the training steps of the backends."""

    # Files of it, such as those of `keras.callbacks.ModelCheckpoint`, open as
    # what continues the training.
    def get_config(self):
        return super().get_config() | dict(micro_batches=self.micro_batches)

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        micro_batches = config.pop("micro_batches")
        trained = super().from_config(config, custom_objects)
        trained.micro_batches = micro_batches
        return trained

    def _check_batch(self, data, replicas=1):
        """Refuse a batch whose known size is not divisible.

        Args:
            data: The batch.
            replicas: Number of replicas over which it is spread.
        """
        size = keras.tree.flatten(data)[0].shape[0]
        if size is not None and size % (self.micro_batches * replicas):
            raise ValueError(
                "`micro_batches` splits the batch of each replica into equal "
                "parts, so the batch size must be a multiple of "
                f"{self.micro_batches * replicas}. Received: "
                f"micro_batches={self.micro_batches}, a batch of {size} on "
                f"{replicas} replica(s)"
            )

    def _part(self, data, index):
        """Return x, y and sample weights of part `index` of a batch."""

        def take(values):
            if values is None:
                return None
            shape = (-1, self.micro_batches, *ops.shape(values)[1:])
            return ops.reshape(values, shape)[:, index]

        part = keras.tree.map_structure(take, data)
        return keras.utils.unpack_x_y_sample_weight(part)

    def _record(self, loss, x, y, y_pred, sample_weight):
        """Update the metrics with one part and return their results."""
        size = ops.shape(keras.tree.flatten(x)[0])[0]
        self.metrics[0].update_state(loss, sample_weight=size)  # the loss
        return self.compute_metrics(x, y, y_pred, sample_weight)


class _JaxAccumulation(_Accumulation):
    def train_step(self, state, data):  # type: ignore[override]
        import jax

        trainable, non_trainable, optimizer_variables, metrics = state
        distribution = keras.distribution.distribution()
        replicas = 1
        if distribution is not None:
            mesh = distribution.device_mesh
            axis = mesh.axis_names.index(distribution.batch_dim_name)
            replicas = mesh.shape[axis]
        self._check_batch(data, replicas)
        differentiate = jax.value_and_grad(
            self.compute_loss_and_updates, has_aux=True
        )

        def run_part(carry, index):
            sums, non_trainable, metrics = carry
            x, y, sample_weight = self._part(data, index)
            with xla.accumulation():
                (_, updates), gradients = differentiate(
                    trainable,
                    non_trainable,
                    metrics,
                    x,
                    y,
                    sample_weight,
                    training=True,
                    optimizer_variables=optimizer_variables,
                )
            loss, y_pred, non_trainable, metrics = updates
            mapping = list(zip(self.metrics_variables, metrics, strict=True))
            with keras.StatelessScope(mapping) as scope:
                logs = self._record(loss, x, y, y_pred, sample_weight)
            metrics = [
                scope.get_current_value(v) for v in self.metrics_variables
            ]
            sums = jax.tree.map(jax.numpy.add, sums, gradients)
            return (sums, non_trainable, metrics), logs

        sums = jax.tree.map(jax.numpy.zeros_like, trainable)
        (sums, non_trainable, metrics), logs = jax.lax.scan(
            run_part,
            (sums, list(non_trainable), list(metrics)),
            jax.numpy.arange(self.micro_batches),
        )
        gradients = [g / self.micro_batches for g in sums]
        trainable, optimizer_variables = self.optimizer.stateless_apply(
            optimizer_variables, gradients, trainable
        )
        logs = {name: values[-1] for name, values in logs.items()}
        return logs, (trainable, non_trainable, optimizer_variables, metrics)


class _TensorFlowAccumulation(_Accumulation):
    def train_step(self, data):
        import tensorflow as tf

        replicas = tf.distribute.get_strategy().num_replicas_in_sync
        self._check_batch(data)  # the batch of this replica
        divisible = tf.debugging.assert_equal(
            tf.shape(keras.tree.flatten(data)[0])[0] % self.micro_batches,
            0,
            "`micro_batches` must divide the batch of each replica. "
            f"Received: micro_batches={self.micro_batches}",
        )
        weights = self.trainable_weights

        def run_part(index, sums):
            x, y, sample_weight = self._part(data, index)
            with tf.GradientTape() as tape:
                y_pred = self(x, training=True)
                loss = self.compute_loss(x, y, y_pred, sample_weight)
                scaled = self.optimizer.scale_loss(loss)
            gradients = tape.gradient(
                scaled,
                weights,
                unconnected_gradients=tf.UnconnectedGradients.ZERO,
            )
            # Keras divides the loss by the number of replicas.
            self._record(loss * replicas, x, y, y_pred, sample_weight)
            sums = [s + g for s, g in zip(sums, gradients, strict=True)]
            return index + 1, sums

        start = [tf.zeros(w.shape, w.dtype) for w in weights]
        with tf.control_dependencies([divisible]):
            _, sums = tf.while_loop(
                lambda index, sums: index < self.micro_batches,
                run_part,
                (tf.constant(0), start),
                parallel_iterations=1,
                maximum_iterations=self.micro_batches,
            )
        gradients = [g / self.micro_batches for g in sums]
        self.optimizer.apply_gradients(zip(gradients, weights, strict=True))
        return self.get_metrics_result()


class _TorchAccumulation(_Accumulation):
    def train_step(self, data):
        import torch

        self._check_batch(data)
        clear_gradients(self)
        for index in range(self.micro_batches):
            x, y, sample_weight = self._part(data, index)
            y_pred = self(x, training=True)
            loss = self.compute_loss(x, y, y_pred, sample_weight)
            self._record(loss, x, y, y_pred, sample_weight)
            scaled = self.optimizer.scale_loss(loss)
            (scaled / self.micro_batches).backward()
        weights = self.trainable_weights
        with torch.no_grad():
            self.optimizer.apply([w.value.grad for w in weights], weights)
        return self.get_metrics_result()


_OF_BACKEND = keras.saving.register_keras_serializable(
    "keras_vit", "Accumulation"
)(
    dict(
        jax=_JaxAccumulation,
        tensorflow=_TensorFlowAccumulation,
        torch=_TorchAccumulation,
    )[keras.backend.backend()]
)
