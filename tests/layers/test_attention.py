"""The implementations of attention, and the dense layers around it."""

import typing

import keras
import numpy as np
import pytest
from keras import ops

from keras_vit import layers
from keras_vit.layers.keras_layers import Dense
from keras_vit.ops import attention, linear, xla

BACKEND = keras.backend.backend()


@pytest.fixture(autouse=True)
def automatic():
    yield
    layers.set_attention_implementation("auto")


def make_layer(layer_class=layers.MultiHeadSelfAttention, **kwargs):
    layer = layer_class(2, **kwargs)
    layer.build((None, 5, 8))
    rng = np.random.default_rng(0)
    for weight in layer.weights:
        if len(weight.shape) > 0 and "seed" not in weight.name:
            weight.assign(rng.normal(size=weight.shape))
    return layer


@pytest.mark.parametrize(
    ("arguments", "dtype"),
    [
        ({}, "float32"),
        ({}, "mixed_bfloat16"),
        (
            dict(
                qkv_bias="qv",
                rotary=dict(kind="index", grid_size=(2, 2)),
            ),
            "float32",
        ),
    ],
)
def test_fused_and_explicit_attention_are_equal(arguments, dtype):
    layer = make_layer(**arguments, dtype=dtype)
    # Logits of more than 100, whose softmax needs float32.
    x = 4 * np.random.default_rng(1).normal(size=(3, 5, 8)).astype("float32")
    outputs = {}
    for name in typing.get_args(attention.Choice):
        layers.set_attention_implementation(name)
        y = layer(x, training=True)
        outputs[name] = ops.convert_to_numpy(ops.cast(y, "float32"))
    scale = np.abs(outputs["explicit"]).max()
    tolerance = 1e-5 if dtype == "float32" else 2e-2
    for y in outputs.values():
        np.testing.assert_allclose(
            y, outputs["explicit"], atol=tolerance * scale, rtol=0
        )


@pytest.mark.backend("jax")
@pytest.mark.parametrize(
    ("qkv_bias", "tokens"), [("qkv", 5), ("qkv", 65), ("qv", 65), ("none", 5)]
)
def test_the_projection_for_tpus_gives_the_same(qkv_bias, tokens, monkeypatch):
    layer = make_layer(qkv_bias=qkv_bias)
    x = np.random.default_rng(1).normal(size=(3, tokens, 8)).astype("float32")
    expected = layer(x)
    used = []
    on_tpu = attention.by_token
    monkeypatch.setattr(xla, "targets_tpu", lambda: True)
    monkeypatch.setattr(
        attention,
        "by_token",
        lambda *arguments: used.append(1) or on_tpu(*arguments),
    )
    np.testing.assert_allclose(layer(x), expected, rtol=1e-5, atol=1e-5)
    layer.qkv.enable_lora(2)
    np.testing.assert_allclose(layer(x), expected, rtol=1e-5, atol=1e-5)
    assert used == [1]


@pytest.mark.backend("torch")
def test_fused_attention_has_the_same_gradient():
    import torch

    gradients = []
    for name in ("explicit", "fused"):
        layers.set_attention_implementation(name)
        layer = make_layer()
        x = torch.tensor(
            np.random.default_rng(1).normal(size=(3, 5, 8)).astype("float32"),
            requires_grad=True,
        )
        ops.sum(layer(x) ** 2).backward()
        gradients.append((x.grad, layer.qkv.kernel.value.grad))
    for explicit, fused in zip(*gradients, strict=True):
        np.testing.assert_allclose(
            fused, explicit, rtol=0, atol=1e-5 * float(explicit.abs().max())
        )


def test_dropout_and_inspection_have_attention_weights():
    layers.set_attention_implementation("fused")
    layer = make_layer(dropout_rate=0.5)
    x = np.random.default_rng(1).normal(size=(3, 5, 8)).astype("float32")
    infer, train = (
        ops.convert_to_numpy(layer(x, training=training))
        for training in (False, True)
    )
    assert np.abs(infer - train).max() > 0.1
    weights = ops.convert_to_numpy(layer.attention_weights(x))
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-5)


@pytest.mark.backend("torch")
def test_the_automatic_choice_depends_on_dtype_and_size():
    import torch

    def chosen(dtype, batch_size):
        x = torch.empty(batch_size, 197, 768, dtype=dtype)
        return attention.is_fused(x, 12)

    assert chosen(torch.float32, 1)
    assert not chosen(torch.bfloat16, 16)  # 28 MiB
    assert chosen(torch.bfloat16, 128)  # 227 MiB
    assert not chosen(torch.float64, 128)


@pytest.mark.backend("torch")
def test_the_automatic_choice_follows_the_setting_of_keras(monkeypatch):
    x = ops.zeros((1, 5, 8))
    for enabled in (True, False):
        monkeypatch.setattr(
            keras.config, "is_flash_attention_enabled", lambda e=enabled: e
        )
        assert attention.is_fused(x, 2) == enabled
        layers.set_attention_implementation("fused")
        assert attention.is_fused(x, 2)
        layers.set_attention_implementation("auto")


@pytest.mark.backend_independent
def test_an_unknown_implementation_is_refused():
    with pytest.raises(ValueError, match="'flash'"):
        layers.set_attention_implementation("flash")


@pytest.mark.backend("torch")
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("lora_rank", [None, 2])
def test_a_dense_layer_is_that_of_keras(dtype, lora_rank):
    import torch

    x = np.random.default_rng(0).normal(size=(2, 3, 8)).astype("float32")
    results = []
    for layer_class in (keras.layers.Dense, Dense):
        keras.utils.set_random_seed(0)
        layer = layer_class(4, activation="relu", dtype=dtype)
        layer.build(x.shape)
        if lora_rank:
            layer.enable_lora(lora_rank)
        layer.bias.assign([1, -1, 2, -2])
        inputs = torch.tensor(x, requires_grad=True)
        y = layer(inputs)
        ops.sum(ops.cast(y, "float32") ** 2).backward()
        results.append((y.float().detach(), inputs.grad))
    tolerance = 1e-6 if dtype == "float32" else 2e-2
    for theirs, ours in zip(*results, strict=True):
        scale = float(theirs.abs().max())
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * scale)


@pytest.mark.backend("torch")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("activation", [linear.gelu, linear.gelu_tanh])
def test_gelu_within_the_product_is_that_of_keras(dtype, activation):
    import torch

    x = np.random.default_rng(0).normal(size=(2, 3, 8)).astype("float32")
    results = []
    for layer_class in (keras.layers.Dense, Dense):
        keras.utils.set_random_seed(0)
        layer = layer_class(4, activation=activation, dtype=dtype)
        layer.build(x.shape)
        with torch.no_grad():
            results.append(layer(x).float())
    tolerance = 1e-6 if dtype == "float32" else 2e-2
    torch.testing.assert_close(*results, rtol=0, atol=tolerance)


@pytest.mark.backend("torch")
def test_a_bias_alone_can_be_trained():
    import torch

    layer = Dense(4, activation=linear.gelu_tanh)
    layer.build((None, 8))
    layer.kernel.trainable = False
    layer(torch.ones(2, 8)).sum().backward()
    assert layer.bias.value.grad.abs().min() > 0


@pytest.mark.backend("torch")
# PyTorch's own rules of forward derivatives are scripts.
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_a_dense_layer_is_transformed_by_pytorch():
    import torch

    layer = Dense(4, activation=linear.gelu_tanh)
    layer.build((None, 8))
    x = torch.randn(2, 3, 8)
    expected = layer(x)
    torch.testing.assert_close(torch.func.vmap(layer)(x), expected)
    _, change = torch.func.jvp(layer, (x,), (torch.ones_like(x),))
    assert change.shape == expected.shape
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        assert layer(x).dtype == torch.bfloat16


@pytest.mark.backend("torch")
def test_an_exported_dense_layer_has_public_operations_alone():
    import torch

    layer = Dense(4, activation=linear.gelu_tanh)
    layer.build((None, 8))
    with torch.no_grad():
        program = torch.export.export(layer, (torch.ones(2, 8),))
    assert "mkldnn" not in str(program.graph)


@pytest.mark.backend("torch")
@pytest.mark.parametrize("name", ["attention", "pooling"])
def test_a_mask_is_no_bias(name):
    tokens = ops.ones((2, 3, 4))
    layer = layers.MultiHeadSelfAttention(num_heads=2)
    if name == "pooling":
        layer = layers.AttentionPooling(num_heads=2, mlp_dim=4)
    layer(tokens, bias=ops.zeros((2, 1, 1, 3)))
    layer(tokens, bias=ops.zeros((1, 3)))
    with pytest.raises(ValueError, match="floating point.*bool of shape"):
        layer(tokens, bias=ops.ones((2, 1, 1, 3), "bool"))
    with pytest.raises(ValueError, match=r"shape \(2, 1, 3\)"):
        layer(tokens, bias=ops.zeros((2, 1, 3)))  # as many heads as examples
