"""The files beside a SavedModel: warm-up, class names, model card, configs."""

import json
import math
import os
import re

import numpy as np

from keras_vit.data import optional_imports

# TF Serving refuses to load a version with more.
MAX_WARMUP_RECORDS = 1000
# The sizes that batching.config allows, up to the largest request; the last is
# the largest batch, too.
BATCH_SIZES = (1, 2, 4, 8, 16, 32)
NOT_STATED = "not stated"

_MODELS = """\
# For tensorflow_model_server --model_config_file. Mount this directory at
# base_path, which must be absolute, or write here where it is.
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
# A request of more images than max_batch_size is refused.
max_batch_size {{ value: {largest} }}
batch_timeout_micros {{ value: 5000 }}
# Batches computed at once; about the number of cores, or of GPUs.
num_batch_threads {{ value: 4 }}
# Ascending, and the last is max_batch_size.
{allowed}
# Only signatures that take pixels have sizes that differ; padding would change
# their images, so the server refuses to merge those instead.
pad_variable_length_inputs: false
"""
_CARD = """\
# {name}

A classifier of {kind} for TensorFlow Serving, written by keras_vit. What was
not specified at the export says "{not_stated}".

{model}

## Metrics

{metrics}

## Export

{export}
"""


def write_warmup(
    directory: str | os.PathLike,
    requests: list[bytes],
    model_name: str,
    max_images: int = BATCH_SIZES[-1],
) -> None:
    """Writes requests that TF Serving runs before it serves a version.

    They are of `serving_default`: each image alone, then all in batches of at
    most 32, the largest that `batching.config` lets in. A request that fails
    keeps TF Serving from loading the version, so give only images that decode.

    Args:
        directory: The SavedModel's directory.
        requests: Bytes of images: JPEG, PNG, GIF, BMP or WebP.
        model_name: Name that the model is served under.
        max_images: Largest number of images in a request.

    Raises:
        ValueError: If there are no images or too many, or
            tensorflow-serving-api is not installed.

    Reference:
        https://www.tensorflow.org/tfx/serving/saved_model_warmup
    """
    check_model_name(model_name)
    requests = list(requests)
    if not requests or not all(isinstance(r, bytes) for r in requests):
        raise ValueError(
            "`requests` must be a list of one or more images' bytes. "
            f"Received: {[type(request).__name__ for request in requests]}"
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
            f"image alone and all in batches. Received: {len(requests)} "
            f"images, which make {len(batches)}"
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
            request.inputs["image_bytes"].CopyFrom(
                tf.make_tensor_proto(batch, tf.string, shape=[len(batch)])
            )
            writer.write(log.SerializeToString())


def write_class_names(
    directory: str | os.PathLike, class_names: list[str]
) -> None:
    """Writes the class names, one per line, in the order of the head.

    Args:
        directory: The SavedModel's directory.
        class_names: The names.

    Raises:
        ValueError: If a name is no string, or has a line break.
    """
    for i, name in enumerate(class_names):
        if not isinstance(name, str) or "".join(name.splitlines()) != name:
            raise ValueError(
                "`class_names` must be names without line breaks. Received: "
                f"class_names[{i}]={name!r}"
            )
    _write(
        _extra(directory, "labels.txt"), "".join(f"{x}\n" for x in class_names)
    )


def write_model_card(directory: str | os.PathLike, metadata: dict) -> None:
    """Writes what is known of the model: `model_card.json` and `.md`.

    Args:
        directory: The SavedModel's directory.
        metadata: name, architecture, weights, licence, classes, class_names
            (the first few), input (height, width, channels, scaling; of
            video also frames),
            activation, metrics, precision, comparison (of precisions),
            num_parameters, exported_at, commit, keras, backend, keras_vit.
            Any may be absent or None; then the card says that it is not
            stated. Others are kept.
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
        kind="video" if _num_frames(metadata) else "images",
        not_stated=NOT_STATED,
        model=_table(_MODEL_ROWS, metadata | _phrases(metadata)),
        metrics=_table({key: key for key in metrics}, metrics)
        if metrics
        else NOT_STATED.capitalize() + ".",
        export=_table(_EXPORT_ROWS | others, metadata),
    )
    _write(_extra(directory, "model_card.md"), text)


def write_serving_configs(
    base_directory: str | os.PathLike,
    model_name: str,
    max_images: int = BATCH_SIZES[-1],
) -> None:
    """Writes TF Serving's configs beside the versions, unless they are there.

    `models.config` (a ModelServerConfig) names the model and where docker
    mounts it, `/models/NAME`; `batching.config` (BatchingParameters) lets TF
    Serving merge requests. What somebody has edited stays.

    Args:
        base_directory: The directory of the versions' directories.
        model_name: Name to serve the model under.
        max_images: Largest number of images in a request.

    Raises:
        ValueError: If the name does not fit into a URL.
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


def _batch_sizes(max_images):
    return [size for size in BATCH_SIZES if size <= max_images]


def check_model_name(model_name: str) -> None:
    """Refuses a name that URLs, text protos or directories would not take."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", model_name):
        raise ValueError(
            "`model_name` must be letters, digits, `_`, `.` and `-`, as it is "
            f"a part of URLs. Received: model_name={model_name!r}"
        )


# Field -> what the card calls it.
_MODEL_ROWS = dict(
    architecture="architecture",
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


def _num_frames(metadata):
    size = metadata["input"]
    return size.get("frames") if isinstance(size, dict) else None


def _phrases(metadata):
    """Returns what reads better as a phrase than as it is."""
    phrases = {}
    image, class_names = metadata["input"], metadata["class_names"]
    if isinstance(image, dict):
        sizes = dict(height=None, width=None, channels=None) | image
        sizes = {k: NOT_STATED if v is None else v for k, v in sizes.items()}
        scaling = sizes.get("scaling", NOT_STATED)
        frames = _num_frames(metadata)
        phrases["input"] = (
            f"{'' if frames is None else f'frames {frames}, '}"
            f"height {sizes['height']}, width {sizes['width']}, channels "
            f"{sizes['channels']}; scaling of pixels: {scaling}"
        )
    if isinstance(class_names, list) and class_names:
        more = metadata["classes"] or len(class_names)
        rest = (
            f", ... ({more} in labels.txt)" if more > len(class_names) else ""
        )
        phrases["class_names"] = ", ".join(map(str, class_names)) + rest
    if isinstance(metadata["num_parameters"], int):
        phrases["num_parameters"] = f"{metadata['num_parameters']:,}"
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
    """Returns a value that JSON has; what is not finite becomes None."""
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
    # TF Serving and TensorFlow leave this directory to others.
    folder = os.path.join(directory, "assets.extra")
    os.makedirs(folder, exist_ok=True)
    return os.path.join(folder, name)


def _write(path, text):
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)
