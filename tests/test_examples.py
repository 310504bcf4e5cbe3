"""Every Python block of the documentation and every docstring example runs.

Models are tiny and weights are small local files; nothing else of an example
is changed but by `SHRUNK`, and nothing is left out but by `LEFT_OUT`.
"""

import csv
import importlib
import pathlib
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from keras_vit import data
from keras_vit.data import records
from keras_vit.models import vit
from keras_vit.weights.download import hub
from tests.documented import BLOCKS
from tests.drawn_folders import drawn
from tests.keras_vit_cli.test_classify import (  # noqa: F401, fixtures
    grpc_server,
    served_model,
    signatures,
)

BACKEND = keras.backend.backend()
# Keras says so of every tf.data.Dataset that is given to fit.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.shuffle=True. was passed"),
    # Of the converter from JAX to TensorFlow.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
# The README runs on every backend, and what exports or distributes; the rest is
# the same of each: PyTorch is enough.
DIFFERS = re.compile(r"export|distribution|localhost")
EXAMPLES = [
    block
    for block in BLOCKS
    if block.language in ("python", "py", "example")
    and (
        BACKEND == "torch"
        or block.path == "README.md"
        or DIFFERS.search(f"{block.path} {block.text}")
    )
]

# Path of an example -> what it says, and what is run in its place.
SHRUNK = {
    "README.md": {"384": "64"},
    "docs/getting_started.md": {"encoderblock_3": "encoderblock_0"},
    "docs/pretraining_data.md": {
        '"train": 256': '"train": 2',
        '"test": 8': '"test": 1',
        # Not a name of TFDS, which would download it.
        'data.load("imagenet2012", eval_split="validation")': (
            'data.load("records")'
        ),
    },
    "docs/reports/keras_adam_pytorch.md": {"768": "8", "3072": "8"},
    "docs/words.md": {
        'keras_vit.from_pretrained("hf://openai/clip-vit-base-patch32")': (
            "towers"
        ),
        'keras_vit.from_pretrained("hf://google/owlv2-base-patch16")': (
            "word_detector"
        ),
    },
    "keras_vit/distribution/devices.py": {
        "batch_size=64": "batch_size=4",
        "steps_per_epoch=1000": "steps_per_epoch=2",
    },
    # PyTorch's generated code takes a C++ compiler a quarter of a minute.
    "keras_vit/models/compile_blocks.py": {
        "compile_blocks(model)": 'compile_blocks(model, backend="aot_eager")',
    },
    "keras_vit/training/masked_patch.py": {
        "batch_size=64": "batch_size=4",
        "steps_per_epoch=1000": "steps_per_epoch=2",
    },
}
# Constructors on the pages of the families -> what makes their models small.
SMALL = {
    "AxialResNet26S": "depths=(1,)",
    "AxialViTB32": "num_layers=1, mlp_dim=32",
    "ASMLPT": "depths=(1, 1, 1, 1)",
    "S2MLPWide": "num_layers=1",
    "ConvMLPS": "depths=(1, 1, 1)",
    "HireMLPTiny": "depths=(1, 1, 1, 1)",
    "BiTR50x1": "depths=(1,)",
    "MixerB16": "num_layers=1, mlp_dim=32",
    "RaftMLPS": "depths=(1, 1, 1, 1)",
    "CycleMLPB1": "depths=(1, 1, 1, 1)",
    "EAMLP7": "num_layers=1, token_dim=4",
    "FFOnlyB16": "num_layers=1, mlp_ratio=0.1",
    "GMLPS16": "num_layers=1, mlp_dim=32",
    "ResMLPS12": "num_layers=1, mlp_dim=32",
}
# Example -> the backends that cannot run it, and the reason.
LEFT_OUT = {
    "keras_vit/distribution/layouts.py:distribution": (
        ("tensorflow", "torch"),
        "layouts of variables are JAX's",
    ),
    "keras_vit/export/savedmodel.py:export_savedmodel": (
        ("torch",),
        "SavedModels come from TensorFlow and JAX",
    ),
}

INDEX = {
    "name": "B/16",
    "ds": "i21k",
    "final_val": "0.3",
    "filename": "B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0",
}
TUNED = INDEX["filename"] + "--imagenet2012-steps_20k-lr_0.03-res_384"


@pytest.fixture(autouse=True)
def offline(tmp_path, monkeypatch, request):
    """A folder with what the examples read, and a mirror of tiny weights."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "cache"))
    mirror = tmp_path / "mirror"
    monkeypatch.setenv("KERAS_VIT_WEIGHTS_URL", mirror.as_uri())
    tiny = dict(hidden_size=16, num_layers=1, num_heads=2, mlp_dim=16)
    for name, sizes in vit.VARIANTS.items():
        monkeypatch.setitem(vit.VARIANTS, name, sizes | tiny)
    text = request.getfixturevalue("example").text
    if "weights=" in text or "from_pretrained(" in text:
        _write_weights(mirror, monkeypatch)
    if re.search(r"\bsource\b|path/to/images|list.csv", text):
        _write_images()
    if "export_savedmodel" in text or "localhost:8500" in text:
        request.getfixturevalue("plain_serving")
    if "runs/digits/last.keras" in text:
        pathlib.Path("runs/digits").mkdir(parents=True)
        digits = tuple("0123456789")
        model = keras_vit.ViTB16(class_names=digits, input_shape=(16, 16, 1))
        _know_classes(model).save("runs/digits/last.keras")
    pathlib.Path("photographs/daisy").mkdir(parents=True)
    for path in ("42.jpg", "photographs/daisy/1.jpg"):
        pathlib.Path(path).write_bytes(_jpeg(0))


@pytest.fixture
def trained(monkeypatch):
    """Models that were trained, each with what `fit` was seen to do."""
    found = []
    fit = keras.Model.fit

    def watched(self, *arguments, **keywords):
        before = [np.array(v) for v in self.get_weights()]
        history = fit(self, *arguments, **keywords)
        after = self.get_weights()
        found.append((self, before, after, history.history["loss"]))
        return history

    monkeypatch.setattr(keras.Model, "fit", watched)
    return found


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_the_example_runs(example, trained, request):
    backends, reason = LEFT_OUT.get(str(example), ((), ""))
    if BACKEND in backends:
        pytest.skip(reason)
    _run(example, request)
    assert len(trained) == example.text.count(".fit(")
    for model, before, after, losses in trained:
        assert np.isfinite(losses).all()
        assert all(np.isfinite(weights).all() for weights in after)
        changed = [(a != b).any() for a, b in zip(before, after, strict=True)]
        assert any(changed)
        if example.path == "README.md":  # all of the model learns
            assert losses[-1] < losses[0] - 0.01
            for variable, moved in zip(model.weights, changed, strict=True):
                assert moved or not variable.trainable, variable.path


@pytest.mark.backend("torch")
@pytest.mark.parametrize("example", EXAMPLES[:1], ids=str)
def test_what_is_shrunk_or_left_out_is_there(example):
    for path, changes in SHRUNK.items():
        text = "".join(one.text for one in EXAMPLES if one.path == path)
        assert [old for old in changes if old not in text] == []
    pages = "".join(one.text for one in EXAMPLES if "families/" in one.path)
    assert [name for name in SMALL if f"{name}(" not in pages] == []
    assert set(LEFT_OUT) <= set(map(str, EXAMPLES))
    readme = [one for one in EXAMPLES if one.path == "README.md"]
    assert len([one for one in readme if ".fit(" in one.text]) == 1


def _run(example, request):
    """Executes an example with the names that it uses without making them."""
    text = example.text
    for old, new in SHRUNK.get(example.path, {}).items():
        text = text.replace(old, new)
    if example.path.startswith("docs/families/"):
        for name, sizes in SMALL.items():
            text = text.replace(f"{name}(", f"{name}({sizes}, ")
    if "localhost:8500" in text:
        if BACKEND != "tensorflow":
            pytest.skip("it asks a server, whose model is TensorFlow's")
        server = request.getfixturevalue("grpc_server")
        text = text.replace("localhost:8500", server.address)
        pathlib.Path("image.jpg").write_bytes(_jpeg(0))
    names = dict(keras=keras, keras_vit=keras_vit, data=data)
    if example.language == "example":
        module = example.path.removesuffix(".py").replace("/", ".")
        module = importlib.import_module(module)
        names |= vars(module)
        names.setdefault(module.__name__.rpartition(".")[2], module)
    for name, make in PREPARED.items():
        if re.search(rf"\b{name}\b(?! = )", text):
            names[name] = make()
    exec(compile(text, str(example), "exec"), names)


def _jpeg(shade):
    image = np.full((32, 32, 3), shade, "uint8")
    return tf.io.encode_jpeg(image).numpy()


def _write_images():
    """A folder of images, the same as TFRecords, and a list of exclusions."""
    images = [("train", f"{i}", "abc"[i % 3], _jpeg(40 * i)) for i in range(6)]
    for _, name, class_name, image in images:
        path = pathlib.Path("path/to/images", class_name, f"{name}.jpg")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image)
    with records.write("records", {"train": 1, "test": 1}) as add:
        for image in images:
            add(*image)
        add("test", "6", "a", _jpeg(0))
    with open("list.csv", "w", newline="") as file:
        csv.writer(file).writerows([["pretrain"], ["1"]])


def _write_weights(mirror, monkeypatch):
    model = keras_vit.ViTB16(classes=1000, input_shape=(32, 32, 3))
    _know_classes(model)
    for file in (
        "imagenet21k/ViT-B_16.npz",
        "imagenet21k/ViT-L_16.npz",
        f"augreg/{INDEX['filename']}.npz",
        f"augreg/{TUNED}.npz",
    ):
        (mirror / file).parent.mkdir(parents=True, exist_ok=True)
        keras_vit.save_checkpoint(model, mirror / file, format="jax")
    with open(mirror / "augreg/index.csv", "w", newline="") as file:
        csv.writer(file).writerows([INDEX.keys(), INDEX.values()])
    directory = pathlib.Path("path/of/a/timm/directory")
    keras_vit.save_checkpoint(model, directory, format="timm")
    monkeypatch.setattr(hub, "fetch", lambda name: str(directory))


def _know_classes(model):
    """Gives a model a head of which nothing warns."""
    kernel = model.get_layer("head").kernel
    kernel.assign(np.eye(*kernel.shape))
    return model


def _model():
    return keras_vit.ViTB16(classes=10, class_names=tuple("abcdefghij"))


def _images():
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (4, 224, 224, 3), "uint8")


def _tokenizer():
    return keras_vit.text.word_tokenizer(["cat", "dog", "photo"], 12)


def _towers():
    text = keras_vit.text.text_tower(
        "clip",
        vocab_size=8,
        context_length=12,
        hidden_size=8,
        num_layers=1,
        num_heads=2,
        mlp_dim=8,
        embedding_size=16,
        tokenizer=_tokenizer(),
    )
    return keras_vit.two_towers(keras_vit.ViTB16(include_top=False), text)


def _word_detector():
    model = keras_vit.from_pretrained(drawn("towers") / "owlv2")
    model.tokenizer = _tokenizer()
    return model


def _features():
    return np.eye(10, 4, dtype="float32")


PREPARED = dict(
    batches_of_4096=lambda: tf.data.Dataset.from_tensors(
        (np.zeros((16, 224, 224, 3), "uint8"), np.arange(16) % 10)
    ),
    images=_images,
    labels=lambda: np.arange(4),
    model=_model,
    my_images=lambda: lambda: [("train", "1", "a", _jpeg(0))],
    photos=lambda: np.zeros((2, 48, 48, 3), "uint8"),
    sizes=lambda: [(480, 640)] * 2,
    source=lambda: data.load("path/to/images")[0],
    test_features=_features,
    test_labels=lambda: np.arange(10),
    train_features=_features,
    towers=_towers,
    train_labels=lambda: np.arange(10),
    word_detector=_word_detector,
)
