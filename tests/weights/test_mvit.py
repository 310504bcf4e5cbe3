"""MViT's checkpoints: two libraries' names, both ways, and other videos."""

import dataclasses
import json

import keras
import numpy as np
import pytest
from functional import difference, golden, values_of
from keras import ops

import keras_vit
from keras_vit.inspection import costs
from keras_vit.weights import checkpoint, rules
from keras_vit.weights.rules.mvit import slowfast

pytestmark = pytest.mark.backend("torch")

CASES = ("video", "image", "authors_video", "authors_image")


def arrays_of(case):
    with np.load(golden(f"mvit_{case}")[1]) as archive:
        return dict(archive)


def library_of(case):
    return "authors" if case.startswith("authors") else "torchvision"


def config_of(case):
    """Returns a case's config as its library has it."""
    config = json.loads(str(golden(f"mvit_{case}")[0]["config"]))
    if library_of(case) == "torchvision":
        return config
    config["MVIT"].pop("POOL_KV_STRIDE")
    data = dict(NUM_FRAMES=config["NUM_FRAMES"])
    return dict(
        MVIT=config["MVIT"],
        DATA=data | dict(TRAIN_CROP_SIZE=config["CROP_SIZE"]),
        MODEL=dict(NUM_CLASSES=config["NUM_CLASSES"]),
    )


@pytest.fixture
def write(tmp_path):
    """Writes a case's arrays, with their config, as a directory."""

    def write(case, arrays=None, **changes):
        from safetensors import numpy

        arrays = arrays_of(case) if arrays is None else arrays
        numpy.save_file(arrays, tmp_path / "model.safetensors")
        text = json.dumps(config_of(case) | changes)
        (tmp_path / "config.json").write_text(text)
        return str(tmp_path)

    return write


def assert_same(model, case):
    data, _ = golden(f"mvit_{case}")
    assert difference(model, data["input"], data["logits"]) <= 2e-6


@pytest.mark.parametrize("case", CASES)
def test_a_config_specifies_everything(case, write):
    path = write(case)
    model = keras_vit.from_pretrained(path, include_preprocessing=False)
    assert_same(model, case)
    assert model.num_frames == (
        None if "image" in case else model.input_shape[1]
    )
    model = keras_vit.from_pretrained(path)
    mean = (123.675, 116.28, 103.53) if "image" in case else 114.75
    np.testing.assert_allclose(model.pixel_mean, mean)


@pytest.mark.parametrize("library", ["authors", "torchvision"])
@pytest.mark.parametrize("case", ["video", "image", "authors_video"])
def test_checkpoints_are_written_in_both_libraries_names(
    case, library, write, tmp_path
):
    names = tuple(f"class {i}" for i in range(7 if case == "image" else 9))
    model = keras_vit.from_pretrained(write(case), class_names=names)
    keras_vit.save_checkpoint(model, tmp_path / "out", library)
    again = keras_vit.from_pretrained(tmp_path / "out")
    assert again.class_names == names
    assert again.input_shape == model.input_shape
    assert again.architecture == model.architecture
    for one, other in zip(model.weights, again.weights, strict=True):
        assert one.path == other.path
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    if library == library_of(case):
        from safetensors.numpy import load_file

        found, expected = (
            load_file(tmp_path / "out/model.safetensors"),
            arrays_of(case),
        )
        assert found.keys() == expected.keys()
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array)


def test_an_image_checkpoint_of_the_authors_is_written_back_bitwise(
    write, tmp_path
):
    from safetensors.numpy import load_file

    model = keras_vit.from_pretrained(write("authors_image"))
    keras_vit.save_checkpoint(model, tmp_path / "out", "authors")
    found = load_file(tmp_path / "out/model.safetensors")
    for name, array in arrays_of("authors_image").items():
        np.testing.assert_array_equal(found[name], array)
    with pytest.raises(ValueError, match="position_embedding='joint'"):
        keras_vit.save_checkpoint(model, tmp_path / "tv", "torchvision")


@pytest.mark.parametrize(
    ("mode", "shape", "top", "positions"),
    [
        ("max", (4, 16, 24, 3), True, "joint"),
        ("avg", (16, 24, 3), False, "separate"),
        # Only its config distinguishes it from a ViT of timm.
        ("none", (16, 24, 3), False, "none"),
    ],
)
def test_other_poolings_come_back(mode, shape, top, positions, tmp_path):
    stride = (1, 1, 1) if mode == "none" else (1, 2, 2)
    model = keras_vit.MViT(
        depths=(1,) if mode == "none" else (1, 1),
        hidden_sizes=(8,) if mode == "none" else (8, 16),
        num_heads=(2,) if mode == "none" else (1, 2),
        cube_size=(1, 4, 4),
        cube_stride=(1, 4, 4),
        pooling_mode=mode,
        query_stride=stride,
        key_value_stride=stride,
        position_embedding=positions,
        include_top=top,
        classes=3,
        input_shape=shape,
    )
    if top:
        model.head.kernel.assign(ops.ones((16, 3)))
    keras_vit.save_checkpoint(model, tmp_path, "authors")
    again = keras_vit.from_pretrained(tmp_path)
    assert again.architecture == model.architecture
    for path, value in values_of(model).items():
        np.testing.assert_array_equal(values_of(again)[path], value)
    (tmp_path / "config.json").unlink()
    family = "vit" if mode == "none" else "mvit"
    source = checkpoint.open_checkpoint(
        tmp_path, position_grid=(4, 4, 6)[4 - len(shape) :]
    )
    assert source.family == family
    assert "pixel_mean" not in source.metadata


def test_a_grid_is_not_taken_for_the_square_of_as_many_positions(tmp_path):
    own = dict(
        cube_stride=(1, 4, 4),
        query_stride=(1, 2, 2),
        key_value_stride=(1, 2, 2),
    )
    model = keras_vit.MViT(
        depths=(1, 1),
        hidden_sizes=(8, 16),
        num_heads=(1, 2),
        cube_size=(1, 4, 4),
        position_embedding="separate",
        classes=3,
        input_shape=(16, 16, 3),
        **own,
    )
    keras_vit.save_checkpoint(model, tmp_path, "authors")
    (tmp_path / "config.json").unlink()
    own |= dict(input_shape=(8, 32, 3), classes=2, pixel_mean=0, pixel_std=255)
    with pytest.raises(ValueError, match=r"`position_grid`.*4, 4.*or.*2, 8"):
        keras_vit.from_pretrained(tmp_path, **own)
    for grid in ((4, 4), (2, 8)):
        again = keras_vit.from_pretrained(tmp_path, **own, position_grid=grid)
        assert again.metadata["grid"] == (2, 8)


def test_the_authors_pyth_file_is_read_with_its_config(tmp_path):
    import torch
    import yaml

    state = {k: torch.tensor(v) for k, v in arrays_of("authors_video").items()}
    # The first files have three projections.
    for name in [name for name in state if ".qkv." in name]:
        parts = state.pop(name).chunk(3)
        for letter, part in zip("qkv", parts, strict=True):
            state[name.replace(".qkv.", f".{letter}.")] = part.clone()
    content = dict(
        epoch=3,
        model_state=state,
        optimizer_state=dict(state={}, param_groups=[dict(lr=0.1)]),
        cfg=yaml.safe_dump(config_of("authors_video")),
    )
    torch.save(content, tmp_path / "k400.pyth")
    model = keras_vit.from_pretrained(
        tmp_path / "k400.pyth", include_preprocessing=False
    )
    assert_same(model, "authors_video")
    keras_vit.save_checkpoint(model, tmp_path / "out.pyth", "authors")
    again = keras_vit.from_pretrained(
        tmp_path / "out.pyth", include_preprocessing=False
    )
    assert again.architecture == model.architecture
    assert_same(again, "authors_video")


def test_what_arrays_do_not_show_must_be_given():
    _, path = golden("mvit_authors_video")
    with pytest.raises(ValueError, match="`cube_stride`, `query_stride`"):
        keras_vit.MViT(weights=path)
    _, path = golden("mvit_video")
    with pytest.raises(ValueError, match=r"position_grid=\(frames, height"):
        keras_vit.MViT(weights=path)


@pytest.mark.parametrize(
    "variant, library",
    [
        ("MViTB16x4", "torchvision"),
        ("MViTB24_32x3", "authors"),
        ("MViTB24Wide", "authors"),
    ],
)
def test_sizes_of_a_published_model_show_its_strides(variant, library):
    with costs.shapes_alone():
        model = getattr(keras_vit, variant)(classes=400)
    shapes = {v.path: tuple(v.shape) for v in model.weights}
    form = rules.FAMILIES["mvit"].FORMATS[library]
    arrays = {}
    for rule in form.rules(model.metadata):
        blank = np.broadcast_to(np.float32(0), shapes[rule.path])
        parts = rule.transform.split(blank)
        arrays |= dict(zip(rule.sources, parts, strict=True))
    assert form.recognises(arrays)
    found = form.read_arrays(arrays, {}, {})
    assert found["image_size"] == model.image_shape[:2]
    assert found["num_frames"] == model.num_frames
    for field in dataclasses.fields(model.architecture):
        expected = getattr(model.architecture, field.name)
        if field.name in found:
            config = dataclasses.replace(
                model.architecture, **{field.name: found[field.name]}
            )
            assert getattr(config, field.name) == expected
        else:
            assert field.name.endswith("_rate") or expected is None


@pytest.mark.parametrize(
    "section, words",
    [
        (dict(MVIT=dict(REL_POS_SPATIAL=True)), "relative positions"),
        (dict(MVIT=dict(USE_MEAN_POOLING=True)), "a norm after the mean"),
        (dict(MVIT=dict(USE_FIXED_SINCOS_POS=True)), "added twice"),
        (dict(MVIT=dict(POOL_Q_STRIDE=[[1, 1, 1, 1]])), "POOL_KVQ_KERNEL"),
        (
            dict(
                MVIT=dict(
                    POOL_KV_STRIDE_ADAPTIVE=None,
                    POOL_KV_STRIDE=[[0, 1, 8, 8]],
                )
            ),
            "POOL_KVQ_KERNEL",
        ),
        (dict(MVIT=dict(DEPTH=3)), "has 3 blocks and its arrays 5"),
        (dict(MVIT=dict(PATCH_PADDING=[0, 0, 0])), "PATCH_PADDING=.*supported"),
        (dict(DATA=dict(NUM_FRAMES=6)), "cover no grid"),
        (dict(DATA=dict(REVERSE_INPUT_CHANNEL=True)), "in the order BGR"),
        (dict(MVIT=dict(POOL_Q_STRIDE=[7])), "another kind than expected"),
    ],
)
def test_configs_that_cannot_be_right_are_refused(section, words, write):
    config = config_of("authors_video")
    for key, value in section.items():
        both = isinstance(value, dict)
        config[key] = config[key] | value if both else value
    with pytest.raises(ValueError, match=words):
        keras_vit.from_pretrained(write("authors_video", **config))


@pytest.mark.parametrize("name", ["residual_pool", "kernel_q"])
def test_arguments_of_torchvision_for_other_models_are_refused(name):
    config = config_of("video")
    config["block_setting"][1]["kernel_q"] = [1, 5, 5]  # that of keys is 3
    config["residual_pool"] = name == "residual_pool"
    message = dict(residual_pool="of MViTv2", kernel_q="several sizes")[name]
    with pytest.raises(ValueError, match=message):
        rules.FAMILIES["mvit"].FORMATS["torchvision"].read_config(config)


def test_kernels_of_several_sizes_show_no_strides_in_torchvision(tmp_path):
    arrays = arrays_of("video")
    name = "blocks.0.attn.pool_k.pool.weight"
    arrays[name] = arrays[name][:, :, :1]
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(ValueError, match="query_stride"):
        keras_vit.from_pretrained(
            tmp_path / "a.npz", position_grid=(3, 16, 12), cube_stride=(2, 4, 4)
        )


def test_strides_of_keys_are_divided_by_those_of_queries():
    config = dict(
        DEPTH=4,
        POOL_Q_STRIDE=[[1, 1, 2, 2], [2, 1, 2, 4], [3, 2, 2, 2]],
        POOL_KV_STRIDE_ADAPTIVE=[1, 4, 6],
    )
    settings = slowfast.read(dict(MVIT=config))["settings"]
    found = [block["key_value_stride"] for block in settings]
    assert found == [(1, 4, 6), (1, 2, 3), (1, 1, 1), (1, 1, 1)]
    config["POOL_Q_STRIDE"] = []
    assert slowfast.read(dict(MVIT=config))["pooling_mode"] == "conv"


def test_an_mvit_v2_is_refused(tmp_path):
    arrays = arrays_of("authors_video")
    arrays["blocks.0.attn.rel_pos_h"] = np.ones((3, 16), "float32")
    np.savez(tmp_path / "v2.npz", **arrays)
    with pytest.raises(ValueError, match="MViTv2"):
        keras_vit.from_pretrained(tmp_path / "v2.npz")


@pytest.mark.parametrize("case", ["image", "authors_image"])
def test_a_video_of_equal_frames_starts_as_its_image(case, write):
    data, _ = golden(f"mvit_{case}")
    model = keras_vit.from_pretrained(
        write(case),
        input_shape=(8, 64, 64, 3),
        cube_size=(3, 7, 7),
        cube_stride=(2, 4, 4),
        position_embedding="separate",
        include_preprocessing=False,
    )
    assert model.num_frames == 8
    found = values_of(model)
    expected = values_of(keras_vit.from_pretrained(write(case)))
    kernel = found["patch_embed/kernel"]
    assert kernel.shape[0] == 3
    np.testing.assert_allclose(
        kernel.sum(axis=0), expected["patch_embed/kernel"][0], rtol=1e-6
    )
    # Frames at both ends are padded with zeros in time; those within see what
    # the image shows, at their places.
    clip = np.repeat(data["input"][:1, None], 8, axis=1)
    tokens = (
        keras.Model(model.input, model.get_layer("pos_encoding").output)
        .predict(clip, verbose=0)[:, 1:]
        .reshape(4, 256, -1)
    )
    image = keras_vit.from_pretrained(write(case), include_preprocessing=False)
    of_image = keras.Model(
        image.input, image.get_layer("pos_encoding").output
    ).predict(data["input"][:1], verbose=0)[0, 1:]
    for frame in (1, 2, 3):
        np.testing.assert_allclose(tokens[frame], of_image, atol=1e-5)


def test_a_variant_of_video_takes_the_weights_of_images(write):
    sizes = dict(
        depths=(1, 2, 2), hidden_sizes=(16, 32, 64), num_heads=(1, 2, 4)
    )
    path = write("authors_image")
    model = keras_vit.MViTB16x4(weights=path, **sizes)
    assert model.input_shape == (None, 16, 64, 64, 3)
    assert model.architecture.position_embedding == "separate"
    found = values_of(model)
    expected = values_of(keras_vit.from_pretrained(path))
    for name in ("patch_embed/kernel", "blocks_1/attn/pool_q/kernel"):
        assert found[name].shape[0] == 3
        for frame in found[name]:
            np.testing.assert_allclose(3 * frame, expected[name][0], rtol=1e-6)
    table = expected["pos_encoding/joint_pos"]
    np.testing.assert_array_equal(found["pos_encoding/class_pos"], table[:, :1])
    np.testing.assert_array_equal(
        found["pos_encoding/spatial_pos"], table[:, 1:]
    )
    assert not found["pos_encoding/temporal_pos"].any()
    for name in ("blocks_0/attn/qkv/kernel", "head/kernel", "norm/gamma"):
        np.testing.assert_array_equal(found[name], expected[name])


def test_positions_are_resampled_in_space_and_time(write):
    path = write("authors_video")
    before = values_of(keras_vit.from_pretrained(path))
    changed = keras_vit.from_pretrained(path, input_shape=(16, 96, 64, 3))
    after = values_of(changed)
    torch = pytest.importorskip("torch")
    for name, size in (("spatial", (24, 16)), ("temporal", (8,))):
        one = before[f"pos_encoding/{name}_pos"]
        old = (16, 16) if name == "spatial" else (4,)
        grid = torch.tensor(one).reshape(1, *old, -1).movedim(-1, 1)
        mode = "bilinear" if name == "spatial" else "linear"
        expected = torch.nn.functional.interpolate(grid, size, mode=mode)
        expected = expected.flatten(2).transpose(1, 2).numpy()
        found = after[f"pos_encoding/{name}_pos"]
        np.testing.assert_allclose(found, expected, atol=1e-6)
    clips = np.zeros((1, 16, 96, 64, 3), "float32")
    assert changed.predict(clips, verbose=0).shape == (1, 9)
