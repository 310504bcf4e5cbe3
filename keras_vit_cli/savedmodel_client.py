"""A SavedModel of ours, asked without a server."""

import os

import numpy as np
import tensorflow as tf

from keras_vit._paths import require_file


class Classifier:
    """Says what is on files, as TF Serving would."""

    def __init__(self, directory: str | os.PathLike):
        """Load a version's directory.

        Raises:
            ValueError: If it is not a SavedModel of this package.
        """
        # Signatures are valid as long as the object that was loaded with them.
        self._loaded = tf.saved_model.load(os.fspath(directory))
        class_names = os.path.join(directory, "assets.extra", "labels.txt")
        signatures = self._loaded.signatures
        if "predict" not in signatures or not os.path.isfile(class_names):
            raise ValueError(
                "MODEL, where it is a SavedModel, must be one that "
                "keras_vit.export_savedmodel wrote of a classifier. Received: "
                f"{os.fspath(directory)!r}, with {list(signatures)}"
            )
        self.signatures = list(signatures)
        inputs = signatures["predict"].structured_input_signature[1]
        if "image_bytes" not in inputs:
            raise ValueError(
                "MODEL, where it is a SavedModel, must take images. Received: "
                f"{os.fspath(directory)!r}, which takes {list(inputs)}"
            )
        with open(class_names, encoding="utf-8") as file:
            self.names = file.read().splitlines()

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

        Args:
            signature: Its name.

        Returns:
            Its outputs, arrays by name.
        """
        function = self._loaded.signatures[signature]
        try:
            found = function(image_bytes=tf.constant(images))
        except tf.errors.InvalidArgumentError:
            # More images than the limit with which the model was exported.
            if len(images) == 1:
                raise
            half = len(images) // 2
            first = self.ask(signature, images[:half])
            rest = self.ask(signature, images[half:])
            return {k: np.concatenate([first[k], rest[k]]) for k in first}
        return {name: value.numpy() for name, value in found.items()}
