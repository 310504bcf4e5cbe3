"""An index of images, and the search in it."""

import os
import sys
import types

import numpy as np
import pytest
from PIL import Image

from keras_vit.evaluation import ImageIndex, index_images
from keras_vit_cli import index as index_command

pytestmark = pytest.mark.backend_independent


class Means:
    """A tower whose embeddings are the mean colours."""

    image_shape = (4, 4, 3)

    def __init__(self):
        self.batches = []

    def predict_on_batch(self, images):
        self.batches.append(images.shape)
        return images.mean((1, 2))


def test_images_are_found_by_their_embeddings(tmp_path):
    colours = np.eye(3)[[0, 1, 2, 0, 1]] * 255
    paths = []
    for i, colour in enumerate(colours):
        paths.append(str(tmp_path / f"{i}.png"))
        Image.new("RGB", (6, 8), tuple(map(int, colour))).save(paths[-1])
    bad = tmp_path / "bad.jpg"
    bad.write_bytes(b"no image")
    model = types.SimpleNamespace(image_tower=Means())
    index = index_images(model, [*paths, str(bad)], batch_size=2, name="means")
    assert set(model.image_tower.batches) == {(2, 4, 4, 3)}
    assert list(index.skipped) == [str(bad)]
    index.save(tmp_path / "index.npz")
    index = ImageIndex.load(tmp_path / "index.npz")
    assert (index.model, index.paths) == ("means", tuple(paths))
    indices, cosines = index.search([[0, 3, 0], [1, 0, 1]], 2)
    assert indices.tolist() == [[1, 4], [0, 2]]
    np.testing.assert_allclose(cosines, [[1, 1], [0.5**0.5] * 2], rtol=1e-6)
    assert index.search([[1, 0, 0]], 99)[0].shape == (1, 5)
    with pytest.raises(ValueError, match=r"must be \[Q, 3\].*'means'"):
        index.search([[1, 0]])
    assert index.search(np.zeros((0, 3)), 2)[1].shape == (0, 2)
    with pytest.raises(ValueError, match="`model` must be a `keras_vit.text"):
        index_images(None, paths)
    with pytest.raises(ValueError, match="`count` must be an integer, at lea"):
        index.search([[1, 0, 0]], 0)
    with pytest.raises(ValueError, match="`batch_size` must be an integer, a"):
        index_images(model, paths, batch_size=0)
    with pytest.raises(ValueError, match="an image that decodes"):
        index_images(model, [str(bad)])
    with pytest.raises(ValueError, match="must be an index of images"):
        ImageIndex.load(bad)
    for wrong in (np.ones((2, 3)), np.ones(1)):
        ImageIndex(paths=("a",), embeddings=wrong).save(bad)
        with pytest.raises(ValueError, match="an embedding for each path"):
            ImageIndex.load(bad)


def test_the_command_lists_an_image_of_two_arguments_once(
    tmp_path, monkeypatch
):
    Image.new("RGB", (6, 8), (255, 0, 0)).save(tmp_path / "a.png")
    model = types.SimpleNamespace(image_tower=Means())
    monkeypatch.setattr(index_command, "two_towers", lambda name: model)
    options = types.SimpleNamespace(
        index=str(tmp_path / "index.npz"),
        images=[str(tmp_path), str(tmp_path / "a.png")],
        model="means",
        batch_size=2,
    )
    assert index_command.run(options) == 0
    found = ImageIndex.load(options.index)
    assert found.paths == (str(tmp_path / "a.png"),)
    assert index_command.run(options) == 0  # replaces an index, no other file
    for content in (b"weights", b"PK\3\4 of weights"):
        (tmp_path / "index.npz").write_bytes(content)
        with pytest.raises(ValueError, match="must be an index of images"):
            index_command.run(options)
        assert (tmp_path / "index.npz").read_bytes() == content
    # Noticed before the work.
    (tmp_path / "folder.npz").mkdir()
    options.index = str(tmp_path / "folder.npz")
    with pytest.raises(ValueError, match="INDEX must be a file .npz"):
        index_command.run(options)


def test_an_index_that_is_not_written_leaves_the_one_before(
    tmp_path, monkeypatch
):
    path = tmp_path / "index.npz"
    index = ImageIndex(paths=("a",), embeddings=np.ones((1, 2), "float32"))
    index.save(path)
    before = path.read_bytes()

    def full(file, **arrays):
        file.write(b"PK")
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(OSError, match="No space left"):
        index.save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["index.npz"]


class FlatIP:
    """What `search` asks of FAISS, slowly."""

    used = 0

    def __init__(self, width):
        self.rows = np.zeros((0, width))

    def add(self, rows):
        assert rows.dtype == "float32" and rows.flags.c_contiguous
        self.rows = rows

    def search(self, queries, count):
        assert queries.dtype == "float32" and queries.flags.c_contiguous
        FlatIP.used += 1
        cosines = queries @ self.rows.T
        order = np.argsort(-cosines, axis=1)[:, :count]
        return np.take_along_axis(cosines, order, axis=1), order


def test_faiss_searches_where_it_is_installed(monkeypatch):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(50, 8)).astype("float32")
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    index = ImageIndex(paths=tuple(map(str, range(50))), embeddings=rows)
    queries = rng.normal(size=(4, 8))[:, ::-1]
    expected = index.search(queries, 5)
    faiss = types.ModuleType("faiss")
    faiss.IndexFlatIP = FlatIP
    monkeypatch.setitem(sys.modules, "faiss", faiss)
    found = index.search(queries, 5)
    assert FlatIP.used == 1
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-5)
