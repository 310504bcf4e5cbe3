"""Masked autoencoders: the library's numbers, gradients and files."""

import json
import sys

import catalogue
import keras
import numpy as np
import pytest
import realistic
from keras import ops

import keras_vit
from keras_vit.heads import mae
from keras_vit.weights import save
from tests.heads import theirs
from tests.heads.test_released import check, check_same_files

pytestmark = pytest.mark.filterwarnings("ignore")  # of transformers
torch_only = pytest.mark.backend("torch")
DECODER = dict(
    decoder_hidden_size=24,
    decoder_num_hidden_layers=1,
    decoder_num_attention_heads=2,
    decoder_intermediate_size=48,
)
SIZES = dict(
    hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
    intermediate_size=64, image_size=32, patch_size=8,
)  # fmt: skip
IMAGES = {
    "normalised": dict(norm_pix_loss=True),
    "pixels": dict(
        norm_pix_loss=False,
        mask_ratio=0.6,
        qkv_bias=False,
        hidden_act="gelu_new",
        layer_norm_eps=1e-6,
        image_size=24,
        patch_size=4,
        num_hidden_layers=1,
        decoder_num_hidden_layers=2,
    ),
}
KINDS = {
    "mae": ("ViTMAEConfig", "ViTMAEForPreTraining"),
    "beit": ("BeitConfig", "BeitForMaskedImageModeling"),
    "video": ("VideoMAEConfig", "VideoMAEForPreTraining"),
    "clips": ("VideoMAEConfig", "VideoMAEForVideoClassification"),
}
VIDEO = dict(num_frames=4)
VIDEOS = {
    "normalised": dict(VIDEO, **DECODER),
    "pixels": dict(
        DECODER,
        num_frames=3,
        tubelet_size=1,
        image_size=16,
        norm_pix_loss=False,
        use_mean_pooling=False,
        qv_bias=False,
        hidden_act="gelu_new",
        layer_norm_eps=1e-6,
        decoder_num_hidden_layers=2,
    ),
}
CLIPS = {
    "mean": dict(VIDEO, num_labels=5),
    "first": dict(
        num_frames=6,
        tubelet_size=3,
        use_mean_pooling=False,
        qv_bias=False,
        num_labels=3,
    ),
}
IMAGES = {name: DECODER | options for name, options in IMAGES.items()}
BEITS = {
    "tables": dict(use_relative_position_bias=True),
    "one table": dict(
        use_shared_relative_position_bias=True,
        use_mean_pooling=False,
        image_size=24,
        layer_scale_init_value=0.0,
        hidden_act="gelu_new",
        layer_norm_eps=1e-6,
    ),
}
OURS = dict(
    decoder_num_layers=1,
    decoder_hidden_size=8,
    decoder_num_heads=2,
    decoder_mlp_dim=16,
)
TINY = dict(patch_size=8, hidden_size=16, num_layers=2, num_heads=2, mlp_dim=16)
PIXELS = np.random.default_rng(0).uniform(0, 255, (2, 16, 24, 3))


def library_model(transformers, kind, options, folder):
    """Return a random model of the library, saved with a processor."""
    config, model = KINDS[kind]
    config = getattr(transformers, config)(**SIZES | options)
    model = realistic.fill_torch(getattr(transformers, model)(config))
    model.save_pretrained(folder)
    size = dict(height=config.image_size, width=config.image_size)
    processor = json.dumps(dict(theirs.PIXELS, size=size))
    (folder / "preprocessor_config.json").write_text(processor)
    return model


def draw(model, seed=0):
    """Return pixels `[2, H, W, 3]` and noise `[2, N]` for a library model."""
    config, generator = model.config, np.random.default_rng(seed)
    size = config.image_size
    frames = getattr(config, "num_frames", None)
    shape = (2, size, size, 3) if frames is None else (2, frames, size, size, 3)
    pixels = generator.integers(0, 256, shape).astype("float32")
    count = (size // config.patch_size) ** 2
    if frames is not None:
        count *= frames // config.tubelet_size
    return pixels, generator.uniform(size=(2, count)).astype("float32")


def run_theirs(model, pixels, **options):
    """Return the outputs of a library model on pixels, with gradients."""
    import torch

    mean, std = (
        np.array(theirs.PIXELS[k]) for k in ("image_mean", "image_std")
    )
    x = np.moveaxis((pixels / 255 - mean) / std, -1, -3).astype("float32")
    found = model(torch.from_numpy(x), **options)
    model.zero_grad()
    found.loss.backward()
    return found


def mean_loss(outputs):
    return ops.mean(outputs["loss"])


def gradients(model, inputs, loss_of=mean_loss):
    """Return path -> gradient of the loss, of each weight."""
    weights = model.trainable_weights
    if keras.backend.backend() == "torch":
        loss_of(model(inputs)).backward()
        found = [weight.value.grad for weight in weights]
    elif keras.backend.backend() == "jax":
        import jax

        def loss(values):
            rest = [v.value for v in model.non_trainable_variables]
            outputs, _ = model.stateless_call(values, rest, inputs)
            return loss_of(outputs)

        found = jax.jit(jax.grad(loss))([weight.value for weight in weights])
    else:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            value = loss_of(model(inputs))
        found = tape.gradient(value, [weight.value for weight in weights])
    values = {weight.path: np.zeros(weight.shape) for weight in model.weights}
    pairs = zip(weights, found, strict=True)
    return values | {w.path: ops.convert_to_numpy(g) for w, g in pairs}


def check_gradients(model, inputs, library, folder, loss_of=mean_loss):
    """Compare with those of the library, in the form of its files."""
    import torch

    found = gradients(model, inputs, loss_of)
    arrays, *_ = save.arrays_of(
        {path: lambda value=value: value for path, value in found.items()},
        model.file_family,
        model.metadata,
        "huggingface",
    )
    for parameter in library.parameters():  # written under the files' names
        grad = parameter.grad
        grad = torch.zeros_like(parameter) if grad is None else grad
        parameter.data = grad
    library.save_pretrained(folder)
    safetensors = pytest.importorskip("safetensors.numpy")
    expected = safetensors.load_file(folder / "model.safetensors")
    assert expected.keys() == arrays.keys()
    largest = max(np.abs(value).max() for value in expected.values())
    for name, value in expected.items():
        difference = np.abs(arrays[name] - value).max()
        assert difference <= 1e-5 * largest, name


@pytest.mark.parametrize(
    "case",
    ["normalised", pytest.param("pixels", marks=torch_only)],
)
@pytest.mark.thorough("tensorflow")
def test_files_have_the_librarys_numbers_and_gradients(
    case, transformers, tmp_path
):
    import torch

    folder, own = tmp_path / "theirs", tmp_path / "own"
    library = library_model(transformers, "mae", IMAGES[case], folder)
    model = keras_vit.from_pretrained(folder)
    assert isinstance(model, keras_vit.heads.MaskedModel)
    pixels, noise = draw(library)
    expected = run_theirs(library, pixels, noise=torch.from_numpy(noise))
    inputs = model.inputs_of(pixels, noise=noise)
    found = realistic.run(model, inputs)
    assert float(ops.mean(found["loss"])) == pytest.approx(
        float(expected.loss), rel=1e-5
    )
    check(
        dict(logits=found["logits"], mask=found["mask"]),
        {k: getattr(expected, k).detach().numpy() for k in ("logits", "mask")},
    )
    keras_vit.save_checkpoint(model, own, format="huggingface")
    check_same_files(own, folder)
    check_gradients(model, inputs, library, tmp_path / "gradients")


@pytest.mark.parametrize(
    "case", ["normalised", pytest.param("pixels", marks=torch_only)]
)
@pytest.mark.thorough("tensorflow", "jax")
def test_videos_have_the_librarys_numbers_and_gradients(
    case, transformers, tmp_path
):
    import torch

    folder, own = tmp_path / "theirs", tmp_path / "own"
    library = library_model(transformers, "video", VIDEOS[case], folder)
    model = keras_vit.from_pretrained(folder)
    assert model.options["mask_ratio"] == 0.9  # the paper's
    pixels, noise = draw(library)
    mask = np.argsort(np.argsort(noise, axis=1), axis=1) > 7
    expected = run_theirs(
        library, pixels, bool_masked_pos=torch.from_numpy(mask)
    )
    inputs = model.inputs_of(pixels, mask=mask)
    found = model(inputs)
    assert float(ops.mean(found["loss"])) == pytest.approx(
        float(expected.loss), rel=1e-5
    )
    logits = expected.logits.detach().numpy()
    check(dict(logits=found["logits"]), dict(logits=logits))
    np.testing.assert_array_equal(ops.convert_to_numpy(found["mask"]), mask)
    keras_vit.save_checkpoint(model, own, format="huggingface")
    check_same_files(own, folder)
    assert model.reconstruct(inputs).shape == pixels.shape
    # A classifier begins with it, as the library's does.
    tuned = transformers.VideoMAEForVideoClassification.from_pretrained(folder)
    tuned.save_pretrained(tmp_path / "tuned")
    tuned = keras_vit.from_pretrained(
        tmp_path / "tuned", include_top=False, pixel_mean=model.pixel_mean,
        pixel_std=model.pixel_std,
    )  # fmt: skip
    alone = keras_vit.from_pretrained(folder, include_top=False)
    for encoder in (model.encoder(), alone):
        np.testing.assert_allclose(
            encoder.predict(pixels, verbose=0),
            tuned.predict(pixels, verbose=0),
            atol=1e-5,
        )
    check_gradients(model, inputs, library, tmp_path / "gradients")


@pytest.mark.parametrize(
    "case", ["mean", pytest.param("first", marks=torch_only)]
)
@pytest.mark.thorough("jax")
def test_classifiers_of_videos_have_the_librarys_numbers(
    case, transformers, tmp_path
):
    import torch

    folder, own = tmp_path / "theirs", tmp_path / "own"
    library = library_model(transformers, "clips", CLIPS[case], folder)
    pixels, _ = draw(library)
    labels = torch.zeros(2, dtype=torch.int64)
    expected = run_theirs(library, pixels, labels=labels).logits
    model = keras_vit.from_pretrained(folder)
    check(dict(logits=model(pixels)), dict(logits=expected.detach().numpy()))
    keras_vit.save_checkpoint(model, own, format="huggingface")
    check_same_files(own, folder)
    model.save(tmp_path / "model.keras")
    again = keras_vit.VideoMAE(weights=tmp_path / "model.keras")
    np.testing.assert_array_equal(
        *(ops.convert_to_numpy(x(pixels)) for x in (model, again))
    )


@torch_only
def test_tubes_are_masked_in_all_frames():
    model = mae(
        keras_vit.VideoMAE(
            **TINY, include_top=False, input_shape=(4, 32, 32, 3)
        ),
        **OURS,
        mask_ratio=0.9,
        target="channel",
    )
    pixels = np.zeros((2, 4, 32, 32, 3))
    visible = model.inputs_of(pixels)["visible"]
    assert visible.shape == (2, 2 * 2) and model.num_visible == 4
    np.testing.assert_array_equal(visible[:, :2] + 16, visible[:, 2:])
    with pytest.raises(ValueError, match="frames is a multiple of 2"):
        keras_vit.VideoMAE(**TINY, input_shape=(3, 32, 32, 3))


@pytest.mark.parametrize(
    "case", ["tables", pytest.param("one table", marks=torch_only)]
)
@pytest.mark.thorough("jax")
def test_visual_tokens_have_the_librarys_numbers_and_gradients(
    case, transformers, tmp_path
):
    import torch

    folder, own = tmp_path / "theirs", tmp_path / "own"
    options = dict(BEITS[case], vocab_size=11, use_mask_token=True)
    library = library_model(transformers, "beit", options, folder)
    model = keras_vit.from_pretrained(folder)
    pixels, noise = draw(library)
    mask, labels = noise > 0.4, np.arange(noise.size) % 11
    labels = labels.reshape(noise.shape)
    expected = run_theirs(
        library,
        pixels,
        bool_masked_pos=torch.from_numpy(mask),
        labels=torch.from_numpy(labels[mask]),
    )
    inputs = dict(images=pixels, mask=mask.astype("int32"))
    check(model(inputs), dict(logits=expected.logits.detach().numpy()))
    check(
        model.predict(inputs, verbose=0),
        dict(logits=expected.logits.detach().numpy()),
    )
    keras_vit.save_checkpoint(model, own, format="huggingface")
    check_same_files(own, folder)

    def loss_of(outputs):
        loss = keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction="sum"
        )
        weights = mask.astype("float32")
        return loss(labels, outputs["logits"], weights) / mask.sum()

    assert float(loss_of(model(inputs))) == pytest.approx(
        float(expected.loss), rel=1e-5
    )
    if case == "tables":  # the library's table gets the sum of all blocks
        grads = tmp_path / "gradients"
        check_gradients(model, inputs, library, grads, loss_of)


@torch_only
@pytest.mark.parametrize("case", BEITS)
def test_a_classifier_begins_with_a_masked_beit(case, transformers, tmp_path):
    options = BEITS[case] | dict(layer_scale_init_value=0.1, vocab_size=11)
    library_model(
        transformers,
        "beit",
        options | dict(use_mask_token=True),
        tmp_path / "masked",
    )
    whole = keras_vit.from_pretrained(tmp_path / "masked")
    model = keras_vit.from_pretrained(tmp_path / "masked", classes=3)
    theirs_ = transformers.BeitForImageClassification.from_pretrained(
        tmp_path / "masked", num_labels=3
    ).eval()
    theirs_.save_pretrained(tmp_path / "tuned")
    size = theirs_.config.image_size
    pixels = theirs.pixels((size, size))
    tuned = keras_vit.from_pretrained(tmp_path / "tuned", include_top=False,
        pixel_mean=model.pixel_mean, pixel_std=model.pixel_std)  # fmt: skip
    for encoder in (model, whole.encoder()):
        found = keras.Model(encoder.input, encoder.representation)
        np.testing.assert_allclose(
            found.predict(pixels, verbose=0),
            tuned.predict(pixels, verbose=0),
            atol=1e-5,
        )


@torch_only
def test_a_written_file_is_read_by_the_library(transformers, tmp_path):
    model = mae(backbone(input_shape=(16, 16, 3)), **OURS)
    keras_vit.save_checkpoint(model, tmp_path, format="huggingface")
    again, found = transformers.ViTMAEForPreTraining.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not found["missing_keys"] and not found["unexpected_keys"]
    assert again.config.norm_pix_loss
    # The fixed positions are the library's own.
    module = sys.modules[transformers.ViTMAEModel.__module__]
    expected = module.build_2d_sinusoidal_position_embedding(2, 2, 16)
    expected = np.roll(expected.numpy(), 8, axis=-1)
    found = again.vit.embeddings.position_embeddings.detach()[0]
    np.testing.assert_allclose(found[1:], expected, atol=1e-6)
    assert not found[0].any()


def backbone(constructor="ViT", **changes):
    arguments = TINY | dict(include_top=False, input_shape=(16, 24, 3))
    return getattr(keras_vit, constructor)(**arguments | changes)


@torch_only
@pytest.mark.parametrize("name", ["ViT", "DeiT", "DINOv2", "DeiT3", "SigLIP"])
def test_the_encoder_sees_the_visible_patches_alone(name):
    model = realistic.fill(mae(backbone(name), **OURS, fixed_positions=False))
    inputs = model.inputs_of(PIXELS, mask=[[1, 0, 1, 0, 1, 1]] * 2)
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        block, call = model.blocks[0], model.blocks[0].call

        def watch(x, **kwargs):
            seen.append(x.shape[1])
            return call(x, **kwargs)

        patch.setattr(block, "call", watch)
        found = model(inputs)
    assert seen[0] - 2 in (0, 1, 2)  # and a class and a distillation token
    other = PIXELS.copy()
    other[:, :8, 0:8] = 0  # a patch that is masked
    changed = model(inputs | dict(images=other))
    assert not float((found["logits"] - changed["logits"]).abs().max())
    other[:, :8, 8:16] = 0  # one that is visible
    changed = model(inputs | dict(images=other))
    assert float((found["logits"] - changed["logits"]).abs().max()) > 1e-3


@torch_only
def test_every_weight_learns_but_the_fixed_positions(tmp_path):
    model = mae(backbone("DINOv2", num_registers=2), **OURS, target="channel")
    names = {w.path for w in model.non_trainable_weights}
    assert names == {
        "posembed_input/pos_embedding", "decoder_posembed/pos_embedding"
    }  # fmt: skip
    found = gradients(realistic.fill(model), model.inputs_of(PIXELS))
    for weight in model.trainable_weights:
        assert np.abs(found[weight.path]).max() > 0, weight.path
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    inputs = model.inputs_of(PIXELS, seed=3)
    np.testing.assert_array_equal(
        again(inputs)["logits"].detach(), model(inputs)["logits"].detach()
    )
    message = "layer_scale=1e-05'.*images that are not square"
    with pytest.raises(ValueError, match=message):
        keras_vit.save_checkpoint(model, tmp_path, format="huggingface")


@pytest.mark.backend("tensorflow")
@pytest.mark.parametrize("name", ["ViT", "VideoMAE"])
def test_any_number_of_patches_may_be_visible(name):
    """From the second on, Keras traces a program that knows no number."""
    vit = keras_vit.VideoMAE(**catalogue.TINY_OF["VideoMAE"])
    model = realistic.fill(
        mae(backbone("ViT") if name == "ViT" else vit, **OURS)
    )
    pixels = PIXELS if name == "ViT" else np.ones((1, *vit.input_shape[1:]))
    for number in (1, 2, 3):
        mask = np.arange(model.num_patches)[None] >= number
        inputs = model.inputs_of(pixels[:1].astype("float32"), mask=mask)
        found = model.predict(inputs, verbose=0)
        expected = model(inputs)["logits"]
        np.testing.assert_allclose(found["logits"], expected, atol=1e-4)


@torch_only
def test_an_encoder_has_updates_of_low_rank_and_is_not_quantised():
    vit = realistic.fill(backbone("ViT"))
    model = mae(vit, **OURS, fixed_positions=False)
    before = vit.predict(PIXELS, verbose=0)
    layer = model.blocks[0].mlp.dense_0
    layer.enable_lora(2)
    layer.lora_kernel_b.assign(ops.ones(layer.lora_kernel_b.shape))
    expected = vit.predict(PIXELS, verbose=0)
    assert not np.allclose(expected, before, rtol=0.1)
    found = model.encoder().predict(PIXELS, verbose=0)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    layer.quantize("int8")
    with pytest.raises(ValueError, match="quantised already, to int8"):
        model.encoder()


@torch_only
@pytest.mark.parametrize("name", ["ViT", "DINOv2"])
def test_the_encoder_becomes_a_model_of_its_own(name, transformers, tmp_path):
    vit = realistic.fill(backbone(name))
    encoder = mae(vit, **OURS, fixed_positions=False).encoder()
    np.testing.assert_array_equal(
        encoder.predict(PIXELS, verbose=0), vit.predict(PIXELS, verbose=0)
    )
    library_model(transformers, "mae", DECODER, tmp_path)
    whole = keras_vit.from_pretrained(tmp_path)
    pixels = PIXELS[:, :8].repeat(4, 1)[:, :, :8].repeat(4, 2)
    expected = whole.encoder().predict(pixels, verbose=0)
    alone = keras_vit.from_pretrained(tmp_path, include_top=False)
    np.testing.assert_array_equal(alone.predict(pixels, verbose=0), expected)
    classifier = keras_vit.ViT(weights=tmp_path, classes=3)
    assert classifier.output_shape == (None, 3)
    assert whole.encoder(classes=5).output_shape == (None, 5)


@torch_only
@pytest.mark.parametrize("target", ["pixels", "patch", "channel"])
def test_perfect_predictions_are_drawn_as_the_image(target):
    model = mae(backbone(), **OURS, target=target)
    inputs = model.inputs_of(PIXELS.astype("float32"), seed=1)
    outputs = model.predict(inputs, verbose=0)
    layer = model.get_layer("patch_errors")
    scaled = keras.Model(model.input, layer.input[0])(inputs)
    values = layer._normalised(layer._values(scaled))
    outputs["logits"] = values.reshape(2, 6, -1)
    assert float(layer(scaled, outputs["logits"]).abs().max()) < 1e-9
    drawn = model.reconstruct(inputs, outputs)
    np.testing.assert_allclose(drawn, PIXELS, atol=0.05)
    outputs["logits"] = outputs["logits"] + 1
    drawn = model.reconstruct(inputs, outputs)
    assert drawn.min() >= 0 and drawn.max() == 255
    drawn = np.abs(drawn - PIXELS)
    drawn = drawn.reshape(2, 2, 8, 3, 8, 3).max((2, 4, 5)).reshape(2, 6)
    np.testing.assert_array_equal(drawn > 1, outputs["mask"] > 0)


@torch_only
def test_as_many_patches_are_visible_as_the_ratio_says():
    model = mae(backbone(input_shape=(32, 32, 3)), **OURS, mask_ratio=0.7)
    # int(16 (1 - 0.7)), as the library, where 16 0.7 would round to 11.
    inputs = model.inputs_of(PIXELS, noise=np.arange(32).reshape(2, 16))
    assert inputs["visible"].tolist() == [[0, 1, 2, 3]] * 2
    with pytest.raises(ValueError, match=r"as many patches.*\[12, 13\]"):
        model.inputs_of(PIXELS, mask=np.arange(32).reshape(2, 16) % 5 > 0)
    for name in ("mask", "noise"):
        with pytest.raises(ValueError, match=rf"`{name}` must be \[B, N\]"):
            model.inputs_of(PIXELS, **{name: np.zeros((2, 15))})
    again = model.inputs_of(PIXELS, seed=5)["visible"]
    assert again.shape == (2, 4) and not np.array_equal(*again)
    np.testing.assert_array_equal(
        again, model.inputs_of(PIXELS, seed=5)["visible"]
    )


@torch_only
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("MViT", "a ViT whose blocks take more tokens"),
        ("BEiT", "a ViT whose blocks take more tokens"),
        ("MLPMixer", "a ViT whose blocks take more tokens"),
        ("DINOv3", "'dinov3', with rotary positions"),
        ("EVA02", "'eva02', with rotary positions"),
    ],
)
def test_other_families_are_refused_by_name(name, reason):
    arguments = catalogue.TINY_OF[name] | dict(include_top=False)
    arguments.pop("classes", None)
    model = getattr(keras_vit, name)(**arguments)
    with pytest.raises(ValueError, match=reason):
        mae(model)


@torch_only
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (dict(patch_size=1, resnet_depths=(1,)), "a ResNet stem"),
        (dict(position_embedding="none"), "`fixed_positions` must be False"),
        (
            dict(position_embedding="sincos_2d"),
            "`fixed_positions` must be False",
        ),
        (dict(hidden_size=6), "a multiple of 4"),
    ],
)
def test_what_cannot_be_masked_is_refused(changes, reason):
    with pytest.raises(ValueError, match=reason):
        mae(backbone(**changes))


@torch_only
def test_what_a_masked_beit_cannot_be_is_refused(tmp_path):
    with pytest.raises(ValueError, match="must be a ViT.*'mixer'"):
        keras_vit.heads.beit_masked(catalogue.make_model("mixer"))
    beit = catalogue.make_model("beit", num_layers=2)
    model = keras_vit.heads.beit_masked(beit, shared_positions=True)
    realistic.fill(model)
    with pytest.raises(ValueError, match="the same table of relative posit"):
        keras_vit.save_checkpoint(model, tmp_path / "a", "huggingface")
    assert list(tmp_path.iterdir()) == []


@torch_only
@pytest.mark.parametrize("ratio", [0.0, 0.99])
def test_a_ratio_without_a_masked_or_a_visible_patch_is_refused(ratio):
    model = backbone()
    positions = model.get_layer("posembed_input")
    (before,) = positions.get_weights()
    with pytest.raises(ValueError, match=f"mask_ratio={ratio}, which leaves"):
        mae(model, mask_ratio=ratio)
    np.testing.assert_array_equal(positions.get_weights()[0], before)
    assert positions.trainable
