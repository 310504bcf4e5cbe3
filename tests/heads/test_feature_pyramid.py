"""The simple feature pyramid, and a detector of keras-hub on it."""

import keras
import numpy as np
import pytest
import realistic

import keras_vit

pytestmark = pytest.mark.backend("torch")
TINY = dict(hidden_size=16, num_layers=1, num_heads=2, mlp_dim=16)


def backbone(patch_size=16, side=64, constructor="ViT"):
    make = getattr(keras_vit, constructor)
    shape = (side, 2 * side, 3)
    return make(
        **TINY, patch_size=patch_size, include_top=False, input_shape=shape
    )


@pytest.mark.backend("tensorflow", "jax", "torch")
@pytest.mark.parametrize("patch_size", [8, 16])
def test_levels_have_the_strides_of_their_names(patch_size):
    model = keras_vit.heads.simple_feature_pyramid(
        backbone(patch_size), width=8
    )
    found = model.predict(np.ones((1, 64, 128, 3)), verbose=0)
    assert {name: x.shape for name, x in found.items()} == {
        f"P{n}": (1, 64 >> n, 128 >> n, 8) for n in (2, 3, 4, 5)
    }
    assert model.pyramid_outputs["P2"].shape == (None, 16, 32, 8)


def test_its_numbers_are_those_of_the_paper():
    """By the operations of PyTorch, of the layers that detectron2 has."""
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    vit = backbone()
    model = keras_vit.heads.simple_feature_pyramid(vit, width=6)
    realistic.fill(model)
    rng = np.random.default_rng(0)
    images = rng.uniform(0, 255, (2, 64, 128, 3)).astype("float32")
    found = model.predict(images, verbose=0)

    def weights(name):
        layer = model.get_layer(name)
        return [
            torch.tensor(keras.ops.convert_to_numpy(w)) for w in layer.weights
        ]

    def norm(x, name):
        gamma, beta = weights(name)
        x = functional.layer_norm(
            x.movedim(1, -1), gamma.shape, gamma, beta, 1e-6
        )
        return x.movedim(-1, 1)

    def double(x, name):
        kernel, bias = weights(name)
        kernel = kernel.permute(3, 2, 0, 1)
        return functional.conv_transpose2d(x, kernel, bias, stride=2)

    with torch.no_grad():
        last = keras.ops.convert_to_numpy(keras_vit.feature_maps(vit)(images))
        last = torch.tensor(last).movedim(-1, 1)
        x = functional.gelu(
            norm(double(last, "pyramid_2_transposed_0"), "pyramid_2_norm_1")
        )
        scaled = {
            2: double(x, "pyramid_2_transposed_1"),
            3: double(last, "pyramid_3_transposed_0"),
            4: last,
            5: functional.max_pool2d(last, 2, 2),
        }
        width = last.shape[1]
        channels = [x.shape[1] for x in scaled.values()]
        assert channels == [width // 4, width // 2, width, width]
        for n, x in scaled.items():
            for size in (1, 3):
                name = f"pyramid_{n}_{size}x{size}"
                (kernel,) = weights(name)
                x = functional.conv2d(
                    x, kernel.permute(3, 2, 0, 1), padding=size // 2
                )
                x = norm(x, f"{name}_norm")
            expected = x.movedim(1, -1).numpy()
            np.testing.assert_allclose(found[f"P{n}"], expected, atol=1e-4)


@pytest.mark.filterwarnings("ignore")  # of keras-hub
def test_retinanet_of_keras_hub_trains_on_it(keras_hub, tmp_path):
    encoder = keras_vit.heads.simple_feature_pyramid(backbone(side=128))
    model = keras_hub.models.RetinaNetObjectDetector(
        keras_hub.models.RetinaNetBackbone(
            encoder,
            min_level=3,
            max_level=7,
            use_p5=True,
            image_shape=(128, 256, 3),
        ),
        num_classes=3,
        bounding_box_format="yxyx",
        pre_logits_num_conv_layers=1,
    )
    images = np.random.default_rng(0).uniform(0, 255, (2, 128, 256, 3))
    boxes = np.array([[[10.0, 20, 90, 100]], [[30.0, 30, 70, 200]]])
    labels = dict(boxes=boxes, labels=np.array([[0], [2]]))
    model.compile(
        optimizer=keras.optimizers.SGD(0.01),
        box_loss=keras.losses.Huber(reduction="sum"),
        classification_loss=keras.losses.BinaryFocalCrossentropy(
            from_logits=True, reduction="sum"
        ),
    )
    own = {w.path: keras.ops.convert_to_numpy(w) for w in encoder.weights}
    model.fit(images, labels, batch_size=2, verbose=0)
    moved = [
        w.path
        for w in encoder.trainable_weights
        if not np.array_equal(own[w.path], keras.ops.convert_to_numpy(w))
    ]
    assert any("pyramid_3" in path for path in moved)
    assert any("encoderblock_0" in path for path in moved)
    encoder.save(tmp_path / "encoder.keras")
    again = keras.models.load_model(tmp_path / "encoder.keras")
    assert set(again.pyramid_outputs) == {"P2", "P3", "P4", "P5"}
    np.testing.assert_array_equal(
        *(keras.ops.convert_to_numpy(x(images)["P3"]) for x in (encoder, again))
    )


def test_maps_that_cannot_be_halved_are_refused():
    with pytest.raises(ValueError, match="patches of 4, 8, 16 or 32"):
        keras_vit.heads.simple_feature_pyramid(backbone(14, 56))
    with pytest.raises(ValueError, match="strides 2\\^n divide the images"):
        keras_vit.heads.simple_feature_pyramid(backbone(16, 48))
    with pytest.raises(ValueError, match="`levels` must be"):
        keras_vit.heads.simple_feature_pyramid(backbone(), levels=(2, 7))
