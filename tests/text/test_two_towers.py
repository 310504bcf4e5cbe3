"""Two towers: the library's numbers, back bit for bit, saved, exported."""

import json
import types

import keras
import numpy as np
import pytest
import realistic

import keras_vit
from keras_vit._keras import nested_layers
from keras_vit.evaluation.pair_scores import ids_of_classes
from keras_vit.weights.rules import clip_text
from tests.drawn_folders import drawn
from tests.modern_cases import open_case

GOLDENS = drawn("towers")
CASES = ("clip", "siglip")
TEXT = dict(
    vocab_size=40,
    context_length=6,
    hidden_size=16,
    num_layers=1,
    num_heads=2,
    mlp_dim=16,
)
VIT = dict(patch_size=8, hidden_size=8, num_layers=1, num_heads=2, mlp_dim=8)


def numpy(x):
    return keras.ops.convert_to_numpy(x)


def golden(name):
    data = np.load(GOLDENS / name / "io.npz")
    return data, data["pixels"].astype("float32"), data["input_ids"]


def near(found, expected, tolerance=1e-5):
    difference = np.abs(numpy(found) - expected).max()
    assert difference <= tolerance * np.abs(expected).max()


def make(kind="siglip", **changes):
    tokenizer = keras_vit.text.word_tokenizer(["a", "red", "car"], 6)
    text = keras_vit.text.text_tower(
        kind, **TEXT, embedding_size=12, tokenizer=tokenizer
    )
    image = keras_vit.ViT(**VIT, input_shape=(16, 16, 3), include_top=False)
    return realistic.fill(keras_vit.two_towers(image, text, **changes))


@pytest.mark.parametrize("name", CASES)
def test_goldens_have_the_librarys_numbers(name):
    data, images, ids = golden(name)
    model = keras_vit.from_pretrained(GOLDENS / name)
    inputs = dict(images=images, ids=ids.astype("int32"))
    found = realistic.run(model, inputs)
    near(found["image_embeddings"], data["out/image_embeds"])
    near(found["text_embeddings"], data["out/text_embeds"])
    near(found["logits"], data["out/logits_per_image"])
    near(model.encode_texts(ids), data["out/text_embeds"])
    near(model.logits(images, ids), data["out/logits_per_image"])


@pytest.mark.backend("torch")
@pytest.mark.parametrize("name", [*CASES, "siglip2", "owlv2"])
def test_files_are_written_back_bit_for_bit(name, tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    model = keras_vit.from_pretrained(GOLDENS / name)
    keras_vit.save_checkpoint(model, tmp_path, format="huggingface")
    own, theirs = (
        safetensors.load_file(folder / "model.safetensors")
        for folder in (tmp_path, GOLDENS / name)
    )
    assert own.keys() == theirs.keys()
    for key, value in theirs.items():
        assert own[key].dtype == value.dtype
        np.testing.assert_array_equal(own[key], value, err_msg=key)
    again = keras_vit.from_pretrained(tmp_path)
    if name not in CASES:
        return
    assert again.text_tower.metadata == model.text_tower.metadata
    written = json.loads((tmp_path / "config.json").read_text())
    expected = json.loads((GOLDENS / name / "config.json").read_text())
    for part in ("text_config", "vision_config"):
        for key in set(written[part]) & set(expected[part]):
            if "projection" not in key:
                assert written[part][key] == expected[part][key], key


@pytest.mark.backend_independent
def test_configs_say_which_token_ends_a_text():
    read = clip_text.FORMATS["huggingface"].read_config
    old = dict(num_attention_heads=8, eos_token_id=2)
    other = dict(num_attention_heads=16, hidden_size=None)
    found = read(dict(text_config=old, text_config_dict=other))
    assert found["num_heads"] == 16 and found["pooling"] == "largest"
    found = read(dict(text_config=old | dict(eos_token_id=48)))
    assert found["num_heads"] == 8 and found["end_token"] == 48
    newer = old | dict(model_type="metaclip_2_text_model")
    assert read(dict(text_config=newer))["end_token"] == 2


@pytest.mark.backend("torch")
def test_each_tower_opens_alone(tmp_path):
    folder = GOLDENS / "clip"
    data, images, ids = golden("clip")
    for towers, x, name in (("image", images, "image"), ("text", ids, "text")):
        alone = keras_vit.from_pretrained(folder, towers=towers)
        found = numpy(alone(x))
        found /= np.linalg.norm(found, axis=-1, keepdims=True)
        near(found, data[f"out/{name}_embeds"])
    # Who fine-tunes the image tower gives an argument of a classifier.
    classifier = keras_vit.from_pretrained(folder, classes=7)
    assert classifier.output_shape == (None, 7)
    with pytest.raises(TypeError, match="no argument 'classes'"):
        keras_vit.from_pretrained(folder, towers="both", classes=7)
    with pytest.raises(TypeError, match="no argument 'max_patches'"):
        keras_vit.from_pretrained(folder, max_patches=7)
    texts = keras_vit.from_pretrained(folder, towers="text")
    keras_vit.save_checkpoint(texts, tmp_path, format="huggingface")
    with pytest.raises(ValueError, match="which is a text tower"):
        keras_vit.from_pretrained(tmp_path, towers="image")
    open_case("hf_clip", tmp_path / "vit")
    with pytest.raises(ValueError, match="no text tower"):
        keras_vit.from_pretrained(tmp_path / "vit", towers="text")


@pytest.mark.backend("torch")
def test_gradients_of_both_towers_begin_anew_in_each_step():
    model = make()
    model.compile(keras.optimizers.SGD(0.0), loss=dict(logits="mse"))
    inputs = dict(
        images=np.ones((2, 16, 16, 3), "float32"),
        ids=np.ones((2, 6), "int32"),
    )
    found = []
    for _ in range(2):
        model.train_on_batch(inputs, dict(logits=np.zeros((2, 2))))
        weights = model.trainable_variables
        found.append([numpy(w.value.grad) for w in weights])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.backend("torch")
@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_a_model_is_saved_with_its_tokenizer(kind, tmp_path):
    model = make(kind, logit_bias=-3.0)
    images = np.random.default_rng(0).uniform(0, 255, (3, 16, 16, 3))
    texts = ["A red car.", "a bike"]
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    expected = model.logits(images, texts)
    assert expected.shape == (3, 2)
    np.testing.assert_array_equal(again.logits(images, texts), expected)
    assert not again.image_tower.head.bias.trainable
    named = [weight.path for weight in again.trainable_weights]
    assert {"similarity/logit_scale", "similarity/logit_bias"} < set(named)


@pytest.mark.backend("torch")
def test_a_model_without_a_tokenizer_is_saved_beside_one_that_has_one(tmp_path):
    """Keras gives a layer a folder where any layer of the file has one."""
    towers = [make().text_tower, make().text_tower]
    towers[0].tokenizer = None
    ids = keras.Input((6,), dtype="int32")
    for i, tower in enumerate(towers):
        tower.name = f"tower_{i}"
    model = keras.Model(ids, [tower(ids) for tower in towers])
    for name, zipped in (("model.keras", True), ("model", False)):
        path = tmp_path / name
        keras.saving.save_model(model, path, zipped=zipped)
        again = keras.models.load_model(path)
        assert again.get_layer("tower_0").tokenizer is None
        found = again.get_layer("tower_1").tokenizer(["a red car"])
        np.testing.assert_array_equal(found, towers[1].tokenizer("a red car"))


@pytest.mark.thorough("jax")
def test_every_weight_learns_on_each_backend():
    model = make("clip", logit_bias=0.0)
    model.compile(keras.optimizers.SGD(0.1), loss=dict(logits="mse"))
    before = [numpy(weight) for weight in model.trainable_weights]
    inputs = dict(
        images=np.random.default_rng(0).uniform(0, 255, (3, 16, 16, 3)),
        ids=model.tokenizer(["red car", "a", "blue a"]),
    )
    model.fit(inputs, np.eye(3, dtype="float32"), batch_size=3, verbose=0)
    for old, new in zip(before, model.trainable_weights, strict=True):
        if new.path == "token_embedding/token_embedding":
            old, new = old[:6], numpy(new)[:6]
        assert not np.array_equal(old, numpy(new)), new


@pytest.mark.backend("torch")
def test_ids_that_a_tower_cannot_read_are_refused():
    model = make("siglip")
    for ids, message in (
        (np.full((2, 6), 40), "from 0 to 39.*an id of 40"),
        (np.full((2, 6), -1), "an id of -1"),
        (np.zeros((2, 7), int), r"\[B, 6\].*\(2, 7\)"),
        (np.zeros((2, 5), int), "reads the last"),
        (np.zeros(6, int), r"shape \(6,\)"),
        (np.full((2, 6), 0.5), "must be integers"),
    ):
        with pytest.raises(ValueError, match=message):
            model.encode_texts(ids)
        with pytest.raises(ValueError, match=message):
            model.text_tower(ids)
    clone = keras.models.clone_model(model)
    source = types.SimpleNamespace(class_texts=[["a car"], ["red"]])
    for use in (
        lambda: clone.encode_texts("a car"),
        lambda: ids_of_classes(clone, source),
    ):
        with pytest.raises(ValueError, match="which clones.*do not have"):
            use()


@pytest.mark.backend("torch")
def test_a_short_text_is_read_to_its_end():
    """What follows the end of a text changes nothing in a CLIP."""
    for pooling in (dict(pooling="largest"), dict(pooling="end", end_token=9)):
        tower = realistic.fill(
            keras_vit.text.text_tower("clip", **TEXT | pooling)
        )
        ids = np.array([[3, 5, 9, 9, 9, 9]])
        later = np.array([[3, 5, 9, 1, 4, 2]])
        near(tower(ids[:, :3]), numpy(tower(ids)), 1e-6)
        near(tower(later), numpy(tower(ids)), 1e-6)
        assert not np.allclose(numpy(tower(ids[:, ::-1])), numpy(tower(ids)))


@pytest.mark.backend("torch")
def test_a_text_of_any_tokenizer_is_read_to_its_end():
    """Not to its largest id, which a word may have that is not the last."""
    red, blue = make("clip").encode_texts(["car red", "car a"])
    assert not np.allclose(red, blue, atol=1e-3)
    tower = make("clip").text_tower
    assert tower.architecture.end_token == tower.tokenizer.end_token
    with pytest.raises(ValueError, match="the token 2 in each row.*row 1"):
        tower(np.array([[4, 3, 2], [4, 3, 1]]))


@pytest.mark.backend("torch")
@pytest.mark.parametrize(
    ("embedding_size", "more", "logit_bias", "message"),
    [
        (8, {}, None, "projection after its image tower"),
        (12, dict(pooling="last"), None, "no place for pooling='last'"),
        (12, {}, -3.0, "no place for logit_bias"),
        (12, dict(pooling="end", end_token=2), None, "no place for end_token"),
    ],
)
def test_what_files_of_clip_have_no_place_for_is_refused(
    embedding_size, more, logit_bias, message, tmp_path
):
    text = keras_vit.text.text_tower(
        "clip", **TEXT, embedding_size=embedding_size, **more
    )
    image = keras_vit.CLIP(**VIT, input_shape=(16, 16, 3), include_top=False)
    model = keras_vit.two_towers(image, text, logit_bias=logit_bias)
    with pytest.raises(ValueError, match=message):
        keras_vit.save_checkpoint(model, tmp_path / "a", format="huggingface")


@pytest.mark.backend("torch")
def test_layers_without_a_kernel_are_no_warnings_of_quantize():
    model = make()
    model.quantize("int8")
    for tower in (model.text_tower, model.image_tower):
        assert tower.blocks[0].quantization_mode is None
        kinds = {layer.quantization_mode for layer in nested_layers(tower)}
        assert kinds == {None, "int8"}


@pytest.mark.backend("torch")
def test_towers_that_do_not_meet_are_refused():
    text = keras_vit.text.text_tower("clip", **TEXT, embedding_size=12)
    image = keras_vit.ViT(**VIT, input_shape=(16, 16, 3), include_top=False)
    with pytest.raises(ValueError, match="`projection`.*8 of images"):
        keras_vit.two_towers(image, text, projection=False)
    maps = keras_vit.ViT(
        **VIT, input_shape=(16, 16, 3), include_top=False, pooling="unpooled"
    )
    with pytest.raises(ValueError, match="one vector of an image.*2, 2, 8"):
        keras_vit.two_towers(maps, text)
    with pytest.raises(ValueError, match="two towers of a CLIP"):
        model = keras_vit.two_towers(image, text)
        keras_vit.save_checkpoint(model, "own", format="huggingface")
    with pytest.raises(ValueError, match="`end_token` must be given"):
        keras_vit.text.text_tower("clip", **TEXT, pooling="end")
