"""ViTPose on backbones of this package, and its keypoints."""

import types

import keras
import numpy as np
import pytest
import realistic

import keras_vit
from tests.heads.test_dpt import IMAGES, backbone, changed

pytestmark = [
    pytest.mark.backend("torch"),
    pytest.mark.filterwarnings("ignore"),  # of transformers
]


@pytest.mark.parametrize(
    "constructor", ["ViT", "DINOv2", "DINOv3", "AxialViT", "BiT"]
)
def test_any_backbone_gives_heat_maps(constructor):
    inner = backbone(constructor)
    size = keras_vit.feature_maps(inner, [-1]).output.shape[1:3]
    for decoder, factor in (("simple", 3), ("classic", 4)):
        model = keras_vit.heads.vitpose(
            inner, classes=7, decoder=decoder, scale_factor=3
        )
        heights, widths = (factor * n for n in size)
        assert model.output["heatmaps"].shape == (None, heights, widths, 7)
    assert model.task == "pose"


def test_every_weight_learns():
    inner = backbone(
        "DINOv2", class_token=False, position_prefix=0, pooling="gap"
    )
    model = realistic.fill(
        keras_vit.heads.vitpose(
            inner,
            class_names=("nose", "tail"),
            decoder="classic",
            shifted_patches=True,
            block=3,
        )
    )
    model.compile(keras.optimizers.SGD(1.0), "mse")
    before = [keras.ops.convert_to_numpy(w) for w in model.weights]
    model.fit(IMAGES, dict(heatmaps=np.ones((2, 16, 24, 2))), verbose=0)
    for old, new in zip(before, model.weights, strict=True):
        assert not np.array_equal(old, keras.ops.convert_to_numpy(new)), new


def test_keypoints_are_those_of_the_librarys_processor(transformers):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    height, width = 64, 48
    y, x = np.indices((height, width))[..., None]
    places = rng.uniform(0, 1, (2, 6)) * [[width], [height]]
    # Some lie at the border; one is faint, and the last is nowhere.
    heat = np.exp(-((x - places[0]) ** 2 + (y - places[1]) ** 2) / 8)
    heat[..., 4] *= 0.0014
    heat[..., :4] += rng.normal(size=(height, width, 4)) * 0.01
    heat[..., 5] = 0
    heat = heat.astype("float32")[None]
    model = keras_vit.heads.vitpose(backbone(), class_names=tuple("abcdef"))
    size = (320, 240)
    (found,) = model.interpret(dict(heatmaps=heat), [size])
    processor = transformers.VitPoseImageProcessor(
        size=dict(height=256, width=192)
    )
    # The box that fills the image once it is enlarged by a quarter.
    box = [24, 32, 192, 256]
    ((expected,),) = processor.post_process_pose_estimation(
        types.SimpleNamespace(
            heatmaps=torch.from_numpy(heat.transpose(0, 3, 1, 2))
        ),
        boxes=[[box]],
        threshold=0.0,
    )
    assert found["names"] == list("abcde")
    np.testing.assert_array_equal(found["labels"], expected["labels"])
    np.testing.assert_allclose(found["scores"], expected["scores"])
    np.testing.assert_allclose(
        found["keypoints"], expected["keypoints"], atol=0.01
    )
    (found,) = model.interpret(dict(heatmaps=heat), [size], threshold=None)
    assert found["keypoints"].shape == (6, 2)
    assert np.isfinite(found["keypoints"]).all()


@pytest.mark.parametrize(
    "config, message",
    [
        (dict(backbone_config__num_experts=6), "a mixture of experts"),
        (dict(backbone_config__model_type="vit"), "of the kind 'vit' is not"),
        (dict(backbone_config__out_indices=[9]), "one of its 2 blocks"),
    ],
)
def test_other_files_are_refused(config, message, tmp_path):
    folder = changed("vitpose", tmp_path, **config)
    with pytest.raises(ValueError, match=message):
        keras_vit.from_pretrained(folder)


def test_impossible_arguments_are_refused(tmp_path):
    with pytest.raises(ValueError, match="`shifted_patches` must be False"):
        keras_vit.heads.vitpose(backbone(), classes=2, shifted_patches=True)
    with pytest.raises(ValueError, match="`numbers` must be from 1 to 5"):
        keras_vit.heads.vitpose(backbone(), classes=2, block=6)
    with pytest.raises(ValueError, match="`classes` or `class_names`"):
        keras_vit.heads.vitpose(backbone())
    model = keras_vit.heads.vitpose(backbone(), classes=2)
    with pytest.raises(ValueError, match="shifted_patches=False"):
        keras_vit.save_checkpoint(model, tmp_path, format="huggingface")


def test_a_plain_vit_is_written(tmp_path):
    inner = backbone(pooling="gap")
    model = keras_vit.heads.vitpose(inner, classes=2, shifted_patches=True)
    realistic.fill(model)
    keras_vit.save_checkpoint(model, tmp_path, format="huggingface")
    again = keras_vit.from_pretrained(tmp_path)
    x = np.random.default_rng(0).uniform(0, 255, (2, *model.input_shape[1:]))
    found, expected = (each.predict(x, verbose=0) for each in (again, model))
    np.testing.assert_allclose(
        found["heatmaps"], expected["heatmaps"], rtol=1e-4, atol=1e-5
    )
