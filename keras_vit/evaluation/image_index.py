"""Search of a folder of images by a text or an image."""

import dataclasses
import os
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from keras_vit._arguments import Count, checked
from keras_vit._paths import NPZ_ERRORS, atomic, require_file
from keras_vit.data import decode

# Similarities that are in memory at once, 64 MB.
_AT_ONCE = 16_000_000


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ImageIndex:
    """The embeddings of images.

    Attributes:
        paths: The files.
        embeddings: float32 `[N, E]`, of length 1.
        model: What the model is called that made them, for its queries.
        skipped: Files that do not decode -> the reason.
        model_sha256: Digest of the model's file; "" without one.
    """

    paths: tuple[str, ...] = dataclasses.field(repr=False)
    embeddings: np.ndarray = dataclasses.field(repr=False)
    model: str = ""
    skipped: dict[str, str] = dataclasses.field(default_factory=dict)
    model_sha256: str = ""

    def save(self, path: str | os.PathLike) -> None:
        """Write an npz file, which has no pickled objects."""
        with atomic(path) as file:
            np.savez(
                file,
                paths=np.array(self.paths, str),
                embeddings=self.embeddings,
                model=np.array(self.model, str),
                skipped=np.array([*self.skipped.items()], str).reshape(-1, 2),
                model_sha256=np.array(self.model_sha256, str),
            )

    @classmethod
    def load(cls, path: str | os.PathLike) -> "ImageIndex":
        """Read what `save` wrote.

        Raises:
            ValueError: If the file is none of these.
        """
        require_file(path)
        try:
            if not zipfile.is_zipfile(path):
                raise ValueError("not a complete file .npz")
            with np.load(path, allow_pickle=False) as found:
                index = cls(
                    paths=tuple(found["paths"].tolist()),
                    embeddings=found["embeddings"].astype("float32"),
                    model=str(found["model"]),
                    skipped=dict(found["skipped"].tolist()),
                    # Earlier versions wrote none.
                    model_sha256=str(found.get("model_sha256", "")),
                )
        except NPZ_ERRORS as why:
            raise ValueError(
                f"{os.fspath(path)!r} must be an index of images, as "
                f"`keras-vit index` writes. Received: {why}"
            ) from why
        shape = index.embeddings.shape
        if len(shape) != 2 or shape[0] != len(index.paths):
            raise ValueError(
                f"{os.fspath(path)!r} must have an embedding for each path. "
                f"Received: shape {shape} for {len(index.paths)} paths"
            )
        return index

    @checked
    def search(
        self, queries: np.ndarray, count: Count = 10
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the images that are most similar to each query.

        The search is exact: NumPy, or FAISS where it is installed.

        Args:
            queries: `[Q, E]`, of any length.
            count: Images of each query.

        Returns:
            Indices and cosines, `[Q, count]`, the most similar first.

        Raises:
            ValueError: If the embeddings have another width, or `count` is
                below 1.
        """
        queries = np.asarray(queries, "float32")
        if queries.ndim != 2 or queries.shape[1] != self.embeddings.shape[1]:
            raise ValueError(
                f"`queries` must be [Q, {self.embeddings.shape[1]}], as the "
                f"model {self.model!r} gives. Received: {queries.shape}"
            )
        queries = _unit(queries)
        count = min(count, len(self.paths))
        if not len(queries):
            return np.zeros((0, count), "int64"), np.zeros(
                (0, count), "float32"
            )
        try:
            from faiss import IndexFlatIP
        except ImportError:  # a folder may have this name, too
            IndexFlatIP = None
        if IndexFlatIP is not None:
            flat = IndexFlatIP(self.embeddings.shape[1])
            flat.add(self.embeddings)
            cosines, indices = flat.search(queries, count)
            return indices, cosines
        rows = max(1, _AT_ONCE // max(1, len(self.paths)))
        parts = [
            _best(queries[i : i + rows] @ self.embeddings.T, count)
            for i in range(0, len(queries), rows)
        ]
        indices, cosines = (np.concatenate(x) for x in zip(*parts, strict=True))
        return indices, cosines


def _best(cosines, count):
    """Return indices and values of the largest, ties in order."""
    if count < cosines.shape[1]:
        chosen = np.argpartition(-cosines, count - 1, axis=1)[:, :count]
        chosen = np.sort(chosen, axis=1)
    else:
        chosen = np.broadcast_to(np.arange(count), (len(cosines), count))
    values = np.take_along_axis(cosines, chosen, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    return (
        np.take_along_axis(chosen, order, axis=1),
        np.take_along_axis(values, order, axis=1),
    )


@checked
def index_images(
    model: Any,
    paths: Sequence[str],
    *,
    batch_size: Count = 64,
    name: str = "",
    allow_none: bool = False,
) -> ImageIndex:
    """Embed image files, of which one batch at a time is in memory.

    Args:
        model: A `keras_vit.text.TwoTowers`.
        paths: The files.
        batch_size: Images in each step.
        name: What the model is called, for `ImageIndex.model`.
        allow_none: Whether the index may be empty.

    Raises:
        ValueError: If no file decodes, unless `allow_none`, `batch_size` is
            below 1, or the model has no tower of images.
    """
    if not hasattr(model, "image_tower"):
        raise ValueError(
            "`model` must be a `keras_vit.text.TwoTowers`. Received: "
            f"{getattr(model, 'name', model)!r} of {type(model)}"
        )
    kept: list[str] = []
    embeddings, skipped = [], {}
    for batch in _read(paths, model.image_tower.image_shape, batch_size):
        images = []
        for path, image in batch:
            if isinstance(image, str):
                skipped[path] = image
            else:
                kept.append(path)
                images.append(image)
        if images:
            # Of one size, so that a compiled model sees no second shape.
            missing = batch_size - len(images)
            pixels = np.pad(np.stack(images), [(0, missing), *[(0, 0)] * 3])
            found = model.image_tower.predict_on_batch(pixels)
            embeddings.append(_unit(np.asarray(found)[: len(images)]))
    if not kept and allow_none:
        width = model.image_tower.output_shape[-1]
        embeddings = [np.zeros((0, width))]
    elif not kept:
        reason = next(iter(skipped.values()), "there are none")
        raise ValueError(
            f"`paths` must hold an image that decodes. Received: {len(paths)} "
            f"files; {reason}"
        )
    return ImageIndex(
        paths=tuple(kept),
        embeddings=np.concatenate(embeddings).astype("float32"),
        model=name,
        skipped=skipped,
    )


def _read(paths, shape, batch_size) -> Iterator[list]:
    """Yield batches of (path, pixels or what is wrong), read ahead by one."""
    height, width, channels = shape

    def read(path):
        try:
            return path, decode.read_image(path, (height, width), channels)
        except ValueError as error:
            return path, str(error)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        ahead: list = []
        for i in range(0, len(paths), batch_size):
            ahead.append(
                [pool.submit(read, p) for p in paths[i : i + batch_size]]
            )
            if len(ahead) == 2:
                yield [future.result() for future in ahead.pop(0)]
        for batch in ahead:
            yield [future.result() for future in batch]


def _unit(x):
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)
