"""Paths that cannot be read as files, wherever a user may give one."""

import hashlib
import json
import os

import pytest
import small_checkpoints

from keras_vit import _paths, data
from keras_vit.data import exclusions, video_files
from keras_vit.export import serving_assets
from keras_vit.weights import checkpoint, download
from keras_vit_cli import classify

pytest.importorskip("tensorflow")
pytestmark = pytest.mark.backend_independent


def member(path):
    """A directory of weights whose other files are right."""
    arrays, config = small_checkpoints.timm()
    for name in {"model.safetensors", "config.json"} - {path.name}:
        small_checkpoints.write(path.parent / "right", arrays, config)
        os.rename(path.parent / "right" / name, path.parent / name)
    checkpoint.open_checkpoint(path.parent)


def folder(path):
    for name in ("cat", "dog"):
        for i in range(2):
            path.with_name(name).mkdir(exist_ok=True)
            (path.with_name(name) / f"{i}.png").write_bytes(b"")
    path.replace(path.with_name("cat") / path.name)
    data.load(str(path.parent))


def labels(path):
    path.with_name("labels.csv").write_text(f"image,labels\n{path.name},a;b")
    data.load(str(path.parent))


def shard(path):
    splits = {"train": {path.name: 1}, "test": {path.name: 1}}
    index = dict(class_names=["a", "b"], splits=splits)
    path.with_name("dataset.json").write_text(json.dumps(index))
    data.load(str(path.parent))


def video(path):
    pytest.importorskip("av")
    with video_files.open_video(str(path)):
        pass


def broken(path):
    raise ValueError(str(data.find_broken([path])))


def asked(path):
    ((_, ((name, error),)),) = classify._batches([str(path)], 1)
    raise ValueError(f"{name}: {error}")


@pytest.mark.parametrize("kind", ["device", "name"])
@pytest.mark.parametrize(
    ("name", "read"),
    [
        *(
            (f"a.{ending}", checkpoint.open_checkpoint)
            for ending in ("npz", "keras", "h5", "safetensors", "pth", "pyth")
        ),
        *((name, member) for name in ("model.safetensors", "config.json")),
        (
            "model.weights.h5",
            lambda path: checkpoint.open_checkpoint(path.parent),
        ),
        ("a.npz", lambda path: data.load(str(path))),
        ("a.png", folder),
        ("a.png", labels),
        *(
            (name, lambda path: data.load(str(path.parent)))
            for name in ("labels.csv", "dataset.json")
        ),
        ("a.tfrecord", shard),
        ("a.txt", lambda path: exclusions.read(str(path))),
        ("a.txt", serving_assets.read_class_names),
        ("a.png", lambda path: data.read_image(path, (4, 4))),
        ("a.png", broken),
        ("a.png", asked),
        ("a.mp4", video),
    ],
)
def test_a_device_or_a_name_that_is_not_utf8(name, read, kind, tmp_path):
    root = tmp_path / (os.fsdecode(b"\xff") if kind == "name" else "set")
    root.mkdir()
    if kind == "name":
        (root / name).touch()
    else:
        (root / name).symlink_to(os.devnull)
    words = "not UTF-8" if kind == "name" else "no regular file"
    with pytest.raises(ValueError, match=words) as error:
        read(root / name)
    expected = root if kind == "name" else name
    assert ascii(str(expected))[1:-1] in str(error.value)


def test_what_a_path_is(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    (tmp_path / "lost").symlink_to(tmp_path / "nowhere")
    assert {
        name: _paths.why_no_file(tmp_path / name)
        for name in ("pipe", "file", "lost", "")
    } == {
        "pipe": "is no regular file",
        "file": None,
        "lost": "is not there",
        "": "is a folder",
    }
    with pytest.raises(ValueError, match="no regular file"):
        download.fetch((tmp_path / "pipe").as_uri(), tmp_path / "copy")


def test_the_digest_of_a_directory_is_that_of_its_files(tmp_path):
    assert _paths.digest(tmp_path / "absent") is None
    found = [_paths.digest(tmp_path)]
    (tmp_path / "variables").mkdir()
    file = tmp_path / "variables" / "data"
    for content in (b"weights", b"others"):
        file.write_bytes(content)
        found += [_paths.digest(tmp_path), _paths.digest(file)]
    file.rename(tmp_path / "data")
    assert len({*found, _paths.digest(tmp_path)}) == 6


def test_a_name_that_begins_as_a_home_directory_is_a_name(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "~model.keras").touch()
    assert _paths.digest("~model.keras") == hashlib.sha256().hexdigest()


class Saved:
    """A model that another process saves to the same path meanwhile."""

    def __init__(self, path=None):
        self.path = path

    def save(self, part):
        with open(part, "w") as file:
            file.write("begun, ")
            if self.path:
                _paths.save_whole(Saved(), self.path)
            file.write("complete")


@pytest.fixture
def private():
    before = os.umask(0o077)
    yield
    os.umask(before)


# The longest name that most file systems have.
@pytest.mark.parametrize("name", ["a.keras", "a" * 249 + ".keras"])
def test_a_file_is_whole_whatever_else_writes_it(name, tmp_path, private):
    path = tmp_path / name
    _paths.save_whole(Saved(path), path)
    assert path.read_text() == "begun, complete"
    with _paths.atomic(path) as file:
        file.write(b"other")
    assert path.read_bytes() == b"other"
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(KeyError), _paths.atomic(path) as file:
        raise KeyError
    assert list(tmp_path.iterdir()) == [path]
