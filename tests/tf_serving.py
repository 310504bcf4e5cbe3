"""A server that hands requests to SavedModels as TF Serving does.

What it takes and answers is that of TF Serving's REST API and of its
PredictionService; what is computed is computed by the models' signatures.
"""

import base64
import contextlib
import dataclasses
import http.server
import json
import re
import threading
from collections.abc import Mapping
from concurrent import futures

import numpy as np
import tensorflow as tf


class Error(Exception):
    """A refusal: a gRPC code's name, and its text."""

    STATUS = dict(NOT_FOUND=404, INVALID_ARGUMENT=400, UNAVAILABLE=503)

    def __init__(self, code, text):
        super().__init__(text)
        self.code, self.text = code, text


@dataclasses.dataclass
class Models:
    """The models of a server.

    Attributes:
        signatures: By the name of a model, then by the name of the signature.
        version: That of all models.
        requests: Number of images of each request.
        delay: Until when requests wait; unset, they do not.
    """

    signatures: Mapping[str, Mapping]
    version: int = 7
    requests: list[int] = dataclasses.field(default_factory=list)
    delay: threading.Event | None = None

    def find(self, name, version=None):
        if name == "busy":
            raise Error("UNAVAILABLE", "busy")
        if name not in self.signatures or version not in (None, self.version):
            asked = f"Specific({name}, {version})" if version else "Latest(x)"
            raise Error("NOT_FOUND", f"Servable not found for request: {asked}")
        return self.signatures[name]

    def input_types(self, name, version, signature):
        """Returns the types of a signature's inputs by name."""
        signatures = self.find(name, version)
        if signature not in signatures:
            raise Error(
                "INVALID_ARGUMENT",
                f'Serving signature name: "{signature}" not found in '
                "signature def",
            )
        specs = signatures[signature].structured_input_signature[1]
        return {key: spec.dtype for key, spec in specs.items()}

    def predict(self, name, version, signature, inputs):
        """Returns a signature's outputs, arrays by name."""
        types = self.input_types(name, version, signature)
        if inputs.keys() != types.keys():
            raise Error(
                "INVALID_ARGUMENT",
                f"input keys {sorted(inputs)} must be {sorted(types)}",
            )
        self.requests.append(max(len(value) for value in inputs.values()))
        if self.delay is not None:
            self.delay.wait(10)
        try:
            found = self.signatures[name][signature](**inputs)
        except tf.errors.InvalidArgumentError as error:
            raise Error("INVALID_ARGUMENT", error.message) from None
        return {key: value.numpy() for key, value in found.items()}


class RestHandler(http.server.BaseHTTPRequestHandler):
    """The REST API: status and metadata of a model, and predict."""

    def do_GET(self):
        self.answer(self.describe)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(lambda *found: self.predict(body, *found))

    def answer(self, function):
        try:
            path = re.fullmatch(
                r"/v1/models/([^/:]+)(?:/versions/(\d+))?(|/metadata|:predict)",
                self.path,
            )
            if path is None:
                raise Error("NOT_FOUND", "Malformed request")
            name, version, verb = path.groups()
            content = function(name, version and int(version), verb)
        except Error as error:
            # As the server does: escaped as in C, which is not always JSON.
            text = re.sub(r"([\\'\"])", r"\\\1", error.text)
            text = text.replace("\n", "\\n")
            self.reply(error.STATUS[error.code], f'{{ "error": "{text}" }}')
        else:
            self.reply(200, json.dumps(content, ensure_ascii=False))

    def describe(self, name, version, verb):
        models = self.server.models
        signatures = models.find(name, version)
        if verb == "/metadata":
            found = {key: {} for key in signatures}
            spec = dict(name=name, version=str(models.version))
            return dict(
                model_spec=spec,
                metadata={"signature_def": {"signature_def": found}},
            )
        status = dict(error_code="OK", error_message="")
        version = dict(version=str(models.version), state="AVAILABLE")
        return {"model_version_status": [version | dict(status=status)]}

    def predict(self, body, name, version, verb):
        assert verb == ":predict"
        request = json.loads(body)
        models = self.server.models
        signature = request.get("signature_name", "serving_default")
        types = models.input_types(name, version, signature)
        instances = request["instances"]
        inputs = {}
        for key, dtype in types.items():
            values = [_decoded(instance[key]) for instance in instances]
            inputs[key] = tf.constant(values, dtype)
        outputs = models.predict(name, version, signature, inputs)
        rows = [
            {key: _plain(value[i]) for key, value in outputs.items()}
            for i in range(len(instances))
        ]
        if len(outputs) == 1:  # without its name
            rows = [value for row in rows for value in row.values()]
        return dict(predictions=rows)

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


def _decoded(value):
    """Returns bytes of {"b64": ...}, and anything else as it is."""
    if isinstance(value, dict) and value.keys() == {"b64"}:
        return base64.b64decode(value["b64"], validate=True)
    return value


def _plain(value):
    value = value.tolist() if isinstance(value, np.ndarray) else value
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, bytes):
        return value.decode()
    return value.item() if isinstance(value, np.generic) else value


@contextlib.contextmanager
def rest(models: Models):
    """Yields "host:port" of a server of the REST API."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), RestHandler)
    server.models = models
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def prediction_service(models: Models):
    """Yields "host:port" of a server of gRPC."""
    import grpc
    from tensorflow_serving.apis import (
        predict_pb2,
        prediction_service_pb2_grpc,
    )

    class Servicer(prediction_service_pb2_grpc.PredictionServiceServicer):
        def Predict(self, request, context):
            spec = request.model_spec
            inputs = {
                key: tf.constant(tf.make_ndarray(value))
                for key, value in request.inputs.items()
            }
            signature = spec.signature_name or "serving_default"
            version = spec.version.value or None
            try:
                found = models.predict(spec.name, version, signature, inputs)
            except Error as error:
                code = getattr(grpc.StatusCode, error.code)
                context.abort(code, error.text)
            reply = predict_pb2.PredictResponse()
            for key, value in found.items():
                reply.outputs[key].CopyFrom(tf.make_tensor_proto(value))
            return reply

    server = grpc.server(futures.ThreadPoolExecutor(2))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        Servicer(), server
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()
