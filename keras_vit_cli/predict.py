"""Classifies images or videos, or finds what a model with a head finds."""

import contextlib
import csv
import difflib
import glob
import json
import math
import os
import sys
from collections.abc import Iterator

import keras
import numpy as np

import keras_vit
from keras_vit import data
from keras_vit._loss_check import last_layer
from keras_vit._paths import can_be_written
from keras_vit.data import video_files
from keras_vit.data.decode import EXTENSIONS
from keras_vit.export.scores import activation_of
from keras_vit.heads import TaskModel
from keras_vit.inspection import figures
from keras_vit.text import TwoTowers
from keras_vit_cli import predict_tasks, words


def run(options) -> int:
    """Predict as the command line asks; return 1 if a file is not read."""
    _check_options(options)
    if not any(
        os.path.exists(name) or glob.glob(name, recursive=True)
        for name in options.images
    ):
        # Noticed here, since loading a model may download its weights.
        raise ValueError(
            "IMAGE must be a file, a folder or a pattern. Received: "
            f"{' '.join(options.images)!r}, which is not there"
        )
    model = None if is_savedmodel(options.model) else load(options.model)
    if isinstance(model, TwoTowers):
        templates = options.templates or words.TEMPLATE
        model = words.model_of(model, options.classes, templates)
    elif options.classes is not None:
        raise ValueError(
            "--classes needs a model with a text tower, such as CLIP's. "
            f"Received: {options.model!r}"
        )
    classifier = asked(options.model, model)
    takes_video = getattr(classifier, "takes_video", False)
    if not takes_video:
        _refuse(options, ("frame_step", "frame_rate"), "a model of videos")
    if hasattr(classifier, "find"):
        _refuse(options, ("top_k",), "a classifier")
        return predict_tasks.run(options, classifier, find(options.images))
    if options.drawing or options.score is not None:
        raise ValueError(
            "--drawing and --score need a model with a head of "
            "keras_vit.heads; --attention shows where a classifier looked. "
            f"Received: {options.model!r}"
        )
    if options.attention:
        _check_attention(classifier)
    options.top_k = options.top_k or 5
    options.format = options.format or "table"
    if takes_video:
        from keras_vit_cli import predict_video

        paths = find(options.images, video_files.EXTENSIONS)
        return predict_video.run(options, classifier, paths)
    return _classify(options, classifier, find(options.images))


def _classify(options, classifier, paths):
    """Print the classes of images; return 1 if a file is not read."""
    print_row = _printer(options.format)
    shown, broken = [], 0
    for i in range(0, len(paths), options.batch_size):
        batch = paths[i : i + options.batch_size]
        for path, image, scores in classifier.predict(batch):
            if isinstance(scores, str):
                broken += 1
                print(scores, file=sys.stderr)
                if options.format == "jsonl":
                    print(json.dumps(dict(image=path, error=scores)))
                continue
            rows = best(classifier.names, scores, options.top_k)
            print_row(path, rows)
            if options.attention:
                shown.append((image, rows[0]))
        if sys.stderr.isatty():
            done = min(i + options.batch_size, len(paths))
            print(f"Read {done} of {len(paths)}", file=sys.stderr)
    if shown:
        images = np.stack([image for image, _ in shown])
        figures.plot_attention(
            images,
            _attention(classifier.model, images, options.batch_size),
            [f"{name} {score:.0%}" for _, (_, name, score) in shown],
            options.attention,
        )
        print(f"Where the model looked: {options.attention}", file=sys.stderr)
    return 1 if broken else 0


class KerasClassifier:
    """A Keras model that classifies files, as `asked` returns it."""

    def __init__(self, model: keras.Model):
        self.model = model
        head = model.get_layer("head")
        names = getattr(head, "class_names", None)
        self.names = names or [str(i) for i in range(head.units)]
        self.activation = activation_of(model)
        self.takes_video = len(model.input_shape) == 5

    def predict(self, paths):
        """Yield (path, image, probabilities or what is wrong)."""
        found, images = [], []
        for path in paths:
            try:
                image = data.read_image(
                    path,
                    self.model.input_shape[1:3],
                    self.model.input_shape[3],
                )
            except ValueError as error:
                yield path, None, str(error)
            else:
                found.append(path)
                images.append(image)
        if not images:
            return
        scores = self.scores(np.stack(images))
        yield from zip(found, images, scores, strict=True)

    def scores(self, images):
        """Return the probabilities of images, or of clips."""
        scores = self.model.predict_on_batch(images)
        if self.activation != "none":
            scores = getattr(keras.ops, self.activation)(scores)
        return keras.ops.convert_to_numpy(scores)


def is_savedmodel(name: str) -> bool:
    """Return whether this is a SavedModel's directory."""
    return os.path.isfile(os.path.join(name, "saved_model.pb"))


def asked(name: str, model: keras.Model | None = None):
    """Load what the command line calls MODEL, to ask it about files.

    Args:
        name: A .keras file, a SavedModel, CONSTRUCTOR:WEIGHTS or a checkpoint.
        model: What `load` returns for it; None loads it.

    Returns:
        For a model with a head a `predict_tasks.Finder`, or that of a
        SavedModel. Else a classifier with the class `names` by index, and
        `predict(paths)`, which yields (path, image, probabilities) in any
        order. Where a file does not decode, the third is a message; the image
        of a SavedModel is None.

    Raises:
        ValueError: If it is none of these, or no model of images or videos.
    """
    if is_savedmodel(name):
        from keras_vit_cli import savedmodel_client

        with _naming_model(name):
            return savedmodel_client.load(name)
    model = load(name) if model is None else model
    if isinstance(model, TaskModel):
        return predict_tasks.Finder(model, name)
    check_classifier(name, model)
    if model.input_shape[-1] not in (1, 3):
        raise ValueError(
            "MODEL must take images of 1 or 3 channels, as files have. "
            f"Received: {name!r}, which takes {model.input_shape[-1]}"
        )
    check_pixels(name, model)
    return KerasClassifier(model)


def check_classifier(name: str, model: keras.Model) -> None:
    """Refuse a model without a head that gives a score for each class.

    Args:
        name: What the command line calls the model.
        model: The model.
    """
    # Not beneath another dense layer, whose classes have other names.
    last = last_layer(getattr(model, "output", None))
    has_head = any(layer.name == "head" for layer in model.layers)
    has_head &= getattr(last, "name", "") == "head" or not hasattr(
        last, "units"
    )
    # Of boxes and so on a dictionary, or a list of shapes.
    is_tensor = isinstance(model.output_shape, tuple)
    if not (has_head and is_tensor and len(model.output_shape) == 2):
        raise ValueError(
            "MODEL must be a classifier of keras_vit, with a layer `head`. "
            f"Received: {name!r}, with output shape {model.output_shape}"
        )


def check_pixels(name: str, model: keras.Model) -> None:
    """Refuse a model that takes scaled pixels, as no file has them.

    Args:
        name: What the command line calls the model.
        model: The model, or its tower of images.
    """
    if not any(layer.name == "preprocessing" for layer in model.layers):
        raise ValueError(
            "MODEL must scale pixels itself. Received: "
            f"{name!r}, built with include_preprocessing=False"
        )


def load(name: str) -> keras.Model:
    """Load a model by what the command line calls it.

    Raises:
        ValueError: If it is none of these, or a SavedModel (see `asked`).
    """
    if is_savedmodel(name):
        raise ValueError(
            "MODEL must be a .keras file, CONSTRUCTOR:WEIGHTS or a checkpoint "
            f"here. Received: {name!r}, a SavedModel. Give the model that it "
            "was exported from."
        )
    with _naming_model(name):
        if name.endswith(".keras") and os.path.isfile(name):
            try:
                # The loss specifies the activation of the scores.
                return keras.models.load_model(name)
            except (TypeError, ValueError):
                model = keras.models.load_model(name, compile=False)
                if activation_of(model) != "none":
                    print(
                        f"The loss of {name!r} does not load. Its outputs are "
                        "taken for logits of which one class is right.",
                        file=sys.stderr,
                    )
                return model
        variant, _, weights = name.partition(":")
        if variant in keras_vit.list_models() and weights:
            return getattr(keras_vit, variant)(weights=weights)
        return keras_vit.from_pretrained(name)


@contextlib.contextmanager
def _naming_model(name):
    try:
        yield
    except (ValueError, OSError, TypeError) as error:
        variant = name.partition(":")[0]
        near = difflib.get_close_matches(variant, keras_vit.list_models())
        is_model = variant in near or os.path.exists(name)
        hint = (
            f". Nearest constructors: {near}" if near and not is_model else ""
        )
        raise ValueError(
            "MODEL must be a .keras file, a SavedModel, CONSTRUCTOR:WEIGHTS "
            f"or a checkpoint. Received: {name!r}, which does not load: "
            f"{error}{hint}"
        ) from error


def find(
    images: list[str], extensions: tuple[str, ...] = EXTENSIONS
) -> list[str]:
    """Return the files that the command line names, in a stable order.

    Args:
        extensions: Extensions of the files to read in a folder.

    Raises:
        ValueError: If a folder has no such file.
    """
    paths = []
    for name in images:
        if os.path.isdir(name):
            found = sorted(files_below(name, extensions))
            if not found:
                raise ValueError(
                    "IMAGE must be a folder with files of "
                    f"{', '.join(extensions)}. Received: {name!r}, which has "
                    "none"
                )
        elif os.path.exists(name):
            found = [name]
        else:
            # A missing file is reported among the others, not here.
            found = sorted(glob.glob(name, recursive=True)) or [name]
        paths += found
    return paths


def files_below(name: str, extensions: tuple[str, ...]) -> Iterator[str]:
    """Yield the files of a folder; a link may lead back, and is left out.

    So is a folder that cannot be read.

    Args:
        name: The folder.
        extensions: Those of the files, in lower case.
    """

    def left_out(error):
        print(f"Left out: {error.filename}: {error.strerror}", file=sys.stderr)

    for folder, below, files in os.walk(name, onerror=left_out):
        for each in (os.path.join(folder, x) for x in below):
            if os.path.islink(each):
                print(f"Left out: {each}, a link to a folder", file=sys.stderr)
        for file in files:
            if file.lower().endswith(extensions):
                yield os.path.join(folder, file)


def best(names, scores, count: int) -> list[tuple[int, str, float]]:
    """Return the best classes as (index, name, score)."""
    top = np.argsort(-scores)[:count]
    return [(int(n), names[n], float(scores[n])) for n in top]


def print_table(path: str, rows: list) -> None:
    """Print the path and a line for each of `best`."""
    print(path)
    for _, name, score in rows:
        print(f"  {score:7.2%}  {name}")


def as_objects(rows: list) -> list[dict]:
    """Return each of `best` as an object of JSON."""
    keys = ("index", "class", "score")
    return [dict(zip(keys, row, strict=True)) for row in rows]


def _printer(kind):
    """Return what prints an image's (index, name, score) rows."""
    writer = csv.writer(sys.stdout)
    if kind == "csv":
        writer.writerow(["image", "rank", "index", "class", "score"])

    def lines(path, rows):
        for rank, (index, name, score) in enumerate(rows, 1):
            writer.writerow([path, rank, index, name, f"{score:.6g}"])

    def objects(path, rows):
        print(json.dumps(dict(image=path, predictions=as_objects(rows))))

    return dict(table=print_table, csv=lines, jsonl=objects)[kind]


def check_picture(option: str, path: str) -> None:
    """Refuse a picture that could not be written, before the work."""
    kinds = figures.new_figure(1, 1).canvas.get_supported_filetypes()
    ending = os.path.splitext(path)[1].removeprefix(".").lower()
    if ending not in kinds or not can_be_written(path):
        raise ValueError(
            f"--{option} must be a file in an existing folder, which can be "
            f"written and ends in .{', .'.join(kinds)}. Received: {path!r}"
        )


def _check_options(options):
    """Refuse what is wrong whatever the model is."""
    rate = options.frame_rate
    if rate is not None and not 0 <= rate < math.inf:
        raise ValueError(
            f"--frame_rate must be at least 0. Received: --frame_rate={rate}"
        )
    if options.score is not None and math.isnan(options.score):
        raise ValueError("--score must be a number. Received: --score=nan")
    for name in ("attention", "drawing"):
        if getattr(options, name) is not None:
            check_picture(name, getattr(options, name))
    if options.templates is not None and not options.classes:
        raise ValueError(
            "--templates needs --classes, the names to put into them. "
            f"Received: --templates={options.templates!r} alone"
        )


def _refuse(options, names, needed):
    """Refuse options that the model would ignore."""
    for name in names:
        value = getattr(options, name)
        if value is not None:
            raise ValueError(
                f"--{name} needs {needed}. Received: --{name}={value} for "
                f"{options.model!r}, which is none"
            )


def _check_attention(classifier):
    if not isinstance(classifier, KerasClassifier):
        raise ValueError(
            "--attention needs a .keras file or weights: a SavedModel does "
            "not give its attention. Received a SavedModel"
        )
    if not keras_vit.inspection.has_rollout(classifier.model):
        raise ValueError(
            "--attention needs a model with attention among tokens. "
            f"Received a model named {classifier.model.name}, which has none"
        )


def _attention(model, images, batch_size):
    return np.concatenate(
        [
            keras_vit.inspection.attention_rollout(
                model, images[i : i + batch_size]
            )
            for i in range(0, len(images), batch_size)
        ]
    )
