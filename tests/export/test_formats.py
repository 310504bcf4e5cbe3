"""ONNX, LiteRT and OpenVINO files, run by their own runtimes."""

import importlib
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import zipfile

import catalogue
import keras
import numpy as np
import pytest
import realistic

import keras_vit
from keras_vit.export import description, formats, precision, runtimes
from keras_vit.models.mvit import MViT
from keras_vit.models.vit import ViT
from tests.text import test_two_towers

BACKEND = keras.backend.backend()
ROOT = pathlib.Path(__file__).parents[2]
TINY = dict(
    patch_size=4,
    hidden_size=32,
    num_layers=2,
    num_heads=2,
    mlp_dim=64,
    input_shape=(16, 16, 3),
    class_names=("ant", "bee", "cät", "dog", "elk"),
    name="little",
)
CASES = {
    "token": {},
    "hybrid": dict(
        patch_size=1,
        num_layers=1,
        resnet_depths=(1,),
        resnet_width=0.5,
        input_shape=(32, 32, 3),
    ),
    "softmax relative": dict(
        classifier_activation="softmax", position_embedding="relative"
    ),
    "video": dict(
        depths=(1, 1),
        hidden_sizes=(8, 16),
        num_heads=(1, 2),
        cube_stride=(2, 4, 4),
        key_value_stride=(1, 2, 2),
        input_shape=(4, 16, 16, 3),
        class_names=TINY["class_names"],
        name=TINY["name"],
    ),
}
EXPORT = dict(
    onnx=formats.export_onnx,
    litert=formats.export_litert,
    openvino=formats.export_openvino,
)
RUN = dict(
    onnx=runtimes.run_onnx,
    litert=runtimes.run_litert,
    openvino=runtimes.run_openvino,
)
BACKENDS = dict(
    onnx=("tensorflow", "jax", "torch"),
    litert=("tensorflow",),
    openvino=("tensorflow", "torch"),
)
PATHS = dict(onnx="model.onnx", litert="model.tflite", openvino="model.xml")
FILES = {name: [path] for name, path in PATHS.items()}
FILES["openvino"] = ["model.bin", "model.xml"]

pytestmark = [
    # Of Keras' patch for tf2onnx, of tf2onnx and of jax2onnx.
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def make_model(**arguments):
    is_video = len(arguments.get("input_shape", ())) == 4
    model = MViT(**arguments) if is_video else ViT(**TINY | arguments)
    return realistic.fill(model)


def make_images(model, count):
    shape = (count, *model.input_shape[1:])
    images = np.random.default_rng(1).uniform(0, 255, shape)
    return images.astype("float32")


def needs(file_format):
    """Skips the test where the format cannot be written."""
    if BACKEND not in BACKENDS[file_format]:
        pytest.skip(f"{file_format} is not written on {BACKEND}")
    for module in formats._NEEDS[file_format].get(BACKEND, ()):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"needs {module}")


@pytest.mark.parametrize(
    ("file_format", "name"),
    [
        ("litert", "video"),
        # On PyTorch a head is written as OpenVINO, below.
        pytest.param(
            *("openvino", "softmax relative"),
            marks=pytest.mark.thorough("torch"),
        ),
        pytest.param(
            "onnx", "hybrid", marks=pytest.mark.thorough("tensorflow")
        ),
        pytest.param(
            "onnx", "video", marks=pytest.mark.thorough("tensorflow", "torch")
        ),
    ],
)
def test_file_has_the_models_outputs_and_metadata(file_format, name, tmp_path):
    needs(file_format)
    if BACKEND == "jax" and name == "hybrid":
        pytest.skip("jax2onnx writes a pooling that ONNX Runtime refuses")
    model = make_model(**CASES[name])
    path = str(tmp_path / "new" / PATHS[file_format])
    assert EXPORT[file_format](model, path) == path
    assert sorted(os.listdir(tmp_path / "new")) == FILES[file_format]
    images = make_images(model, 3)
    expected = model.predict(images, verbose=0)
    assert np.abs(expected).max() > 0.1
    for count in (1, 3):
        np.testing.assert_allclose(
            RUN[file_format](path, images[:count]),
            expected[:count],
            rtol=0,
            atol=1e-4,
        )
    code = os.path.dirname(keras_vit.__file__).encode()
    for file in (tmp_path / "new").iterdir():
        assert code not in file.read_bytes()
    fields = metadata_of(file_format, path)
    assert fields["class_names"] == list(TINY["class_names"])
    assert fields["architecture"] == "little"
    of_model = "softmax" in name
    assert fields["outputs"] == ("none" if of_model else "softmax")
    size = fields["input"]
    found = size["height"], size["width"], size["channels"]
    assert found == model.input_shape[-3:]
    assert size["range"] == [0, 255] and "bilinear" in size["resize"]


# Each format with another head.
HEADS = dict(
    onnx=("yolos", dict(classes=3, num_detection_tokens=4)),
    litert=("yolos", dict(classes=3, num_detection_tokens=4)),
    openvino=("eomt", dict(classes=3, num_queries=4, num_blocks=1)),
)


@pytest.mark.parametrize(
    "file_format",
    [
        pytest.param("onnx", marks=pytest.mark.thorough),
        pytest.param("litert", marks=pytest.mark.backend("tensorflow")),
        pytest.param("openvino", marks=pytest.mark.backend("torch")),
    ],
)
def test_a_head_keeps_its_outputs_and_their_names(file_format, tmp_path):
    needs(file_format)
    head, options = HEADS[file_format]
    backbone = ViT(**TINY | dict(class_names=None, include_top=False))
    make = getattr(keras_vit.heads, head)
    model = realistic.fill(make(backbone, **options))
    path = EXPORT[file_format](model, tmp_path / PATHS[file_format])
    images = make_images(model, 3)
    outputs = runtimes.run_file(path, images)
    expected = model.predict(images, verbose=0)
    if len(expected) == 1:
        outputs = dict.fromkeys(expected, outputs)
    assert outputs.keys() == expected.keys()
    for name, values in expected.items():
        difference = np.abs(outputs[name] - values).max()
        assert difference <= 1e-4 * np.abs(values).max()
    fields = metadata_of(file_format, path)
    assert fields["task"] == model.task and fields["outputs"] == "none"
    if file_format in formats.QUANTIZED:
        with pytest.raises(ValueError, match="'float32' for a model with a h"):
            EXPORT[file_format](model, path, precision="int8")


def metadata_of(file_format, path):
    """Returns the fields that a file holds, read as its users read them."""
    if file_format == "onnx":
        import onnx

        pairs = [(p.key, p.value) for p in onnx.load(path).metadata_props]
    elif file_format == "openvino":
        section = runtimes.openvino_library().Core().read_model(path)
        pairs = section.get_rt_info(["keras_vit"]).value.items()
    else:
        with zipfile.ZipFile(path) as archive:
            fields = json.loads(archive.read("description.json"))
            if "class_names" in fields:
                labels = archive.read("labels.txt").decode().splitlines()
                assert labels == fields["class_names"]
        return fields
    return {key: json.loads(value) for key, value in pairs}


@pytest.mark.parametrize(
    ("file_format", "kind"),
    [
        ("onnx", "clip"),
        pytest.param("litert", "siglip", marks=pytest.mark.thorough),
    ],
)
@pytest.mark.thorough("torch")
def test_each_of_two_towers_is_a_file(file_format, kind, tmp_path):
    needs(file_format)
    model = test_two_towers.make(kind)
    with pytest.raises(ValueError, match="must be one tower"):
        EXPORT[file_format](model, str(tmp_path / PATHS[file_format]))
    images = make_images(model.image_tower, 3)
    ids = model.tokenizer(["red car", "a", "a red bike"])
    for name, inputs in (("image_tower", images), ("text_tower", ids)):
        tower = getattr(model, name)
        expected = keras.ops.convert_to_numpy(tower(inputs))
        tower.save(tmp_path / f"{name}.keras")
        again = keras.models.load_model(tmp_path / f"{name}.keras")
        path = str(tmp_path / name / PATHS[file_format])
        EXPORT[file_format](again, path)
        found = runtimes.run_file(path, inputs)
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    described = description.describe(model.text_tower)
    assert described["input"] == dict(ids=6, vocabulary=40)


def test_features_have_no_activation():
    model = make_model(include_top=False)
    assert description.describe(model)["outputs"] == "none"


def test_class_names_with_line_breaks_are_no_lines_of_a_file():
    fields = description.describe(make_model(class_names=("a\nb", "", "c")))
    with pytest.raises(ValueError, match="without line breaks.*'a\\\\nb'"):
        description.as_files(fields)


def test_scaling_outside_of_the_model_is_described():
    model = make_model(
        include_preprocessing=False,
        pixel_mean=(1.0, 2.0, 3.0),
        pixel_std=4.0,
        class_names=None,
        classes=5,
    )
    fields = description.describe(model)
    assert fields["input"]["mean"] == [1.0, 2.0, 3.0]
    assert fields["input"]["std"] == 4.0
    assert "class_names" not in fields


def test_scaling_before_a_model_is_not_described_as_left_to_do():
    inner = make_model(include_preprocessing=False)
    flips = [keras.Input(inner.input_shape[1:]), keras.layers.RandomFlip()]
    scaled = keras.Sequential([*flips, keras.layers.Rescaling(1 / 255), inner])
    found = description.describe(scaled)["input"]
    assert found["range"] is None and "mean" not in found
    found = description.describe(keras.Sequential([*flips, inner]))["input"]
    assert found["range"] == [0, 255] and "mean" in found


@pytest.mark.thorough("torch")
def test_onnx_keeps_8_bit_kernels(tmp_path):
    needs("onnx")
    model = make_model(hidden_size=128, mlp_dim=512)
    small = precision.in_precision(model, "int8")
    with pytest.warns(UserWarning, match="more than twice its time"):
        path = formats.export_onnx(small, tmp_path / "model.onnx")
    images = make_images(model, 16)
    expected = small.predict(images, verbose=0)
    from_file = np.abs(runtimes.run_onnx(path, images) - expected)
    from_float = np.abs(model.predict(images, verbose=0) - expected)
    assert from_file.max() < 5e-2 * np.abs(expected).max()
    assert from_file.mean() < 0.3 * from_float.mean()
    assert os.path.getsize(path) < 0.5 * precision.weights_bytes(model)


@pytest.mark.parametrize("file_format", formats.QUANTIZED)
@pytest.mark.thorough("torch")
def test_int8_of_the_format_is_smaller_and_near(file_format, tmp_path):
    needs(file_format)
    model = make_model(hidden_size=128, mlp_dim=512, num_layers=1)
    path = tmp_path / PATHS[file_format]
    path = EXPORT[file_format](model, path, precision="int8")
    images = make_images(model, 8)
    comparison = precision.compare_outputs(
        model.predict(images, verbose=0), runtimes.run_file(path, images)
    )
    # 0.17 to 0.20 of ONNX Runtime on a processor with AVX2 alone.
    assert 0 < comparison["relative_difference"] < 0.25
    assert os.path.getsize(path) < 0.4 * precision.weights_bytes(model)


@pytest.mark.backend("jax")
@pytest.mark.parametrize("name", ["hybrid", "mvit"])
def test_pooling_on_jax_is_refused_with_the_remedy(name, tmp_path):
    model = catalogue.make_model(name)
    with pytest.raises(ValueError, match="KERAS_BACKEND=tensorflow"):
        formats.export_onnx(model, tmp_path / "model.onnx")
    assert os.listdir(tmp_path) == []


# Each format calls the same comparison.
@pytest.mark.parametrize(
    "file_format",
    [
        "litert",
        *(
            pytest.param(name, marks=pytest.mark.thorough)
            for name in ("onnx", "openvino")
        ),
    ],
)
@pytest.mark.thorough("torch")
def test_a_file_that_computes_something_else_is_removed(
    file_format, tmp_path, monkeypatch
):
    needs(file_format)
    model = make_model()
    path = tmp_path / PATHS[file_format]
    path.write_text("the file of yesterday")
    run = RUN[file_format]

    def run_wrongly(part, images):
        assert os.path.exists(part)
        outputs = run(part, images)
        return outputs + 2e-3 * np.abs(outputs).max()

    monkeypatch.setattr(runtimes, f"run_{file_format}", run_wrongly)
    with pytest.raises(ValueError, match="a difference of 0.002"):
        EXPORT[file_format](model, path)
    assert os.listdir(tmp_path) == [PATHS[file_format]]
    assert path.read_text() == "the file of yesterday"


@pytest.mark.parametrize("file_format", EXPORT)
def test_a_missing_library_is_named_with_its_pip_line(
    file_format, tmp_path, monkeypatch
):
    if BACKEND not in formats._NEEDS[file_format]:
        pytest.skip(f"{file_format} is not written on {BACKEND}")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    packages = " ".join(formats._NEEDS[file_format][BACKEND].values())
    with pytest.raises(ValueError, match=f"pip install {packages}$"):
        EXPORT[file_format](make_model(), tmp_path / PATHS[file_format])


@pytest.mark.parametrize("file_format", EXPORT)
def test_a_backend_that_cannot_says_which_can(
    file_format, tmp_path, monkeypatch
):
    monkeypatch.setattr(keras.backend, "backend", lambda: "numpy")
    with pytest.raises(
        ValueError, match="Received: 'numpy'. Save the model as .keras and"
    ):
        EXPORT[file_format](make_model(), tmp_path / PATHS[file_format])


@pytest.mark.parametrize("file_format", EXPORT)
def test_what_the_format_cannot_hold_is_refused(
    file_format, tmp_path, monkeypatch
):
    needs(file_format)
    export, path = EXPORT[file_format], tmp_path / PATHS[file_format]
    model = make_model()
    with pytest.raises(ValueError, match="`path` must end in"):
        export(model, tmp_path / "model.pb")
    if file_format in formats.QUANTIZED:
        with pytest.raises(ValueError, match="Received: precision='float16'"):
            export(model, path, precision="float16")
    with pytest.raises(ValueError, match=r"Received: \['float16', 'float32'\]"):
        export(precision.in_precision(model, "float16"), path)
    if file_format != "onnx":
        with pytest.raises(ValueError, match=r"Received: \['float32', 'int8'"):
            export(precision.in_precision(model, "int8"), path)
    monkeypatch.setattr(formats, "MAX_BYTES", 10_000)
    with pytest.raises(ValueError, match="less than 2 GiB"):
        export(model, path)
    assert os.listdir(tmp_path) == []


FAMILIES = {
    catalogue.OTHER_FAMILIES[name][0]: name
    for name in reversed(catalogue.OTHER_FAMILIES)
} | {"hybrid": "hybrid"}


# TensorFlow writes every family, in turn as OpenVINO, whose file is made of
# ONNX, and as LiteRT; PyTorch one as OpenVINO.
AS_OPENVINO = ["CLIP"]
if BACKEND == "tensorflow":
    AS_OPENVINO = list(FAMILIES)[::2]
WRITTEN = [
    pytest.param(name, marks=[pytest.mark.thorough("tensorflow")] * (i % 8 > 0))
    for i, name in enumerate(FAMILIES)
    if BACKEND == "tensorflow" or name in AS_OPENVINO
]


@pytest.mark.backend("tensorflow", "torch")
@pytest.mark.parametrize("family", WRITTEN)
def test_a_model_of_every_family_has_one_output(family, tmp_path):
    """The export compares the outputs."""
    file_format = "openvino" if family in AS_OPENVINO else "litert"
    name = FAMILIES[family]
    needs(file_format)
    model = realistic.fill(catalogue.make_model(name))
    path = tmp_path / PATHS[file_format]
    EXPORT[file_format](model, path)
    if file_format == "openvino":
        (output,) = (
            importlib.import_module("openvino").Core().read_model(path).outputs
        )
        assert list(output.partial_shape)[1].get_length() == 5


# Keras, which no part of this needs, would take seconds to import.
IMPORT_OPENVINO = """
import sys, types
for name in ("keras_vit", "keras_vit.export", "keras_vit.export.description"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [name.replace(".", "/")]
import openvino_telemetry
from keras_vit.export import runtimes
runtimes.openvino_library()
assert not openvino_telemetry.Telemetry().consent
"""


@pytest.mark.backend("torch")
def test_openvino_sends_nothing_before_the_user_agreed(tmp_path):
    pytest.importorskip("openvino_telemetry")
    # A new user, and no test, of whom OpenVINO knows that none agrees.
    new_user = os.environ | dict(HOME=str(tmp_path), CI="")
    command = [sys.executable, "-c", IMPORT_OPENVINO]
    subprocess.run(command, cwd=ROOT, env=new_user, check=True)
