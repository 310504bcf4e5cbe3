"""ViTs after the paper give the numbers of timm and transformers.

The cases are in tests/goldens/modern; its README describes them.
"""

import keras
import numpy as np
import pytest
from modern_cases import CASES, draw_pixels, open_case

import keras_vit
from keras_vit import evaluation, inspection, training
from keras_vit.weights import checkpoint

BACKEND = keras.backend.backend()
# One of each kind of layer, on the backends that compile.
OF_ALL = (
    *("hf_beit", "hf_clip", "hf_deit_distilled", "hf_dinov2_registers"),
    *("hf_dinov3_gated", "hf_mae", "hf_siglip", "timm_beit3"),
    *("timm_dinov2_swiglu", "timm_eva02_enormous", "timm_intern"),
    *("timm_pe_core", "timm_rope_mixed", "timm_so150m_map"),
)


def difference(found, expected):
    found = keras.ops.convert_to_numpy(found)
    assert found.shape == np.shape(expected)
    return np.abs(found - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize("name", CASES if BACKEND == "torch" else OF_ALL)
def test_outputs_are_those_of_the_library(name, tmp_path):
    case, _ = open_case(name, tmp_path)
    pixels = draw_pixels(case["size"])
    shape = pixels.shape[1:]
    options = dict(towers="image") if name.endswith("two_towers") else {}
    model = keras_vit.from_pretrained(
        str(tmp_path), input_shape=shape, **options
    )
    # JAX is slow unless compiled.
    run = model.predict_on_batch if BACKEND == "jax" else model
    expected = case["logits"] or case["pooled"]
    assert difference(run(pixels), expected) <= 1e-5
    if BACKEND == "torch" and case["pooled"] and case["logits"]:
        # Where a classifier reads more, the library's pooling is a part.
        features = keras.Model(model.input, model.representation)(pixels)
        width = len(case["pooled"][0])
        assert difference(features[:, :width], case["pooled"]) <= 1e-5


@pytest.mark.backend("torch")
def test_a_beit_without_a_config_reads_the_mean_of_its_square(tmp_path):
    case, _ = open_case("timm_beit", tmp_path)
    own = keras_vit.from_pretrained(str(tmp_path))
    (tmp_path / "config.json").unlink()
    given = dict(
        num_heads=own.architecture.num_heads,
        activation="gelu",
        layer_norm_epsilon=1e-6,
        include_preprocessing=False,
    )
    model = keras_vit.from_pretrained(str(tmp_path), **given)
    assert model.architecture.pooling == "gap_norm"
    assert model.input_shape == own.input_shape
    scaled = (draw_pixels(case["size"]) - own.pixel_mean) / own.pixel_std
    assert difference(model(scaled), case["logits"]) <= 1e-5
    # A row of patches has as many distances as some square.
    patch = own.architecture.patch_size[0]
    columns = ((2 * own.input_shape[1] // patch - 1) ** 2 + 1) // 2
    row = keras_vit.from_pretrained(
        str(tmp_path), position_grid=(1, columns), **given
    )
    assert row.input_shape == (None, patch, columns * patch, 3)


@pytest.mark.backend("torch")
def test_what_is_asked_for_names_what_can_be_given(tmp_path):
    open_case("timm_dinov3", tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(ValueError, match="`rotary`.* must be given") as error:
        keras_vit.from_pretrained(str(tmp_path))
    assert "'none'" not in str(error.value)
    assert "`ls1.gamma` for `gamma_1`" in str(error.value)


@pytest.mark.backend("torch")
def test_a_dinov2_of_its_authors_has_their_names(tmp_path):
    from safetensors.numpy import save_file

    case, arrays = open_case("timm_dinov2_swiglu", tmp_path / "timm")
    theirs = {"mask_token": np.ones((1, 24), "float32")}
    for name, array in arrays.items():
        name = name.replace("reg_token", "register_tokens")
        name = name.replace("fc1", "w12").replace("fc2", "w3")
        theirs[name] = array
    # They have a position for the class token, which timm adds to the token.
    theirs["cls_token"] = arrays["cls_token"] - 1
    row = np.ones((1, 1, 24), "float32")
    theirs["pos_embed"] = np.concatenate([row, arrays["pos_embed"]], axis=1)
    save_file(theirs, tmp_path / "authors.safetensors")
    model = keras_vit.from_pretrained(
        tmp_path / "authors.safetensors",
        num_heads=2,
        layer_norm_epsilon=1e-6,
        include_top=False,
        pixel_mean=[102.0, 127.5, 153.0],
        pixel_std=[63.75, 76.5, 51.0],
    )
    pixels = draw_pixels(case["size"])
    assert difference(model(pixels), case["pooled"]) <= 1e-5


@pytest.mark.backend("torch")
@pytest.mark.parametrize("name", CASES)
def test_it_is_written_back_as_it_was(name, tmp_path):
    _, arrays = open_case(name, tmp_path / "theirs")
    options = {}
    if name == "hf_siglip_two_towers":
        options = dict(towers="image")
        with pytest.raises(ValueError, match="16 of images and 8 of texts"):
            keras_vit.from_pretrained(str(tmp_path / "theirs"))
    model = keras_vit.from_pretrained(str(tmp_path / "theirs"), **options)
    format = "timm" if name.startswith("timm") else "huggingface"
    keras_vit.save_checkpoint(model, tmp_path / "ours", format=format)
    sources = [
        checkpoint.open_checkpoint(tmp_path / part)
        for part in ("theirs", "ours")
    ]
    theirs, ours = sources
    assert set(ours.arrays) == set(theirs.arrays)
    for key, value in ours.arrays.items():
        np.testing.assert_array_equal(value.read(), theirs.arrays[key].read())
    same = {
        key
        for key in theirs.metadata
        if key not in ("architecture", "image_size", "grid", "resampling")
    }
    assert {k: ours.metadata.get(k) for k in same} == {
        k: theirs.metadata[k] for k in same
    }
    # Under the names of the file, too.
    written = ours.format.restore(
        {k: v.read() for k, v in ours.arrays.items()}, theirs.naming_scheme
    )
    assert set(written) <= set(arrays)
    for key, value in written.items():
        np.testing.assert_array_equal(value, arrays[key])


@pytest.mark.backend("torch")
@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("timm_deit3", "antialiased_bicubic"),
        ("timm_radio", "aligned_bilinear"),
        ("timm_beit", "geometric"),
        ("hf_clip", "bicubic"),
        ("hf_beit", "bilinear"),
        ("hf_mae", "bicubic"),
    ],
)
def test_our_own_file_is_resampled_as_that_it_came_from(name, method, tmp_path):
    open_case(name, tmp_path)
    keras_vit.from_pretrained(str(tmp_path)).save(tmp_path / "model.keras")
    shape, path = (16, 12, 3), str(tmp_path / "model.keras")
    ours = keras_vit.from_pretrained(path, input_shape=shape)
    theirs = keras_vit.from_pretrained(str(tmp_path), input_shape=shape)
    assert ours.resampling == theirs.resampling == method
    for one, other in zip(ours.weights, theirs.weights, strict=True):
        np.testing.assert_array_equal(
            *map(keras.ops.convert_to_numpy, (one, other))
        )


@pytest.mark.backend("torch")
def test_a_class_token_that_the_head_reads_must_be_there(tmp_path):
    from safetensors.numpy import save_file

    _, arrays = open_case("timm_clip", tmp_path)
    del arrays["cls_token"]
    save_file(arrays, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="expected a class token"):
        checkpoint.open_checkpoint(tmp_path)


@pytest.mark.backend("torch")
def test_the_tools_read_registers_and_rotary_positions(tmp_path):
    open_case("timm_dinov3", tmp_path)
    model = keras_vit.from_pretrained(str(tmp_path))
    pixels = draw_pixels((8, 12))
    block = model.get_layer("encoderblock_0")
    tokens = keras.Model(model.input, block.output).predict(pixels, verbose=0)
    found = evaluation.representation(model, "encoderblock_0")
    # A class token and four registers precede the patches.
    np.testing.assert_allclose(
        found.predict(pixels, verbose=0), tokens[:, 5:].mean(axis=1), rtol=1e-5
    )
    rollout = inspection.attention_rollout(model, pixels)
    assert rollout.shape == (2, 2, 3)
    np.testing.assert_allclose(rollout.sum(axis=(1, 2)), 1, rtol=1e-5)
    assert training.depth_factor(model, 0.5)("embedding/kernel") == 0.125


@pytest.mark.backend("torch")
def test_another_number_of_classes_replaces_the_projection(tmp_path):
    open_case("hf_clip_projection", tmp_path)
    assert keras_vit.from_pretrained(str(tmp_path)).output_shape == (None, 6)
    tuned = keras_vit.from_pretrained(str(tmp_path), classes=4)
    assert not keras.ops.convert_to_numpy(tuned.head.kernel).any()


@pytest.mark.backend("torch")
def test_a_distilled_model_reads_two_tokens(tmp_path):
    open_case("hf_deit_distilled", tmp_path)
    pixels = draw_pixels((8, 8))
    model = keras_vit.from_pretrained(str(tmp_path))
    vectors = keras_vit.from_pretrained(str(tmp_path), include_top=False)
    found = evaluation.representation(model).predict(pixels, verbose=0)
    np.testing.assert_allclose(found, vectors.predict(pixels, verbose=0))
    block = keras.Model(model.input, model.blocks[0].output)
    found = evaluation.representation(model, "encoderblock_0")
    np.testing.assert_allclose(
        found.predict(pixels, verbose=0),
        block.predict(pixels, verbose=0)[:, :2].mean(axis=1),
        rtol=1e-5,
    )
    assert inspection.attention_rollout(model, pixels).shape == (2, 2, 2)
    tuned = keras_vit.from_pretrained(str(tmp_path), classes=4)
    kernels = [v for v in tuned.head.weights if v.name == "kernel"]
    assert [v.shape for v in kernels] == [(16, 4), (16, 4)]
    assert not any(keras.ops.convert_to_numpy(v).any() for v in kernels)
    with pytest.warns(UserWarning, match="all zeros"):
        tuned.save(tmp_path / "zeros.keras")
        keras_vit.from_pretrained(str(tmp_path / "zeros.keras"))
