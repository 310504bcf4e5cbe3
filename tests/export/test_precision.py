"""Copies in fewer bits: what they hold, and what they cost."""

import functools

import keras
import numpy as np
import pytest
import realistic

from keras_vit import heads
from keras_vit.export import precision
from keras_vit.export.scores import activation_of
from keras_vit.models.vit import ViT

pytestmark = pytest.mark.backend("tensorflow", "torch")

TINY = dict(
    patch_size=4,
    hidden_size=32,
    num_layers=2,
    num_heads=2,
    mlp_dim=64,
    input_shape=(16, 16, 3),
    classes=5,
)
HYBRID = dict(
    patch_size=1,
    resnet_depths=(1,),
    resnet_width=0.5,
    input_shape=(32, 32, 3),
)
KEPT = ("images", "ensure_shape", "preprocessing", "head")  # in float32
CASES = {
    "token": {},
    "hybrid": HYBRID,
    "shared positions": dict(position_placement="every_layer_shared"),
    "all else": dict(
        pooling="gap_norm",
        position_embedding="relative",
        representation_size=24,
        classifier_activation="softmax",
        class_names=("a", "b", "c", "d", "e"),
        include_preprocessing=False,
    ),
}
# Measured on the three backends: at most 0.046, 0.0052 and 0.059.
TOLERANCES = dict(float32=0, bfloat16=0.08, float16=0.01, int8=0.1)
DENSE = (
    "MultiHeadDotProductAttention_0/qkv",
    "MultiHeadDotProductAttention_0/out",
    "MlpBlock_0/Dense_0",
    "MlpBlock_0/Dense_1",
)


def make_model(**arguments):
    model = ViT(**TINY | arguments)
    return realistic.fill(model)


def make_images(model, count=64):
    scaled = any(layer.name == "preprocessing" for layer in model.layers)
    low, high = (0, 255) if scaled else (-1, 1)
    shape = (count, *model.input_shape[1:])
    images = np.random.default_rng(1).uniform(low, high, shape)
    return images.astype("float32")


def dtypes(model):
    return {weight.path: weight.dtype for weight in model.weights}


@functools.cache
def case(name):
    """A model for all copies, so that its `predict` is compiled once."""
    return make_model(**CASES[name])


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("float32", "token"),
        ("bfloat16", "hybrid"),
        ("float16", "all else"),
        *(("int8", name) for name in CASES),
    ],
)
@pytest.mark.thorough("tensorflow")
def test_outputs_stay_near_and_float32(kind, name):
    model = case(name)
    copy = precision.in_precision(model, kind)
    images = make_images(model)
    comparison = precision.compare(model, copy, images)
    assert comparison["images"] == 64
    assert comparison["relative_difference"] <= TOLERANCES[kind]
    assert comparison["top1_agreement"] >= (1 if kind == "float32" else 0.9)
    if kind != "float32":  # it did compute otherwise
        assert comparison["max_difference"] > 0
    # As many as before, for which it is compiled.
    assert copy.predict(images[:32], verbose=0).dtype == np.float32
    assert (
        copy.get_layer("head").class_names
        == model.get_layer("head").class_names
    )


@pytest.mark.parametrize(
    ("kind", "name"), [("bfloat16", "hybrid"), ("float16", "token")]
)
def test_all_weights_but_the_head_are_in_half_precision(kind, name):
    model = make_model(**CASES[name])
    copy = precision.in_precision(model, kind)
    for path, dtype in dtypes(copy).items():
        assert dtype == ("float32" if path.startswith("head/") else kind), path
    for layer in copy.layers:
        kept = layer.name in KEPT
        assert layer.compute_dtype == ("float32" if kept else kind), layer.name
    head = sum(w.size for w in model.get_layer("head").get_weights())
    assert precision.weights_bytes(model) == 4 * model.count_params()
    assert precision.weights_bytes(copy) == 2 * (model.count_params() + head)


@pytest.mark.backend("tensorflow", "jax", "torch")
@pytest.mark.parametrize("name", ["token", "hybrid"])
def test_int8_holds_the_kernels_of_every_block_in_8_bits(name):
    model = make_model(**CASES[name])
    copy = precision.in_precision(model, "int8")
    found = {path for path, dtype in dtypes(copy).items() if dtype == "int8"}
    assert found == {"head/kernel"} | {
        f"encoderblock_{i}/{dense}/kernel" for i in range(2) for dense in DENSE
    }
    assert set(dtypes(copy).values()) == {"int8", "float32"}
    kernels = [w for w in copy.weights if w.dtype == "int8"]
    for kernel in kernels:
        values = keras.ops.convert_to_numpy(kernel)
        # Of each output the largest weight is at the end of the range.
        assert (np.abs(values.astype(int)).max(axis=0) == 127).all()
    # Three bytes less for each weight, and one scale for each output.
    size = sum(3 * np.prod(k.shape) - 4 * k.shape[1] for k in kernels)
    assert precision.weights_bytes(copy) == (
        precision.weights_bytes(model) - size
    )


@pytest.mark.parametrize("kind", ["bfloat16", "int8"])
@pytest.mark.thorough("tensorflow")
def test_model_is_left_as_it_was(kind):
    model = make_model()
    images = make_images(model)
    before = model.get_weights(), model.predict(images, verbose=0)
    copy = precision.in_precision(model, kind)
    for weight in copy.weights:
        weight.assign(np.zeros(weight.shape))
    assert set(dtypes(model).values()) == {"float32"}
    for old, new in zip(before[0], model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    np.testing.assert_array_equal(before[1], model.predict(images, verbose=0))


@pytest.mark.parametrize(
    ("kind", "name"), [("bfloat16", "hybrid"), ("int8", "all else")]
)
@pytest.mark.thorough("tensorflow")
def test_copy_saves_and_loads(kind, name, tmp_path):
    copy = precision.in_precision(make_model(**CASES[name]), kind)
    copy.save(tmp_path / "copy.keras")
    loaded = keras.models.load_model(tmp_path / "copy.keras")
    assert dtypes(loaded) == dtypes(copy)
    images = make_images(copy, 4)
    np.testing.assert_array_equal(
        loaded.predict(images, verbose=0), copy.predict(images, verbose=0)
    )


def test_a_copy_states_what_makes_probabilities_of_its_scores(tmp_path):
    model = make_model()
    model.compile("sgd", keras.losses.BinaryCrossentropy(from_logits=True))
    precision.in_precision(model, "bfloat16").save(tmp_path / "copy.keras")
    copy = keras.models.load_model(tmp_path / "copy.keras")
    assert activation_of(copy) == "sigmoid"
    assert copy.optimizer is None


@pytest.mark.thorough("tensorflow")
def test_half_precision_converts_to_float32_and_mixed_is_unchanged():
    model = make_model()
    half = precision.in_precision(model, "bfloat16")
    whole = precision.in_precision(half, "float32")
    assert set(dtypes(whole).values()) == {"float32"}
    for layer in whole.layers:
        assert layer.compute_dtype == "float32"
    images = make_images(model)
    # Weights were rounded once; activations are no more.
    assert precision.compare(model, whole, images)["max_difference"] > 0

    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        mixed = make_model()
        mixed.set_weights(model.get_weights())
        whole = precision.in_precision(mixed, "float32")
        copy = precision.in_precision(mixed, "int8")
    finally:
        keras.config.set_dtype_policy("float32")
    assert mixed.get_layer("embedding").compute_dtype == "bfloat16"
    assert precision.compare(model, whole, images)["max_difference"] == 0
    assert copy.get_layer("embedding").compute_dtype == "float32"


def test_a_model_without_layers_of_its_own_is_refused():
    model = make_model()
    quantised = precision.in_precision(model, "int8")
    with pytest.raises(ValueError, match="quantised already, to int8"):
        precision.in_precision(quantised, "float16")
    inputs = keras.Input((16, 16, 3))
    with pytest.raises(ValueError, match="`ViT` inside"):
        precision.in_precision(keras.Model(inputs, model(inputs)), "float16")
    with pytest.raises(ValueError, match="must be a functional model"):
        precision.in_precision(keras.Sequential([model]), "float16")
    with pytest.raises(ValueError, match="must be a functional model"):
        precision.in_precision(model.layers[1], "float16")


def test_comparison_counts_what_differs():
    model = make_model()
    images = make_images(model, 5)
    other = precision.in_precision(model, "float32")
    kernel, bias = other.get_layer("head").get_weights()
    scores = model.predict(images, verbose=0)
    # Class 0 wins every image, by one point on one score.
    lead = scores.max() - scores.min() + 1
    other.get_layer("head").set_weights([kernel, bias + lead * np.eye(5)[0]])
    comparison = precision.compare(model, other, images, batch_size=2)
    assert comparison == dict(
        images=5,
        max_difference=pytest.approx(lead, rel=1e-4),
        relative_difference=pytest.approx(
            lead / np.abs(scores).max(), rel=1e-4
        ),
        top1_agreement=float((scores.argmax(-1) == 0).mean()),
    )


def test_outputs_that_are_not_finite_are_reported():
    model = make_model()
    images = make_images(model, 3)
    other = precision.in_precision(model, "float32")
    kernel, bias = other.get_layer("head").get_weights()
    other.get_layer("head").set_weights([kernel, bias * np.nan])
    comparison = precision.compare(model, other, images)
    assert comparison["max_difference"] == float("inf")
    assert precision.report_text("float16", comparison) == (
        "float16: on 3 images some outputs are not finite numbers"
    )


def test_images_that_do_not_fit_are_refused():
    model = make_model()
    for shape in [(2, 16, 8, 3), (16, 16, 3)]:
        with pytest.raises(ValueError, match="`images` must be"):
            precision.compare(model, model, np.zeros(shape))
    with pytest.raises(ValueError, match="one image at least"):
        precision.compare(model, model, np.zeros((0, 16, 16, 3)))
    other = ViT(**TINY | dict(classes=4))
    with pytest.raises(ValueError, match=r"one output.* 5\) and .* 4\)"):
        precision.compare(model, other, np.zeros((1, 16, 16, 3)))


def test_what_a_head_gives_stays_float32():
    model = heads.linear(
        ViT(**TINY | dict(include_top=False, classes=None)), classes=2
    )
    copy = precision.in_precision(model, "bfloat16")
    assert copy.output["logits"].dtype == "float32"


def test_report_is_one_line():
    comparison = dict(
        images=64,
        max_difference=0.04312,
        relative_difference=0.0331,
        top1_agreement=62 / 64,
    )
    assert precision.report_text("int8", comparison) == (
        "int8: on 64 images outputs differ by at most 0.0431 (3.31% of the "
        "largest), and the first class is the same on 96.9%"
    )
