"""A SavedModel of ours, asked without a server."""

import io
import os

import numpy as np
import PIL.Image
import tensorflow as tf

from keras_vit._paths import require_file
from keras_vit.data import decode
from keras_vit_cli.classify import OVER_BUDGET

# An output of a model with a head -> its task.
_TASKS = dict(
    boxes="detection",
    keypoints="pose",
    depth_bytes="depth",
    mask_bytes="segmentation",
)


def load(directory: str | os.PathLike):
    """Load a version's directory.

    Returns:
        A `Finder` for a model with a head, else a `Classifier`.

    Raises:
        ValueError: If it is not a SavedModel of this package.
    """
    # Signatures are valid as long as the object that was loaded with them.
    loaded = tf.saved_model.load(os.fspath(directory))
    path = os.path.join(directory, "assets.extra", "labels.txt")
    class_names = None
    if os.path.isfile(path):
        with open(path, encoding="utf-8") as file:
            class_names = file.read().splitlines()
    default = loaded.signatures.get("serving_default")
    if default is not None and any(
        name in default.structured_outputs for name in _TASKS
    ):
        return Finder(loaded, class_names)
    if "predict" not in loaded.signatures or class_names is None:
        raise ValueError(
            "MODEL, where it is a SavedModel, must be one that "
            "keras_vit.export_savedmodel wrote of a classifier or of a model "
            f"with a head. Received: {os.fspath(directory)!r}, with "
            f"{list(loaded.signatures)}"
        )
    inputs = loaded.signatures["predict"].structured_input_signature[1]
    if "image_bytes" not in inputs:
        raise ValueError(
            "MODEL, where it is a SavedModel, must take images. Received: "
            f"{os.fspath(directory)!r}, which takes {list(inputs)}"
        )
    return Classifier(loaded, class_names)


def _ask(loaded, signature: str, images: list[bytes]) -> dict:
    """Return the outputs of a signature that takes files, arrays by name."""
    try:
        found = loaded.signatures[signature](image_bytes=tf.constant(images))
    except tf.errors.InvalidArgumentError:
        # More images than the limit with which the model was exported.
        if len(images) == 1:
            raise
        half = len(images) // 2
        first = _ask(loaded, signature, images[:half])
        rest = _ask(loaded, signature, images[half:])
        return {k: np.concatenate([first[k], rest[k]]) for k in first}
    found = {name: value.numpy() for name, value in found.items()}
    # The budget of the others suffices for one image at least.
    reasons = found.get("reason", np.array([]))
    left = np.flatnonzero(reasons == OVER_BUDGET.encode())
    if 0 < len(left) < len(images):
        again = _ask(loaded, signature, [images[i] for i in left])
        for name, value in again.items():
            found[name] = found[name].copy()
            found[name][left] = value
    return found


class Classifier:
    """Says what is on files, as TF Serving would."""

    def __init__(self, loaded, class_names: list[str]):
        self._loaded = loaded
        self.signatures = list(loaded.signatures)
        self.names = class_names

    def predict(self, paths):
        """Yield (path, None, probabilities or what is wrong)."""
        read, contents = [], []
        for path in paths:
            try:
                require_file(path)
                with open(path, "rb") as file:
                    contents.append(file.read())
            except (OSError, ValueError) as error:
                yield path, None, f"{path!r} cannot be read: {error}"
            else:
                read.append(path)
        if not read:
            return
        found = self.ask("predict", contents)
        # SavedModels of earlier versions do not give the reason.
        reasons = found.get(
            "reason", [b"undecodable, or too large"] * len(read)
        )
        for path, valid, row, reason in zip(
            read, found["valid"], found["probabilities"], reasons, strict=True
        ):
            wrong = f"{path!r} is not valid: {reason.decode()}"
            yield path, None, row if valid else wrong

    def ask(self, signature: str, images: list[bytes]) -> dict:
        """Call a signature that takes `image_bytes`.

        Returns:
            Its outputs, arrays by name.
        """
        return _ask(self._loaded, signature, images)


class Finder:
    """Says what a model with a head finds in files, as TF Serving would."""

    def __init__(self, loaded, class_names: list[str] | None):
        self._loaded = loaded
        outputs = loaded.signatures["serving_default"].structured_outputs
        self.task = next(task for x, task in _TASKS.items() if x in outputs)
        self.kind = None  # of segmentation; it is not told
        self.class_names = class_names

    def find(
        self,
        path: str,
        size: tuple[int, int] | None = None,
        threshold: float | None = None,
    ) -> tuple[np.ndarray, dict]:
        """Return the pixels of a file and what is there, as `interpret`.

        Args:
            path: The file.
            size: The (height, width) of what is returned, in pixels; None for
                that of the file.
            threshold: The least score of a box, 0.5, or of a keypoint, 0.
                Those of segments are part of the SavedModel.

        Raises:
            ValueError: If it is not an image that is answered.
        """
        image = decode.read_pixels(path, 3)
        with open(path, "rb") as file:
            answer = _ask(self._loaded, "serving_default", [file.read()])
        answer = {name: value[0] for name, value in answer.items()}
        if not answer["valid"]:
            reason = answer["reason"].decode()
            raise ValueError(f"{path!r} is not valid: {reason}")
        return image, interpret(answer, size or image.shape[:2], threshold)


def interpret(answer: dict, size, threshold: float | None = None) -> dict:
    """Return what `TaskModel.interpret` does, of what a SavedModel answers.

    Args:
        answer: Of one image, arrays by name.
        size: The (height, width) of what is returned, in pixels.
        threshold: See `Finder.find`.
    """
    if "depth_bytes" in answer:
        share = _map(answer["depth_bytes"], size) / 65_535
        spread = answer["largest"] - answer["least"]
        return dict(depth=answer["least"] + share * spread)
    if "mask_bytes" in answer:
        return _regions(answer, _map(answer["mask_bytes"], size))
    places = "boxes" if "boxes" in answer else "keypoints"
    if threshold is None:
        threshold = 0.5 if places == "boxes" else 0.0
    kept = answer["scores"] >= threshold
    height, width = size / answer["image_size"]
    scale = [width, height] * (answer[places].shape[-1] // 2)
    return {
        places: answer[places][kept] * scale,
        "scores": answer["scores"][kept],
        "labels": answer["indices"][kept],
        "names": [x.decode() for x in answer["classes"][kept]],
    }


def _map(png, size):
    """Return the integers of a PNG, resized to (height, width)."""
    values = np.asarray(PIL.Image.open(io.BytesIO(png))).astype("int32")
    # Those of a large image are divided by a whole number.
    rows, columns = (
        np.arange(n) * m // n for n, m in zip(size, values.shape, strict=True)
    )
    return values[rows[:, None], columns]


def _regions(answer, values):
    if "shares" in answer:
        return dict(classes=values)
    info = [
        dict(id=i, label_id=int(label), name=name.decode(), score=float(score))
        for i, (label, name, score) in enumerate(
            zip(
                answer["indices"],
                answer["classes"],
                answer["scores"],
                strict=True,
            )
        )
        if label >= 0
    ]
    return dict(segments=values - 1, segments_info=info)
