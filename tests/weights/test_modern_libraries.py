"""timm and transformers load what is written, and give the same numbers."""

import json
import re

import numpy as np
import pytest
from modern_cases import CASES, draw_pixels, open_case

import keras_vit

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
# What models of transformers have, and their outputs here do not depend on.
UNUSED = re.compile(r"embeddings\.mask_token$|^pooler\.dense\.")


def written(name, folder):
    """Writes a case with this package; returns it, its config and scaled
    images."""
    case, _ = open_case(name, folder / "theirs")
    model = keras_vit.from_pretrained(str(folder / "theirs"))
    format = "timm" if name.startswith("timm") else "huggingface"
    keras_vit.save_checkpoint(model, folder / "ours", format=format)
    config = json.loads((folder / "ours" / "config.json").read_text())
    pixels = draw_pixels(case["size"])
    x = (pixels - model.pixel_mean) / model.pixel_std
    x = torch.from_numpy(x.transpose(0, 3, 1, 2).astype("float32"))
    return case, config, x


def assert_equals(found, case):
    expected = np.asarray(case["logits"] or case["pooled"])
    assert np.abs(found.numpy() - expected).max() <= 1e-5 * abs(expected).max()


@pytest.mark.parametrize("name", [c for c in CASES if c.startswith("timm")])
def test_timm_loads_what_is_written(name, timm, tmp_path):
    from safetensors.torch import load_file

    case, config, x = written(name, tmp_path)
    arguments = dict(num_classes=config["num_classes"], **config["model_args"])
    model = timm.create_model(config["architecture"], **arguments).eval()
    model.load_state_dict(load_file(tmp_path / "ours" / "model.safetensors"))
    with torch.no_grad():
        assert_equals(model(x), case)


def test_a_masked_autoencoder_is_read_without_its_decoder(
    transformers, tmp_path
):
    config = transformers.ViTMAEConfig(
        **SMALL, decoder_hidden_size=8, decoder_num_attention_heads=2
    )
    model = transformers.ViTMAEForPreTraining(config).eval()
    model.save_pretrained(tmp_path)
    with pytest.warns(UserWarning, match=r"decoder\.\*.* are not loaded"):
        ours = keras_vit.from_pretrained(tmp_path, include_preprocessing=False)
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


@pytest.mark.parametrize("name", [c for c in CASES if c.startswith("hf")])
def test_transformers_loads_what_is_written(name, transformers, tmp_path):
    case, config, x = written(name, tmp_path)
    (class_name,) = config["architectures"]
    model, loading = getattr(transformers, class_name).from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    missing = loading["missing_keys"]
    assert not [key for key in missing if not UNUSED.search(key)]
    assert not loading["unexpected_keys"]
    assert not loading["mismatched_keys"]
    with torch.no_grad():
        output = model.eval()(x)
    keys = ["logits", "image_embeds", "pooler_output"]
    found = [output[key] for key in keys if output.get(key) is not None]
    if not found or "pooler.dense.weight" in missing:
        found = [output.last_hidden_state[:, 0]]
    assert_equals(found[0], case)
