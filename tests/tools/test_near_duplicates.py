"""Copies of photographs are found, other photographs are not."""

import csv
import itertools

import numpy as np
import pytest

from keras_vit import data
from keras_vit.data import exclusions, records
from tools import fingerprints, near_duplicates

tf = pytest.importorskip("tensorflow")
samples = pytest.importorskip("sklearn.datasets")


def photographs():
    """Different pieces of scikit-learn's two photographs, 100x100 pixels."""
    pieces = [
        image[y : y + 100, x : x + 100]
        for image in samples.load_sample_images().images
        for y in range(0, 400, 100)
        for x in range(0, 600, 100)
    ]
    # Without the sky, which has no features to compare.
    return [piece for piece in pieces if piece.std() > 35]


PHOTOGRAPHS = photographs()


def resized(image, height, width):
    image = tf.image.resize(image, (height, width), antialias=True)
    return tf.cast(tf.clip_by_value(image, 0, 255), "uint8").numpy()


def encoded_at(image, quality):
    return tf.io.decode_jpeg(tf.io.encode_jpeg(image, quality=quality)).numpy()


COPIES = {
    "smaller": lambda image: resized(image, 40, 40),
    "squeezed": lambda image: resized(image, 100, 70),
    "larger": lambda image: resized(image, 224, 224),
    "poor": lambda image: encoded_at(image, 30),
    "brighter": lambda image: (image * 0.8 + 50).astype("uint8"),
    "darker": lambda image: (image * 0.6).astype("uint8"),
    "grey": lambda image: np.repeat(image[..., 1:2], 3, -1),
    "corner": lambda image: image[4:, 4:],
    "sides": lambda image: image[:, 4:-4],
    "middle": lambda image: resized(image[4:-4, 4:-4], 150, 150),
    "everything": lambda image: encoded_at(resized(image[5:, :96], 64, 48), 50),
}


@pytest.mark.parametrize("change", COPIES)
def test_a_changed_copy_is_near(change):
    for image in PHOTOGRAPHS:
        images = image, COPIES[change](image)
        pair = list(map(fingerprints.thumbnail, images))
        coarse = fingerprints.coarse(pair)
        first_look = fingerprints.coarse_distances(coarse[:1], coarse[1:])
        assert first_look <= near_duplicates.COARSE_THRESHOLD
        distance = fingerprints.distance(*pair)
        assert distance == fingerprints.distance(*pair[::-1]) <= 0.1


def test_other_photographs_are_far():
    assert len(PHOTOGRAPHS) > 30
    thumbnails = map(fingerprints.thumbnail, PHOTOGRAPHS)
    for pair in itertools.combinations(thumbnails, 2):
        assert fingerprints.distance(*pair) > 0.3


def test_files_and_pixels_have_the_same_thumbnail():
    image = PHOTOGRAPHS[0]
    thumbnail = fingerprints.thumbnail(image)
    assert thumbnail.shape == (32, 32) and thumbnail.dtype == np.uint8
    png = tf.io.encode_png(image).numpy()
    np.testing.assert_array_equal(fingerprints.thumbnail(png), thumbnail)
    grey = fingerprints.thumbnail(image.mean(-1, keepdims=True))
    assert fingerprints.distance(grey, thumbnail) < 0.1
    assert fingerprints.thumbnail(np.full((9, 9, 3), 70, "uint8")) is None
    with pytest.raises(ValueError, match="must decode"):
        fingerprints.thumbnail(b"no image")


# From here on with Beam.

NUM_KEPT = 20
FIRST_TEST = 6


def write_pretrain(path):
    """The first 20 photographs, by name, as TFRecords."""
    with records.write(path, {"train": 3, "test": 1}) as add:
        for i, image in enumerate(PHOTOGRAPHS[:NUM_KEPT]):
            jpeg = tf.io.encode_jpeg(image, quality=90).numpy()
            add("train", f"photo, {i}", "ab"[i % 2], jpeg)
        add("test", "none", "a", b"")
    return str(path)


def write_test(path):
    """Changed copies of the first of them, and photographs of its own."""
    copies = [
        change(image)
        for image, change in zip(PHOTOGRAPHS, COPIES.values(), strict=False)
    ]
    images = [*copies[:FIRST_TEST], *PHOTOGRAPHS[NUM_KEPT:]]
    for i, image in enumerate(images):
        for split in ("train", "test"):
            folder = path / split / "cd"[i % 2]
            folder.mkdir(parents=True, exist_ok=True)
            png = tf.io.encode_png(image).numpy()
            (folder / f"{i}.png").write_bytes(png)
    return str(path)


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    root = tmp_path_factory.mktemp("sets")
    return write_pretrain(root / "pretrain"), write_test(root / "test")


@pytest.fixture
def needs_beam():
    pytest.importorskip("apache_beam")


with_beam = pytest.mark.usefixtures("needs_beam")
# Of Beam itself.
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.backend_independent,
]


@with_beam
def test_the_command_lists_the_copies(sets, tmp_path, capsys):
    pretrain, test = sets
    output = tmp_path / "list.csv"
    status = near_duplicates.main(
        [f"--pretrain={pretrain}", f"--test={test}", f"--output={output}"]
    )
    printed = capsys.readouterr()
    assert status == 0, printed.err
    rows = rows_of(output)
    assert [(row["pretrain"], row["test"]) for row in rows] == [
        (f"photo, {i}", f"{'cd'[i % 2]}/{i}.png") for i in range(FIRST_TEST)
    ]
    assert all(0 <= float(row["distance"]) <= 0.1 for row in rows)
    assert {row["test_set"] for row in rows} == {test}
    assert f"pretrain {pretrain}: {NUM_KEPT} images" in printed.out
    assert f"pretrain images to leave out: {FIRST_TEST}\n" in printed.out
    assert exclusions.read(str(output)) == {
        f"photo, {i}" for i in range(FIRST_TEST)
    }


@with_beam
def test_broken_images_stop_or_are_counted(sets, tmp_path, capsys):
    _, test = sets
    for name in ("a", "b"):
        for split in ("train", "test"):
            folder = tmp_path / "set" / split / name
            folder.mkdir(parents=True)
            (folder / "1.jpg").write_bytes(b"no image")
            png = tf.io.encode_png(np.zeros((9, 9, 3), "uint8")).numpy()
            (folder / "2.png").write_bytes(png)
    arguments = [f"--pretrain={tmp_path / 'set'}", f"--test={test}"]
    arguments.append(f"--output={tmp_path / 'list.csv'}")
    assert near_duplicates.main(arguments) == 2
    assert "a/1.jpg" in capsys.readouterr().err
    assert near_duplicates.main([*arguments, "--broken=skip"]) == 0
    printed = capsys.readouterr().out
    assert "broken, passed over: 2\n" in printed
    assert "flat shade, passed over: 2\n" in printed
    assert rows_of(tmp_path / "list.csv") == []


def test_dry_needs_no_beam(sets, tmp_path, capsys):
    pretrain, test = sets
    output = tmp_path / "list.csv"
    arguments = [f"--pretrain={pretrain}", f"--output={output}", "--dry"]
    arguments += [f"--test={test}", "--test=digits", f"--test={pretrain}@test"]
    assert near_duplicates.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "test digits: 359 images" in printed
    assert f"{pretrain}@test: 1 image\n" in printed
    assert not output.exists()


def test_examples_are_left_out(sets):
    _, folder = sets
    source, _ = data.load(folder)
    names = exclusions.names_of(source)
    kept = exclusions.leave_out(source, frozenset(names[::3]))
    assert exclusions.names_of(kept) == [
        n for n in names if n not in names[::3]
    ]
    assert kept.num_examples == len(kept.labels) == len(kept.paths)
    assert set(kept.paths) == {
        path for i, path in enumerate(source.paths) if i % 3
    }
    with pytest.raises(ValueError, match="1 others, such as 'x'"):
        exclusions.leave_out(source, frozenset({"x"}))
    with pytest.raises(ValueError, match="all"):
        exclusions.leave_out(source, frozenset(names))
    digits, _ = data.load("digits")
    kept = exclusions.leave_out(digits, frozenset({"0", "7"}))
    assert kept.num_examples == digits.num_examples - 2
    np.testing.assert_array_equal(kept.images[5], digits.images[6])
    np.testing.assert_array_equal(kept.labels[6:], digits.labels[8:])
    stream, _ = data.load(sets[0])
    with pytest.raises(ValueError, match="a stream"):
        exclusions.leave_out(stream, frozenset({"0"}))
    with pytest.raises(ValueError, match="not there"):
        exclusions.read("nowhere.csv")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('\ufeffpretrain,test\n"a, b",c\n', {"a, b"}),
        ("\ufeffa, b\nc\n", {"a, b", "c"}),
        ("pretrain,test\na, b,c\n", "line 2, "),
        ("K\udce4se\n", "list' must be text in UTF-8. Received: line 1"),
    ],
)
def test_no_line_of_a_list_is_lost(tmp_path, text, found):
    path = tmp_path / "list"
    path.write_bytes(text.encode(errors="surrogateescape"))
    if isinstance(found, set):
        assert exclusions.read(str(path)) == found
    else:
        with pytest.raises(ValueError, match=found):
            exclusions.read(str(path))
