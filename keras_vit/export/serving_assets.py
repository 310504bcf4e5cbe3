"""Files for a SavedModel: warm-up requests, class names, card and configs."""

import json
import math
import os
import re
import warnings
from collections.abc import Sequence

import numpy as np

from keras_vit.data import optional_imports, tables

# TF Serving does not load a version with more warm-up records.
MAX_WARMUP_RECORDS = 1000
# The batch sizes that batching.config allows, up to the largest request. The
# last is also the largest batch.
BATCH_SIZES = (1, 2, 4, 8, 16, 32)
NOT_STATED = "not stated"

_MODELS = """\
# For tensorflow_model_server --model_config_file. Mount this directory at
# base_path, or change base_path to its absolute path.
model_config_list {{
  config {{
    name: "{name}"
    base_path: "/models/{name}"
    model_platform: "tensorflow"
  }}
}}
"""
_BATCHING = """\
# For tensorflow_model_server --enable_batching --batching_parameters_file.
# A request with more images than max_batch_size is rejected.
max_batch_size {{ value: {largest} }}
batch_timeout_micros {{ value: 5000 }}
# Number of parallel batches; about the number of cores, or of GPUs.
num_batch_threads {{ value: 4 }}
# In ascending order; the last must be max_batch_size.
{allowed}
# Only signatures that take pixels have inputs of different sizes. Padding would
# change their images, so the server rejects merging them instead.
pad_variable_length_inputs: false
"""
_CARD = """\
# {name}

A {kind} for TensorFlow Serving, written by keras_vit. What was
not specified at the export says "{not_stated}".

{model}

## Metrics

{metrics}

## Export

{export}
"""


def write_warmup(
    directory: str | os.PathLike,
    requests: Sequence[bytes] | Sequence[np.ndarray],
    model_name: str,
    max_images: int = BATCH_SIZES[-1],
) -> None:
    """Write requests that TF Serving runs before it serves a version.

    The requests call `serving_default`: each image or clip alone, then all in
    batches of at most 32, the largest batch of `batching.config`. TF Serving
    does not load a version if one of these requests fails, so pass only images
    that decode.

    Args:
        directory: The SavedModel's directory.
        requests: Bytes of images: JPEG, PNG, GIF, BMP or WebP. For a video
            model, uint8 clips `[T, H, W, C]` of one size.
        model_name: Name under which the model is served.
        max_images: Largest number of images in a request.

    Reference:
        https://www.tensorflow.org/tfx/serving/saved_model_warmup
    """
    check_model_name(model_name)
    requests = list(requests)
    kind = type(requests[0]) if requests else None
    if kind not in (bytes, np.ndarray) or {*map(type, requests)} != {kind}:
        raise ValueError(
            "`requests` must be a list of one or more images' bytes, or of "
            "arrays of frames. Received: "
            f"{[type(request).__name__ for request in requests]}"
        )
    batches = [[request] for request in requests]
    if len(requests) > 1:
        largest = _batch_sizes(max_images)[-1]
        batches += [
            requests[i : i + largest] for i in range(0, len(requests), largest)
        ]
    if len(batches) > MAX_WARMUP_RECORDS:
        raise ValueError(
            f"`requests` must make at most {MAX_WARMUP_RECORDS} records, each "
            f"alone and all in batches. Received: {len(requests)} requests, "
            f"which make {len(batches)}"
        )
    tf = optional_imports.tensorflow()
    try:
        from tensorflow_serving.apis import prediction_log_pb2
    except ImportError:
        raise ValueError(
            "Writing requests for the warm-up needs tensorflow-serving-api: "
            "pip install tensorflow-serving-api (beside tensorflow-cpu: "
            "pip install --no-deps tensorflow-serving-api)"
        ) from None
    path = _extra(directory, "tf_serving_warmup_requests")
    with tf.io.TFRecordWriter(path) as writer:
        for batch in batches:
            log = prediction_log_pb2.PredictionLog()
            request = log.predict_log.request
            request.model_spec.name = model_name
            request.model_spec.signature_name = "serving_default"
            if kind is bytes:
                name, values = "image_bytes", np.array(batch, object)
            else:
                name, values = "video", np.array(batch)
            request.inputs[name].CopyFrom(tf.make_tensor_proto(values))
            writer.write(log.SerializeToString())


def check_class_names(class_names: list[str]) -> None:
    """Raise ValueError if a name is not a string, or has a line break."""
    for i, name in enumerate(class_names):
        if not isinstance(name, str) or "".join(name.splitlines()) != name:
            raise ValueError(
                "`class_names` must be names without line breaks. Received: "
                f"class_names[{i}]={name!r}"
            )


def write_class_names(
    directory: str | os.PathLike, class_names: list[str]
) -> None:
    """Write the class names, one per line, in the order of the head.

    Raises:
        ValueError: If a name is not a string, or has a line break.
    """
    check_class_names(class_names)
    _write(
        _extra(directory, "labels.txt"), "".join(f"{x}\n" for x in class_names)
    )


def read_class_names(path: str | os.PathLike) -> tuple[str, ...]:
    """Read class names: one per line, or a JSON list."""
    text = tables.read_text(path)
    if not os.fspath(path).endswith(".json"):
        return tuple(text.splitlines())
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        found = error
    if not isinstance(found, list) or not all(
        isinstance(name, str) for name in found
    ):
        raise ValueError(
            f"{os.fspath(path)!r} must hold a JSON list of names. Received: "
            f"{str(found)[:80]}"
        )
    return tuple(found)


def write_model_card(directory: str | os.PathLike, metadata: dict) -> None:
    """Write the model card: `model_card.json` and `model_card.md`.

    `metadata` may have the rows of the tables below, `name` and `metrics`. Each
    may be absent or None; the card then says that it is not stated. Other keys
    are written too.
    """
    known = dict.fromkeys((*_MODEL_ROWS, "metrics", *_EXPORT_ROWS, "name"))
    metadata = _plain(known | metadata)
    _write(
        _extra(directory, "model_card.json"),
        json.dumps(metadata, indent=2, ensure_ascii=False) + "\n",
    )
    others = {key: key for key in metadata if key not in known}
    metrics = metadata["metrics"] or {}
    if not isinstance(metrics, dict):
        metrics = {"metrics": metrics}
    text = _CARD.format(
        name=_cell(metadata["name"] or "Model"),
        kind=_kind(metadata),
        not_stated=NOT_STATED,
        model=_table(_MODEL_ROWS, metadata | _phrases(metadata)),
        metrics=_table({key: key for key in metrics}, metrics)
        if metrics
        else NOT_STATED.capitalize() + ".",
        export=_table(_EXPORT_ROWS | others, metadata),
    )
    _write(_extra(directory, "model_card.md"), text)


def _kind(metadata):
    task = metadata["task"] or "classification"
    if task != "classification":
        return f"model for {task}"
    is_video = "frames" in (metadata["input"] or {})
    return f"classifier of {'video' if is_video else 'images'}"


def write_serving_configs(
    base_directory: str | os.PathLike,
    model_name: str,
    max_images: int = BATCH_SIZES[-1],
) -> None:
    """Write TF Serving's configs beside the versions, unless they exist.

    `models.config` (a ModelServerConfig) contains the model's name and the path
    at which docker mounts it, `/models/NAME`. `batching.config`
    (BatchingParameters) lets TF Serving merge requests. Existing files are not
    changed, as they may be edited by hand. One that merges more images than
    `max_images` is a warning: the model refuses each such batch.
    """
    check_model_name(model_name)
    sizes = _batch_sizes(max_images)
    allowed = "\n".join(f"allowed_batch_sizes: {size}" for size in sizes)
    texts = {
        "models.config": _MODELS.format(name=model_name),
        "batching.config": _BATCHING.format(largest=sizes[-1], allowed=allowed),
    }
    for name, text in texts.items():
        path = os.path.join(base_directory, name)
        if not os.path.exists(path):
            _write(path, text)
        elif name == "batching.config":
            _compare_largest_batch(path, max_images)


def _compare_largest_batch(path, max_images):
    with open(path, encoding="utf-8", errors="replace") as file:
        found = re.search(
            r"^\s*max_batch_size\s*{\s*value:\s*(\d+)",
            file.read(),
            re.MULTILINE,
        )
    if found and int(found[1]) > max_images:
        warnings.warn(
            f"{path!r} lets the server merge requests into batches of up to "
            f"{found[1]} images, which this version refuses: it takes at most "
            f"max_images={max_images}. Lower `max_batch_size` and "
            "`allowed_batch_sizes` there.",
            stacklevel=4,
        )


def _batch_sizes(max_images):
    return [size for size in BATCH_SIZES if size <= max_images]


def check_model_name(model_name: str) -> None:
    """Raise for a name that is invalid in URLs, text protos or directories."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", model_name):
        raise ValueError(
            "`model_name` must be letters, digits, `_`, `.` and `-`, as it is "
            f"a part of URLs. Received: model_name={model_name!r}"
        )


# Field -> its title in the card.
_MODEL_ROWS = dict(
    architecture="architecture",
    task="task",
    weights="weights from",
    licence="licence",
    num_parameters="parameters",
    classes="classes",
    class_names="class names",
    input="input",
    activation="outputs to probabilities",
    precision="precision",
    comparison="compared with the model",
)
_EXPORT_ROWS = dict(
    exported_at="exported at",
    commit="commit",
    keras_vit="keras_vit",
    keras="keras",
    backend="backend",
)


def _phrases(metadata):
    """Return the fields that the card writes in other words."""
    phrases = {}
    class_names, number = metadata["class_names"], metadata["num_parameters"]
    if isinstance(class_names, list) and class_names:
        more = metadata["classes"] or len(class_names)
        phrases["class_names"] = ", ".join(map(str, class_names))
        if more > len(class_names):
            phrases["class_names"] += f", ... ({more} in labels.txt)"
    if isinstance(number, int):
        phrases["num_parameters"] = f"{number:,}"
    return phrases


def _table(rows, metadata):
    lines = ["| | |", "|---|---|"]
    for key, title in rows.items():
        lines.append(f"| {_cell(title)} | {_cell(metadata[key])} |")
    return "\n".join(lines)


def _cell(value):
    if value is None or value == "" or value == [] or value == {}:
        return NOT_STATED
    if isinstance(value, dict):
        value = "; ".join(f"{k}: {_cell(v)}" for k, v in value.items())
    elif isinstance(value, list):
        value = ", ".join(map(_cell, value))
    elif isinstance(value, float):
        value = f"{value:.6g}"
    text = " ".join(str(value).split())
    return re.sub(r"(?<!\\)\|", r"\\|", text)


def _plain(value):
    """Return a value that JSON can hold; None for numbers not finite."""
    if isinstance(value, dict):
        return {str(key): _plain(content) for key, content in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(content) for content in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (str, int, float)):
        return value
    return str(value)


def _extra(directory, name):
    # A directory that TensorFlow and TF Serving reserve for other files.
    folder = os.path.join(directory, "assets.extra")
    os.makedirs(folder, exist_ok=True)
    return os.path.join(folder, name)


def _write(path, text):
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)
