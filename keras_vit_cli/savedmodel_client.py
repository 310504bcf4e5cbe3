"""A SavedModel of ours, asked without a server."""

import os

import tensorflow as tf


class Classifier:
    """Says what is on files, as TF Serving would."""

    def __init__(self, directory: str | os.PathLike):
        """Loads a version's directory.

        Args:
            directory: What `keras_vit.export_savedmodel` wrote.

        Raises:
            ValueError: If it is no SavedModel of this package.
        """
        # Signatures live as long as what they were loaded with.
        self._loaded = tf.saved_model.load(os.fspath(directory))
        class_names = os.path.join(directory, "assets.extra", "labels.txt")
        signatures = self._loaded.signatures
        if "predict" not in signatures or not os.path.isfile(class_names):
            raise ValueError(
                "MODEL, where it is a SavedModel, must be one that "
                "keras_vit.export_savedmodel wrote. Received: "
                f"{os.fspath(directory)!r}, with {list(signatures)}"
            )
        self._predict = signatures["predict"]
        inputs = self._predict.structured_input_signature[1]
        if "image_bytes" not in inputs:
            raise ValueError(
                "MODEL, where it is a SavedModel, must take images. Received: "
                f"{os.fspath(directory)!r}, which takes {list(inputs)}"
            )
        with open(class_names, encoding="utf-8") as file:
            self.names = file.read().splitlines()

    def predict(self, paths):
        """Yields (path, None, probabilities or what is wrong)."""
        read, contents = [], []
        for path in paths:
            try:
                with open(path, "rb") as file:
                    contents.append(file.read())
            except OSError as error:
                yield path, None, f"{path!r} cannot be read: {error}"
            else:
                read.append(path)
        if not read:
            return
        try:
            found = self._predict(image_bytes=tf.constant(contents))
        except tf.errors.InvalidArgumentError:
            # More images than the model was exported to take at once.
            if len(read) == 1:
                raise
            half = len(read) // 2
            yield from self.predict(read[:half])
            yield from self.predict(read[half:])
            return
        valid = found["valid"].numpy()
        scores = found["probabilities"].numpy()
        for path, right, row in zip(read, valid, scores, strict=True):
            if right:
                yield path, None, row
            else:
                yield (
                    path,
                    None,
                    (f"{path!r} does not decode, or is too large to be served"),
                )
