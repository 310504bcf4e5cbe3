"""The ViT family: the authors' numbers, Table 1, Table 8, bad arguments."""

import functools
import json
import pathlib
import sys

import catalogue
import keras
import numpy as np
import pytest
from keras import ops
from small_runs import small_vit

import keras_vit
from keras_vit.inspection import costs
from keras_vit.models import vit_positions

pytestmark = pytest.mark.optimized

GOLDENS = pathlib.Path(__file__).parents[1] / "goldens" / "numerics"
CASES = sorted(path.name.split(".")[0] for path in GOLDENS.glob("[hv]*.io.npz"))

# Parameters at 224x224 pixels with a head of 1000 classes, and what the
# paper's Table 1 or the release says, in millions, where it does.
PARAMETERS = {
    "ViTTi16": (5_717_416, 6),
    "ViTS32": (22_878_952, 23),
    "ViTS16": (22_050_664, 22),
    "ViTB32": (88_224_232, 88),
    "ViTB16": (86_567_656, 86),
    "ViTB8": (86_576_872, None),
    "ViTL32": (306_535_400, 307),
    "ViTL16": (304_326_632, 304),
    "ViTH14": (632_045_800, 632),
    # Table 2 of "Scaling Vision Transformers" states 1011 and 1843 million,
    # those without the pooling and the head.
    "ViTg14": (1_011_199_616 + 25_248_768 + 1_409_000, None),
    "ViTG14": (1_842_772_352 + 38_360_064 + 1_665_000, None),
    "RViTTi16": (6_337_704, None),
    "R26ViTS32": (36_431_912, None),
    "R26ViTB32": (101_383_976, None),
    "R50ViTB16": (98_659_112, None),
    "R50ViTB32": (110_945_832, None),
    "R50ViTL16": (316_483_624, None),
    "R50ViTL32": (328_994_856, None),
}


def golden(case):
    """Returns the authors' data, a path to their checkpoint, and a builder."""
    with np.load(GOLDENS / f"{case}.io.npz") as archive:
        data = dict(archive)
    config = json.loads(str(data["config"]))
    transformer = config["transformer"]
    architecture = dict(
        patch_size=tuple(config["patches"]["size"]),
        hidden_size=config["hidden_size"],
        num_layers=transformer["num_layers"],
        num_heads=transformer["num_heads"],
        mlp_dim=transformer["mlp_dim"],
        pooling=config["classifier"],
    )
    if "resnet" in config:
        architecture.update(
            resnet_depths=tuple(config["resnet"]["num_layers"]),
            resnet_width=config["resnet"]["width_factor"],
        )
    (checkpoint,) = GOLDENS.glob(f"{case}.ckpt*.npz")

    def build(**kwargs):
        return keras_vit.ViT(**{**architecture, **kwargs})

    return data, str(checkpoint), build


def assert_agrees(found, expected):
    """The bound of the design: 1e-5 of the largest logit."""
    difference = np.abs(ops.convert_to_numpy(found) - expected).max()
    assert difference <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("case", CASES)
def test_logits_and_activations_are_the_authors(case):
    data, checkpoint, build = golden(case)
    model = build(weights=checkpoint, include_preprocessing=False)
    assert model.input_shape[1:] == data["input"].shape[1:]
    model = keras.Model(
        model.input,
        {
            "logits": model.output,
            "pre_logits": model.get_layer("head").input,
            "encoded": model.get_layer("encoder_norm").output,
        },
    )
    runs = [model.predict(data["input"], verbose=0)]
    if keras.backend.backend() != "jax":  # compiles what is eager, too
        runs.append(model(data["input"], training=False))
    for found in runs:
        for key in ("logits", "pre_logits", "encoded"):
            assert_agrees(found[key], data[key])


@pytest.mark.backend("torch")
def test_pixels_agree_with_scaled_input():
    data, checkpoint, build = golden("vit_token")
    pixels = np.round(data["input"] * 127.5 + 127.5).astype("uint8")
    scaled = (pixels.astype("float32") - 127.5) / 127.5
    takes_scaled = build(weights=checkpoint, include_preprocessing=False)
    expected = takes_scaled.predict(scaled, verbose=0)
    takes_pixels = build(weights=checkpoint)
    assert_agrees(takes_pixels.predict(pixels, verbose=0), expected)
    assert_agrees(takes_pixels(pixels.astype("float32")), expected)


@pytest.mark.backend("jax")  # which traces fastest
@pytest.mark.parametrize("variant", PARAMETERS)
def test_parameter_counts_equal_table_1(variant):
    expected, millions = PARAMETERS[variant]
    with costs.shapes_alone():
        found = getattr(keras_vit, variant)().count_params()
    assert found == expected
    if millions is not None:
        assert int(found / 1e6) == millions or round(found / 1e6) == millions


def tiny(**kwargs):
    sizes = dict(hidden_size=16, num_layers=3, num_heads=2)
    return small_vit(**sizes | dict(input_shape=(8, 12, 3), classes=5) | kwargs)


@pytest.mark.backend("torch")
def test_head_starts_at_zero_with_the_given_bias():
    model = tiny(head_bias_init=-10.0)
    y = model.predict(np.ones((1, 8, 12, 3)), verbose=0)
    np.testing.assert_array_equal(y, np.full((1, 5), -10.0))


def test_unpooled_gives_the_grid():
    assert tiny(pooling="unpooled").output_shape == (None, 2, 3, 5)
    model = tiny(pooling="unpooled", include_top=False)
    assert model.output_shape == (None, 2, 3, 16)


def test_learned_2d_positions_are_rows_beside_columns():
    layer = keras_vit.layers.AddPositionEmbs((2, 3), kind="learned_2d")
    y = ops.convert_to_numpy(layer(np.zeros((1, 7, 4), "float32")))[0, 1:]
    rows, columns = (
        ops.convert_to_numpy(table)
        for table in (layer.row_embedding, layer.column_embedding)
    )
    for i in range(2):
        for j in range(3):
            np.testing.assert_array_equal(
                y[i * 3 + j], np.concatenate([rows[i], columns[j]])
            )


# On JAX it would be a program for each of its operations.
@pytest.mark.backend("tensorflow", "torch")
def test_relative_bias_is_the_query_times_the_distance_embedding():
    layer = vit_positions.RelativeAttention(2)
    layer.build((None, 4, 6))
    rng = np.random.default_rng(0)
    for weight in layer.weights:
        weight.assign(rng.normal(size=weight.shape))
    x = rng.normal(size=(3, 4, 6)).astype("float32")
    kernel, bias = (ops.convert_to_numpy(w) for w in layer.qkv.weights)
    table = ops.convert_to_numpy(layer.relative_embedding)  # [A, 2 T - 1, E]
    qkv = (x @ kernel + bias).reshape(3, 4, 2, 3, 3)
    query, key = qkv[..., 0, :] / np.sqrt(3), qkv[..., 1, :]
    logits = np.einsum("biae,bjae->baij", query, key)
    for i in range(4):
        for j in range(4):
            distance = i - j  # from T - 1 = 3 at index 0 down to -3
            logits[:, :, i, j] += np.einsum(
                "bae,ae->ba", query[:, i], table[:, 3 - distance]
            )
    expected = np.exp(logits - logits.max(-1, keepdims=True))
    expected /= expected.sum(-1, keepdims=True)
    found = ops.convert_to_numpy(layer.attention_weights(x))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.backend("torch")
def test_position_placements_have_their_tables():
    def tables(**kwargs):
        return sum(
            "embedding" in w.path.split("/")[-1] for w in tiny(**kwargs).weights
        )

    assert tables() == 1
    assert tables(position_placement="every_layer") == 3
    assert tables(position_placement="every_layer_shared") == 1
    assert tables(position_embedding="none") == 0
    assert tables(position_embedding="relative") == 3


@pytest.mark.backend("torch")
def test_shared_positions_are_added_before_every_block():
    model = tiny(position_placement="every_layer_shared")
    layer = model.get_layer("posembed_input")
    block = model.get_layer("encoderblock_1")
    between = keras.Model(
        model.input,
        [model.get_layer("encoderblock_0").output, block.input],
    )
    before, after = between(np.ones((1, 8, 12, 3), "float32"))
    np.testing.assert_allclose(
        ops.convert_to_numpy(after - before),
        ops.convert_to_numpy(layer.pos_embedding),
        atol=1e-6,
    )


WRONG_SHAPES = {
    "too large": ((1, 16, 24, 3), "[B, 8, 12, 3]"),
    "one channel": ((1, 8, 12, 1), "(1, 8, 12, 1)"),
    "channels first": ((1, 3, 8, 12), "channels-first"),
}


@pytest.mark.backend("torch")
@pytest.mark.parametrize("name", WRONG_SHAPES)
def test_images_of_another_shape_are_refused_with_a_sentence(name):
    shape, words = WRONG_SHAPES[name]
    embedding = tiny().get_layer("embedding")
    with pytest.raises(ValueError) as error:
        embedding(np.zeros(shape, "float32"))
    assert words in str(error.value)


@pytest.mark.backend("torch")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (dict(input_shape=(32, 32)), ["`input_shape`", "channels", "(32, 32)"]),
        (dict(input_shape=32), ["`input_shape`", "32"]),
        (dict(input_shape=(8, -4, 3)), ["width of input_shape", "-4"]),
        (dict(input_shape=(8, 12, 0)), ["channels of input_shape", "0"]),
        (dict(input_shape=(8, 12, None)), ["channels of input_shape", "None"]),
        (dict(input_shape=(3, 32, 32)), ["height=3", "channels-last"]),
        (dict(num_heads=None), ["`num_heads`", "None"]),
        (dict(patch_size=(4, 4, 4)), ["`patch_size`", "(4, 4, 4)"]),
        (dict(layer_norm_epsilon=0), ["`layer_norm_epsilon`", "0"]),
        (dict(resnet_depths=(0,)), ["`resnet_depths`", "0"]),
        (dict(head_bias_init=float("inf")), ["`head_bias_init`", "inf"]),
        (dict(class_names="abcde"), ["`class_names`", "'abcde'"]),
        (dict(classes=None, class_names=()), ["`class_names`", "()"]),
        (dict(class_names=(1, 2, 3, 4, 5)), ["`class_names`", "1, 2"]),
        (dict(pixel_std=0), ["`pixel_std`", "0"]),
        (dict(pixel_mean=(1.0, 2.0)), ["`pixel_mean`", "3 channels"]),
        (
            dict(pixel_std=(1.0, 2.0), include_preprocessing=False),
            ["`pixel_std`", "3 channels"],
        ),
        (
            dict(data_format="channels_first"),
            ["`data_format`", "channels-last"],
        ),
        (dict(input_shape=(9, 12, 3)), ["multiples of the patch", "height=9"]),
        (dict(input_shape=(None, 12, 3)), ["known", "height=None"]),
        (dict(num_heads=3), ["hidden_size=16", "num_heads=3"]),
        (
            dict(position_embedding="none", position_placement="every_layer"),
            ["`position_placement`", "every_layer"],
        ),
        (
            dict(hidden_size=9, num_heads=3, position_embedding="learned_2d"),
            ["even", "width=9"],
        ),
        (
            dict(hidden_size=6, num_heads=3, position_embedding="sincos_2d"),
            ["multiple of 4", "width=6"],
        ),
        (dict(class_names=("a", "b")), ["`class_names`", "5", "2"]),
        (dict(weights="no/such/file.npz"), ["`weights`", "no/such/file.npz"]),
        (dict(resnet_depths=(1,), resnet_width=0.3, patch_size=1), ["32"]),
    ],
    ids=str,
)
def test_arguments_without_a_possible_value_are_named(arguments, words):
    # Others are refused by their kinds: tests/test_arguments.py.
    with pytest.raises(ValueError) as error:
        tiny(**arguments)
    for word in words:
        assert word in str(error.value)


@pytest.mark.backend("torch")
@pytest.mark.parametrize("constructor", ["ViT", "ViTB16", "R50ViTL32"])
def test_a_misspelt_keyword_is_refused_with_the_nearest_name(constructor):
    with pytest.raises(TypeError) as error:
        getattr(keras_vit, constructor)(num_class=3, num_layer=2)
    message = str(error.value)
    assert message.startswith(f"{constructor}() has no argument 'num_class'")
    with pytest.raises(TypeError, match="Nearest names: .'num_layers'"):
        getattr(keras_vit, constructor)(num_layer=2)
    with pytest.raises(TypeError, match="Nearest names: .*'num_layers'"):
        getattr(keras_vit, constructor)(depth=2)
    with pytest.raises(ValueError, match=f"{constructor} has no argument"):
        getattr(keras_vit, constructor)(data_format="channels_first")


def test_a_pass_runs_through_a_dozen_files():
    root = pathlib.Path(keras_vit.__file__).parent

    def files_of(function):
        found = set()

        def note(frame, event, _):
            path = frame.f_code.co_filename
            if event == "call" and path.startswith(f"{root}/"):
                found.add(path)

        sys.setprofile(note)
        try:
            return function(), found
        finally:
            sys.setprofile(None)

    model, built = files_of(lambda: keras_vit.ViT(**catalogue.TINY))
    call = model
    if keras.backend.backend() == "jax":  # which would compile each operation
        import jax

        call = functools.partial(jax.eval_shape, model)
    _, called = files_of(lambda: call(np.zeros((1, *model.input_shape[1:]))))
    assert len(called) <= 12 and len(built | called) <= 22
