"""The encoder block of equations 2 and 3."""

from typing import Literal

import keras

from keras_vit._arguments import Count, Epsilon, Rate, checked
from keras_vit.layers.base import Block
from keras_vit.layers.keras_layers import NORMS, LayerScale, Norm
from keras_vit.layers.mlp_block import MlpBlock, sharded
from keras_vit.layers.multi_head_self_attention import MultiHeadSelfAttention
from keras_vit.ops.xla import gradient_barrier

NormPlacement = Literal["before", "after", "shared"]
_ATTENTION = "MultiHeadDotProductAttention_0"


@keras.saving.register_keras_serializable(package="keras_vit")
class TransformerBlock(Block):
    """A pre-norm Transformer encoder block.

        z' = z + MSA(LN(z))
        z  = z' + MLP(LN(z'))

    The branches may be scaled by channel (LayerScale), and their norms may
    follow them: z' = z + g_1 * LN(MSA(z)), and so on; or both branches read one
    norm: z = z + g_1 * (MSA(LN(z)) + MLP(LN(z))) (Dehghani et al. 2023,
    2302.05442).

    Args:
        num_heads: Number of attention heads; divides the token width D.
        mlp_dim: Width of the MLP's hidden layer.
        dropout_rate: Dropout after attention and after each dense layer of
            the MLP.
        drop_path_rate: Probability with which an example skips each of the
            two residual branches in training (stochastic depth).
        layer_norm_epsilon: Added to the variance in the norms.
        norm: Kind of the norms: "layer" or "rms".
        norm_placement: "before" or "after" attention and MLP, or "shared": one
            before both, which then read the same tokens.
        layer_scale: First value of g_1 and g_2, or of each; 0 without.
        attention_options: Further arguments of `MultiHeadSelfAttention`; with
            a key "layer", the registered name of a subclass, those of this.
        mlp_options: The same of `MlpBlock`.
        **kwargs: Those of `Block`, such as `remat`.

    Call arguments:
        inputs: `[B, T, D]`
        attention_bias: Added to the logits of the attention, `[B, 1, T, T]` or
            `[T, T]`.

    Output shape: `[B, T, D]`

    Raises:
        ValueError: If D is no multiple of `num_heads`, or a bias has other axes
            or is no floating point.

    Reference:
        Dosovitskiy et al. 2021, equations 2 and 3; checked against
        `Encoder1DBlock` in vit_jax/models_vit.py, `Block` and
        `ParallelScalingBlock` of timm/models/vision_transformer.py. Stochastic
        depth: Huang et al. 2016, as used by Steiner et al. 2021.
    """

    # How variables are divided among devices that share a block: the mesh axis
    # of each dimension, and the argument and the factor whose product is the
    # length of the divided dimension. Kernels that produce heads and hidden
    # units are divided by columns, kernels that consume them by rows, so that a
    # block needs only two sums over the devices (Shoeybi et al. 2019,
    # 1909.08053, section 3).
    SHARDED = {
        f"{_ATTENTION}/qkv/kernel": ((None, "model"), "hidden_size", 3),
        f"{_ATTENTION}/qkv/bias": (("model",), "hidden_size", 3),
        f"{_ATTENTION}/q_bias": (("model",), "hidden_size", 1),
        f"{_ATTENTION}/v_bias": (("model",), "hidden_size", 1),
        f"{_ATTENTION}/out/kernel": (("model", None), "hidden_size", 1),
        f"{_ATTENTION}/relative_embedding": (
            ("model", None, None),
            "num_heads",
            1,
        ),
        "MlpBlock_0/Gate/kernel": ((None, "model"), "mlp_dim", 1),
        "MlpBlock_0/Gate/bias": (("model",), "mlp_dim", 1),
        **sharded("MlpBlock_0"),
    }

    @checked
    def __init__(
        self,
        num_heads: Count,
        mlp_dim: Count,
        dropout_rate: Rate = 0.0,
        drop_path_rate: Rate = 0.0,
        layer_norm_epsilon: Epsilon = 1e-6,
        norm: Norm = "layer",
        norm_placement: NormPlacement = "before",
        layer_scale: Rate | tuple[Rate, Rate] = 0.0,
        attention_options: dict | None = None,
        mlp_options: dict | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.mlp_dim = mlp_dim
        self.dropout_rate = dropout_rate
        self.drop_path_rate = drop_path_rate
        self.layer_norm_epsilon = layer_norm_epsilon
        self.norm = norm
        self.norm_placement = norm_placement
        self.layer_scale = layer_scale
        self.attention_options = dict(attention_options or {})
        self.mlp_options = dict(mlp_options or {})
        # Impossible options are refused here, not when the block is built.
        for layer_class, options in (self._attention(), self._mlp()):
            layer_class(**options)

    def _attention(self):
        """Return the class of the attention and its arguments."""
        options = dict(num_heads=self.num_heads) | self.attention_options
        return _chosen(MultiHeadSelfAttention, options)

    def _mlp(self):
        """Return the class of the MLP and its arguments."""
        sizes = dict(mlp_dim=self.mlp_dim, dropout_rate=self.dropout_rate)
        return _chosen(MlpBlock, sizes | self.mlp_options)

    def build(self, input_shape):
        def built(layer_class, **arguments):
            return self.make(layer_class, shape=input_shape, **arguments)

        norm, epsilon = NORMS[self.norm], self.layer_norm_epsilon
        attention, attention_options = self._attention()
        mlp, mlp_options = self._mlp()

        is_shared = self.norm_placement == "shared"
        scales = self.layer_scale
        if not isinstance(scales, (tuple, list)):
            scales = (scales, scales)
        if is_shared:  # one branch, which is both
            scales = (scales[0], 0.0)

        def layer_scale(i):
            if not scales[i]:
                return None
            return built(LayerScale, initial=scales[i], name=f"LayerScale_{i}")

        # The sublayers are named as in the authors' linen checkpoints. The
        # state of training has their variables in this order.
        self.norm_0 = built(norm, epsilon=epsilon, name="LayerNorm_0")
        self.attention = built(attention, **attention_options, name=_ATTENTION)
        self.scale_0 = layer_scale(0)
        self.norm_1 = None
        if not is_shared:
            self.norm_1 = built(norm, epsilon=epsilon, name="LayerNorm_1")
        self.mlp = built(mlp, **mlp_options, name="MlpBlock_0")
        self.scale_1 = layer_scale(1)
        self.dropout = self.make_dropout(self.dropout_rate)
        self.drop_path = self.make_drop_path(self.drop_path_rate, 3)

    def call(self, inputs, training=None, attention_bias=None):
        if attention_bias is None:
            return self._run(inputs, training)
        return self._run(inputs, training, bias=attention_bias)

    def _forward(self, inputs, training, **bias):
        # Keras passes False on by itself; a keyword makes a call take longer.
        mode = dict(training=training) if training else {}
        if self.norm_placement == "shared":
            x = self.norm_0(inputs)
            x = self.attention(x, **mode, **bias) + self.mlp(x, **mode)
            return self._add(inputs, x, self.scale_0, training)
        x = self._branch(self.attention, self.norm_0, inputs, **mode, **bias)
        x = self.dropout(x, training=training)
        z = gradient_barrier(self._add(inputs, x, self.scale_0, training))
        x = self._branch(self.mlp, self.norm_1, z, **mode)
        return self._add(z, x, self.scale_1, training)

    def _branch(self, layer, norm, x, **options):
        if self.norm_placement == "after":
            return norm(layer(x, **options))
        return layer(norm(x), **options)

    def _add(self, x, branch, scale, training):
        branch = self.drop_path(branch, training=training)
        return x + branch if scale is None else scale.add(x, branch)

    def attention_weights(self, inputs):
        """Return the block's attention on its `inputs`, `[B, A, T, T]`."""
        is_after = self.norm_placement == "after"
        x = inputs if is_after else self.norm_0(inputs)
        return self.attention.attention_weights(x)

    def compute_output_shape(self, input_shape):
        return input_shape

    @classmethod
    def from_config(cls, config):
        """Return a block; also of a config that version 0.2 wrote."""
        if "gelu_approximate" in config:
            config = dict(config)
            attention = dict(dropout_rate=config.pop("attention_dropout_rate"))
            if config.pop("relative_positions"):
                attention["layer"] = "RelativeAttention"
            is_tanh = config.pop("gelu_approximate")
            mlp = dict(activation="gelu_tanh" if is_tanh else "gelu")
            config |= dict(attention_options=attention, mlp_options=mlp)
        return super().from_config(config)


def _chosen(layer_class, options):
    """Return a class, or the one that options name, and the other options."""
    options = dict(options)
    name = options.pop("layer", None)
    if name is None:
        return layer_class, options
    chosen = keras.saving.get_registered_object(f"keras_vit>{name}")
    if not (isinstance(chosen, type) and issubclass(chosen, layer_class)):
        raise ValueError(
            "`layer` of `attention_options` and `mlp_options` must name a "
            f"subclass of {layer_class.__name__}. Received: layer={name!r}"
        )
    return chosen, options
