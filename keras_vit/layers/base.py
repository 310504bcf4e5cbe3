"""The base classes of layers, and the check of their inputs."""

import inspect
from collections.abc import Callable

import keras

from keras_vit._arguments import Rate, checked
from keras_vit._earlier_names import rename
from keras_vit._keras import nested_layers
from keras_vit.ops.rematerialize import rematerialize
from keras_vit.ops.xla import gradient_barrier


def check_shape(
    layer, inputs, expected: tuple[int | None, ...], always: bool = False
):
    """Check that a layer is called on inputs of the shape it was built for.

    Not every backend checks this: a reshape would move the excess pixels of an
    image into the batch.

    Args:
        layer: The layer.
        inputs: Its input, a tensor.
        expected: Its shape without the batch; None where any size is allowed.
        always: Whether a program of TensorFlow checks the shape when it runs
            even if it was traced with this shape.

    Returns:
        The inputs. A program of TensorFlow checks the sizes that were unknown
        when it was traced, and raises `tf.errors.InvalidArgumentError`.
    """
    is_partial = getattr(inputs.shape, "rank", 0) is None
    if not is_partial:
        found = tuple(inputs.shape)
        pairs = list(zip(found[1:], expected, strict=False))
        if len(found) != len(expected) + 1 or any(
            None not in pair and pair[0] != pair[1] for pair in pairs
        ):
            raise ValueError(_other_shape(layer, found, expected))
        is_partial = any(size is None is not own for size, own in pairs)
    if (
        (always or is_partial)
        and keras.backend.backend() == "tensorflow"
        and keras.ops.is_tensor(inputs)
    ):
        import tensorflow as tf

        return tf.ensure_shape(inputs, (None, *expected))
    return inputs


def _other_shape(layer, found, expected):
    """Return the message of `check_shape`."""
    expected_text = ", ".join("any" if n is None else str(n) for n in expected)
    remedy = ""
    if len(found) == 4 and len(expected) == 3:
        remedy = " Resize the images, or build the model with another "
        remedy += "`input_shape`."
        if found[1] == expected[2] != found[3]:
            remedy = " These seem to be channels-first: transpose them to "
            remedy += "[B, H, W, C]."
    return (
        f"{type(layer).__name__} `{layer.name}` was built for inputs of shape "
        f"[B, {expected_text}]. Received: shape {found}.{remedy}"
    )


def check_bias(layer, bias):
    """Check that what attention adds to its logits is a bias.

    A mask of truth values, as `keras.layers.MultiHeadAttention` takes it, would
    be added as ones, except by PyTorch's fused products. Without the axis of
    the heads, examples would be taken for heads.

    Args:
        layer: The layer.
        bias: A tensor.
    """
    dtype = keras.backend.standardize_dtype(bias.dtype)
    if not keras.backend.is_float_dtype(dtype) or len(bias.shape) not in (2, 4):
        raise ValueError(
            f"{type(layer).__name__} `{layer.name}` adds a bias of floating "
            "point to its logits, [B, 1, T', T] for T' queries, or [T', T]. "
            f"Received: {dtype} of shape {tuple(bias.shape)}. Of a mask "
            "[B, T', T] make keras.ops.where(mask, 0.0, -1e4)[:, None]."
        )


class FrozenWeights(keras.layers.Layer):
    """A layer that records which of its own weights are frozen.

    Keras records whether a layer is trainable, not each weight. A clone or a
    loaded layer would train a bias with `bias.trainable = False`.

    Args:
        frozen: Names of the weights that are frozen although the layer is
            trainable, as in `get_config`. Not meant for callers.
    """

    def __init__(self, *args, frozen: tuple[str, ...] = (), **kwargs):
        super().__init__(*args, **kwargs)
        self._frozen = tuple(frozen)
        self._is_trained: dict[str, bool] = {}  # name -> as it was created

    def add_weight(self, *args, **kwargs):
        weight = super().add_weight(*args, **kwargs)
        self._is_trained[weight.name] = weight.trainable
        if weight.name in self._frozen:
            weight.trainable = False
        return weight

    def freeze_weights(self):
        """Freeze the layer's own weights, not those of its sublayers."""
        for weight in self._own_weights():
            weight.trainable = False

    def _own_variables(self):
        """Return the layer's variables without those of its sublayers."""
        inner = {id(v) for x in nested_layers(self) for v in x.variables}
        return [v for v in self.variables if id(v) not in inner]

    def _own_weights(self):
        """Return the layer's own weights that were created trainable."""
        own = self._own_variables()
        return [weight for weight in own if self._is_trained.get(weight.name)]

    def get_config(self):
        frozen = list(self._frozen)
        if self.built:
            frozen = [
                weight.name
                for weight in self._own_weights()
                if self.trainable and not weight.trainable
            ]
        return super().get_config() | ({"frozen": frozen} if frozen else {})


class CompositeLayer(FrozenWeights):
    """A layer that creates its sublayers in `build`.

    A sublayer takes the dtype policy and `trainable` of its layer. Later
    changes of a sublayer (quantised, frozen on its own, or with low-rank
    updates) are part of the layer's configuration, so that clones and loaded
    models equal the original.

    Args:
        sublayers: Name of a sublayer -> its arguments that differ from those
            that the layer sets, as in `get_config`. Not meant for callers.
    """

    @checked
    def __init__(self, sublayers: dict | None = None, **kwargs):
        super().__init__(**kwargs)
        self._differences = sublayers or {}

    @classmethod
    def from_config(cls, config):
        return super().from_config(rename(config))

    def make(
        self,
        layer_class,
        *args,
        name: str,
        shape: tuple | None = None,
        **kwargs,
    ):
        """Return a new sublayer.

        Args:
            layer_class: Its class; the other arguments are those of the class.
            name: Its name.
            shape: Of its inputs, for which it is built; None leaves that to
                the caller.
        """
        policy = self.dtype_policy
        if isinstance(policy, keras.dtype_policies.DTypePolicyMap) and (
            not issubclass(layer_class, CompositeLayer)
        ):
            # Dense cannot be saved with a DTypePolicyMap.
            policy = policy[f"{self.path}/{name}"]
        settings = dict(dtype=policy, trainable=self.trainable)
        for key, value in self._differences.get(name, {}).items():
            # A composite layer takes the configuration of its own sublayers.
            settings[key] = (
                value
                if key == "sublayers"
                else keras.saving.deserialize_keras_object(value)
            )
        layer = layer_class(*args, name=name, **settings, **kwargs)
        if shape is not None:
            layer.build(shape)
        return layer

    def make_norm(
        self, name: str, shape: tuple, epsilon: float = 1e-5
    ) -> keras.layers.Layer:
        """Return a sublayer, a LayerNorm with PyTorch's epsilon or another."""
        norm = keras.layers.LayerNormalization
        return self.make(norm, epsilon=epsilon, name=name, shape=shape)

    def make_dropout(
        self, rate: float, name: str = "dropout", **kwargs
    ) -> Callable:
        """Return a dropout sublayer, or for rate 0 a function.

        Calling a layer that does nothing takes as long as a small product.

        Args:
            rate: Share of values set to zero in training.
            name: Its name.
            **kwargs: Other arguments of `keras.layers.Dropout`.
        """
        if not rate:
            return _unchanged
        return self.make(keras.layers.Dropout, rate, name=name, **kwargs)

    def get_config(self):
        config = super().get_config()
        # A class passes the arguments that it does not name on to its base.
        for base in type(self).__mro__[
            : type(self).__mro__.index(CompositeLayer)
        ]:
            for name in inspect.signature(base.__init__).parameters:  # type: ignore[misc]
                if name not in ("self", "sublayers", "args", "kwargs"):
                    config[name] = getattr(self, name)
        differences = self._differences
        if self.built:
            differences = self._find_differences(config)
        if differences:
            config["sublayers"] = dict(differences)
        return config

    def _find_differences(self, config):
        given = dict(
            dtype=config["dtype"],
            trainable=config["trainable"],
            quantization_config=None,
            lora_rank=None,
            lora_alpha=None,
            frozen=None,
            sublayers=None,
        )
        found = {}
        for layer in nested_layers(self, recursive=False):
            own = layer.get_config()
            different = {
                key: own[key]
                for key, value in given.items()
                if own.get(key, value) != value
            }
            if different:
                found[layer.name] = different
        return found


def _unchanged(x, training=None):
    return x


class Block(CompositeLayer):
    """A layer that may recompute its activations in the backward pass.

    A subclass creates its layers in `build` and applies them in
    `_forward(inputs, training)`.

    Args:
        remat: Whether the block recomputes its activations in the backward
            pass: less memory, a third more work.
    """

    @checked
    def __init__(self, remat: bool = False, **kwargs):
        super().__init__(**kwargs)
        self.remat = remat
        self.program: Callable | None = None  # of `compile_blocks`

    def call(self, inputs, training=None):
        return self._run(inputs, training)

    def _run(self, inputs, training, **given):
        # Otherwise broadcasting would turn one channel into many.
        _, *axes, width = self.get_build_config()["input_shape"]
        expected = (*[None] * len(axes), width)
        inputs = check_shape(self, inputs, expected)

        def forward(inputs):
            return self._forward(inputs, training, **given)

        recomputes = self.remat and training
        if self.program is not None and not (recomputes or given):
            outputs = self.program(inputs, training)
            if outputs is not None:
                return outputs
        if recomputes:
            return gradient_barrier(rematerialize(self, forward, inputs))
        return gradient_barrier(forward(inputs))

    def make_drop_path(self, rate: float, rank: int) -> Callable:
        """Return a dropout of entire residual branches (stochastic depth).

        Args:
            rate: Probability with which an example skips the branch.
            rank: Number of axes of the branch's output.
        """
        return self.make_dropout(
            rate,
            name="drop_path",
            noise_shape=(None,) + (1,) * (rank - 1),  # one draw per example
        )


class ResidualBlock(Block):
    """A block of residual branches, whose output has the shape of its input.

    Args:
        drop_path_rate: Probability with which an example skips each residual
            branch in training (stochastic depth).
        **kwargs: Arguments of `Block`.
    """

    @checked
    def __init__(self, drop_path_rate: Rate = 0.0, **kwargs):
        super().__init__(**kwargs)
        self.drop_path_rate = drop_path_rate

    def compute_output_shape(self, input_shape):
        return input_shape
