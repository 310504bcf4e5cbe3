"""timm and transformers load what is written, and give the same numbers."""

import numpy as np
import pytest

import keras_vit
from keras_vit._arguments import as_pair
from keras_vit.models import clip, dinov2, dinov3, siglip
from keras_vit.text import tower
from keras_vit.weights import rules

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.backend("torch"),
]
SMALL = dict(
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=24,
    image_size=8,
    patch_size=4,
)

# Family -> kinds of files, where not only the config shows them.
KINDS = dict(
    vit=("vit", "vit_mae", "vit_msn"),
    deit=("deit",),
    beit=("beit",),
    clip=("clip_vision_model",),
    dinov2=("dinov2", "dinov2_with_registers"),
    dinov3=("dinov3_vit",),
    siglip=("siglip_vision_model",),
)
# Metadata -> field of a config.
FIELDS = dict(
    layer_norm_epsilon="layer_norm_eps",
    num_heads="num_attention_heads",
    decoder_num_heads="decoder_num_attention_heads",
    **{x: x for x in ("image_size", "patch_size", "hidden_size", "mask_ratio")},
    **{x: x for x in ("num_frames", "tubelet_size", "max_depth")},
)


def test_what_a_config_omits_is_the_librarys_default(transformers):
    """Files are published without the values that their class has anyway."""
    every = [
        (kind, module.FORMATS["huggingface"])
        for name, module in rules.FAMILIES.items()
        for kind in getattr(module, "MODEL_TYPES", KINDS.get(name, ()))
    ]
    assert {*sum(KINDS.values(), ())} < {kind for kind, _ in every}
    for kind, form in every:
        found = form.read_config(dict(model_type=kind))
        config = transformers.AutoConfig.for_model(kind)
        parts = (
            getattr(config, f"{x}_config", 0) for x in ("vision", "backbone")
        )
        for part in filter(None, (config, *parts)):
            for ours, theirs in FIELDS.items():
                expected = getattr(part, theirs, None)
                if ours in ("image_size", "patch_size") and expected:
                    expected = as_pair(expected)
                assert found.get(ours) in (None, expected) or not expected, (
                    f"{ours} of {kind}"
                )


def test_what_a_builder_omits_is_the_librarys_default(transformers):
    for config, library in (
        (tower.TextConfig, "CLIPTextConfig"),
        (clip.CLIPConfig, "CLIPVisionConfig"),
        (dinov2.DINOv2Config, "Dinov2Config"),
        (dinov3.DINOv3Config, "DINOv3ViTConfig"),
        (siglip.SigLIPConfig, "SiglipVisionConfig"),
    ):
        expected = getattr(transformers, library)().layer_norm_eps
        assert config.layer_norm_epsilon == expected, config
    expected = transformers.SiglipTextConfig().layer_norm_eps
    assert tower.KINDS["siglip"]["layer_norm_epsilon"] == expected


def test_a_masked_autoencoder_is_read_without_its_decoder(
    transformers, tmp_path
):
    config = transformers.ViTMAEConfig(
        **SMALL, decoder_hidden_size=8, decoder_num_attention_heads=2
    )
    model = transformers.ViTMAEForPreTraining(config).eval()
    model.save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match=r"decoder\.\*.* are not loaded"):
        ours = keras_vit.from_pretrained(
            tmp_path, include_top=False, include_preprocessing=False
        )
    x = torch.randn(2, 3, 8, 8)
    model.config.mask_ratio = model.vit.embeddings.config.mask_ratio = 0.0
    with torch.no_grad():
        expected = model.vit(x).last_hidden_state[:, 0].numpy()
    found = ours.predict_on_batch(x.numpy().transpose(0, 2, 3, 1))
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("own", [True, False])
def test_a_beit_shares_relative_positions(own, transformers, tmp_path):
    config = transformers.BeitConfig(
        **SMALL,
        num_labels=3,
        use_shared_relative_position_bias=True,
        use_relative_position_bias=own,
        use_mean_pooling=own,
    )
    check_live(transformers.BeitForImageClassification(config), tmp_path)


def test_a_classifier_of_siglip_reads_the_mean(transformers, tmp_path):
    config = transformers.SiglipConfig(
        text_config=dict(vocab_size=9), vision_config=SMALL, num_labels=3
    )
    theirs = transformers.SiglipForImageClassification(config)
    model = check_live(theirs, tmp_path)
    # Written without the attention pooling, which no classifier reads.
    keras_vit.save_checkpoint(model, tmp_path / "ours", format="huggingface")
    again = type(theirs).from_pretrained(tmp_path / "ours")
    x = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(again(x).logits, theirs(x).logits)


def check_live(theirs, folder):
    """A model of transformers gives its numbers here; returns it."""
    generator = torch.Generator().manual_seed(0)
    for parameter in theirs.eval().parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.data.add_(0.3 * noise)
    theirs.save_pretrained(folder / "theirs")
    x = torch.randn(2, 3, 8, 8, generator=generator)
    with torch.no_grad():
        expected = theirs(x).logits.numpy()
    scale = dict(pixel_mean=0.0, pixel_std=1.0)
    model = keras_vit.from_pretrained(folder / "theirs", **scale)
    found = model.predict_on_batch(x.numpy().transpose(0, 2, 3, 1))
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()
    return model
