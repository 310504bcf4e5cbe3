"""Models of timm, transformers and keras-hub give the same logits here."""

import json

import keras
import numpy as np
import pytest
import realistic
from functional import golden

import keras_vit
from keras_vit.weights import checkpoint
from keras_vit.weights.rules.encoder import timm as timm_rules
from keras_vit.weights.rules.vit import timm_names

torch = pytest.importorskip("torch")

SCALED = dict(include_preprocessing=False)
# What these libraries warn of is theirs.
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.backend("torch"),
]


def save_state(model, path, config=None):
    from safetensors.torch import save_file

    path.mkdir(exist_ok=True)
    save_file(model.state_dict(), path / "model.safetensors")
    if config is not None:
        (path / "config.json").write_text(json.dumps(config))
    return path


def images(height, width, channels=3):
    rng = np.random.default_rng(0)
    return rng.uniform(-1, 1, (2, height, width, channels)).astype("float32")


def check(model, x, expected):
    found = keras.ops.convert_to_numpy(model(x, training=False))
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


def through_torch(model, x):
    with torch.no_grad():
        output = model(torch.from_numpy(x.transpose(0, 3, 1, 2).copy()))
    return getattr(output, "logits", output).numpy()


TIMM = {
    "plain": dict(patch_size=8),
    # 3x5 + 1 is 16, the number of a square grid.
    "rectangle like a square": dict(patch_size=8, img_size=(24, 40)),
    "gap": dict(
        patch_size=8, class_token=False, global_pool="avg", fc_norm=False
    ),
    "gap, then norm": dict(patch_size=8, class_token=False, global_pool="avg"),
    "positions without the token": dict(patch_size=8, no_embed_class=True),
    "tanh": dict(patch_size=8, act_layer="gelu_tanh"),
    "token and gap": dict(patch_size=8, global_pool="avg", fc_norm=True),
}


def make_timm(timm, case):
    arguments = dict(img_size=(32, 32), embed_dim=48, depth=2, num_heads=3)
    arguments |= dict(num_classes=7) | TIMM[case]
    model = timm.models.vision_transformer.VisionTransformer(**arguments)
    return realistic.fill_torch(model), arguments


@pytest.mark.parametrize("case", TIMM)
class TestTimm:
    def test_logits_agree(self, case, timm, tmp_path):
        theirs, arguments = make_timm(timm, case)
        size = arguments["img_size"]
        config = dict(
            architecture="vit_base_patch16_224",
            model_args=arguments,
            pretrained_cfg=dict(
                mean=(0.5,) * 3, std=(0.5,) * 3, input_size=(3, *size)
            ),
        )
        path = save_state(theirs, tmp_path / "timm", config)
        x = images(*size)
        ours = keras_vit.ViT(weights=path, **SCALED)
        check(ours, x, through_torch(theirs, x))
        ours = keras_vit.ViT(weights=path)
        check(ours, (x + 1) * 127.5, through_torch(theirs, x))


def test_architectures_are_as_timm_builds_them(timm):
    names = set(timm_names.HEADS_AND_WIDTH) & set(timm.list_models())
    assert len(names) >= 60
    # One of each size, and all that differ from their kind.
    odd = {"vit_small_patch16_224", "vit_base_patch16_224", "vit_base_mci_224"}
    for name in sorted(names):
        if not (name in odd or "siglip" in name or "patch16_gap" in name):
            continue
        with torch.device("meta"):
            model = timm.create_model(name, depth=1)
        block = model.blocks[0]
        size = block.attn.num_heads, model.embed_dim
        assert size == timm_names.HEADS_AND_WIDTH[name], name
        tanh = "Tanh" in repr(block.mlp.act)
        assert tanh == bool(timm_rules.TANH.fullmatch(name)), name
        apart = model.no_embed_class
        assert apart == bool(timm_names.NO_EMBED_CLASS.fullmatch(name)), name
        assert block.norm1.eps == 1e-6


def there_and_back(source):
    """Their arrays as our variables, and these as theirs."""
    num_heads = source.metadata["num_heads"] or 3
    source = checkpoint.with_metadata(source, num_heads=num_heads)
    back = {}
    for rule in source.rules:
        value = rule.transform.join(
            *(source.arrays[name].read() for name in rule.sources)
        )
        parts = rule.transform.split(value)
        back.update(zip(rule.sources, parts, strict=True))
    return source.format.restore(back, source.naming_scheme)


# What a state dict of sizes that are not published does not specify.
UNSEEN = dict(num_heads=3, gelu_approximate=False, layer_norm_epsilon=1e-6)


def test_a_state_dict_without_a_scale_must_be_given_one(timm, tmp_path):
    theirs, _ = make_timm(timm, "plain")
    path = save_state(theirs, tmp_path / "bare")
    with pytest.raises(ValueError, match="`pixel_mean`.*do not specify"):
        keras_vit.ViT(weights=path, **UNSEEN)
    mean, std = (
        np.array([123.675, 116.28, 103.53]),
        np.array([58.4, 57.1, 57.4]),
    )
    ours = keras_vit.ViT(
        weights=path, **UNSEEN, pixel_mean=tuple(mean), pixel_std=tuple(std)
    )
    x = images(32, 32)
    check(ours, x * std + mean, through_torch(theirs, x))


@pytest.mark.parametrize(
    "arguments",
    [
        dict(global_pool="avg", fc_norm=False),
        dict(global_pool="max", class_token=False, fc_norm=False),
    ],
    ids=str,
)
def test_another_pooling_is_refused(arguments, timm, tmp_path):
    theirs = timm.models.vision_transformer.VisionTransformer(
        img_size=(32, 32), patch_size=8, embed_dim=48, depth=1, num_heads=3,
        **arguments,
    )  # fmt: skip
    config = dict(model_args=arguments | dict(num_heads=3, img_size=(32, 32)))
    path = save_state(theirs, tmp_path / "timm", config)
    with pytest.raises(
        ValueError, match="global_pool.*expected|expected global_pool"
    ):
        keras_vit.ViT(weights=path, **SCALED)


HYBRIDS = {
    "vit_tiny_r_s16_p8_224": 64,
    "vit_small_r26_s32_224": 64,
}


@pytest.mark.parametrize("name", HYBRIDS)
def test_hybrids_of_timm_agree(name, timm, tmp_path):
    side = HYBRIDS[name]
    theirs = timm.create_model(
        name, embed_dim=48, depth=2, num_heads=3, num_classes=7, img_size=side
    )
    realistic.fill_torch(theirs)
    path = save_state(theirs, tmp_path / "timm")
    x = images(side, side)
    ours = keras_vit.ViT(weights=path, **UNSEEN, **SCALED)
    assert ours.get_layer("resnet").numerics == "timm"
    source = checkpoint.open_checkpoint(path)
    state = theirs.state_dict()
    for key, array in there_and_back(source).items():
        np.testing.assert_array_equal(array, state[key].numpy())
    # Rounding of timm's own float32 is 6e-6 of the largest logit.
    check(ours, x, through_torch(theirs.double(), x.astype("float64")))


def make_huggingface(transformers, kind="ViTForImageClassification", **changes):
    arguments = dict(
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=96,
        image_size=32,
        patch_size=8,
        layer_norm_eps=1e-3,
        num_labels=7,
        id2label={i: f"class {i}" for i in range(7)},
    )
    config = transformers.ViTConfig(**{**arguments, **changes})
    return realistic.fill_torch(getattr(transformers, kind)(config))


class TestHuggingFace:
    @pytest.mark.parametrize("hidden_act", ["gelu", "gelu_pytorch_tanh"])
    def test_logits_agree(self, hidden_act, transformers, tmp_path):
        theirs = make_huggingface(transformers, hidden_act=hidden_act)
        theirs.save_pretrained(tmp_path)
        x = images(32, 32)
        ours = keras_vit.ViT(weights=tmp_path, **SCALED)
        check(ours, x, through_torch(theirs, x))
        assert ours.get_layer("head").class_names == tuple(
            f"class {i}" for i in range(7)
        )

    def test_input_is_scaled_as_the_processor_does(
        self, transformers, tmp_path
    ):
        theirs = make_huggingface(transformers)
        theirs.save_pretrained(tmp_path)
        mean, std = [0.48, 0.46, 0.41], [0.27, 0.26, 0.28]
        (tmp_path / "preprocessor_config.json").write_text(
            json.dumps(dict(image_mean=mean, image_std=std))
        )
        x = images(32, 32)
        pixels = 255 * (x * np.array(std) + np.array(mean))
        check(keras_vit.ViT(weights=tmp_path), pixels, through_torch(theirs, x))

    def test_the_bare_model_gives_the_representation(
        self, transformers, tmp_path
    ):
        theirs = make_huggingface(transformers, "ViTModel")
        theirs.save_pretrained(tmp_path)
        x = images(32, 32)
        with torch.no_grad():
            output = theirs(torch.from_numpy(x.transpose(0, 3, 1, 2).copy()))
        ours = keras_vit.ViT(weights=tmp_path, include_top=False, **SCALED)
        check(ours, x, output.last_hidden_state[:, 0].numpy())
        # The pooler is the authors' pre_logits.
        ours = keras_vit.ViT(
            weights=tmp_path, classes=3, representation_size=48, **SCALED
        )
        y = keras.Model(ours.input, ours.get_layer("pre_logits").output)
        check(y, x, output.pooler_output.numpy())

    def test_shards_are_read(self, transformers, tmp_path):
        theirs = make_huggingface(transformers)
        theirs.save_pretrained(tmp_path, max_shard_size="50KB")
        assert (tmp_path / "model.safetensors.index.json").exists()
        x = images(32, 32)
        check(
            keras_vit.ViT(weights=tmp_path, **SCALED),
            x,
            through_torch(theirs, x),
        )


def make_keras_hub(keras_hub, pooling="token", **changes):
    backbone = keras_hub.models.ViTBackbone(
        **{
            **dict(
                image_shape=(32, 32, 3),
                patch_size=8,
                num_layers=2,
                num_heads=3,
                hidden_dim=48,
                mlp_dim=96,
                layer_norm_epsilon=1e-3,
                use_class_token=pooling == "token",
            ),
            **changes,
        }
    )
    converter = keras_hub.layers.ViTImageConverter(
        image_size=(32, 32), scale=1 / 64, offset=-1.5
    )
    model = keras_hub.models.ViTImageClassifier(
        backbone=backbone,
        num_classes=7,
        pooling=pooling,
        preprocessor=keras_hub.models.ViTImageClassifierPreprocessor(
            image_converter=converter
        ),
    )
    return realistic.fill(model)


@pytest.mark.parametrize("pooling", ["token", "gap"])
class TestKerasHub:
    def test_logits_agree(self, pooling, keras_hub, tmp_path):
        theirs = make_keras_hub(keras_hub, pooling)
        theirs.save_to_preset(str(tmp_path / "preset"))
        x = images(32, 32)
        expected = keras.ops.convert_to_numpy(theirs(x, training=False))
        for weights in (theirs, tmp_path / "preset"):
            check(keras_vit.ViT(weights=weights, **SCALED), x, expected)
            # x = pixels / 64 - 1.5
            check(keras_vit.ViT(weights=weights), (x + 1.5) * 64, expected)

    def test_there_and_back_is_the_identity(self, pooling, keras_hub):
        theirs = make_keras_hub(keras_hub, pooling)
        source = checkpoint.open_checkpoint(theirs)
        back = there_and_back(source)
        assert back.keys() == source.arrays.keys()
        for name, array in back.items():
            np.testing.assert_array_equal(array, source.arrays[name].read())

    def test_the_backbone_alone_has_no_head(self, pooling, keras_hub):
        theirs = make_keras_hub(keras_hub, pooling).backbone
        ours = keras_vit.ViT(weights=theirs, include_top=False, **SCALED)
        x = images(32, 32)
        tokens = keras.ops.convert_to_numpy(theirs(x, training=False))
        check(
            ours, x, tokens[:, 0] if pooling == "token" else tokens.mean(axis=1)
        )


@pytest.mark.parametrize("width", [64, 96])
def test_torchvision_computes_what_an_mvit_of_ours_does(
    width, library, tmp_path
):
    video = library("torchvision.models.video.mvit")
    data, path = golden("mvit_authors_video")
    model = keras_vit.MViT(
        weights=path,
        query_stride=(1, 2, 2),
        key_value_stride=(1, 8, 8),
        cube_stride=(2, 4, 4),
        input_shape=(8, 64, width, 3),
        pixel_mean=114.75,
        pixel_std=57.375,
        **SCALED,
    )
    keras_vit.save_checkpoint(model, tmp_path / "mvit.pth", "torchvision")
    keras_vit.save_checkpoint(model, tmp_path / "mvit", "torchvision")
    arguments = json.loads((tmp_path / "mvit/config.json").read_text())
    del arguments["mean"], arguments["std"]
    blocks = [
        video.MSBlockConfig(**row) for row in arguments.pop("block_setting")
    ]
    arguments = {  # JSON has no tuples
        name: tuple(value) if isinstance(value, list) else value
        for name, value in arguments.items()
    }
    theirs = video.MViT(block_setting=blocks, **arguments).eval()
    theirs.load_state_dict(torch.load(tmp_path / "mvit.pth"))
    clips = np.tile(data["input"], (1, 1, 1, 2, 1))[..., :width, :]
    with torch.no_grad():
        found = theirs(torch.tensor(clips).permute(0, 4, 1, 2, 3)).numpy()
    expected = keras.ops.convert_to_numpy(model(clips))
    np.testing.assert_allclose(found, expected, atol=1e-5)
