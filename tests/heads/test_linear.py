"""The linear head on the maps of any backbone."""

import catalogue
import keras
import modern_cases
import numpy as np
import pytest

import keras_vit

pytestmark = pytest.mark.backend("torch")
IMAGES = 48  # of the training


def numpy(x):
    return keras.ops.convert_to_numpy(x)


@pytest.mark.parametrize("title", sorted(catalogue.TINY_OF))
def test_a_model_of_any_family_segments(title):
    arguments = catalogue.TINY_OF[title] | dict(include_top=False)
    arguments.pop("classes", None)
    backbone = getattr(keras_vit, title)(**arguments)
    if backbone.num_frames is not None:
        with pytest.raises(ValueError, match="a model of images"):
            keras_vit.heads.linear(backbone, classes=2)
        return
    model = keras_vit.heads.linear(backbone, classes=2)
    shape = (1, *backbone.image_shape)
    found = model.predict(np.ones(shape, "float32"), verbose=0)
    assert found["logits"].shape == (*shape[:3], 2)
    norm = model.get_layer("head_norm")  # with PyTorch's constants
    assert (norm.momentum, norm.epsilon) == (0.9, 1e-5)
    maps = keras_vit.feature_maps(backbone).outputs
    assert norm.input.shape[1] == max(x.shape[1] for x in maps)
    assert model.family == backbone.family and model.task == "segmentation"


def scenes():
    """Return images and the classes of their pixels: brighter than half."""
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 2, (IMAGES, 2, 2)).repeat(8, 1).repeat(8, 2)
    noise = rng.uniform(0, 40, (*classes.shape, 3))
    classes[:, :1] = 255  # ignored
    return 40 + 150 * (classes == 1)[..., None] + noise, classes


@pytest.mark.backend("tensorflow", "jax", "torch")
@pytest.mark.parametrize(
    "frozen", [pytest.param(True, marks=pytest.mark.backend("torch")), False]
)
@pytest.mark.thorough("tensorflow", "jax")
def test_it_trains_on_dinov2(frozen, tmp_path):
    modern_cases.open_case("hf_dinov2", tmp_path)
    backbone = keras_vit.DINOv2(
        weights=str(tmp_path), include_top=False, input_shape=(16, 16, 3)
    )
    backbone.trainable = not frozen
    before = [numpy(w) for w in backbone.weights]
    model = keras_vit.heads.linear(
        backbone, class_names=("dark", "bright"), numbers=(1, -1)
    )
    loss = keras_vit.training.PixelCrossentropy()
    keras_vit.training.set_loss(model, loss)
    model.compile(keras.optimizers.Adam(0.01))
    images, classes = scenes()
    model.fit(images, dict(classes=classes), batch_size=8, epochs=4, verbose=0)
    same = [
        np.array_equal(old, numpy(new))
        for old, new in zip(before, backbone.weights, strict=True)
    ]
    assert all(same) if frozen else not any(same)
    found = model.interpret(model.predict(images, verbose=0))
    found = np.stack([x["classes"] for x in found])
    # At the borders the map of 4 x 4 patches is blurred.
    assert (found == classes)[classes != 255].mean() > 0.85
    path = tmp_path / "model.keras"
    model.save(path)
    again = keras.models.load_model(path)
    assert again.class_names == ("dark", "bright")
    assert len(again.trainable_weights) == len(model.trainable_weights)
    np.testing.assert_array_equal(
        numpy(again(images[:2])["logits"]), numpy(model(images[:2])["logits"])
    )


def test_classes_are_at_the_pixels_of_the_image():
    arguments = catalogue.TINY_OF["ViT"] | dict(include_top=False)
    del arguments["classes"]
    model = keras_vit.heads.linear(keras_vit.ViT(**arguments), classes=3)
    logits = np.zeros((1, 2, 2, 3))
    logits[0, 0, 0, 2] = logits[0, 1, :, 1] = 1
    (found,) = model.interpret(dict(logits=logits), [(4, 6)])
    np.testing.assert_array_equal(found["classes"][:2, :2], 2)
    np.testing.assert_array_equal(found["classes"][2:], 1)


def test_what_it_is_not_made_for_is_refused(tmp_path):
    arguments = catalogue.TINY_OF["ViT"] | dict(include_top=False)
    del arguments["classes"]
    backbone = keras_vit.ViT(**arguments)
    with pytest.raises(ValueError, match="`numbers` must be"):
        keras_vit.heads.linear(backbone, classes=2, numbers=(9,))
    with pytest.raises(ValueError, match="`backbone` must be a model of keras"):
        keras_vit.heads.linear(keras.Sequential(), classes=2)
    model = keras_vit.heads.linear(backbone, classes=2)
    with pytest.raises(ValueError, match="the head 'linear'"):
        keras_vit.save_checkpoint(model, tmp_path, format="huggingface")
