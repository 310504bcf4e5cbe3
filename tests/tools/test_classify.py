"""The client, against servers that answer as TF Serving does."""

import base64
import contextlib
import http.server
import json
import re
import socket
import sys
import threading
import time
from concurrent import futures

import pytest

from tools import classify

pytestmark = pytest.mark.backend_independent

NAMES = ("cat", "dög", "fish")
NAN = float("nan")
# How TF Serving refuses what only the decoder finds broken.
CORRUPT = "Invalid JPEG data or crop window, data size 7"
# What stands for it: a quote, escaped as in C, which is no JSON.
NOT_JSON = '{ "error": "can\\\'t decode" }'


def answer(image):
    """Answers as the export does: the file's text names the first class."""
    if image == b"text":
        return dict(
            scores=[NAN] * 3, classes=[""] * 3, indices=[-1] * 3, valid=False
        )
    first = NAMES.index(image.decode())
    order = [first, *(i for i in range(3) if i != first)]
    return dict(
        scores=[0.75, 0.2, 0.05],
        classes=[NAMES[i] for i in order],
        indices=order,
        valid=True,
    )


class RestHandler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        server = self.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        found = re.fullmatch(
            r"/v1/models/([^/:]+)(?:/versions/(\d+))?:predict", self.path
        )
        name, version = found.groups()
        if name == "busy":
            return self.reply(503, '{ "error": "busy" }')
        if name == "other":
            return self.reply(200, '{"predictions": [0.5]}')
        if name != "vit" or version not in (None, "7"):
            asked = f"Specific({name}, {version})" if version else "Latest(x)"
            text = f"Servable not found for request: {asked}"
            return self.reply(404, json.dumps({"error": text}))
        request = json.loads(body)
        assert request["signature_name"] == "serving_default"
        assert all(list(i) == ["image_bytes"] for i in request["instances"])
        images = [
            base64.b64decode(instance["image_bytes"]["b64"], validate=True)
            for instance in request["instances"]
        ]
        server.requests.append(images)
        if b"slow" in images:
            server.released.wait(10)
        if b"corrupt" in images:
            return self.reply(400, json.dumps({"error": CORRUPT}))
        if b"quote" in images:
            return self.reply(400, NOT_JSON)
        # As rapidjson with kWriteNanAndInfFlag, json writes the token NaN.
        predictions = [answer(image) for image in images]
        text = json.dumps({"predictions": predictions}, ensure_ascii=False)
        assert ("NaN" in text) == (b"text" in images)
        return self.reply(200, text)

    def reply(self, status, text):
        body = text.encode()
        # The client may have stopped waiting.
        with contextlib.suppress(ConnectionError):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def rest(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), RestHandler)
    server.requests, server.released = [], threading.Event()
    server.address = f"127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.released.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def grpc_server(monkeypatch):
    grpc = pytest.importorskip("grpc")
    pytest.importorskip("tensorflow_serving")
    import tensorflow as tf
    from tensorflow_serving.apis import (
        predict_pb2,
        prediction_service_pb2_grpc,
    )

    class Servicer(prediction_service_pb2_grpc.PredictionServiceServicer):
        requests = []

        def Predict(self, request, context):
            spec = request.model_spec
            codes = grpc.StatusCode
            known = spec.name in ("vit", "other")
            if not known or spec.version.value not in (0, 7):
                context.abort(codes.NOT_FOUND, "Servable not found")
            assert spec.signature_name == "serving_default"
            tensor = request.inputs["image_bytes"]
            assert tensor.dtype == tf.string
            images = tf.make_ndarray(tensor).tolist()
            self.requests.append(images)
            if b"slow" in images:
                time.sleep(1.0)
            if b"corrupt" in images:
                context.abort(codes.INVALID_ARGUMENT, CORRUPT)
            answers = [answer(image) for image in images]
            reply = predict_pb2.PredictResponse()
            if spec.name == "other":
                return reply
            for name, kind in dict(
                scores=tf.float32,
                classes=tf.string,
                indices=tf.int32,
                valid=tf.bool,
            ).items():
                values = [one[name] for one in answers]
                reply.outputs[name].CopyFrom(tf.make_tensor_proto(values, kind))
            return reply

    monkeypatch.setenv("no_grpc_proxy", "127.0.0.1")
    server = grpc.server(futures.ThreadPoolExecutor(2))
    servicer = Servicer()
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        servicer, server
    )
    servicer.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield servicer
    server.stop(0).wait()


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
    def write(*contents):
        paths = []
        for i, content in enumerate(contents):
            paths.append(str(tmp_path / f"{i}.jpg"))
            if content is not None:
                (tmp_path / f"{i}.jpg").write_bytes(content.encode())
        return paths

    return write


def test_names_and_probabilities_are_printed(asked, files, capsys):
    paths = files("dög", "cat")
    assert classify.main([*asked.arguments, "--top_k=2", *paths]) == 0
    out, err = capsys.readouterr()
    assert out == (
        f"{paths[0]}\n   75.00%  dög\n   20.00%  cat\n"
        f"{paths[1]}\n   75.00%  cat\n   20.00%  dög\n"
    )
    assert err == ""


def test_images_go_in_batches(asked, files, capsys):
    paths = files("cat", "fish", "cat", "fish", "cat")
    arguments = [*asked.arguments, "--batch_size=2", "--version=7"]
    assert classify.main([*arguments, *paths]) == 0
    assert [len(images) for images in asked.requests] == [2, 2, 1]
    lines = capsys.readouterr().out.splitlines()
    assert [x for x in lines if not x.startswith(" ")] == paths


def test_it_goes_on_after_what_is_no_image_and_ends_with_one(
    asked, files, capsys
):
    paths = files("cat", None, "text", "fish")
    assert classify.main([*asked.arguments, *paths]) == 1
    out, err = capsys.readouterr()
    assert out.count("75.00%") == 2
    assert f"{paths[1]}: cannot be read: No such file" in err
    assert f"{paths[2]}: is no image that the server decodes" in err
    assert len(asked.requests) == 1


def test_a_refused_request_is_repeated_in_halves(asked, files, capsys):
    paths = files("cat", "corrupt", "fish")
    assert classify.main([*asked.arguments, *paths]) == 1
    out, err = capsys.readouterr()
    assert out.count("75.00%") == 2
    assert err == f"{paths[1]}: refused: {CORRUPT}\n"
    assert [len(images) for images in asked.requests] == [3, 1, 2, 1, 1]


def test_json_is_a_valid_object_an_image(asked, files, capsys):
    paths = files("fish", "text")
    arguments = [*asked.arguments, "--json", "--top_k=1", *paths]
    assert classify.main(arguments) == 1
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == dict(
        image=paths[0],
        predictions=[dict(name="fish", index=2, probability=0.75)],
    )
    assert second["image"] == paths[1] and "no image" in second["error"]


def stopped(capsys, *arguments):
    """Returns the sentence that a run ended with."""
    assert classify.main([str(argument) for argument in arguments]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    return err


def test_an_unknown_model_or_version_is_said(asked, files, capsys):
    (path,) = files("cat")
    err = stopped(capsys, *asked.arguments, "--model=dogs", path)
    assert f"No model 'dogs' on {asked.address}: Servable not found" in err
    err = stopped(capsys, *asked.arguments, "--version=8", path)
    assert "No model 'vit' version 8 on" in err


def test_a_server_that_is_too_slow_is_said(asked, files, capsys):
    err = stopped(capsys, *asked.arguments, "--timeout=0.2", *files("slow"))
    assert "did not answer within 0.2 s" in err and "--timeout" in err


def test_another_model_is_said(asked, files, capsys):
    err = stopped(capsys, *asked.arguments, "--model=other", *files("cat"))
    assert "does not answer scores, classes, indices and valid" in err


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
        *files("cat"),
    )
    assert f"No connection to {server}" in err


def test_other_errors_of_the_server_are_said(rest, files, capsys):
    server = f"--server={rest.address}"
    err = stopped(capsys, server, "--model=busy", *files("cat"))
    assert err == f"{rest.address} answered with status 503: busy\n"


def test_an_error_that_is_no_json_is_said_all_the_same(rest, files, capsys):
    (path,) = files("quote")
    assert classify.main([f"--server={rest.address}", path]) == 1
    assert capsys.readouterr().err == f"{path}: refused: can\\'t decode\n"


def test_rest_at_the_port_of_grpc_is_said(grpc_server, files, capsys):
    err = stopped(
        capsys,
        f"--server={grpc_server.address}",
        "--protocol=rest",
        *files("cat"),
    )
    assert "--protocol grpc" in err


def test_grpc_without_its_packages_says_how_to_install_them(
    files, capsys, monkeypatch
):
    for name in ("tensorflow_serving", "tensorflow_serving.apis"):
        monkeypatch.setitem(sys.modules, name, None)
    err = stopped(capsys, "--server=localhost:8500", *files("cat"))
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
        classify.main([option, "x.jpg"])
    assert stop.value.code == 2
    assert option.split("=")[0] in capsys.readouterr().err
