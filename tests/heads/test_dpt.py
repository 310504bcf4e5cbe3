"""DPT and Depth Anything on backbones of this package, and their maps."""

import json
import shutil
import types

import catalogue
import keras
import numpy as np
import pytest
import realistic

import keras_vit
from keras_vit.inspection import task_figures
from keras_vit.ops import resize
from tests.heads import theirs
from tests.heads.test_released import GOLDENS, check, check_same_files

safetensors = pytest.importorskip("safetensors.numpy")
pytestmark = [
    pytest.mark.backend("torch"),
    pytest.mark.filterwarnings("ignore"),  # of transformers
]
TINY = dict(patch_size=8, hidden_size=16, num_layers=5, num_heads=2, mlp_dim=16)
NECK = dict(neck_sizes=(4, 6, 8, 8), fusion_size=8)
IMAGES = np.random.default_rng(0).uniform(0, 255, (2, 32, 48, 3))


def backbone(constructor="ViT", **changes):
    own = TINY
    if constructor not in ("ViT", "DINOv2", "DINOv3"):
        own = catalogue.TINY_OF[constructor] | dict(classes=None)
    arguments = own | dict(input_shape=(32, 48, 3)) | changes
    return getattr(keras_vit, constructor)(**arguments, include_top=False)


def outputs_of(model):
    return {
        name: keras.ops.convert_to_numpy(x)
        for name, x in model(IMAGES.astype("float32")).items()
    }


@pytest.mark.backend("tensorflow", "jax", "torch")
@pytest.mark.parametrize("align", [True, False])
def test_maps_are_resized_as_pytorch_does(align):
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).normal(size=(2, 5, 4, 3)).astype("float32")
    for size in ((10, 8), (7, 1), (2, 9), (5, 4)):
        expected = torch.nn.functional.interpolate(
            torch.from_numpy(x.transpose(0, 3, 1, 2)),
            size,
            mode="bilinear",
            align_corners=align,
        )
        found = resize.bilinear(keras.ops.convert_to_tensor(x), size, align)
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(found),
            expected.numpy().transpose(0, 2, 3, 1),
            atol=1e-6,
        )


@pytest.mark.parametrize(
    "constructor",
    ["ViT", "DINOv2", "DINOv3", "MLPMixer", "AxialViT", "RaftMLP", "MViT"],
)
def test_any_backbone_gives_depth_and_classes(constructor):
    inner = backbone(constructor)
    size = inner.image_shape[:2]
    if not hasattr(inner.architecture, "depths"):
        size = tuple(16 * n for n in inner.metadata["grid"])
    depth = keras_vit.heads.depth_anything(inner, **NECK)
    shape = depth.output["predicted_depth"].shape
    assert shape == (None, *inner.image_shape[:2])
    assert depth.task == "depth"
    plain = keras_vit.heads.depth_anything(inner, last_norm=False, **NECK)
    assert not plain.options["last_norm"]
    # Above 0, where the activation has a gradient.
    assert float(depth.get_layer("depth_2").bias[0]) == 1
    model = keras_vit.heads.dpt(inner, classes=3, **NECK)
    assert model.output["logits"].shape == (None, *size, 3)
    assert model.task == "segmentation"
    assert model.get_layer("segmentation_dropout").rate == 0.1
    assert model.get_layer("segmentation_norm").momentum == 0.9


@pytest.mark.parametrize("registers", [0, 2])
def test_the_class_token_is_read(registers):
    inner = realistic.fill(backbone("DINOv2", num_registers=registers))
    first, *_ = [x for x in inner.weights if x.path == "class_token/cls"]
    usual = keras_vit.heads.dpt(inner, **NECK).options
    assert usual["blocks"] == [1, 2, 3, 5]
    for readout, is_read in (("add", True), (None, True), ("ignore", False)):
        model = keras_vit.heads.dpt(
            inner, **NECK, readout=readout, blocks=(1, 2, 3, -1)
        )
        assert model.options["blocks"] == [1, 2, 3, 5]
        # The token alone changes what the blocks make of the patches as well.
        names = [layer.name for layer in model.layers]
        assert ("readout_3" in names) == (readout is None)
        before = outputs_of(model)["predicted_depth"]
        value = keras.ops.convert_to_numpy(first)
        first.assign(value + 1)
        changed = outputs_of(model)["predicted_depth"] != before
        first.assign(value)
        assert changed.any() or not is_read


@pytest.mark.backend("tensorflow", "jax", "torch")
@pytest.mark.thorough("tensorflow", "jax")
def test_every_weight_learns_on_each_backend():
    model = realistic.fill(
        keras_vit.heads.dpt(
            backbone("DINOv2"),
            class_names=("a", "b"),
            **NECK,
            batch_norm=True,
            head_dropout_rate=0.0,
        )
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(1.0), loss={"logits": loss})
    before = [keras.ops.convert_to_numpy(w) for w in model.weights]
    model.fit(IMAGES, dict(logits=np.ones((2, 64, 96))), verbose=0)
    for old, new in zip(before, model.weights, strict=True):
        is_same = np.array_equal(old, keras.ops.convert_to_numpy(new))
        assert not is_same or "seed" in new.path, new.path


def test_depth_is_in_float32_under_mixed_precision():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        inner = backbone()
        for head in (keras_vit.heads.dpt, keras_vit.heads.depth_anything):
            (depth,) = head(inner, **NECK).output.values()
            assert depth.dtype == "float32"
    finally:
        keras.config.set_dtype_policy("float32")


def test_near_places_are_drawn_alike(tmp_path):
    pytest.importorskip("matplotlib")
    metres = np.random.default_rng(0).uniform(1, 2, (1, 24, 40))
    pictures = {}
    for kind, depth in (("metric", metres), ("relative", 1 / metres)):
        model = keras_vit.heads.depth_anything(backbone(), kind=kind, **NECK)
        found = model.interpret(dict(predicted_depth=depth), [(24, 40)])
        path = tmp_path / f"{kind}.png"
        task_figures.plot_task([np.zeros((24, 40, 3))], found, path)
        pictures[kind] = path.read_bytes()
    assert pictures["metric"] == pictures["relative"]


def test_maps_are_those_of_the_librarys_processors(transformers):
    torch = pytest.importorskip("torch")
    processor = transformers.DPTImageProcessor()
    rng, size = np.random.default_rng(0), (37, 90)
    depth = rng.uniform(size=(1, 24, 40)).astype("float32")
    model = keras_vit.heads.depth_anything(backbone(), kind="metric", **NECK)
    (found,) = model.interpret(dict(predicted_depth=depth), [size])
    (expected,) = processor.post_process_depth_estimation(
        types.SimpleNamespace(predicted_depth=torch.from_numpy(depth)), [size]
    )
    np.testing.assert_allclose(
        found["depth"], expected["predicted_depth"].numpy(), atol=1e-5
    )
    logits = rng.normal(size=(1, 24, 40, 5)).astype("float32")
    model = keras_vit.heads.dpt(backbone(), classes=5, **NECK)
    (found,) = model.interpret(dict(logits=logits), [size])
    (expected,) = processor.post_process_semantic_segmentation(
        types.SimpleNamespace(
            logits=torch.from_numpy(logits.transpose(0, 3, 1, 2))
        ),
        [size],
    )
    assert (found["classes"] == expected.numpy()).mean() > 0.999


@pytest.mark.parametrize("case", ["vit", "dinov2", "metric"])
def test_a_model_that_was_built_here_is_read_by_the_library(
    case, transformers, tmp_path
):
    square = dict(input_shape=(32, 32, 3), pixel_mean=0.0, pixel_std=255.0)
    inner = backbone("ViT" if case == "vit" else "DINOv2", **square)
    if case == "metric":
        inner = backbone("DINOv2", mlp_dim=64, **square)
        model = keras_vit.heads.depth_anything(
            inner, kind="metric", max_depth=20.0, blocks=(1, 2, 3, 4), **NECK
        )
        theirs_of = transformers.DepthAnythingForDepthEstimation
    else:
        own = dict(batch_norm=case == "vit", blocks=(1, 2, 3, 4))
        if case == "vit":  # whose files have one activation
            own["readout_activation"] = "gelu_tanh"
        model = keras_vit.heads.dpt(inner, **NECK, **own)
        theirs_of = transformers.DPTForDepthEstimation
    realistic.fill(model)
    keras_vit.save_checkpoint(model, tmp_path, format="huggingface")
    again = keras_vit.from_pretrained(tmp_path)
    x = theirs.pixels((32, 32))
    expected = {
        name: keras.ops.convert_to_numpy(y) for name, y in model(x).items()
    }
    check(again(x), expected)
    found, report = theirs_of.from_pretrained(
        tmp_path, output_loading_info=True
    )
    assert not report["missing_keys"] and not report["unexpected_keys"]
    check(theirs.outputs(found.eval(), x, np.zeros(3), np.ones(3)), expected)


def changed(name, tmp_path, arrays=None, **config):
    """Copy a golden directory with other values in its config."""
    folder = tmp_path / "changed"
    shutil.copytree(GOLDENS / name, folder)
    found = json.loads((folder / "config.json").read_text())
    for key, value in config.items():
        inner, _, key = key.rpartition("__")
        (found[inner] if inner else found)[key] = value
    (folder / "config.json").write_text(json.dumps(found))
    if arrays is not None:
        own = safetensors.load_file(folder / "model.safetensors")
        safetensors.save_file(arrays(own), folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("name", ["dpt_depth", "depth_anything"])
def test_files_without_what_is_not_read_stay_so(name, tmp_path):
    def without(arrays):
        unread = ("fusion_stage.layers.0.residual_layer1", "mask_token")
        return {
            key: value
            for key, value in arrays.items()
            if not any(part in key for part in unread)
        }

    folder = changed(name, tmp_path, without)
    model = keras_vit.from_pretrained(folder)
    keras_vit.save_checkpoint(model, tmp_path / "own", format="huggingface")
    check_same_files(tmp_path / "own", folder)


@pytest.mark.parametrize(
    "name, config, message",
    [
        ("dpt_depth", dict(is_hybrid=True), "a hybrid DPT"),
        (
            "dpt_depth",
            dict(backbone_config=dict(model_type="swinv2")),
            "of the kind 'swinv2' is not supported",
        ),
        ("dpt_depth", dict(readout_type="mean"), "`readout_type` to be one of"),
        ("dpt_depth", dict(head_in_index=1), "head_in_index=1 is not"),
        (
            "dpt_depth",
            dict(backbone_out_indices=[0, 1, 2, 9]),
            "one of its 4 blocks; found that of 10",
        ),
        (
            "depth_anything",
            dict(backbone_config__model_type="dinov2_with_registers"),
            "of the kind 'dinov2_with_registers'",
        ),
        (
            "depth_anything",
            dict(depth_estimation_type="inverse"),
            "`depth_estimation_type` to be one of",
        ),
        (
            "depth_anything",
            dict(backbone_config__out_indices=[-1]),
            r"four of its 4 blocks",
        ),
    ],
)
def test_other_files_are_refused(name, config, message, tmp_path):
    folder = changed(name, tmp_path, **config)
    with pytest.raises(ValueError, match=message):
        keras_vit.from_pretrained(folder)


def test_missing_and_surplus_weights_are_named(tmp_path):
    def renamed(arrays):
        arrays["head.conv9.bias"] = arrays.pop("head.conv1.bias")
        return arrays

    folder = changed("depth_anything", tmp_path, renamed)
    with pytest.raises(ValueError) as error:
        keras_vit.from_pretrained(folder)
    assert "- head.conv1.bias" in str(error.value)
    assert "+ head.conv9.bias" in str(error.value)


def test_impossible_arguments_are_refused(tmp_path):
    with pytest.raises(ValueError, match="four of the 5 blocks"):
        keras_vit.heads.dpt(backbone(), blocks=(1, 2, 3))
    with pytest.raises(ValueError, match="`blocks` must be None"):
        keras_vit.heads.depth_anything(backbone("BiT"), blocks=(1, 2, 3, 4))
    with pytest.raises(ValueError, match="no class token"):
        keras_vit.heads.dpt(backbone("MLPMixer"), readout="project")
    arguments = catalogue.TINY_OF["VideoMAE"] | dict(classes=None)
    video = keras_vit.VideoMAE(**arguments, include_top=False)
    for head in ("dpt", "yolos", "eomt"):
        with pytest.raises(ValueError, match="of videos of"):
            getattr(keras_vit.heads, head)(video, classes=3)
    with pytest.raises(TypeError, match="no argument 'readouts'"):
        keras_vit.heads.dpt(backbone(), readouts="add")
    with pytest.raises(ValueError, match="`backbone` must be a model of keras"):
        keras_vit.heads.dpt(keras.Sequential([keras.Input((8, 8, 3))]))
    with pytest.raises(ValueError, match="`classes` must be None"):
        keras_vit.from_pretrained(GOLDENS / "dpt_depth", classes=3)
    model = keras_vit.heads.dpt(backbone(), **NECK)
    with pytest.raises(ValueError, match="images that are not square"):
        keras_vit.save_checkpoint(model, tmp_path, format="huggingface")
    square = backbone("ViT", input_shape=(32, 32, 3))
    model = keras_vit.heads.dpt(square, **NECK, readout_activation="quick_gelu")
    with pytest.raises(
        ValueError, match="activation 'gelu_tanh' for the readout"
    ):
        keras_vit.save_checkpoint(model, tmp_path, format="huggingface")


@pytest.mark.parametrize(
    ("head", "constructor", "changes", "options", "message"),
    [
        ("dpt", "ViT", {}, dict(last_norm=True), "last_norm=True of a"),
        ("dpt", "ViT", {}, dict(projection=True), "with fusion_size=8"),
        ("dpt", "DINOv2", dict(qkv_bias="qv"), {}, "qkv_bias='qv'"),
        ("depth_anything", "DINOv2", dict(qkv_bias="qv"), {}, "qkv_bias='qv'"),
        ("depth_anything", "DINOv2", dict(layer_scale=0), {}, "no LayerScale"),
    ],
)
def test_what_the_format_has_no_place_for_is_refused(
    head, constructor, changes, options, message, tmp_path
):
    inner = backbone(constructor, input_shape=(32, 32, 3), **changes)
    model = getattr(keras_vit.heads, head)(inner, **NECK, **options)
    with pytest.raises(ValueError, match=message):
        keras_vit.save_checkpoint(model, tmp_path, format="huggingface")
