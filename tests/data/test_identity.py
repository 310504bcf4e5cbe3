"""Which examples two sources share, and whether a data set has changed."""

import dataclasses
import os
import pathlib
import shutil

import numpy as np
import pytest

from keras_vit import data

pytestmark = pytest.mark.backend_independent


@pytest.fixture
def folder(tmp_path):
    """Six files of two classes, which nothing here decodes."""
    for name in ("a/1", "a/2", "a/3", "b/1", "b/2", "b/3"):
        path = tmp_path / "set" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return tmp_path / "set"


def digests(folder):
    return [data.digest(part) for part in data.load(str(folder))]


@pytest.mark.parametrize("change", ["added", "removed", "renamed", "label"])
def test_a_changed_folder_has_another_digest(folder, change):
    before = digests(folder)
    assert digests(folder) == before
    if change == "added":
        (folder / "a" / "4.png").touch()
    elif change == "removed":
        (folder / "a" / "2.png").unlink()
    elif change == "renamed":
        for path in list((folder / "a").iterdir()):
            path.rename(path.with_name(f"0{path.name}"))
    else:
        (folder / "a").rename(folder / "c")
    assert digests(folder) != before


def test_a_moved_folder_has_the_same_digest(folder):
    before = digests(folder)
    shutil.move(folder, folder.with_name("moved"))
    assert digests(folder.with_name("moved")) == before


def test_pixels_and_labels_are_in_the_digest(tmp_path):
    images = np.arange(8, dtype="uint8").reshape(8, 1, 1)
    labels = np.arange(8) % 2
    found = set()
    for x, y in ((images, labels), (images + 1, labels), (images, 1 - labels)):
        np.savez(tmp_path / "a.npz", x_train=x, y_train=y)
        found.add(data.digest(data.load(str(tmp_path / "a.npz"))[0]))
    assert len(found) == 3


def test_shared_files_are_counted_through_links(folder, tmp_path):
    train, evaluation = data.load(str(folder))
    assert data.count_shared(evaluation, train) == 0
    other = data.load(str(folder), seed=1, eval_fraction=0.5)[1]
    expected = len({*other.paths} & {*train.paths})
    assert data.count_shared(other, train) == expected > 0
    os.symlink(folder, tmp_path / "link")
    linked = data.load(str(tmp_path / "link"))[1]
    assert data.count_shared(linked, evaluation) == evaluation.num_examples
    assert pathlib.Path(linked.paths[0]).parts != evaluation.paths[0]


def test_shared_pixels_are_counted():
    train, evaluation = data.load("digits")
    assert data.count_shared(evaluation, train) == 0
    other = data.load("digits", seed=1)[1]
    assert 200 < data.count_shared(other, train) < 359


def test_shared_ranges_of_streams_are_counted():
    def stream(*ranges):
        count = sum(stop - start for _, start, stop in ranges)
        return data.Source(
            name="stream",
            class_names=("a", "b"),
            num_examples=count,
            stream=lambda *_, **__: None,
            ranges=ranges,
        )

    whole = stream(("train", 0, 100), ("test", 0, 50))
    assert data.count_shared(stream(("train", 90, 120)), whole) == 10
    assert data.count_shared(stream(("other", 0, 10)), whole) == 0
    kept, held_out = data.hold_out_dev(whole, 0.4, 0)
    assert data.count_shared(held_out, kept) == 0
    assert held_out.ranges == (("train", 90, 100), ("test", 0, 50))
    few = data.keep_images(kept, 30, 0)
    assert data.count_shared(stream(("train", 20, 90)), few) == 10
    others = (
        stream(("train", 0, 40)),
        stream(("train", 40, 80)),
        dataclasses.replace(stream(("train", 0, 40)), class_names=("a", "c")),
    )
    assert len({data.digest(x) for x in (few, kept, *others)}) == 5
