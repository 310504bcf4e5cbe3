"""Asks a TF Serving server for the classes of images."""

import base64
import http.client
import json
import math
import os
import re
import sys
import urllib.error
import urllib.parse
import urllib.request

# The reason of an image that may be valid in a request without the others.
OVER_BUDGET = "over the request's budget"


class Refused(Exception):
    """The server did not take the request: try its halves."""


class NoAnswer(Exception):
    """The server cannot be asked at all; its text is for the user."""


def run(options) -> int:
    """Classify as the command line asks.

    Returns:
        The exit status: 0, 1 if an image could not be read or was not
        classified, 2 if the server could not be reached.
    """
    ask = _grpc if _protocol(options) == "grpc" else _rest
    failed = 0
    try:
        for batch, errors in _batches(options.images, options.batch_size):
            for path, error in errors:
                _print_error(path, error, options.json)
            failed += len(errors)
            if batch:
                failed += _classify(batch, ask, options)
    except NoAnswer as error:
        print(error, file=sys.stderr)
        return 2
    return 1 if failed else 0


def _protocol(options):
    if options.protocol != "auto":
        return options.protocol
    # The default ports of the tensorflow/serving image.
    return "grpc" if options.server.endswith(":8500") else "rest"


def _batches(paths, size):
    """Yield ([(path, bytes)], [(path, error)]), of `size` paths each."""
    for i in range(0, len(paths), size):
        batch, errors = [], []
        for path in paths[i : i + size]:
            printable = path.encode(errors="backslashreplace").decode()
            try:
                if printable != path:
                    raise OSError(None, "its name is not UTF-8")
                # A device or a pipe may have no end.
                if os.path.exists(path) and not os.path.isfile(path):
                    raise OSError(None, "it is no regular file")
                with open(path, "rb") as file:
                    batch.append((path, file.read()))
            except OSError as error:
                errors.append((printable, f"cannot be read: {error.strerror}"))
        yield batch, errors


def _classify(batch, ask, options):
    """Ask for images, print the answers, return how many got none."""
    try:
        answers = ask([image for _, image in batch], options)
    except Refused as error:
        if len(batch) == 1:
            _print_error(batch[0][0], f"refused: {error}", options.json)
            return 1
        # The request has too many images, or too many bytes.
        return _classify_halves(batch, ask, options)
    failed, left = 0, []
    for (path, image), answer in zip(batch, answers, strict=True):
        if answer["valid"]:
            _print_answer(path, answer, options)
        elif why(answer) == OVER_BUDGET and len(batch) > 1:
            left.append((path, image))
        else:
            _print_error(path, f"is not valid: {why(answer)}", options.json)
            failed += 1
    if left:
        failed += _classify_halves(left, ask, options)
    return failed


def _classify_halves(batch, ask, options):
    halves = batch[: len(batch) // 2], batch[len(batch) // 2 :]
    return sum(_classify(half, ask, options) for half in halves if half)


def _print_answer(path, answer, options):
    rows = (answer["classes"], answer["indices"], probabilities_of(answer))
    found = list(zip(*rows, strict=True))[: options.top_k]
    if options.json:
        predictions = [
            dict(name=name, index=int(index), probability=_finite(score))
            for name, index, score in found
        ]
        _print_json(dict(image=path, predictions=predictions))
        return
    print(path)
    for name, _, score in found:
        print(f"  {score:7.2%}  {name}")


def probabilities_of(answer: dict):
    """Return the probabilities of an answer, whose scores may be logits."""
    return answer.get("probabilities", answer["scores"])


def why(answer: dict) -> str:
    """Return why an image is not valid; earlier versions did not answer it."""
    reason = answer.get("reason", "undecodable, or too large")
    return reason.decode() if isinstance(reason, bytes) else reason


def _print_error(path, error, as_json):
    print(f"{path}: {error}", file=sys.stderr)
    if as_json:
        _print_json(dict(image=path, error=error))


def _finite(score):
    """Return a number that JSON has, or None."""
    return float(score) if math.isfinite(score) else None


def _print_json(content):
    print(json.dumps(content, ensure_ascii=False, allow_nan=False))


def _served(options):
    """Say which model on which server, for errors."""
    version = "" if options.version is None else f" version {options.version}"
    return f"model {options.model!r}{version} on {options.server}"


# REST


def _rest(images, options):
    """Return an answer (scores, classes, indices, valid) an image."""
    outputs = ("scores", "classes", "indices", "valid")
    return ask_rest(images, options, "serving_default", outputs)


def ask_rest(
    images: list[bytes], served, signature: str, outputs: tuple[str, ...]
) -> list[dict]:
    """Ask a signature of a model about images.

    Args:
        served: Has the attributes server, "host:port"; model; version, an int
            or None; and timeout, in seconds.
        signature: Name of a signature that takes `image_bytes`.
        outputs: Names of outputs that each answer must have.

    Returns:
        An answer for each image: its outputs by name.

    Raises:
        Refused: If the server does not take this request.
        NoAnswer: If the server cannot be asked.
    """
    # TF Serving decodes {"b64": ...} for any input of strings, whatever its
    # name. The suffix `_bytes` only matters for outputs, which it encodes as
    # {"b64": ...}. Our outputs have no such suffix, so names are plain strings.
    instances = [
        {"image_bytes": {"b64": base64.b64encode(image).decode()}}
        for image in images
    ]
    body = {"signature_name": signature, "instances": instances}
    content = _fetch(":predict", served, json.dumps(body).encode())
    # With several outputs, each instance is an object with all their names.
    predictions = content.get("predictions") if type(content) is dict else None
    if (
        not isinstance(predictions, list)
        or len(predictions) != len(images)
        or not all(
            type(p) is dict and set(outputs) <= set(p) for p in predictions
        )
    ):
        raise _other_model(served, outputs)
    return predictions


def signatures_of(served) -> list[str]:
    """Return the names of the signatures of a model, asked over REST.

    Raises:
        NoAnswer: If the server cannot be asked, or has no such model.
    """
    try:
        content = _fetch("/metadata", served)
    except Refused as error:
        raise NoAnswer(f"No {_served(served)}: {error}") from None
    try:
        return sorted(content["metadata"]["signature_def"]["signature_def"])
    except (KeyError, TypeError):
        raise NoAnswer(
            f"{served.server} does not describe the {_served(served)} as TF "
            "Serving's REST API does"
        ) from None


def _fetch(verb, served, body=None):
    """Return the JSON of GET, or with a body of POST, on a model."""
    version = "" if served.version is None else f"/versions/{served.version}"
    model = urllib.parse.quote(served.model, safe="")
    request = urllib.request.Request(
        f"http://{served.server}/v1/models/{model}{version}{verb}",
        body,
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=served.timeout) as reply:
            # Python accepts the tokens NaN and Infinity, which are not JSON. TF
            # Serving writes them for scores that are not finite, which models
            # exported by earlier versions may have.
            return json.loads(reply.read())
    except urllib.error.HTTPError as error:
        with error:
            raise _of_status(error.code, error.read(), served) from None
    except (TimeoutError, urllib.error.URLError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            raise _too_late(served) from None
        raise NoAnswer(f"No connection to {served.server}: {reason}") from None
    except (http.client.HTTPException, OSError, ValueError) as error:
        raise NoAnswer(
            f"{served.server} does not answer as TF Serving's REST API does "
            f"({type(error).__name__}); is it the gRPC port? Try "
            "--protocol grpc."
        ) from None


def _of_status(code, body, options):
    text = body.decode("utf-8", "replace").strip()
    try:
        text = json.loads(text)["error"]
    except (ValueError, KeyError, TypeError):
        # TF Serving escapes errors as in C, which is not always valid JSON.
        text = re.sub(r'^\{\s*"error":\s*"|"\s*\}$', "", text)
    text = " ".join(str(text).split())
    if code in (400, 413):
        return Refused(text)
    if code == 404:
        return NoAnswer(f"No {_served(options)}: {text}")
    if code == 504:
        return _too_late(options)
    return NoAnswer(f"{options.server} answered with status {code}: {text}")


def _too_late(options):
    return NoAnswer(
        f"{options.server} did not answer within {options.timeout:g} s; take "
        "a smaller --batch_size or a longer --timeout."
    )


def _other_model(options, outputs):
    *most, last = outputs
    return NoAnswer(
        f"The {_served(options)} does not answer {', '.join(most)} and {last}; "
        "was it exported by keras-vit export?"
    )


# gRPC


def _grpc(images, options):
    """Return an answer (scores, classes, indices, valid) an image."""
    try:
        import grpc
        import tensorflow as tf
        from tensorflow_serving.apis import (
            predict_pb2,
            prediction_service_pb2_grpc,
        )
    except ImportError:
        raise NoAnswer(
            "gRPC needs grpcio and tensorflow-serving-api: pip install grpcio "
            "tensorflow-serving-api. Or take --protocol rest."
        ) from None
    request = predict_pb2.PredictRequest()
    request.model_spec.name = options.model
    request.model_spec.signature_name = "serving_default"
    if options.version is not None:
        request.model_spec.version.value = options.version
    request.inputs["image_bytes"].CopyFrom(
        tf.make_tensor_proto(images, tf.string, shape=[len(images)])
    )
    with grpc.insecure_channel(options.server) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        try:
            reply = stub.Predict(request, timeout=options.timeout)
        except grpc.RpcError as error:
            raise _of_code(grpc.StatusCode, error, options) from None
    outputs = {k: tf.make_ndarray(v) for k, v in reply.outputs.items()}
    wanted = ("scores", "classes", "indices", "valid")
    if any(
        name not in outputs or len(outputs[name]) != len(images)
        for name in wanted
    ):
        raise _other_model(options, wanted)
    answers = [
        {name: rows[i] for name, rows in outputs.items()}
        for i in range(len(images))
    ]
    for answer in answers:
        answer["classes"] = [
            name.decode("utf-8", "replace") for name in answer["classes"]
        ]
    return answers


def _of_code(codes, error, options):
    code, text = error.code(), " ".join((error.details() or "").split())
    if code in (codes.INVALID_ARGUMENT, codes.FAILED_PRECONDITION):
        return Refused(text)
    if code is codes.NOT_FOUND:
        return NoAnswer(f"No {_served(options)}: {text}")
    if code is codes.DEADLINE_EXCEEDED:
        return _too_late(options)
    if code is codes.UNAVAILABLE:
        return NoAnswer(f"No connection to {options.server}: {text}")
    return NoAnswer(f"{options.server} answered with {code.name}: {text}")
