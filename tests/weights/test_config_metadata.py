"""Metadata that weights lack must be given; what they have is checked."""

import json

import numpy as np
import pytest
import small_checkpoints as small

import keras_vit
from keras_vit.weights import checkpoint, save

pytest.importorskip("safetensors")
# Nothing here computes.
pytestmark = pytest.mark.backend_independent


def save_timm(folder, changes=(), **kwargs):
    values, config = small.timm(**kwargs)
    for place, key, value in changes:
        part = config if place is None else config[place]
        if value is None:
            part.pop(key, None)
        else:
            part[key] = value
    return small.write(folder, values, config)


def save_huggingface(folder, config=(), processor=()):
    values, whole, pixels = small.huggingface()
    for content, changes in ((whole, config), (pixels, processor)):
        for key, value in dict(changes).items():
            content[key] = value
            if value is None:
                del content[key]
    return small.write(folder, values, whole, pixels)


def refused(path, *words, **arguments):
    with pytest.raises(ValueError) as error:
        keras_vit.ViT(weights=path, **arguments)
    for word in words:
        assert word in str(error.value)


class TestTimm:
    def test_a_state_dict_alone_does_not_specify_its_heads(self, tmp_path):
        # MoCo v3's ViT-S has 12 heads at the width of 384, timm's has 6.
        values, _ = small.timm()
        path = small.write(tmp_path, values) / "model.safetensors"
        refused(path, "`num_heads`, `gelu_approximate`", "num_heads=12")
        scaled = dict(
            include_preprocessing=False,
            gelu_approximate=False,
            layer_norm_epsilon=1e-6,
        )
        for heads in (3, 6):
            model = keras_vit.ViT(weights=path, num_heads=heads, **scaled)
            assert model.get_layer("encoderblock_0").num_heads == heads

    @pytest.mark.parametrize(
        ("name", "tanh"),
        [
            ("vit_base_patch16_siglip_gap_224", False),
            ("vit_base_patch32_siglip_gap_256", True),
            ("vit_large_patch16_siglip_gap_512", True),
            ("vit_so400m_patch14_siglip_gap_448", False),
        ],
    )
    def test_the_name_of_the_architecture_specifies_the_gelu(
        self, name, tanh, tmp_path
    ):
        path = save_timm(
            tmp_path, [(None, "architecture", name)], class_token=False
        )
        metadata = checkpoint.open_checkpoint(path).metadata
        assert metadata["gelu_approximate"] is tanh
        assert metadata["num_heads"] == small.HEADS  # of model_args

    def test_an_unknown_architecture_specifies_nothing(self, tmp_path):
        path = save_timm(tmp_path, [(None, "architecture", "vit_base_siglip")])
        must = "`gelu_approximate`, `layer_norm_epsilon` must be given"
        refused(path, must, "'vit_base_siglip', is not known")

    @pytest.mark.parametrize(
        ("place", "key", "value"),
        [
            ("model_args", "depth", 3),
            ("model_args", "num_heads", 5),
            ("model_args", "mlp_ratio", 4.0),
            ("model_args", "patch_size", 4),
            ("model_args", "num_classes", 7),
            ("model_args", "act_layer", "relu"),
            ("model_args", "class_token", False),
            ("model_args", "embed_dim", None),  # the name says 768
            ("pretrained_cfg", "std", [1e9] * 3),
            ("pretrained_cfg", "label_names", ["a", "b"]),
            (None, "model_args", [1, 2]),
        ],
    )
    def test_a_config_that_cannot_be_right_is_refused(
        self, place, key, value, tmp_path
    ):
        path = save_timm(tmp_path, [(place, key, value)])
        refused(path, "does not read as a ViT")


class TestHuggingFace:
    def test_a_file_alone_does_not_specify_what_it_computes(self, tmp_path):
        values, *_ = small.huggingface()
        path = small.write(tmp_path, values) / "model.safetensors"
        refused(path, "`num_heads`, `gelu_approximate`, `layer_norm_epsilon`")
        given = dict(
            num_heads=3, gelu_approximate=False, layer_norm_epsilon=1e-12
        )
        refused(path, "`pixel_mean` and `pixel_std` must be given", **given)
        refused(path, "pixel_std=None", pixel_mean=127.5, **given)
        keras_vit.ViT(weights=path, pixel_mean=127.5, pixel_std=127.5, **given)

    def test_it_is_not_converted_by_a_guess(self, tmp_path):
        values, *_ = small.huggingface()
        path = small.write(tmp_path, values) / "model.safetensors"
        source = checkpoint.open_checkpoint(path)
        with pytest.raises(ValueError, match="`num_heads`, `gelu_approximate`"):
            save.convert(source, tmp_path / "a.npz", "jax")

    def test_the_processor_within_another_takes_precedence(self, tmp_path):
        # As in transformers 5, whose processors of images and texts write it.
        path = save_huggingface(tmp_path)
        first = checkpoint.open_checkpoint(path)
        inner = dict(image_mean=[0.2] * 3, image_std=[0.4] * 3)
        file = tmp_path / "processor_config.json"
        file.write_text(json.dumps({"image_processor": inner}))
        source = checkpoint.open_checkpoint(path)
        assert source.metadata["pixel_mean"] == pytest.approx((51,) * 3)
        file.write_text('{"processor_class": "ViTProcessor"}')
        assert checkpoint.open_checkpoint(path).metadata == first.metadata
        file.write_text(json.dumps({"image_processor": inner}))
        save.convert(first, path, "huggingface")  # over another model
        written = checkpoint.open_checkpoint(path).metadata
        assert written["pixel_mean"] == first.metadata["pixel_mean"]

    def test_a_config_has_the_defaults_of_its_class(self, tmp_path):
        path = save_huggingface(
            tmp_path,
            dict(layer_norm_eps=None, hidden_act=None),
            dict(image_mean=None, image_std=None, rescale_factor=None),
        )
        metadata = checkpoint.open_checkpoint(path).metadata
        assert metadata["layer_norm_epsilon"] == 1e-12
        assert metadata["gelu_approximate"] is False
        assert metadata["pixel_mean"] == pytest.approx((127.5,) * 3)
        assert metadata["class_names"] == tuple(f"class {i}" for i in range(5))

    @pytest.mark.parametrize(
        "name", ["do_flip_channel_order", "offset", "rescale_offset"]
    )
    def test_another_order_or_offset_of_pixels_is_refused(self, name, tmp_path):
        path = save_huggingface(tmp_path, processor={name: True})
        refused(path, f"{name}=True of a processor is not supported")

    def test_a_processor_of_another_kind_does_not_specify_its_scale(
        self, tmp_path
    ):
        path = save_huggingface(
            tmp_path,
            processor=dict(
                image_processor_type="OtherImageProcessor", image_std=None
            ),
        )
        refused(path, "`pixel_mean` and `pixel_std` must be given")

    @pytest.mark.parametrize(
        ("file", "key", "value"),
        [
            ("config", "num_hidden_layers", 12),
            ("config", "num_attention_heads", 5),
            ("config", "intermediate_size", 21),
            ("config", "image_size", 12),
            ("config", "patch_size", [2, 3]),
            ("config", "num_channels", 4),
            ("config", "layer_norm_eps", "1e-12"),
            ("config", "layer_norm_eps", 10**400),
            ("config", "hidden_act", "relu"),
            ("config", "hidden_act", "silu"),
            ("config", "model_type", "bert"),
            ("config", "id2label", {"0": "a", "1": "b"}),
            ("config", "id2label", dict(zip("01239", "abcde", strict=True))),
            ("processor", "image_std", [0.0] * 3),
            ("processor", "image_mean", "grey"),
            ("processor", "rescale_factor", float("nan")),
            ("processor", "do_rescale", "no"),
        ],
    )
    def test_a_config_that_cannot_be_right_is_refused(
        self, file, key, value, tmp_path
    ):
        path = save_huggingface(tmp_path, **{file: {key: value}})
        given = [repr(value)] if isinstance(value, str) else []
        refused(path, "does not read as a ViT", *given)


@pytest.mark.parametrize(
    "scale",
    [dict(pixel_std=-1), dict(pixel_std=1e9), dict(pixel_mean="grey")],
    ids=str,
)
def test_a_scale_that_is_given_must_be_possible(scale, tmp_path):
    path = save_huggingface(tmp_path)
    (argument,) = scale
    refused(path, f"`{argument}` must be ", **scale)


def test_weights_of_ours_alone_do_not_specify_their_pooling(tmp_path):
    def build(**kwargs):
        return keras_vit.ViT(
            patch_size=2, hidden_size=4, num_layers=1, num_heads=1, mlp_dim=4,
            input_shape=(4, 4, 3), classes=2, **kwargs,
        )  # fmt: skip

    path = tmp_path / "a.weights.h5"
    build(pooling="gap_norm").save_weights(path)
    given = dict(
        num_heads=1, gelu_approximate=True, layer_norm_epsilon=1e-6,
        include_preprocessing=False, classes=3,
    )  # fmt: skip
    refused(path, "`pooling` must be given", **given)
    model = keras_vit.ViT(weights=path, pooling="gap_norm", **given)
    assert len(model.get_layer("encoder_norm").input.shape) == 2


@pytest.mark.parametrize("mode", ["int8", "float8"])
def test_a_quantized_model_is_opened_by_keras(mode, tmp_path):
    model = keras_vit.ViT(
        patch_size=2, hidden_size=4, num_layers=1, num_heads=1, mlp_dim=4,
        input_shape=(4, 4, 3), classes=2,
    )  # fmt: skip
    model.quantize(mode)
    model.save(tmp_path / "a.keras")
    with pytest.raises(ValueError, match="quantized.*keras.models.load_model"):
        keras_vit.from_pretrained(tmp_path / "a.keras")
    model.save_weights(tmp_path / "a.weights.h5")
    words = "unused by the model" if mode == "float8" else "arrays of floats"
    refused(
        tmp_path / "a.weights.h5", words, pooling="token", num_heads=1,
        gelu_approximate=True, layer_norm_epsilon=1e-6,
        include_preprocessing=False,
    )  # fmt: skip


@pytest.mark.parametrize("grid", [[1], [-3, 3], ["a", 3], [float("nan"), 3]])
def test_a_grid_that_cannot_be_is_refused(grid, tmp_path):
    import zipfile

    path = tmp_path / "a.npz"
    np.savez(path, **small.authors())
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = json.dumps(dict(grid=grid)).encode()
    refused(path, "expected `grid`")
