"""Data sets found, and errors that say what is wrong with them."""

import re
import warnings

import numpy as np
import pytest

from keras_vit import data
from keras_vit.data import split

tf = pytest.importorskip("tensorflow")

pytestmark = pytest.mark.backend_independent


def write_image(path, shade=100, size=(6, 5)):
    path.parent.mkdir(parents=True, exist_ok=True)
    image = np.full((*size, 3), shade, "uint8")
    path.write_bytes(tf.io.encode_jpeg(image, quality=100).numpy())
    return path


def make_folder(root, classes=("cat", "dog"), count=5):
    for i, name in enumerate(classes):
        for j in range(count):
            write_image(root / name / f"{j}.jpg", shade=40 * i + 5 * j)
    return root


def test_digits_hold_out_a_fifth_of_each_class():
    train, evaluation = data.load("digits")
    assert train.num_examples + evaluation.num_examples == 1797
    assert train.image_shape == (8, 8, 1)
    assert train.images.dtype == np.uint8 and train.images.max() == 255
    for label in range(10):
        held_out = (evaluation.labels == label).sum()
        total = held_out + (train.labels == label).sum()
        assert abs(held_out - total / 5) <= 0.5
    labels = np.array([0, 1, 1, 0])  # whose classes keep an example each
    kept, _ = split.hold_out(labels, 0.9, 0, name="few", class_names=("a", "b"))
    assert sorted(labels[kept]) == [0, 1]


def test_the_seed_decides_what_is_held_out():
    def images(seed):
        return data.load("digits", seed=seed)[1].images

    np.testing.assert_array_equal(images(0), images(0))
    assert not np.array_equal(images(0), images(1))


def test_a_folder_of_classes_is_split(tmp_path):
    make_folder(tmp_path)
    (tmp_path / "cat" / "notes.txt").write_text("not an image")
    (tmp_path / "cat" / ".hidden.jpg").write_text("not an image")
    train, evaluation = data.load(str(tmp_path))
    assert train.class_names == ("cat", "dog")
    assert (train.num_examples, evaluation.num_examples) == (8, 2)
    assert not set(train.paths) & set(evaluation.paths)
    for source in (train, evaluation):
        for path, label in zip(source.paths, source.labels, strict=True):
            assert source.class_names[label] in path
    assert train.paths[0] not in repr(train)  # which notebooks show


def test_ignored_files_are_counted_by_reason_and_extension(tmp_path):
    make_folder(tmp_path)
    nested = write_image(tmp_path / "cat" / "indoors" / "2024" / "a.JPG")
    outside = write_image(tmp_path / "cover.jpg")
    for folder in ("cat/.thumbnails", "cat/@eaDir/0.jpg", "__MACOSX/cat"):
        write_image(tmp_path / folder / "0.jpg")
    for name in (
        "cat/._0.jpg",
        "cat/indoors/b.HEIC",
        "cat/indoors/c.heic",
        "dog/license",
        "notes.txt",
    ):
        (tmp_path / name).write_text("not an image")
    (tmp_path / "dog" / "more").symlink_to(tmp_path / "cat")
    train, evaluation = data.load(str(tmp_path))
    paths = train.paths + evaluation.paths
    assert len(paths) == 11
    assert str(nested) in paths and str(outside) not in paths
    assert train.ignored == {
        ("hidden", ".jpg"): 1,
        ("hidden", ".thumbnails/"): 1,
        ("hidden", "@eaDir/"): 1,
        ("hidden", "__MACOSX/"): 1,
        ("linked", "more/"): 1,
        ("outside the class folders", ".jpg"): 1,
        ("unsupported", ".heic"): 2,
        ("unsupported", ".txt"): 1,
        ("unsupported", "without extension"): 1,
    }
    assert data.describe_ignored(train, evaluation) == (
        "10 files ignored (hidden: 1 .jpg, 1 .thumbnails/, 1 @eaDir/, "
        "1 __MACOSX/; linked: 1 more/; outside the class folders: 1 .jpg; "
        "unsupported: 2 .heic, 1 .txt, 1 without extension)"
    )


def test_linked_class_folders_of_videos_are_found(tmp_path):
    (tmp_path / "data").mkdir()
    for name in ("run", "walk"):
        (tmp_path / "elsewhere" / name).mkdir(parents=True)
        for i in range(5):
            (tmp_path / "elsewhere" / name / f"{i}.mp4").touch()
        link = tmp_path / "data" / name
        link.symlink_to(tmp_path / "elsewhere" / name)
    train, evaluation = data.load(str(tmp_path / "data"))
    assert train.is_video
    assert train.num_examples + evaluation.num_examples == 10


@pytest.mark.parametrize("name", ["test", "val", "valid", "validation"])
def test_train_and_test_folders(tmp_path, name):
    make_folder(tmp_path / "train", ("a", "b", "c"))
    make_folder(tmp_path / name, ("c", "b"), count=2)
    train, evaluation = data.load(str(tmp_path))
    assert (train.num_examples, evaluation.num_examples) == (15, 4)
    assert evaluation.class_names == ("a", "b", "c")
    assert evaluation.labels.tolist() == [1, 1, 2, 2]
    # With two folders, the one that is named.
    make_folder(tmp_path / "eval", ("a",), count=1)
    _, evaluation = data.load(str(tmp_path), eval_split="eval")
    with pytest.raises(ValueError, match=r"one of \[.*'eval'\], the folders"):
        data.load(str(tmp_path), eval_split="dev")
    (tmp_path / "train").rename(tmp_path / "dev")  # folders are classes
    with pytest.raises(ValueError, match=r"one of \[\], the folders"):
        data.load(str(tmp_path), eval_split="eval")
    assert evaluation.num_examples == 1


def test_npz_of_several_labels_an_image(tmp_path):
    path = tmp_path / "set.npz"
    labels = np.tile([[0, 0, 0], [1, 0, 1], [0, 1, 0], [1, 1, 0]], (5, 1))
    arrays = dict(x_train=np.zeros((20, 4, 4), "uint8"), y_train=labels)
    np.savez(path, **arrays)
    train, evaluation = data.load(str(path))
    assert train.multi_label and evaluation.multi_label
    assert train.class_names == ("0", "1", "2")
    assert train.labels.shape == (16, 3) and evaluation.labels.shape == (4, 3)
    np.savez(path, **arrays, x_test=arrays["x_train"], y_test=labels[:, :2])
    with pytest.raises(ValueError, match="must have the same form"):
        data.load(str(path))
    np.savez(path, **arrays, class_names=["cat", "a dog", "bird"])
    assert data.load(str(path))[1].class_names == ("cat", "a dog", "bird")
    np.savez(path, **arrays | dict(y_train=2 * labels))
    with pytest.raises(ValueError, match=r"must hold 0 or 1 .* \[0, 2\]"):
        data.load(str(path))


def test_npz_with_and_without_a_test_part(tmp_path):
    x = np.arange(40 * 4 * 4).reshape(40, 4, 4).astype("uint8")
    y = np.arange(40).reshape(40, 1) % 4
    path = str(tmp_path / "set.npz")
    np.savez(path, x_train=x, y_train=y)
    train, evaluation = data.load(path)
    assert (train.num_examples, evaluation.num_examples) == (32, 8)
    assert train.image_shape == (4, 4, 1)
    names = [f"class {i}" for i in range(50)]
    np.savez(
        path, x_train=x, y_train=y, x_test=x[:3], y_test=y[:3],
        class_names=names,
    )  # fmt: skip
    train, evaluation = data.load(path)
    assert (train.num_examples, evaluation.num_examples) == (40, 3)
    assert train.class_names == evaluation.class_names == tuple(names)


@pytest.mark.parametrize(
    ("shape", "order"),
    [
        ((2, 3, 8, 6), [0, 2, 3, 1]),
        ((2, 7, 3, 8, 6), [0, 1, 3, 4, 2]),
        ((2, 3, 7, 8, 6), [0, 2, 3, 4, 1]),
    ],
)
def test_channels_that_come_first_warn(tmp_path, shape, order):
    x = np.resize(np.arange(256), shape).astype("uint8")
    message = f"move them to the end: .*{re.escape(str(order))}"
    np.savez(
        tmp_path / "a.npz", x_train=x, y_train=[0, 1], x_test=x, y_test=[0, 1]
    )
    with (
        pytest.warns(UserWarning, match=f"`x_train` of .* {message}"),
        pytest.warns(UserWarning, match=f"`x_test` of .* {message}"),
    ):
        data.load(str(tmp_path / "a.npz"))
    with pytest.warns(UserWarning, match=message):
        data.check_pixels(x)
    data.check_pixels(x.transpose(order))


def test_skipping_leaves_broken_files_out_and_lists_them(tmp_path):
    make_folder(tmp_path)
    broken = tmp_path / "cat" / "3.jpg"
    broken.write_bytes(b"no image")
    train, evaluation = data.load(str(tmp_path), broken="skip")
    assert list(train.skipped) == [str(broken)]
    assert "Unknown image file format" in train.skipped[str(broken)]
    assert evaluation.skipped == {}
    assert train.num_examples + evaluation.num_examples == 9
    assert str(broken) not in train.paths + evaluation.paths
    # A dev split is drawn from what is left, and lists nothing twice.
    train, dev = data.hold_out_dev(train, 0.5, 0)
    assert (len(train.skipped), len(dev.skipped)) == (1, 0)


@pytest.mark.usefixtures("plain_decoding")
def test_skipping_does_not_empty_a_class_in_silence(tmp_path):
    make_folder(tmp_path / "train")
    make_folder(tmp_path / "test")
    for path in (tmp_path / "test").rglob("*.jpg"):
        path.write_bytes(b"no image")
    with pytest.raises(ValueError, match="test.*10 broken files"):
        data.load(str(tmp_path), broken="skip")
    for path in (tmp_path / "train" / "cat").iterdir():
        path.write_bytes(b"no image")
    with pytest.raises(ValueError, match="train.*none in .'cat'"):
        data.load(str(tmp_path), broken="skip")


def test_broken_files_are_found_and_named(tmp_path):
    make_folder(tmp_path)
    paths = [tmp_path / "cat" / f"{i}.jpg" for i in range(3)]
    paths[0].write_bytes(b"")
    paths[1].write_bytes(paths[1].read_bytes()[:200])
    paths[2].unlink()
    reasons = data.find_broken([tmp_path / "dog" / "0.jpg", *paths])
    assert list(reasons) == list(map(str, paths))
    for reason, expected in zip(
        reasons.values(),
        ("Input is empty.", "Invalid JPEG data", "It is not there."),
        strict=True,
    ):
        # The decoder's words, without the names of TensorFlow's ops.
        assert expected in reason
        assert not set("{}[]") & set(reason)
    train, _ = data.load(str(tmp_path), eval_fraction=0.01)
    message = data.explain_broken(train)
    assert str(paths[0]) in message or str(paths[1]) in message
    assert "broken='skip'" in message
    assert "Input is empty." in message or "Invalid JPEG data" in message


@pytest.mark.parametrize(
    ("low", "high", "warns"), [(0, 1, True), (-1, 1, True), (0, 255, False)]
)
def test_scaled_floats_warn(tmp_path, low, high, warns):
    x = np.random.default_rng(0).uniform(low, high, (8, 4, 4, 3))
    path = str(tmp_path / "set.npz")
    np.savez(path, x_train=x.astype("float32"), y_train=np.arange(8) % 2)
    train, _ = data.load(path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        data.warn_if_scaled(train)
    assert [w for w in caught if "scaled already" in str(w.message)] == (
        caught if warns else []
    )
    assert bool(caught) == warns


X = np.zeros((4, 2, 2))


def with_value(value):
    return np.where(np.arange(16).reshape(X.shape) > 9, value, X)


class TestBadInput:
    def check(self, dataset, *words, **arguments):
        with pytest.raises(ValueError) as error:
            data.load(str(dataset), **arguments)
        for word in words:
            assert str(word) in str(error.value)

    def test_unknown_name_gives_the_nearest(self):
        self.check("cifar11", "cifar10", "'cifar11'", "TFDS")
        self.check("digts", "digits", "no path")

    @pytest.mark.parametrize("name", ["cifar10:9.9.9", "cifar10/absent"])
    def test_a_config_or_version_that_tfds_lacks(self, name):
        self.check(name, name, "config and version")

    def test_a_missing_path(self, tmp_path):
        self.check(tmp_path / "absent", "not there", tmp_path / "absent")
        self.check("absent.npz", "not there")

    def test_empty_folder(self, tmp_path):
        self.check(tmp_path, "no folder in it", tmp_path)
        write_image(tmp_path / "a.jpg")
        self.check(tmp_path, "1 file ignored (outside the class folders: 1 .j")

    def test_class_without_images(self, tmp_path):
        make_folder(tmp_path)
        (tmp_path / "empty").mkdir()
        self.check(tmp_path, "has none", tmp_path / "empty", "no file ignored")
        (tmp_path / "empty" / "a.heic").write_text("not read")
        self.check(tmp_path, "1 file ignored (unsupported: 1 .heic)")

    def test_one_class(self, tmp_path):
        make_folder(tmp_path, ("cat",))
        self.check(tmp_path, "at least 2 classes", "cat")

    @pytest.mark.parametrize(
        "names", [("Testing", "Training"), ("Test", "Train", "valid_set")]
    )
    def test_parts_are_no_classes(self, names, tmp_path):
        make_folder(tmp_path, names)
        self.check(tmp_path, "must be named 'train'", list(names))
        make_folder(tmp_path, ("cat",))
        data.load(str(tmp_path))

    def test_one_image_of_a_class(self, tmp_path):
        make_folder(tmp_path, count=1)
        self.check(tmp_path, "eval_fraction", "1 image", tmp_path, "'cat'")

    def test_classes_that_training_lacks(self, tmp_path):
        make_folder(tmp_path / "train")
        make_folder(tmp_path / "test", ("cat", "zebra"))
        self.check(tmp_path, "zebra")

    def test_arguments(self):
        self.check("digits", "eval_fraction=1.5", eval_fraction=1.5)
        self.check("digits", "broken='ignore'", broken="ignore")

    @pytest.mark.parametrize(
        ("arrays", "word"),
        [
            (dict(y_train=None), "y_train"),
            (dict(x_train=np.zeros((4, 2))), "(4, 2)"),
            (dict(y_train=np.zeros(3, int)), "shape (3,)"),
            (dict(y_train=[0, 1, -1, 0]), "-1"),
            (dict(y_train=np.array([0, 1, 0, 2**63], "uint64")), "uint64"),
            (dict(y_train=np.ones(4) / 2), "float"),
            (dict(x_test=X[:1], y_test=[2]), "Received: 2"),
            (dict(x_test=X[:1]), "y_test"),
            (dict(x_test=np.zeros((1, 2, 2, 3)), y_test=[0]), "many channels"),
            (dict(x_train=np.array([{}], dtype=object)), "pickled"),
            (dict(y_train=[0, 10**9, 1, 0]), "1,000,000,001 classes, 4 images"),
            (dict(class_names=["a"]), "`class_names`"),
            (dict(class_names=[0, 1]), "int64, such as [0, 1]"),
            (dict(class_names=["a", "b"], y_train=[0, 1, 2, 0]), "the 3 class"),
            (
                dict(class_names=list("abc"), y_train=np.eye(4, 2, dtype=int)),
                "the 2 classes",
            ),
            (dict(x_train=with_value(np.nan)), "first in x_train[2]"),
            (dict(x_test=with_value(-np.inf), y_test=[0] * 4), "x_test[2]"),
            (dict(x_train=with_value(1e300)), "first in x_train[2]"),
        ],
    )
    def test_npz(self, tmp_path, arrays, word):
        path = tmp_path / "set.npz"
        arrays = dict(x_train=X, y_train=[0, 1, 0, 1]) | arrays
        np.savez(path, **{k: x for k, x in arrays.items() if x is not None})
        self.check(path, word)

    def test_npz_truncated(self, tmp_path):
        path = tmp_path / "set.npz"
        np.savez(path, x_train=np.zeros((40, 9, 9)), y_train=np.zeros(40, int))
        path.write_bytes(path.read_bytes()[:500])
        self.check(path, "complete npz file", path)
