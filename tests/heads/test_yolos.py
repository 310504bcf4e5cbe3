"""YOLOS on backbones of this package, and its boxes."""

import catalogue
import keras
import numpy as np
import pytest
import realistic

import keras_vit
from keras_vit.heads.yolos import AnchoredTokens
from tests.heads.backbones import IMAGES, backbone

pytestmark = pytest.mark.backend("torch")


@pytest.mark.parametrize("constructor", ["ViT", "DeiT", "DINOv2", "DINOv3"])
def test_a_vit_of_any_family_detects(constructor):
    model = keras_vit.heads.yolos(
        backbone(constructor), classes=3, num_detection_tokens=5
    )
    found = model.predict(IMAGES, verbose=0)
    assert found["logits"].shape == (2, 5, 4)
    assert found["pred_boxes"].shape == (2, 5, 4)
    assert model.task == "detection" and len(model.blocks) == 3


def test_every_weight_learns():
    model = realistic.fill(
        keras_vit.heads.yolos(
            backbone("DINOv3"),
            class_names=("a", "b"),
            num_detection_tokens=4,
            mid_positions=True,
            anchors=True,
            patch_classes=True,
            auxiliary_blocks=(1,),
        )
    )
    assert set(model.output) == {
        *("logits", "pred_boxes", "logits_1", "pred_boxes_1", "patch_logits")
    }
    losses = dict.fromkeys(model.output, "mean_squared_error")
    model.compile(keras.optimizers.SGD(0.1), loss=losses)
    targets = {k: np.ones((2, *v.shape[1:])) for k, v in model.output.items()}
    before = [keras.ops.convert_to_numpy(w) for w in model.trainable_weights]
    model.fit(IMAGES, targets, verbose=0)
    for old, new in zip(before, model.trainable_weights, strict=True):
        assert not np.array_equal(old, keras.ops.convert_to_numpy(new)), new


@pytest.mark.parametrize(
    ("count", "columns", "expected"),
    [
        # Two by two tokens; patches fall off over half of the image.
        (4, 4, [[3 / 7, 3 / 7, 1 / 7, 0], [0, 1 / 7, 3 / 7, 3 / 7]] * 2),
        # More tokens than patches, which fall off over their own width.
        (9, 2, [[1, 0], [0.5, 0.5], [0, 1]] * 3),
    ],
)
def test_anchored_tokens_begin_as_the_patches_around_them(
    count, columns, expected
):
    rows = 2 if count == 4 else 1
    layer = AnchoredTokens(count, (rows, columns))
    patches = np.eye(rows * columns)
    x = np.concatenate([np.zeros((count, rows * columns)), patches])[None]
    found = keras.ops.convert_to_numpy(layer(x.astype("float32")))[0]
    np.testing.assert_array_equal(found[count:], patches)
    found = found[:count].reshape(count, rows, columns)
    row = np.arange(count) * rows // count
    np.testing.assert_allclose(
        found[np.arange(count), row], expected, atol=1e-6
    )
    np.testing.assert_allclose(found.sum((1, 2)), 1, rtol=1e-6)


def test_mixed_precision_gives_scores_in_float32():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = keras_vit.heads.yolos(backbone("ViT"), classes=3)
    finally:
        keras.config.set_dtype_policy("float32")
    assert {x.dtype for x in model.output.values()} == {"float32"}


def test_boxes_are_in_pixels_of_the_original_image():
    model = keras_vit.heads.yolos(
        backbone("ViT"), class_names=("cat", "dog"), num_detection_tokens=3
    )
    outputs = dict(
        logits=np.log(
            [[[0.2, 0.7, 0.1], [0.1, 0.45, 0.45], [0.9, 0.05, 0.05]]]
        ),
        pred_boxes=np.array([[[0.5, 0.5, 0.2, 1.0]] * 3]),
    )
    (found,) = model.interpret(outputs, [(100, 50)])
    assert found["names"] == ["cat", "dog"]
    np.testing.assert_allclose(found["scores"], [0.9, 0.7])
    np.testing.assert_allclose(found["boxes"], [[20, 0, 30, 100]] * 2)
    (found,) = model.interpret(outputs, [(100, 50)], threshold=0.95)
    assert found["boxes"].shape == (0, 4) and found["names"] == []
    with pytest.raises(ValueError, match="2 sizes for 1 images"):
        model.interpret(outputs, [(100, 50)] * 2)
    for sizes in ([(100, 50, 3)], [(100.5, 50)], [(0, 50)], [100]):
        with pytest.raises(ValueError, match="`image_sizes` must be"):
            model.interpret(outputs, sizes)
    for threshold in (np.nan, "0.5"):
        with pytest.raises(ValueError, match="`threshold` must be a finite"):
            model.interpret(outputs, threshold=threshold)
    for wrong in ({}, outputs["logits"]):
        with pytest.raises(ValueError, match="`outputs` must be the dict"):
            model.interpret(wrong)
    with pytest.raises(ValueError, match="`image_size` must be a tuple"):
        model.find_in(np.zeros((8, 8, 3)), 4)


@pytest.mark.parametrize("name", ["MLPMixer", "BEiT"])
def test_backbones_of_a_fixed_number_of_tokens_are_refused(name):
    arguments = catalogue.TINY_OF[name] | dict(include_top=False)
    arguments.pop("classes", None)
    model = getattr(keras_vit, name)(**arguments)
    with pytest.raises(ValueError, match="a ViT whose blocks take more tokens"):
        keras_vit.heads.yolos(model, classes=2)


def test_impossible_arguments_are_refused():
    for blocks in ((3,), (1, 1)):
        with pytest.raises(ValueError, match="`auxiliary_blocks` must be"):
            keras_vit.heads.yolos(
                backbone("ViT"), classes=2, auxiliary_blocks=blocks
            )
    with pytest.raises(ValueError, match="`classes` or `class_names`"):
        keras_vit.heads.yolos(backbone("ViT"))
    with pytest.raises(ValueError, match="no layers between its blocks"):
        placed = backbone("ViT", position_placement="every_layer")
        keras_vit.heads.yolos(placed, classes=2)


def test_what_the_format_has_no_place_for_is_refused(tmp_path):
    model = keras_vit.heads.yolos(backbone("DINOv2"), classes=2)
    with pytest.raises(ValueError, match="layer_scale=1e-05"):
        keras_vit.save_checkpoint(model, tmp_path, format="huggingface")
    others = dict(layer_scale=0.0, post_norm=True, qkv_bias="qv")
    model = keras_vit.heads.yolos(backbone("DINOv2", **others), classes=2)
    with pytest.raises(ValueError, match="post_norm=True.*qkv_bias='qv'"):
        keras_vit.save_checkpoint(model, tmp_path, format="huggingface")
