"""EoMT on backbones of this package, its masks and its segments."""

import importlib
import json
import shutil
import warnings

import catalogue
import keras
import numpy as np
import pytest
import realistic

import keras_vit
from keras_vit.heads.eomt import QueryMask
from tests.drawn_folders import drawn
from tests.heads import theirs
from tests.heads.backbones import IMAGES, TINY, backbone

pytestmark = pytest.mark.backend("torch")
GOLDENS = drawn("tasks")
EOMT = dict(classes=3, num_queries=5, num_blocks=2)


@pytest.mark.parametrize("constructor", ["ViT", "DeiT", "DINOv2", "SigLIP"])
def test_a_vit_of_any_family_segments(constructor):
    model = keras_vit.heads.eomt(backbone(constructor), **EOMT)
    found = model.predict(IMAGES, verbose=0)
    assert found["class_queries_logits"].shape == (2, 5, 4)
    assert found["masks_queries_logits"].shape == (2, 4, 6, 5)
    assert model.task == "segmentation" and len(model.blocks) == 3
    # First values of the library's, which files hold.
    (weights,) = [w for w in model.weights if w.name == "class_weights"]
    np.testing.assert_allclose(weights.numpy(), [1, 1, 1, 0.1])
    assert 0.7 < model.get_layer("queries").tokens.numpy().std() < 1.3


@pytest.mark.backend("tensorflow", "jax", "torch")
@pytest.mark.thorough("tensorflow", "jax")
def test_masks_are_for_training_and_every_weight_learns():
    model = realistic.fill(keras_vit.heads.eomt(backbone("DINOv3"), **EOMT))
    trained = keras_vit.heads.mask_attention(model)
    loss = keras_vit.training.SetSegmentationLoss(num_points=64)
    keras_vit.training.set_loss(trained, loss)
    trained.compile(keras.optimizers.SGD(0.1))
    masks = np.zeros((2, 2, 16, 24), "float32")
    masks[:, 0, :8], masks[:, 1, 8:] = 1, 1
    targets = dict(masks=masks, labels=np.array([[0, 2], [1, -1]]))
    before = [keras.ops.convert_to_numpy(w) for w in model.trainable_weights]
    seen = []

    class Look(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            layers = [self.model.get_layer(f"query_mask_{i}") for i in (0, 1)]
            seen.append([float(layer.probability[0]) for layer in layers])

    trained.fit(
        np.repeat(IMAGES, 6, axis=0),
        {name: np.repeat(value, 6, axis=0) for name, value in targets.items()},
        batch_size=2,
        callbacks=[
            keras_vit.training.MaskAnnealing(total_steps=6),
            Look(),
        ],
        verbose=0,
    )
    expected = [[1, 1], [1, 1], [0, 1], [0, 1], [0, 1], [0, 0]]
    np.testing.assert_array_equal(seen, expected)
    assert {x.name for x in trained.non_trainable_weights} == {
        *("class_weights", "probability")
    }
    for old, new in zip(before, model.trainable_weights, strict=True):
        assert not np.array_equal(old, keras.ops.convert_to_numpy(new)), new
    # Without masks, the outputs are those of the model that is saved.
    found = trained.predict(IMAGES, verbose=0)
    assert {f"class_queries_logits_{i}" for i in (1, 2)} < set(found)
    for name, value in model.predict(IMAGES, verbose=0).items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="masked_attention=False"):
        keras_vit.heads.mask_attention(trained)


@pytest.mark.parametrize("change", ["none", "low rank", "int8"])
def test_the_head_of_classes_is_a_dense_layer(change, tmp_path):
    model = keras_vit.heads.eomt(backbone("DINOv2"), **EOMT)
    head = model.get_layer("head")
    head.class_weights.assign([1.0, 2.0, 3.0, 4.0])
    if change == "low rank":
        head.enable_lora(2)
        head.lora_kernel_b.assign(keras.ops.ones((2, 4)))
    elif change == "int8":
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*quantize")
            model.quantize("int8")
    expected = model.predict(IMAGES, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    weights = again.get_layer("head").class_weights
    np.testing.assert_array_equal(weights.numpy(), [1, 2, 3, 4])
    for name, found in again.predict(IMAGES, verbose=0).items():
        np.testing.assert_allclose(found, expected[name], atol=1e-6)


@pytest.mark.backend("tensorflow", "jax", "torch")
def test_queries_see_the_patches_inside_their_masks():
    layer = QueryMask((1, 2), num_prefix_tokens=1)
    logits = np.full((1, 2, 4, 2), -1.0, "float32")
    logits[0, :, :2, 0] = 1.0  # the first query has the left patch
    bias = keras.ops.convert_to_numpy(layer(logits))
    forbidden = np.zeros((1, 1, 5, 5), bool)
    forbidden[0, 0, 0, 4] = forbidden[0, 0, 1, 3:] = True
    np.testing.assert_array_equal(bias < -1e8, forbidden)
    layer.probability.assign([0.0])
    for training in (False, True):
        assert not keras.ops.convert_to_numpy(
            layer(logits, training=training)
        ).any()
    layer.probability.assign([0.5])
    many = np.full((1, 2, 4, 400), -1.0, "float32")
    bias = keras.ops.convert_to_numpy(layer(many, training=True))
    rows = bias[0, 0, :400, -1] < -1e8
    assert 0.4 < rows.mean() < 0.6


@pytest.mark.filterwarnings("ignore")  # of transformers
@pytest.mark.parametrize("case", ["eomt", "eomt on DINOv3"])
def test_masks_of_files_forbid_as_the_librarys(case, transformers, tmp_path):
    import torch

    model, size = theirs.make(transformers, case, tmp_path / "theirs")
    plain = keras_vit.from_pretrained(tmp_path / "theirs")
    with torch.no_grad():
        model.attn_mask_probs.fill_(1.0)
    model.save_pretrained(tmp_path / "theirs")
    opened = keras_vit.from_pretrained(tmp_path / "theirs")
    assert opened.options["masked_attention"]
    x = theirs.pixels(size)
    found = opened.predict(x, verbose=0)
    for name, value in theirs.outputs(model, x).items():
        atol = 1e-5 * np.abs(value).max()
        np.testing.assert_allclose(found[name], value, rtol=0, atol=atol)
        other = plain.predict(x, verbose=0)[name]
        assert np.abs(other - value).max() > 100 * atol
    # The caller decides as well.
    plain = keras_vit.from_pretrained(
        tmp_path / "theirs", masked_attention=False
    )
    assert not any("query_mask" in x.name for x in plain.layers)
    keras_vit.save_checkpoint(opened, tmp_path / "own", format="huggingface")
    again = keras_vit.from_pretrained(tmp_path / "own")
    # transformers has no stretched images.
    assert again.options == opened.options | dict(view="padded")
    keras_vit.save_checkpoint(plain, tmp_path / "own", format="huggingface")
    again = keras_vit.from_pretrained(tmp_path / "own", masked_attention=True)
    probability = again.get_layer("query_mask_0").probability
    assert not keras.ops.convert_to_numpy(probability).any()


def test_a_packed_swiglu_is_read(transformers, tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    theirs.make(transformers, "eomt, SwiGLU", tmp_path)
    expected = keras_vit.from_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    arrays = safetensors.load_file(file)
    for name in [name for name in arrays if ".mlp.gate_proj." in name]:
        first, last, out = (
            name.replace("gate_proj", part)
            for part in ("up_proj", "down_proj", "weights_out")
        )
        packed = np.concatenate([arrays.pop(name), arrays.pop(first)])
        arrays[name.replace("gate_proj", "weights_in")] = packed
        arrays[out] = arrays.pop(last)
    safetensors.save_file(arrays, file)
    found = keras_vit.from_pretrained(tmp_path)
    for one, other in zip(expected.weights, found.weights, strict=True):
        np.testing.assert_array_equal(
            *(keras.ops.convert_to_numpy(w) for w in (one, other))
        )


@pytest.mark.parametrize(
    "golden, config, array, message",
    [
        ("eomt", dict(num_blocks=2), None, "num_blocks=2, but the arrays"),
        ("eomt", dict(num_queries=9), None, "num_queries=9, but the arrays"),
        ("eomt", dict(hidden_act="relu"), None, "`hidden_act` to be one of"),
        ("eomt", {}, ("- query.weight", None), "contain `query.weight`"),
        ("eomt", {}, ("- mask_head.fc2.bias", None), "missing in the check"),
        ("eomt", {}, ("+ neck.weight", (3,)), "unused by the model"),
        (
            "eomt_dinov3",
            dict(rope_parameters=dict(rope_theta=100.0, rope_type="yarn")),
            None,
            "rope_type='yarn' is not supported",
        ),
        (
            "eomt_dinov3",
            dict(use_gated_mlp=True),
            None,
            "hidden_act='gelu' is not supported",
        ),
    ],
)
def test_a_damaged_file_is_named(golden, config, array, message, tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    shutil.copytree(GOLDENS / golden, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | config))
    if array is not None:
        (sign, name), shape = array[0].split(), array[1]
        arrays = safetensors.load_file(tmp_path / "model.safetensors")
        if sign == "-":
            del arrays[name]
        else:
            arrays[name] = np.zeros(shape, "float32")
        safetensors.save_file(arrays, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=message):
        keras_vit.from_pretrained(tmp_path)


def outputs_of_blobs(queries=6, classes=4, size=(16, 16)):
    """Return random outputs with smooth masks and sure classes, of a model."""
    rng = np.random.default_rng(3)
    places = np.stack(np.meshgrid(*map(np.arange, size), indexing="ij"), -1)
    centres = rng.uniform(0, size[0], (2, queries, 2))
    distance = np.linalg.norm(
        places[None, :, :, None] - centres[:, None, None], axis=-1
    )
    return dict(
        masks_queries_logits=6 - 1.5 * distance,
        class_queries_logits=4 * rng.normal(size=(2, queries, classes + 1)),
    )


@pytest.fixture(scope="module")
def segmenter():
    vit = keras_vit.ViT(**TINY, include_top=False, input_shape=(64, 64, 3))
    return keras_vit.heads.eomt(
        vit, class_names=tuple("abcd"), num_queries=6, num_blocks=1
    )


@pytest.mark.filterwarnings("ignore")  # of transformers
def test_segments_are_those_of_the_library(segmenter, transformers):
    import types

    import torch

    processor = pytest.importorskip(
        "transformers.models.eomt.image_processing_eomt"
    ).EomtImageProcessor(size=dict(shortest_edge=64, longest_edge=64))
    outputs = outputs_of_blobs()
    sizes = [(80, 100), (96, 60)]
    theirs_outputs = types.SimpleNamespace(
        masks_queries_logits=torch.tensor(
            outputs["masks_queries_logits"], dtype=torch.float32
        ).permute(0, 3, 1, 2),
        class_queries_logits=torch.tensor(
            outputs["class_queries_logits"], dtype=torch.float32
        ),
        patch_offsets=None,
    )
    options = dict(threshold=0.5, overlap_threshold=0.6, stuff_classes=[1, 2])
    panoptic = segmenter.interpret(outputs, sizes, padded=True, **options)
    options = dict(threshold=0.5, overlap_threshold=0.95)
    panoptic += segmenter.interpret(outputs, sizes, padded=True, **options)
    panoptic += segmenter.interpret(outputs, sizes, padded=True)
    expected = processor.post_process_panoptic_segmentation(
        theirs_outputs,
        sizes,
        threshold=0.5,
        overlap_mask_area_threshold=0.6,
        stuff_classes=[1, 2],
    )
    for limits in (dict(threshold=0.5, overlap_mask_area_threshold=0.95), {}):
        expected += processor.post_process_panoptic_segmentation(
            theirs_outputs, sizes, **limits
        )
    instances = segmenter.interpret(
        outputs, sizes, kind="instance", threshold=0.5, padded=True
    )
    expected += processor.post_process_instance_segmentation(
        theirs_outputs, sizes, threshold=0.5
    )
    assert sum(len(x["segments_info"]) for x in expected) >= 6
    for found, one in zip(panoptic + instances, expected, strict=True):
        same = found["segments"] == one["segmentation"].numpy()
        assert same.mean() > 0.999
        for own, segment in zip(
            found["segments_info"], one["segments_info"], strict=True
        ):
            assert own["name"] == "abcd"[own["label_id"]]
            for key, value in segment.items():
                np.testing.assert_allclose(own[key], value, atol=1e-5)
    for found in instances:
        assert len(found["masks"]) == len(found["names"])
        on_top = (found["segments"] >= 0) == found["masks"].any(axis=0)
        assert on_top.all()
    # The authors' evaluation takes the best pairs of a query and a class.
    scores = np.exp(outputs["class_queries_logits"][0])
    scores = (scores / scores.sum(-1, keepdims=True))[:, :-1]
    queries, labels = np.divmod(np.argsort(-scores, axis=None)[:7], 4)
    options = dict(kind="instance", threshold=0.0, padded=True)
    best = segmenter.interpret(outputs, sizes, most=7, **options)[0]
    each, other = segmenter.interpret(outputs, sizes, **options)
    # Some of the other image lie in its padding, without a pixel.
    assert len(each["masks"]) == 6 and other["masks"].any((1, 2)).all()
    assert best["labels"].tolist() == labels.tolist()
    np.testing.assert_array_equal(best["masks"], each["masks"][queries])
    semantic = segmenter.interpret(outputs, sizes, kind="semantic")
    for found, one in zip(
        semantic,
        processor.post_process_semantic_segmentation(theirs_outputs, sizes),
        strict=True,
    ):
        assert (found["classes"] == one.numpy()).mean() > 0.999


def test_an_image_without_a_sure_query_has_no_segment(segmenter):
    outputs = outputs_of_blobs()
    outputs["class_queries_logits"] = np.zeros((2, 6, 5))
    for kind in ("panoptic", "instance"):
        (found, _) = segmenter.interpret(outputs, kind=kind)
        assert (found["segments"] == -1).all() and not found["segments_info"]
    with pytest.raises(ValueError, match="`kind` must be"):
        segmenter.interpret(outputs, kind="panoptics")


def test_impossible_arguments_are_refused():
    with pytest.raises(ValueError, match="`num_blocks` must be at most 3"):
        keras_vit.heads.eomt(backbone("DINOv3"), classes=3)
    for blocks in ((0,), (3,), (1, 1)):
        with pytest.raises(ValueError, match="must be from 1 to 2"):
            keras_vit.heads.eomt(
                backbone("DINOv3"), **EOMT, auxiliary_blocks=blocks
            )
    model = keras_vit.MLPMixer(
        **catalogue.TINY_OF["MLPMixer"] | dict(include_top=False)
    )
    with pytest.raises(ValueError, match="a ViT whose blocks take more tokens"):
        keras_vit.heads.eomt(model, **EOMT)


@pytest.mark.parametrize(
    "constructor, changes, message",
    [
        ("ViT", {}, "position_prefix=1"),
        ("DINOv2", {}, "position_prefix=1"),
        ("DINOv2", dict(position_prefix=0), "not square"),
        ("DINOv3", dict(rotary="index"), "rotary='index'"),
        ("DINOv3", dict(num_registers=0), "no registers"),
        ("DINOv3", dict(rotary_order="xy"), "rotary_order='xy'"),
    ],
)
def test_what_the_format_has_no_place_for_is_refused(
    constructor, changes, message, tmp_path
):
    model = keras_vit.heads.eomt(backbone(constructor, **changes), **EOMT)
    with pytest.raises(ValueError, match=message):
        keras_vit.save_checkpoint(model, tmp_path, format="huggingface")


@pytest.mark.parametrize(
    ("view", "size"),
    [
        ("padded", (13, 25)),
        ("padded", (32, 21)),
        ("windows", (16, 24)),
        ("windows", (75, 32)),
    ],
)
def test_images_are_viewed_as_by_the_librarys_processor(
    view, size, transformers, tmp_path
):
    import torch

    module = importlib.import_module(
        "transformers.models.eomt.image_processing_pil_eomt"
    )
    model, (side, _) = theirs.make(transformers, "eomt", tmp_path)
    pads = view == "padded"
    processor = module.EomtImageProcessorPil(
        size=dict(shortest_edge=side, longest_edge=side if pads else None),
        do_pad=pads,
        do_split_image=not pads,
    )
    processor.save_pretrained(tmp_path)
    opened = keras_vit.from_pretrained(tmp_path)
    kind = "panoptic" if pads else "semantic"
    assert (opened.options["view"], opened.options["kind"]) == (view, kind)
    keras_vit.save_checkpoint(opened, tmp_path / "own", format="huggingface")
    own = module.EomtImageProcessorPil.from_pretrained(tmp_path / "own")
    for name in ("size", "do_pad", "do_split_image", "resample"):
        assert getattr(own, name) == getattr(processor, name)
    photo = np.random.default_rng(0).integers(0, 256, (*size, 3), "uint8")
    batch = processor(photo)
    pixels = torch.tensor(np.stack(batch["pixel_values"]))
    with torch.no_grad():
        outputs = model(pixel_values=pixels)
    outputs["patch_offsets"] = batch["patch_offsets"]
    seen = []
    predict = opened.predict_on_batch
    opened.predict_on_batch = lambda images: (
        seen.append(images) or predict(images)
    )
    if pads:
        limits = dict(threshold=0.28, overlap_mask_area_threshold=0.1)
        (expected,) = processor.post_process_panoptic_segmentation(
            outputs, target_sizes=[size], **limits
        )
        found = opened.find_in(photo, threshold=0.28, overlap_threshold=0.1)
        found, expected = found["segments"], expected["segmentation"]
    else:
        (expected,) = processor.post_process_semantic_segmentation(
            outputs, target_sizes=[size]
        )
        found = opened.find_in(photo)["classes"]
    mean, std = (np.array(x) for x in (opened.pixel_mean, opened.pixel_std))
    images = np.moveaxis((np.concatenate(seen) - mean) / std, -1, 1)
    # Theirs rounds pixels that are resized, twice.
    np.testing.assert_allclose(images, pixels, atol=1.1 / min(std))
    assert found.shape == size and len(np.unique(found)) > 1
    assert np.mean(found == expected.numpy()) > 0.98
    with pytest.raises(TypeError, match="nothing"):
        opened.find_in(photo, nothing=1)
    if not pads:
        other = keras_vit.from_pretrained(tmp_path, kind="panoptic")
        assert other.options["view"] == "stretched"
