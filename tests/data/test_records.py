"""Sets of TFRecords: written atomically, read by any shard."""

import collections
import json

import numpy as np
import pytest

from keras_vit import data
from keras_vit.data import records

tf = pytest.importorskip("tensorflow")

pytestmark = [
    pytest.mark.backend_independent,
    pytest.mark.usefixtures("plain_decoding"),
]

CLASSES = ("ant", "bee", "cat")


def png(index):
    """An image that holds its index in every pixel."""
    return tf.io.encode_png(np.full((4, 4, 3), index, "uint8")).numpy()


def write(path, indices=range(30), shards=3, **arguments):
    """Writes images whose class is their index modulo 3, 7 of them to test."""
    with records.write(path, {"train": shards, "test": 2}, **arguments) as add:
        for i in indices:
            add(
                "test" if i >= 23 else "train",
                f"images/{i}.png",
                CLASSES[i % 3],
                png(i),
            )
    return str(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("records") / "numbers"
    return write(path, image_shape=(4, 4, 3))


def examples(source, start=0, stop=None):
    stop = source.num_examples if stop is None else stop
    return [
        (int(tf.io.decode_png(image)[0, 0, 0]), int(label))
        for image, label in source.stream(start, stop)
    ]


def test_a_set_is_found_by_its_folder(folder):
    train, test = data.load(folder)
    assert (train.num_examples, test.num_examples) == (23, 7)
    assert train.class_names == test.class_names == CLASSES
    assert train.image_shape == (4, 4, 3)
    assert sorted(examples(train)) == [(i, i % 3) for i in range(23)]
    assert sorted(examples(test)) == [(i, i % 3) for i in range(23, 30)]
    train, test = data.load(folder, train_split="test", eval_split="train")
    assert (train.num_examples, test.num_examples) == (7, 23)


def test_a_set_need_not_be_a_local_folder(folder):
    """TensorFlow's file system in memory stands for a bucket."""
    remote = "ram://bucket/numbers"
    tf.io.gfile.makedirs(remote)
    for file in tf.io.gfile.listdir(folder):
        tf.io.gfile.copy(f"{folder}/{file}", f"{remote}/{file}", True)
    for found, expected in zip(
        data.load(remote), data.load(folder), strict=True
    ):
        assert examples(found) == examples(expected)
    for missing in ("ram://bucket/none", "nowhere://bucket"):
        with pytest.raises(ValueError, match="Received: dataset='.*://bucket"):
            data.load(missing)


def test_any_run_of_examples_is_read(folder):
    source, _ = data.load(folder)
    whole = examples(source)
    for start, stop in [(0, 23), (5, 6), (7, 20), (23, 23), (22, 23)]:
        assert examples(source, start, stop) == whole[start:stop]


def test_files_do_not_depend_on_the_order_of_writing(tmp_path):
    for name, order in (("a", range(30)), ("b", reversed(range(30)))):
        write(tmp_path / name, order)
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert len(files) == 3 + 2 + 1
    for file in files:
        a, b = (tmp_path / name / file for name in "ab")
        assert a.read_bytes() == b.read_bytes()


def test_files_are_random_samples_in_random_order(tmp_path):
    path = tmp_path / "sorted"
    with records.write(path, {"train": 8, "test": 1}) as add:
        for i in range(800):
            add("train", f"{i}", "low" if i < 400 else "high", b"")
        add("test", "800", "low", b"")
    index = json.loads((path / "dataset.json").read_text())
    sizes = index["splits"]["train"].values()
    # Four standard deviations of 100 in a file.
    assert all(62 <= size <= 138 for size in sizes)
    names = [
        int(name)
        for name, _ in records.read(str(path), "train")(
            0, 800
        ).as_numpy_iterator()
    ]
    correlation = np.corrcoef(names, np.arange(800))[0, 1]
    assert abs(correlation) < 4 / np.sqrt(800)


def test_classes_may_be_given_some_without_images(tmp_path):
    names = ("none", "cat", "bee", "ant")
    train, _ = data.load(write(tmp_path / "a", class_names=names))
    assert train.class_names == names
    found = collections.Counter(label for _, label in examples(train))
    assert found == {3: 8, 2: 8, 1: 7}
    with pytest.raises(ValueError, match="2 `class_names`. Received: 'cat'"):
        write(tmp_path / "b", class_names=("ant", "bee"))
    assert not list(tmp_path.glob("b*"))


def test_a_set_appears_only_when_it_is_complete(tmp_path):
    path = tmp_path / "set"
    with pytest.raises(RuntimeError, match="the end"):
        with records.write(path, {"train": 2}) as add:
            add("train", "a", "ant", b"")
            assert path.with_name("set.incomplete").is_dir()
            raise RuntimeError("the end")
    assert not list(tmp_path.iterdir())
    write(path)
    with pytest.raises(ValueError, match="must not be there yet"):
        write(path)
    path.rename(tmp_path / "set.incomplete")
    with pytest.raises(ValueError, match="killed may have left"):
        write(path)
    assert (tmp_path / "set.incomplete" / "dataset.json").is_file()


def test_a_full_disk_is_told(tmp_path, monkeypatch):
    def full(*_):
        raise tf.errors.ResourceExhaustedError(None, None, "No space left")

    monkeypatch.setattr(tf.train.Example, "FromString", full)
    with pytest.raises(OSError, match="no room for the set: No space left"):
        write(tmp_path / "set")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "num_shards", [{"train": 0}, {"a/b": 1}, {"train": 100_000}]
)
def test_bad_numbers_of_files_are_named(tmp_path, num_shards):
    with pytest.raises(ValueError, match="`num_shards`"):
        with records.write(tmp_path / "set", num_shards):
            pass


def test_more_files_than_may_be_open_are_refused(tmp_path, monkeypatch):
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    with pytest.raises(ValueError, match="Received: 1000 shards"):
        with records.write(tmp_path / "set", {"train": 1000}):
            pass


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (dict(class_names=["a"]), "at least 2 different"),
        (dict(class_names=["a", "a", "b"]), "at least 2 different"),
        (dict(class_names=None), "TypeError"),
        (dict(splits={"train": {"x.tfrecord": -1}}), "number of examples"),
        (dict(splits=[]), "AttributeError"),
        (dict(splits={"train": {}}), "has examples.*'train'"),
        (dict(image_shape=[4]), "image_shape"),
    ],
)
def test_a_wrong_index_is_explained(folder, tmp_path, change, word):
    with open(f"{folder}/dataset.json") as file:
        index = json.load(file) | change
    (tmp_path / "dataset.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match=word):
        data.load(str(tmp_path))


def test_what_is_missing_is_named(tmp_path):
    path = tmp_path / "set"
    write(path)
    with pytest.raises(ValueError, match="eval_split='dev'"):
        data.load(str(path), eval_split="dev")
    with pytest.raises(ValueError, match="`split`.*'dev'"):
        records.read(str(path), "dev")
    (path / "train-00001-of-00003.tfrecord").unlink()
    with pytest.raises(ValueError, match="1 are missing, such as 'train-00001"):
        data.load(str(path))
    (path / "dataset.json").write_text("{")
    with pytest.raises(ValueError, match="must be JSON"):
        data.load(str(path))


def test_images_have_any_number_of_classes(tmp_path):
    several = {0: (), 1: ("bee",), 2: ("ant", "cat"), 3: ("cat", "cat", "bee")}
    path = tmp_path / "several"
    with records.write(path, {"train": 2, "test": 1}, multi_label=True) as add:
        for i, names in several.items():
            add("train", str(i), names, png(i))
        add("test", "4", ["ant"], png(4))
        with pytest.raises(ValueError, match="must be a sequence. .*'ant'"):
            add("test", "5", "ant", png(5))
    train, test = data.load(str(path))
    assert train.multi_label and test.multi_label
    assert train.class_names == CLASSES
    found = {
        int(tf.io.decode_png(image)[0, 0, 0]): label.numpy().tolist()
        for image, label in train.stream(0, 4)
    }
    assert found == {0: [0, 0, 0], 1: [0, 1, 0], 2: [1, 0, 1], 3: [0, 1, 1]}
    [batch] = data.eval_batches(
        test, batch_size=1, image_size=(4, 4), channels=3
    )
    assert batch["labels"].numpy().tolist() == [[1, 0, 0]]
    index = json.loads((path / "dataset.json").read_text())
    index["class_names"].remove("cat")
    (path / "dataset.json").write_text(json.dumps(index))
    train, _ = data.load(str(path))
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be 0 to 1"):
        list(train.stream(0, 4))
