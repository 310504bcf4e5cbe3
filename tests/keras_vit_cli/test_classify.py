"""The client, against a server that runs the signatures of a real model."""

import json
import socket
import sys
import threading
import types

import keras
import numpy as np
import pytest
import realistic
import tensorflow as tf
from PIL import Image

import keras_vit
import keras_vit_cli
from keras_vit import data
from keras_vit.export import limits
from keras_vit_cli import classify as client
from keras_vit_cli import savedmodel_client
from tests import tf_serving

# The client asks no backend, and the server's model is TensorFlow's.
pytestmark = pytest.mark.backend("tensorflow")

NAMES = ("cat", "dög", "fish")
MAX_IMAGES = 4


def classify(words):
    return keras_vit_cli.main(["classify", *words])


def refuse(image_bytes):
    tf.debugging.Assert(tf.size(image_bytes) < 0, ["can't decode"])
    return {"scores": tf.zeros((1, 3)), "valid": tf.zeros((1,), tf.bool)}


def answer_otherwise(image_bytes):
    return {"scores": tf.zeros(tf.shape(image_bytes))}


@pytest.fixture(scope="module")
def served_model():
    model = keras_vit.ViT(
        patch_size=8, hidden_size=8, num_layers=1, num_heads=2, mlp_dim=8,
        input_shape=(16, 16, 3), class_names=NAMES,
    )  # fmt: skip
    return realistic.fill(model)


@pytest.fixture(scope="module")
def signatures(served_model, tmp_path_factory):
    """Those of an exported model, and of two that are not ours, by model."""
    folder = tmp_path_factory.mktemp("serving")
    keras_vit.export_savedmodel(
        served_model,
        folder / "vit" / "7",
        max_images=MAX_IMAGES,
        activation="none",  # scores are logits; the client shows probabilities
    )
    for name, function in dict(strict=refuse, other=answer_otherwise).items():
        module = tf.Module()
        spec = tf.TensorSpec((None,), tf.string, name="image_bytes")
        module.function = tf.function(function, input_signature=[spec])
        path = str(folder / name / "7")
        tf.saved_model.save(module, path, signatures=module.function)
    names = ("vit", "strict", "other")
    # Signatures live as long as what they were loaded with.
    loaded = {n: tf.saved_model.load(str(folder / n / "7")) for n in names}
    yield {name: model.signatures for name, model in loaded.items()}


@pytest.fixture
def rest(signatures, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    models = tf_serving.Models(signatures)
    with tf_serving.rest(models) as models.address:
        yield models
        if models.delay:
            models.delay.set()


@pytest.fixture
def grpc_server(signatures, monkeypatch):
    pytest.importorskip("grpc")
    pytest.importorskip("tensorflow_serving")
    monkeypatch.setenv("no_grpc_proxy", "127.0.0.1")
    models = tf_serving.Models(signatures)
    with tf_serving.prediction_service(models) as models.address:
        yield models
        if models.delay:
            models.delay.set()


# The behaviour is the same over both.
@pytest.fixture(params=["rest", "grpc"])
def asked(request):
    name = "rest" if request.param == "rest" else "grpc_server"
    server = request.getfixturevalue(name)
    server.arguments = [
        f"--server={server.address}",
        f"--protocol={request.param}",
    ]
    return server


@pytest.fixture
def files(tmp_path):
    """Writes images, each of another seed; of None, nothing; or a text."""

    def write(*contents):
        paths = []
        for i, content in enumerate(contents):
            path = tmp_path / f"{i}.png"
            paths.append(str(path))
            if isinstance(content, str):
                path.write_text(content)
            elif content is not None:
                rng = np.random.default_rng(content)
                pixels = rng.integers(0, 256, (20, 30, 3), "uint8")
                Image.fromarray(pixels).save(path)
        return paths

    return write


def printed(model, path, top_k):
    """What is printed for an image, computed without a server."""
    logits = model.predict(data.read_image(path, (16, 16))[None], verbose=0)
    scores = keras.ops.convert_to_numpy(keras.ops.softmax(logits))[0]
    lines = [
        f"  {scores[i]:7.2%}  {NAMES[i]}\n" for i in np.argsort(-scores)[:top_k]
    ]
    return f"{path}\n{''.join(lines)}"


def test_names_and_probabilities_are_the_models(
    asked, served_model, files, capsys
):
    paths = files(0, 1)
    assert classify([*asked.arguments, "--top_k=2", *paths]) == 0
    out, err = capsys.readouterr()
    assert out == printed(served_model, paths[0], 2) + printed(
        served_model, paths[1], 2
    )
    assert err == ""


def test_it_continues_after_what_is_no_image_and_exits_with_one(
    asked, files, capsys
):
    paths = files(0, None, "text", 1)
    assert classify([*asked.arguments, "--top_k=1", *paths]) == 1
    out, err = capsys.readouterr()
    assert out.count("%") == 2
    assert f"{paths[1]}: cannot be read: No such file" in err
    assert f"{paths[2]}: is not valid: undecodable" in err
    assert asked.requests == [3]


def test_a_refused_request_is_repeated_in_halves(
    asked, served_model, files, capsys
):
    paths = files(*range(MAX_IMAGES + 1))
    assert classify([*asked.arguments, *paths]) == 0
    out, err = capsys.readouterr()
    assert out == "".join(printed(served_model, path, 3) for path in paths)
    assert err == "" and asked.requests == [5, 2, 3]


def test_an_image_that_is_refused_by_itself_is_said(asked, files, capsys):
    (path,) = files(0)
    assert classify([*asked.arguments, "--model=strict", path]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"{path}: refused: ") and "t decode" in err


class Budget:
    """Signatures whose budget suffices for two images of a request."""

    def __init__(self):
        self.signatures = {"predict": self.predict}
        self.sizes = []

    def predict(self, image_bytes):
        number = int(tf.size(image_bytes))
        self.sizes.append(number)
        valid = np.arange(number) < 2
        reason = np.where(valid, "", limits.REASONS[limits.OVER_BUDGET])
        found = tf.strings.to_number(image_bytes)[:, None]
        return dict(
            probabilities=tf.where(valid[:, None], found, 0),
            valid=tf.constant(valid),
            reason=tf.constant(reason.astype(bytes)),
        )


def test_images_over_the_budget_of_a_request_are_asked_again(tmp_path, capsys):
    model = Budget()
    files = [tmp_path / f"{i}" for i in range(5)]
    for file in files:
        file.write_text(file.name)
    classifier = savedmodel_client.Classifier(model, ["a"])
    found = [scores for _, _, scores in classifier.predict(map(str, files))]
    np.testing.assert_array_equal(found, np.arange(5)[:, None])
    assert model.sizes == [5, 3, 1]

    def ask(images, options):
        found = Budget().predict(tf.constant(images))
        rows = zip(found["valid"].numpy(), found["reason"].numpy(), strict=True)
        one = dict(classes=["a"], indices=[0], scores=[1.0])
        return [dict(one, valid=v, reason=reason) for v, reason in rows]

    options = types.SimpleNamespace(json=False, top_k=1)
    batch = [(file.name, file.read_bytes()) for file in files]
    assert client._classify(batch, ask, options) == 0
    printed = capsys.readouterr()
    assert not printed.err and printed.out.split("\n")[::2] == [*"01234", ""]


def test_json_is_a_valid_object_an_image(asked, served_model, files, capsys):
    paths = files(0, "text")
    arguments = [*asked.arguments, "--json", "--top_k=1", *paths]
    assert classify(arguments) == 1
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["image"] == paths[0]
    ((name, index, score),) = (
        (x["name"], x["index"], x["probability"]) for x in first["predictions"]
    )
    assert name == NAMES[index]
    assert f"{score:7.2%}  {name}" in printed(served_model, paths[0], 1)
    assert second["image"] == paths[1] and "undecodable" in second["error"]


def stopped(capsys, *arguments):
    """Returns the sentence that a run ended with."""
    assert classify([str(argument) for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    return err


def test_an_unknown_model_or_version_is_said(asked, files, capsys):
    (path,) = files(0)
    err = stopped(capsys, *asked.arguments, "--model=dogs", path)
    assert f"No model 'dogs' on {asked.address}: Servable not found" in err
    err = stopped(capsys, *asked.arguments, "--version=8", path)
    assert "No model 'vit' version 8 on" in err


def test_a_server_that_is_too_slow_is_said(asked, files, capsys):
    asked.delay = threading.Event()
    err = stopped(capsys, *asked.arguments, "--timeout=0.2", *files(0))
    assert "did not answer within 0.2 s" in err and "--timeout" in err


@pytest.mark.parametrize("protocol", ["rest", "grpc"])
def test_no_connection_is_said(protocol, files, capsys, monkeypatch):
    if protocol == "grpc":
        pytest.importorskip("tensorflow_serving")
    monkeypatch.setenv("no_proxy", "*")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        server = f"127.0.0.1:{free.getsockname()[1]}"
    err = stopped(
        capsys,
        f"--server={server}",
        f"--protocol={protocol}",
        *files(0),
    )
    assert f"No connection to {server}" in err


def test_other_errors_of_the_server_are_said(rest, files, capsys):
    server = f"--server={rest.address}"
    err = stopped(capsys, server, "--model=busy", *files(0))
    assert err == f"{rest.address} answered with status 503: busy\n"


def test_rest_at_the_port_of_grpc_is_said(grpc_server, files, capsys):
    err = stopped(
        capsys,
        f"--server={grpc_server.address}",
        "--protocol=rest",
        *files(0),
    )
    assert "--protocol grpc" in err


def test_grpc_without_its_packages_says_how_to_install_them(
    files, capsys, monkeypatch
):
    for name in ("tensorflow_serving", "tensorflow_serving.apis"):
        monkeypatch.setitem(sys.modules, name, None)
    err = stopped(capsys, "--server=localhost:8500", *files(0))
    assert "pip install grpcio tensorflow-serving-api" in err


@pytest.mark.parametrize(
    "option",
    [
        "--server=nowhere",
        "--server=http://localhost:8501",
        "--top_k=0",
        "--batch_size=0",
        "--timeout=0",
        "--timeout=nan",
    ],
)
def test_bad_options_are_refused(option, capsys):
    with pytest.raises(SystemExit) as stop:
        classify([option, "x.jpg"])
    assert stop.value.code == 2
    assert option.split("=")[0] in capsys.readouterr().err
