"""The models behind the web page: Keras models, SavedModels, TF Serving."""

import dataclasses
import functools
import os
import pathlib
import re
import types

import numpy as np
from keras import ops

from keras_vit import data, evaluation, inspection
from keras_vit.text import TwoTowers
from keras_vit_cli import classify, opening, rows, words
from recipes import demo_tasks

# Number of classes that the page shows.
TOP_K = 5
# Images per batch when a folder is read.
BATCH_SIZE = 16
# Number of nearest images that vote for a class.
NUM_VOTES = 20
# Of a model with a text tower, before a visitor names others.
FIRST_CLASSES = "a temple, a flower, a cat"
_SERVED = r"http://([^/\s]+)/v1/models/([^/\s:]+)(?:/versions/(\d+))?/?"


@dataclasses.dataclass(frozen=True)
class Answer:
    """The answer of a model for one image.

    Attributes:
        classes: (name, probability) of the top classes, most probable first.
        rollout: Attention rollout `[rows, columns]`, or None.
        heads: The attention of each head, `[A, rows, columns]` for each
            attention layer of the model; empty without attention.
    """

    classes: tuple[tuple[str, float], ...]
    rollout: np.ndarray | None = None
    heads: tuple[np.ndarray, ...] = ()


def load(name: str):
    """Load a model by its name on the command line.

    Args:
        name: A model as `keras-vit predict` takes it, or the address of one on
            a TF Serving server, http://HOST:8501/v1/models/NAME.

    Returns:
        An object with `ask(path)`, which returns an `Answer`, and
        `features(paths)`, which returns a representation `[D]` for each image
        file, or None if the file does not decode; of a model with a head a
        `demo_tasks.TaskModel`, and with a text tower a `WordsModel`. `ask`,
        `find` and `named` raise ValueError with a message for the visitor.

    Raises:
        ValueError: If the model does not load, or is none of images.
    """
    if "://" in name and not name.startswith("hf://"):
        return ServedModel(name)
    model = None if opening.is_savedmodel(name) else opening.load(name)
    if isinstance(model, TwoTowers):
        return WordsModel(model, name)
    return _shown(model, name)


def _shown(model, name):
    """Return what shows a model without a text tower."""
    classifier = opening.asked(name, model)
    if hasattr(classifier, "find"):
        return demo_tasks.TaskModel(classifier)
    if not isinstance(classifier, opening.KerasClassifier):
        return SavedModel(classifier)
    if classifier.takes_video:
        raise ValueError(
            f"MODEL must take images. Received: {name!r}, which takes video"
        )
    return KerasModel(classifier)


def best(names: list[str], scores: np.ndarray) -> tuple:
    """Return (name, probability) of the top classes."""
    return tuple(row[1:] for row in rows.best(names, scores, TOP_K))


class KerasModel:
    """A Keras model of this package."""

    def __init__(self, classifier: opening.KerasClassifier):
        self._classifier = classifier
        self._model = classifier.model
        self._backbone = evaluation.representation(self._model)
        self._has_attention = inspection.has_rollout(self._model)

    def ask(self, path: str) -> Answer:
        """Classify a file like `keras-vit predict`."""
        ((_, image, scores),) = self._classifier.predict([path])
        if isinstance(scores, str):
            raise ValueError(scores)
        classes = best(self._classifier.names, scores)
        if not self._has_attention:
            return Answer(classes)
        rollout, heads = inspection.attention_maps(self._model, image[None])
        return Answer(classes, rollout[0], tuple(each[0] for each in heads))

    def features(self, paths: list[str]) -> list[np.ndarray | None]:
        """Return the representations, the inputs of the classifier's head."""
        *size, channels = self._model.input_shape[1:]
        images = {}
        for path in paths:
            try:
                images[path] = data.read_image(path, size, channels)
            except ValueError:
                pass
        if not images:
            return [None] * len(paths)
        found = self._backbone.predict_on_batch(np.stack(list(images.values())))
        found = ops.convert_to_numpy(found)
        found = dict(zip(images, found, strict=True))
        return [found.get(path) for path in paths]


class WordsModel:
    """A model with a text tower, whose classes a visitor names."""

    def __init__(self, model: TwoTowers, name: str):
        self._model = model
        self._name = name
        # Visitors ask of several images, and each number of classes compiles.
        self.named = functools.lru_cache(maxsize=8)(self._named)
        self.named(FIRST_CLASSES)  # raises an error before the page is there

    def _named(self, classes: str):
        """Return the classifier or the detector of classes, as `load` does."""
        if not words.names_of(classes):
            raise ValueError("Name the classes, with commas between.")
        return _shown(words.model_of(self._model, classes), self._name)


class SavedModel:
    """A SavedModel that `keras_vit.export_savedmodel` wrote."""

    def __init__(self, classifier):
        self._classifier = classifier

    def ask(self, path: str) -> Answer:
        """Classify a file with the signature `predict`."""
        ((_, _, scores),) = self._classifier.predict([path])
        if isinstance(scores, str):
            raise ValueError(scores)
        classes = best(self._classifier.names, scores)
        if "attention" not in self._classifier.signatures:
            return Answer(classes)
        found = self._classifier.ask("attention", read([path]))
        return Answer(classes, *maps({k: v[0] for k, v in found.items()}))

    def features(self, paths: list[str]) -> list[np.ndarray | None]:
        """Return the answers of the signature `features`."""
        answers = self._classifier.ask("features", read(paths))
        return [
            row if valid else None
            for row, valid in zip(
                answers["features"], answers["valid"], strict=True
            )
        ]


class ServedModel:
    """A model on a TF Serving server, called over REST."""

    def __init__(self, url: str):
        found = re.fullmatch(_SERVED, url)
        if not found:
            raise ValueError(
                "MODEL, where it is an address, must be "
                "http://HOST:PORT/v1/models/NAME or .../NAME/versions/N. "
                f"Received: {url!r}"
            )
        server, model, version = found.groups()
        self._served = types.SimpleNamespace(
            server=server,
            model=model,
            version=version and int(version),
            timeout=60.0,
        )
        try:
            self._signatures = classify.signatures_of(self._served)
        except classify.NoAnswer as error:
            raise ValueError(f"MODEL must be served. {error}") from None
        if "features" not in self._signatures:
            raise ValueError(
                "MODEL, where it is an address, must be a classifier of "
                "images, with a signature `features`. Received: "
                f"{url!r}, with {self._signatures}"
            )

    def ask(self, path: str) -> Answer:
        """Classify a file with the signature `serving_default`."""
        outputs = ("classes", "scores", "valid")
        (answer,) = self._ask("serving_default", outputs, [path])
        if not answer["valid"]:
            raise ValueError(f"{path!r} is not valid: {classify.why(answer)}")
        pairs = zip(
            answer["classes"], classify.probabilities_of(answer), strict=True
        )
        if "attention" not in self._signatures:
            return Answer(tuple(pairs))
        (found,) = self._ask("attention", ("rollout", "layer_1"), [path])
        return Answer(tuple(pairs), *maps(found))

    def features(self, paths: list[str]) -> list[np.ndarray | None]:
        """Return the answers of the signature `features`."""
        return [
            np.array(answer["features"]) if answer["valid"] else None
            for answer in self._ask("features", ("features", "valid"), paths)
        ]

    def _ask(self, signature, outputs, paths):
        images = read(paths)
        try:
            return classify.ask_rest(images, self._served, signature, outputs)
        except (classify.Refused, classify.NoAnswer) as error:
            raise ValueError(str(error)) from None


def maps(found: dict) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """Return rollout and each layer's maps of a result of `attention`."""
    layers = sorted(
        (name for name in found if name.startswith("layer_")),
        key=lambda name: int(name.removeprefix("layer_")),
    )
    heads = tuple(np.asarray(found[name], "float32") for name in layers)
    return np.asarray(found["rollout"], "float32"), heads


def read(paths: list[str]) -> list[bytes]:
    """Return the contents of files."""
    return [pathlib.Path(path).read_bytes() for path in paths]


class Neighbours:
    """The images of a folder, indexed by a model's representation."""

    def __init__(self, model, paths: list[str], report):
        """Compute the representation of every image that decodes.

        Args:
            model: A model that `load` returned.
            report: Function that is called with the number of processed files.

        Raises:
            ValueError: If no image decodes.
        """
        rows, self.paths = [], []
        for i in range(0, len(paths), BATCH_SIZE):
            batch = paths[i : i + BATCH_SIZE]
            for path, row in zip(batch, model.features(batch), strict=True):
                if row is not None:
                    rows.append(_unit(row))
                    self.paths.append(path)
            report(min(i + BATCH_SIZE, len(paths)))
        if not rows:
            raise ValueError(
                "--images must be a folder with images that decode. "
                f"Received: one of {len(paths)} files that do not"
            )
        self._rows = np.stack(rows)
        self._model = model
        folders = [os.path.basename(os.path.dirname(p)) for p in self.paths]
        self.class_names, self._classes = np.unique(
            folders, return_inverse=True
        )

    def nearest(
        self, path: str, count: int = 6
    ) -> tuple[list[tuple[str, float]], str | None]:
        """Return the nearest images, and the class that they vote for.

        Returns:
            (path, cosine similarity), nearest first; and the vote of
            `evaluation.nearest_neighbours` if each class has a folder of
            images, or else None.
        """
        (row,) = self._model.features([path])
        row = _unit(row)
        similarities = self._rows @ row
        order = np.argsort(-similarities)[:count]
        found = [(self.paths[i], float(similarities[i])) for i in order]
        if len(self.class_names) < 2:
            return found, None
        train = (self._rows, self._classes)
        k = min(NUM_VOTES, len(self._rows))
        (vote,) = evaluation.nearest_neighbours(train, row[None], k=k)
        return found, str(self.class_names[vote])


def _unit(row):
    return row / max(np.linalg.norm(row), 1e-12)
