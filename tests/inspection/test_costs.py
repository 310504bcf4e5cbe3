"""Parameters, multiply-accumulates and activations of a model."""

import keras
import pytest
from catalogue import LAYERS, TINY, TINY_OF, make_layer, make_model
from keras import ops

import keras_vit
from keras_vit.inspection import costs

# Multiply-accumulates and activations of small models, on every backend.
SMALL = {
    "hybrid": (1_663_120, 17_833),
    "mixer": (28_752, 1_541),
    "mvit": (372_832, 14_006),
    "raft": (26_236, 1_125),
    "axial resnet": (437_312, 12_965),
}


def without_memory(build, *args, **kwargs):
    with costs.shapes_alone():
        return build(*args, **kwargs)


def test_a_vision_transformer_costs_what_its_equations_do():
    model = without_memory(make_model, "token")
    found = keras_vit.cost(model)
    width, mlp, patches, classes = 16, 32, 8, 5
    tokens = patches + 1
    heads = TINY["num_heads"]
    block = {
        "qkv": (tokens * width * 3 * width, tokens * 3 * width),
        "products": (2 * tokens**2 * width, heads * tokens**2 + tokens * width),
        "out": (tokens * width * width, tokens * width),
        "Dense_0": (tokens * width * mlp, tokens * mlp),
        "Dense_1": (tokens * mlp * width, tokens * width),
    }
    macs, values = map(sum, zip(*block.values(), strict=True))
    embedding = patches * 48 * width
    assert found.macs == embedding + 2 * macs + width * classes
    assert found.activations == patches * width + 2 * values + classes
    assert found.parameters == model.count_params()

    by_path = {layer.path: layer for layer in found.layers}
    attention = "encoderblock_1/MultiHeadDotProductAttention_0"
    assert (
        by_path[f"{attention}/qkv"].macs,
        by_path[f"{attention}/qkv"].activations,
    ) == block["qkv"]
    assert by_path[attention].macs == block["products"][0]
    assert by_path[attention].parameters == 0
    blocks = {layer.path: layer for layer in found.grouped()}
    assert blocks["encoderblock_0"].macs == macs
    assert blocks["encoderblock_0"].parameters == (
        model.get_layer("encoderblock_0").count_params()
    )
    assert list(blocks)[:2] == ["embedding", "class_token"]
    assert f"{found.macs:,}" in str(found).splitlines()[-1]


@pytest.mark.parametrize("name", SMALL)
def test_costs_of_other_families_are_the_same_on_every_backend(name):
    model = without_memory(make_model, name)
    found = keras_vit.cost(model)
    assert (found.macs, found.activations) == SMALL[name]
    assert found.parameters == model.count_params()


def test_a_pooling_costs_its_kernel_for_each_value():
    layer, shape = make_layer("TokenPooling")
    inputs = keras.Input(shape)
    found = keras_vit.cost(keras.Model(inputs, layer(inputs)))
    _, arguments, _ = LAYERS["TokenPooling"]
    values = 6
    for n in layer.output_grid:
        values *= n
    kernel = 1
    for n in arguments["kernel_size"]:
        kernel *= n
    assert (found.macs, found.activations) == (values * kernel, values)


@keras.saving.register_keras_serializable(package="tests")
class Products(keras.layers.Layer):
    def call(self, x):  # [B, 6, 8]
        pairs = ops.einsum("...ij,...kj->...ik", x, x)  # 6 x 6 x 8
        table = ops.tensordot(x, ops.ones((8, 5)), 1)  # 6 x 8 x 5
        x = ops.separable_conv(
            x[:, None],  # [B, 1, 6, 8]
            ops.ones((1, 3, 8, 2)),
            ops.ones((1, 1, 16, 4)),
            padding="same",
            data_format="channels_last",
        )  # 6 x 16 x 3 and 6 x 16 x 4
        larger = ops.conv_transpose(
            x,  # [B, 1, 6, 4]
            ops.ones((1, 2, 3, 4)),
            strides=(1, 2),
            data_format="channels_last",
        )  # 6 x 4 x 2 x 3
        parts = (pairs, table, x, larger)
        return sum(ops.sum(part) for part in parts)


def test_products_of_other_operations_are_counted():
    inputs = keras.Input(batch_shape=(1, 6, 8))
    found = keras_vit.cost(keras.Model(inputs, Products()(inputs)))
    assert found.macs == 288 + 240 + 288 + 384 + 144
    assert found.activations == 36 + 30 + 96 + 24 + 36


def test_products_between_the_layers_of_a_graph_are_counted():
    x = keras.Input(batch_shape=(1, 6, 8))
    pairs = ops.einsum("bij,bkj->bik", x, x)
    inner = keras.Model(x, ops.matmul(pairs, x))
    assert keras_vit.cost(keras.Model(x, inner(x))).macs == 288 + 288


def test_products_of_quantized_layers_are_their_own():
    model = make_model("token")
    expected = keras_vit.cost(model)
    model.quantize("int8")
    found = keras_vit.cost(model)
    assert [(x.path, x.macs, x.activations) for x in found.layers] == [
        (x.path, x.macs, x.activations) for x in expected.layers
    ]


def test_a_shared_layer_has_its_parameters_once():
    inputs = keras.Input((4,))
    dense = keras.layers.Dense(4, name="shared")
    inner = keras.Sequential([keras.Input((4,)), dense], name="inner")
    model = keras.Model(inputs, dense(inner(inputs)))
    found = keras_vit.cost(model)
    assert (found.parameters, found.macs) == (20, 32)
    paths = [(layer.path, layer.parameters) for layer in found.layers]
    assert paths == [("inner/shared", 20), ("shared", 0)]


def test_open_sizes_need_an_input_shape():
    arguments = TINY_OF["RaftMLP"] | dict(
        input_shape=(None, None, 3), pretrained_image_size=(16, 8)
    )
    model = without_memory(keras_vit.RaftMLP, **arguments)
    with pytest.raises(ValueError, match="`input_shape` must be given"):
        keras_vit.cost(model)
    fixed = without_memory(make_model, "raft")
    found = keras_vit.cost(model, (16, 8, 3))
    assert found.parameters == fixed.count_params()
    for wrong in ((16, 8), (16, 8, 1), (1, 16, 8, 3)):
        with pytest.raises(ValueError, match=r"`input_shape` must be \(None"):
            keras_vit.cost(model, wrong)


def test_several_inputs_are_refused():
    inputs = [keras.Input((4,)), keras.Input((4,))]
    model = keras.Model(inputs, keras.layers.Add()(inputs))
    with pytest.raises(ValueError, match="must have one input.*with 2"):
        keras_vit.cost(model)


@pytest.mark.backend("torch")
def test_recurrent_layers_are_refused():
    frames = keras.Input((3, 4))
    rnn = keras.layers.Bidirectional(keras.layers.GRU(2, name="steps"))
    with pytest.raises(ValueError, match="recurrent layers.*'forward_steps'"):
        keras_vit.cost(keras.Model(frames, rnn(frames)))
