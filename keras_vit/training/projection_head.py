"""The head of self-distillation: what a student and its teacher compare."""

import keras
from keras import ops

from keras_vit.ops.norm import unit_length


@keras.saving.register_keras_serializable(package="keras_vit")
class ProjectionHead(keras.layers.Layer):
    """Three dense layers, and the cosines with learned prototypes.

        y_k = x . w_k / |w_k|,   x = MLP(input) / |MLP(input)|

    Args:
        num_prototypes: Number of outputs K.
        hidden_size: Width of the first two layers, which GELU follows.
        bottleneck_size: Width of the third.

    Call arguments:
        inputs: `[..., D]`.
        frozen: Whether the prototypes get no gradient, a scalar.

    Output shape: `[..., K]`, float32.

    Reference:
        Caron et al. 2021, section 3.1; checked against `DINOHead` in
        dinov2/layers/dino_head.py of facebookresearch/dinov2.
    """

    def __init__(
        self,
        num_prototypes: int,
        hidden_size: int = 2048,
        bottleneck_size: int = 256,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_prototypes = num_prototypes
        self.hidden_size = hidden_size
        self.bottleneck_size = bottleneck_size

    def build(self, input_shape):
        def normal():
            return keras.initializers.TruncatedNormal(stddev=0.02)

        width = input_shape[-1]
        self.mlp = []
        sizes = (self.hidden_size, self.hidden_size, self.bottleneck_size)
        for i, size in enumerate(sizes):
            dense = keras.layers.Dense(
                size,
                activation="gelu" if i < 2 else None,  # exact
                kernel_initializer=normal(),
                dtype=self.dtype_policy,
                name=f"dense_{i}",
            )
            dense.build((None, width))
            self.mlp.append(dense)
            width = size
        self.kernel = self.add_weight(
            name="kernel",
            shape=(width, self.num_prototypes),
            initializer=normal(),
            autocast=False,
        )

    def call(self, inputs, frozen=False):
        x = inputs
        for dense in self.mlp:
            x = dense(x)
        x = unit_length(ops.cast(x, "float32"))
        kernel = ops.convert_to_tensor(self.kernel)
        kernel = ops.where(frozen, ops.stop_gradient(kernel), kernel)
        return ops.matmul(x, unit_length(kernel, axis=0))
