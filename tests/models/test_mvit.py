"""MViT: the authors' numbers, the paper's costs, its blocks and poolings."""

import catalogue
import keras
import numpy as np
import pytest
from functional import difference, golden
from keras import ops

import keras_vit
from keras_vit.distribution import layouts
from keras_vit.inspection import costs
from keras_vit.models import mvit, mvit_pooling

pytestmark = pytest.mark.backend("torch")

# Parameters and billions of multiply-accumulates of a clip or an image, with
# the classes of Kinetics-400 or ImageNet. The tables of the documentation,
# which are tested too, have the others.
SIZES = {
    "MViTB16x4": (36_610_672, 70.60),
    "MViTB24_32x3": (53_115_280, 235.78),
    "VideoViTB16": (86_112_400, 179.56),
    "MViTB16": (36_982_600, 7.809),
    "MViTB24Wide": (72_961_832, 32.72),
}
VIDEO = dict(cube_stride=(2, 4, 4), query_stride=(1, 2, 2))
IMAGE = dict(
    cube_stride=(1, 4, 4), query_stride=(1, 2, 2), key_value_stride=(1, 4, 4)
)
GOLDENS = {
    "mvit_video": dict(
        VIDEO, key_value_stride=(1, 4, 4), position_grid=(3, 16, 12)
    ),
    "mvit_image": IMAGE,
    "mvit_authors_video": dict(VIDEO, key_value_stride=(1, 8, 8)),
    "mvit_authors_image": IMAGE,
}


def authors_model(case):
    data, path = golden(case)
    model = keras_vit.MViT(
        weights=path, include_preprocessing=False, **GOLDENS[case]
    )
    return model, data["input"], data["logits"]


torch_only = pytest.mark.backend("torch")


@pytest.mark.backend("tensorflow", "jax", "torch")
@pytest.mark.parametrize(
    "case",
    [
        "mvit_video",
        *(pytest.param(x, marks=torch_only) for x in list(GOLDENS)[1:]),
    ],
)
@pytest.mark.thorough("jax")
def test_logits_are_the_authors(case):
    model, videos, logits = authors_model(case)
    assert model.input_shape[1:] == videos.shape[1:]
    assert difference(model, videos, logits) <= 2e-6


def cost(constructor, **kwargs):
    """Returns the parameters and billions of multiply-accumulates."""
    is_video = len(mvit.INPUT_SHAPES.get(constructor, ())) == 4
    kwargs = dict(classes=400 if is_video else 1000) | kwargs
    with costs.shapes_alone():
        model = getattr(keras_vit, constructor)(**kwargs)
    found = keras_vit.cost(model)
    return found.parameters, found.macs / 1e9


@pytest.mark.backend("jax")
@pytest.mark.parametrize("variant", SIZES)
@pytest.mark.thorough()
def test_parameters_and_operations_are_the_papers(variant):
    parameters, macs = SIZES[variant]
    assert cost(variant) == (parameters, pytest.approx(macs, rel=5e-4))


def test_strides_are_given_once_or_for_each_stage():
    sizes = dict(
        depths=[1, 2, 2], hidden_sizes=[8, 16, 32], num_heads=[1, 2, 4]
    )
    adaptive = mvit.MViTConfig(**sizes, key_value_stride=[1, 4, 4])
    listed = mvit.MViTConfig(
        **sizes,
        query_stride=((1, 1, 1), (1, 2, 2), (1, 2, 2)),
        key_value_stride=[[1, 4, 4], [1, 2, 2], [1, 1, 1]],
    )
    assert adaptive == listed
    assert mvit.MViTConfig(**sizes, query_stride=[[2, 1, 1]] * 3).query_stride[
        0
    ] == (2, 1, 1)


@pytest.mark.parametrize(
    "changes, words",
    [
        (dict(hidden_sizes=(8,)), "`hidden_sizes` must have a value for each"),
        (dict(num_heads=(3, 4)), "`hidden_sizes` must be a multiple"),
        (dict(query_stride=((1, 2, 2),)), "`query_stride` must have a value"),
        (dict(query_stride=2), "`query_stride` must be three positive"),
        (dict(pooling_size=3), "`pooling_size` must be three positive"),
        (
            dict(pooling_mode="none"),
            "must be .1, 1, 1. with pooling_mode='none'",
        ),
        (dict(pooling_mode="mean"), "`pooling_mode` must be one of"),
        (dict(input_shape=(8, 8, 8, 3, 1)), "or .frames, height, width"),
        (dict(input_shape=(0, 8, 8, 3)), "`frames of input_shape`"),
        (dict(input_shape=(None, 8, 8, 3)), "frames, height and width are"),
    ],
    ids=str,
)
def test_impossible_arguments_are_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        keras_vit.MViT(**catalogue.TINY_OF["MViT"] | changes)


def test_only_models_of_video_take_videos():
    with pytest.raises(ValueError, match="must be .height, width, channels"):
        keras_vit.ViTB16(input_shape=(8, 224, 224, 3))
    model = catalogue.make_model("mvit")
    assert model.num_frames == 4
    assert model.image_shape == (16, 24, 3)
    model = catalogue.make_model("mvit image")
    assert model.num_frames is None
    assert model.image_shape == (32, 24, 3)


def windows(x, kernel_size, strides, fill):
    """Yields each window's place and values, by the definition."""
    pads = [(0, 0), *[(k // 2, k // 2) for k in kernel_size], (0, 0)]
    x = np.pad(x, pads, constant_values=fill)
    counts = [
        (n - k) // s + 1
        for n, k, s in zip(x.shape[1:4], kernel_size, strides, strict=True)
    ]
    for place in np.ndindex(*counts):
        index = [
            slice(i * s, i * s + k)
            for i, s, k in zip(place, strides, kernel_size, strict=True)
        ]
        yield x[(slice(None), *index)].reshape(len(x), -1, x.shape[-1])


@pytest.mark.backend("tensorflow", "jax", "torch")
@pytest.mark.parametrize("mode", ["conv", "max", "avg"])
@pytest.mark.parametrize(
    "kernel_size, strides",
    [((3, 3, 3), (1, 2, 2)), ((1, 3, 5), (1, 2, 4)), ((2, 1, 3), (2, 1, 3))],
)
def test_tokens_are_pooled_over_windows(mode, kernel_size, strides):
    pool = mvit_pooling.TokenPooling((4, 5, 7), mode, kernel_size, strides, 2)
    rng = np.random.default_rng(0)
    tokens = rng.normal(size=(2, 141, 6)).astype("float32")
    pooled = ops.convert_to_numpy(pool(tokens))
    np.testing.assert_array_equal(pooled[:, 0], tokens[:, 0])
    fill = -np.inf if mode == "max" else 0
    x = tokens[:, 1:].reshape(2, 4, 5, 7, 6)
    found = windows(x, kernel_size, strides, fill)
    if mode == "conv":
        kernel = ops.convert_to_numpy(pool.kernel).reshape(-1, 3)
        kernel = np.tile(kernel, (1, 2))  # the same for both heads
        expected = [(each * kernel).sum(axis=1) for each in found]
    elif mode == "max":
        expected = [each.max(axis=1) for each in found]
    else:
        expected = [each.mean(axis=1) for each in found]
    np.testing.assert_allclose(
        pooled[:, 1:], np.stack(expected, axis=1), rtol=1e-5, atol=1e-6
    )


@pytest.mark.backend("jax")
def test_for_tpus_pooling_is_a_convolution_of_the_same_result(monkeypatch):
    import jax

    pool = mvit_pooling.TokenPooling((4, 5, 7), "conv", num_heads=2)
    tokens = np.random.default_rng(0).normal(size=(2, 141, 6))
    tokens = tokens.astype("float32")
    of_slices = pool(tokens)

    def program():
        return str(jax.make_jaxpr(lambda x: pool(x))(tokens))

    assert "conv_general" not in program()
    planned = layouts.distribution("data", ["tpu:0"])
    monkeypatch.setattr(keras.distribution, "distribution", lambda: planned)
    assert "conv_general" in program()
    np.testing.assert_allclose(pool(tokens), of_slices, rtol=1e-5, atol=1e-6)


def test_attention_is_among_pooled_tokens():
    model = catalogue.make_model("mvit")
    videos = np.zeros((2, 4, 16, 24, 3), "float32")
    weights = keras_vit.inspection.attention_weights(model, videos)
    # 2 x 4 x 6 tokens and the class token. The first block pools keys, the
    # second its queries.
    assert [w.shape[1:] for w in weights] == [
        (1, 49, 13),
        (2, 13, 49),
        (2, 13, 13),
    ]
    for each in weights:
        np.testing.assert_allclose(each.sum(axis=-1), 1, rtol=1e-5)
    assert keras_vit.inspection.has_rollout(model)
    rollout = keras_vit.inspection.attention_rollout(model, videos)
    assert rollout.shape == (2, 2, 4, 6)
    np.testing.assert_allclose(rollout.sum(axis=(1, 2, 3)), 1, rtol=1e-6)
