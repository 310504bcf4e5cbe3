"""BiT ResNets: the authors' numbers in both orders, sizes, paddings."""

import catalogue
import keras
import numpy as np
import pytest
import realistic
from functional import difference, golden
from keras import ops

import keras_vit
from keras_vit import training
from keras_vit.inspection import costs
from keras_vit.models import bit

# Parameters without a head, with 1000 and with 21,843 classes; billions of
# multiply-accumulates at 224 x 224 with 1000 classes.
SIZES = {
    "BiTR50x1": (23_500_352, 25_549_352, 68_256_659, 4.089),
    "BiTR50x2": (93_891_712, 97_988_712, 183_382_483, 16.12),
    "BiTR50x3": (211_174_080, 217_319_080, 345_399_315, 36.08),
    "BiTR101x1": (42_492_480, 44_541_480, 87_248_787, 7.801),
    "BiTR101x3": (381_789_888, 387_934_888, 516_015_123, 69.49),
    "BiTR152x1": (58_136_128, 60_185_128, 102_892_435, 11.51),
    "BiTR152x2": (232_238_208, 236_335_208, 321_728_979, 45.81),
    "BiTR152x4": (928_340_224, 936_533_224, 1_107_299_923, 182.8),
    "BiTR200x3": (562_488_000, 568_633_000, 696_713_235, 134.3),
}


def authors_model(**architecture):
    data, path = golden("bit_resnet")
    images, logits = data["input"], data["logits"]
    model = keras_vit.BiT(
        weights=path,
        include_preprocessing=False,
        input_shape=images.shape[1:],
        **architecture,
    )
    return model, images, logits


def test_logits_are_the_authors():
    assert difference(*authors_model()) <= 1e-5


def post_activation(numerics="authors"):
    """Returns a small model and the stem of a hybrid, with its weights."""
    model = keras_vit.BiT(
        depths=(1, 2),
        width_factor=0.5,
        activation_order="post_activation",
        numerics=numerics,
        input_shape=(33, 38, 3),
        include_preprocessing=False,
        include_top=False,
    )
    realistic.fill(model)
    stem = keras_vit.layers.ResNetV2Stem((1, 2), 0.5, numerics, name="stem")
    stem.build((None, 33, 38, 3))
    values = {v.path: v for v in model.weights}
    for weight in stem.weights:
        weight.assign(values[weight.path.removeprefix("stem/")])
    return model, stem


@pytest.mark.thorough("jax")
def test_post_activation_equals_the_stem_of_a_hybrid():
    model, stem = post_activation()
    x = np.random.default_rng(1).normal(size=(2, 33, 38, 3)).astype("float32")
    expected = ops.convert_to_numpy(ops.mean(stem(x), axis=(1, 2)))
    assert difference(model, x, expected) <= 1e-5


def without_memory(variant, **kwargs):
    with costs.shapes_alone():
        return getattr(keras_vit, variant)(**kwargs)


# On JAX alone models are built without memory.
@pytest.mark.backend("jax")
@pytest.mark.parametrize("variant", bit.VARIANTS)
def test_parameters_are_those_of_the_release(variant):
    body = without_memory(variant, include_top=False)
    width = body.output_shape[-1]
    found = body.count_params()
    heads = [found + (width + 1) * classes for classes in (1000, 21_843)]
    assert (found, *heads) == SIZES[variant][:3]


@pytest.mark.backend("jax")
@pytest.mark.parametrize(
    "variant",
    ["BiTR50x1", pytest.param("BiTR101x3", marks=pytest.mark.thorough)],
)
def test_operations_are_those_of_the_release(variant):
    expected = SIZES[variant][3] * 1e9
    assert keras_vit.cost(without_memory(variant)).macs == pytest.approx(
        expected, rel=5e-4
    )


@pytest.mark.parametrize("strides", [1, 2])
def test_symmetric_padding_is_the_same_on_both_sides(strides):
    layer = keras_vit.layers.StdConv2D(1, 3, strides, padding="symmetric")
    layer.build((None, 6, 6, 1))
    rng = np.random.default_rng(0)
    layer.kernel.assign(rng.normal(size=(3, 3, 1, 1)))
    x = rng.normal(size=(1, 6, 6, 1)).astype("float32")
    y = ops.convert_to_numpy(layer(x))[0, :, :, 0]
    kernel = ops.convert_to_numpy(layer.kernel)[:, :, 0, 0]
    kernel = (kernel - kernel.mean()) / (kernel.std() + 1e-5)
    padded = np.pad(x[0, :, :, 0], 1)
    expected = [
        [(padded[i : i + 3, j : j + 3] * kernel).sum() for j in range(6)]
        for i in range(6)
    ]
    expected = np.array(expected)[::strides, ::strides]
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def test_padding_is_checked():
    with pytest.raises(ValueError, match="`padding` must be one of"):
        keras_vit.layers.StdConv2D(4, 3, padding="valid")
    with pytest.raises(ValueError, match="`kernel_size` of StdConv2D .* odd"):
        keras_vit.layers.StdConv2D(4, 2, padding="symmetric")


@pytest.mark.backend("tensorflow")
@pytest.mark.parametrize(
    "unit_class", [bit.PreActivationUnit, keras_vit.layers.BottleneckUnit]
)
def test_recomputing_activations_leaves_a_training_step_alone(unit_class):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 2, 5, 4, 32)).astype("float32")
    y = np.tile(y, 4)
    stepped = []
    for remat in (False, True):
        keras.utils.set_random_seed(0)
        images = keras.Input((5, 4, 32))
        model = keras.Model(images, unit_class(32, remat=remat)(images))
        model.compile(keras.optimizers.SGD(0.1), "mse")
        model.train_on_batch(x, y)
        stepped.append(model.get_weights())
    for plain, recomputed in zip(*stepped, strict=True):
        np.testing.assert_allclose(plain, recomputed, rtol=1e-4, atol=1e-5)


@pytest.mark.backend_independent
def test_rates_fall_unit_by_unit_and_nothing_is_low_rank():
    model = catalogue.make_model("bit")
    factor = training.depth_factor(model, 0.5)
    assert factor("conv_root/kernel") == 0.5**4
    assert factor("block2_unit1/conv1/kernel") == 0.25
    assert factor("group_norm/gamma") == factor("head/kernel") == 1.0
    with pytest.raises(ValueError, match="blocks with dense layers"):
        training.train_low_rank(model, 2)
