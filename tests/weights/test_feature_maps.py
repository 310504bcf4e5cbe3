"""Maps of patches after chosen blocks, as timm and transformers give them."""

import catalogue
import keras
import numpy as np
import pytest
import realistic
from keras import ops

import keras_vit
from tests.weights.test_interop import images, save_state

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.backend("torch"),
    pytest.mark.filterwarnings("ignore"),  # of the other libraries
]
RNG = np.random.default_rng(0)


def images_for(model, count=2):
    shape = (count, *model.input_shape[1:])
    return RNG.uniform(0, 255, shape).astype("float32")


@pytest.mark.parametrize("name", catalogue.TINY_OF)
def test_every_model_gives_maps_that_are_saved(name, tmp_path):
    model = getattr(keras_vit, name)(**catalogue.TINY_OF[name])
    maps = keras_vit.feature_maps(model)
    x = images_for(model)
    found = keras.tree.flatten(maps.predict(x, verbose=0))
    depths = getattr(model.architecture, "depths", [1])
    assert len(found) == len(depths)
    for each in found:
        assert each.ndim == len(model.input_shape) and len(each) == 2
    assert {id(w) for w in maps.weights} <= {id(w) for w in model.weights}
    maps.save(tmp_path / "maps.keras")
    again = keras.models.load_model(tmp_path / "maps.keras")
    last = keras.tree.flatten(again.predict(x, verbose=0))[-1]
    np.testing.assert_array_equal(last, found[-1])
    assert again.metadata["grid"] == model.metadata["grid"]
    with pytest.raises(ValueError, match="is of a model of feature maps"):
        keras_vit.from_pretrained(tmp_path / "maps.keras")


@pytest.mark.parametrize("norm", [True, False])
def test_timm_gives_the_same_maps_and_prefix_tokens(norm, timm, tmp_path):
    arguments = dict(embed_dim=48, depth=3, num_heads=3, num_classes=0)
    arguments |= dict(img_size=(16, 40), patch_size=8)
    theirs = realistic.fill_torch(
        timm.models.vision_transformer.VisionTransformer(**arguments)
    )
    config = dict(
        architecture="vit_base_patch16_224",
        model_args=arguments,
        pretrained_cfg=dict(
            mean=(0.5,) * 3, std=(0.5,) * 3, input_size=(3, 16, 40)
        ),
    )
    path = save_state(theirs, tmp_path / "timm", config)
    model = keras_vit.ViT(
        weights=path, include_top=False, include_preprocessing=False
    )
    x = images(16, 40)
    found = keras_vit.feature_maps(
        model, [1, 3], norm=norm, prefix_tokens=True
    )(x)
    expected = theirs.forward_intermediates(
        torch.from_numpy(x.transpose(0, 3, 1, 2).copy()),
        indices=[0, 2],
        norm=norm,
        return_prefix_tokens=True,
        intermediates_only=True,
        output_fmt="NLC",
    )
    for n, (maps, prefix) in zip((1, 3), expected, strict=True):
        assert found[f"prefix_tokens_{n}"].shape == (2, 1, 48)
        close(found[f"map_{n}"], maps.reshape(2, 2, 5, 48))
        close(found[f"prefix_tokens_{n}"], prefix)


def test_transformers_backbone_gives_the_same_maps(transformers, tmp_path):
    config = transformers.Dinov2WithRegistersConfig(
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=2,
        image_size=28,
        patch_size=7,
        num_register_tokens=3,
        out_indices=[1, 3],
    )
    theirs = realistic.fill_torch(
        transformers.Dinov2WithRegistersBackbone(config)
    )
    whole = transformers.Dinov2WithRegistersModel(config)
    whole.load_state_dict(theirs.state_dict())
    whole.save_pretrained(tmp_path)
    model = keras_vit.from_pretrained(tmp_path, include_preprocessing=False)
    x = images(28, 28)
    found = keras_vit.feature_maps(model, [1, 3], prefix_tokens=True)(x)
    pixels = torch.from_numpy(x.transpose(0, 3, 1, 2).copy())
    expected = theirs(pixels).feature_maps
    for n, maps in zip((1, 3), expected, strict=True):
        close(found[f"map_{n}"], maps.permute(0, 2, 3, 1))
    assert found["prefix_tokens_3"].shape == (2, 4, 32)


def close(found, expected):
    expected = expected.detach().numpy()
    difference = np.abs(ops.convert_to_numpy(found) - expected).max()
    assert difference <= 1e-5 * np.abs(expected).max()


@pytest.mark.backend("tensorflow", "jax", "torch")
def test_numbers_count_from_1_and_from_the_last():
    model = catalogue.make_model("token")
    x = images_for(model)
    every = keras_vit.feature_maps(model, [1, 2]).predict(x, verbose=0)
    last = keras_vit.feature_maps(model).predict(x, verbose=0)
    np.testing.assert_array_equal(every[1], last)
    first = keras_vit.feature_maps(model, [-2]).predict(x, verbose=0)
    np.testing.assert_array_equal(every[0], first)
    levels = keras_vit.feature_maps(catalogue.make_model("raft"), [1])
    again = keras_vit.feature_maps(levels)
    assert again.output_shape == levels.output_shape
    with pytest.raises(ValueError, match="`norm` must be False.*a pyramid"):
        keras_vit.feature_maps(catalogue.make_model("raft"), [1], norm=True)
    with pytest.raises(ValueError, match="each map once"):
        keras_vit.feature_maps(model, [2, -1])
    with pytest.raises(ValueError, match="at least one map"):
        keras_vit.feature_maps(model, [])
    for number in (0, 3, -3):
        with pytest.raises(ValueError, match="`numbers` must be from 1 to 2"):
            keras_vit.feature_maps(model, [number])


@pytest.mark.backend("tensorflow")
def test_maps_and_prefix_tokens_are_exported(tmp_path):
    import tensorflow as tf

    model = catalogue.make_model("token")
    maps = keras_vit.feature_maps(model, [1, 2], prefix_tokens=True)
    x = images_for(model)
    maps.export(tmp_path / "maps", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "maps")
    served = loaded.serve(x)
    expected = maps(x)
    assert set(served) == set(expected)
    for name, value in served.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-6)
