"""Images with several labels each: CSV files and sequences of TFDS."""

import shutil

import numpy as np
import pytest

from keras_vit import data

tf = pytest.importorskip("tensorflow")
tfds = pytest.importorskip("tensorflow_datasets")

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of TFDS itself
    pytest.mark.backend_independent,
    pytest.mark.usefixtures("plain_decoding"),
]


def write_folder(root, rows, name="labels.csv", header="image,labels"):
    """Writes images that hold their number in every pixel, and their list."""
    root.mkdir(parents=True, exist_ok=True)
    for i, (image, *_) in enumerate(rows):
        pixels = np.full((6, 6, 3), 10 * i, "uint8")
        tf.io.write_file(str(root / image), tf.io.encode_png(pixels))
    lines = [header, *(",".join(row) for row in rows)]
    (root / name).write_text("\n".join(lines) + "\n")
    return root


ROWS = [
    ("a.png", "dog;cat"),
    ("b.png", ""),
    ("c.png", "a bird"),
    ("d.png", "cat; a bird;cat"),
    ("e.png", "dog"),
]
TARGETS = [[0, 1, 1], [0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 0, 1]]
SIZES = dict(batch_size=5, image_size=(6, 6))


def by_number(batch):
    """Labels in the order of the images' numbers."""
    numbers = np.round(batch["images"][:, 0, 0, 0] / 10).astype(int)
    return dict(zip(numbers, batch["labels"].tolist(), strict=True))


def test_a_list_gives_each_image_its_labels(tmp_path):
    write_folder(tmp_path / "train", ROWS)
    write_folder(tmp_path / "test", ROWS[:2])
    (tmp_path / "test" / "spare").mkdir()
    (tmp_path / "test" / "spare" / "new.jpg").touch()
    write_folder(tmp_path / "val", ROWS[:1])
    _, evaluation = data.load(str(tmp_path), eval_split="val")
    assert evaluation.num_examples == 1
    shutil.rmtree(tmp_path / "val")
    train, evaluation = data.load(str(tmp_path))
    assert train.ignored == {("not listed", ".jpg"): 1}
    assert evaluation.ignored == {}
    assert train.multi_label and evaluation.multi_label
    assert train.class_names == ("a bird", "cat", "dog")
    np.testing.assert_array_equal(train.labels, TARGETS)
    batches = data.train_batches(train, **SIZES, crop="none", flip=False)
    (batch,) = batches.take(1).as_numpy_iterator()
    assert batch["labels"].dtype == np.float32
    assert by_number(batch) == dict(enumerate(TARGETS))
    (batch,) = data.eval_batches(evaluation, **SIZES).as_numpy_iterator()
    np.testing.assert_array_equal(batch["labels"][:2], TARGETS[:2])
    assert (batch["weights"] > 0).tolist() == [True] * 2 + [False] * 3


def test_a_share_of_all_images_is_held_out(tmp_path):
    write_folder(tmp_path, ROWS)
    train, evaluation = data.load(str(tmp_path), eval_fraction=0.4)
    assert (train.num_examples, evaluation.num_examples) == (3, 2)
    assert not set(train.paths) & set(evaluation.paths)
    by_path = dict(zip(sorted(p for p, _ in ROWS), TARGETS, strict=True))
    for source in (train, evaluation):
        for path, labels in zip(source.paths, source.labels, strict=True):
            assert labels.tolist() == by_path[path.rsplit("/")[-1]]
    kept, dev = data.hold_out_dev(train, 0.34, seed=0)
    assert (kept.num_examples, dev.num_examples) == (2, 1)
    with pytest.raises(ValueError, match="`shots` needs one label per image"):
        data.keep_shots(train, 1, seed=0)


@pytest.mark.parametrize(
    ("rows", "header", "message"),
    [
        (ROWS, "file,labels", "must have the columns `image` and `labels`"),
        ([("a.png", "dog")], "image,labels", "at least 2 classes"),
        ([("a.png", "b"), ("./a.png", "c")], "image,labels", "3, './a.png', a"),
        ([], "image,labels", "must list images"),
    ],
)
def test_a_wrong_list_is_refused(tmp_path, rows, header, message):
    write_folder(tmp_path, rows, header=header)
    with pytest.raises(ValueError, match=message):
        data.load(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image,labels,labels\n", "each once"),
        ("image,labels\na.png,dog\nb.png\n", r"line 3, \['b.png'\]"),
        (
            "image,labels\n\na.png,dog,cat\n",
            r"line 3, \['a.png', 'dog', 'cat'\]. Write ';'",
        ),
        ('image,labels\na.png,"dog\n', "must be CSV. Received: line 2: unexp"),
        ("image,labels\na.png,K\xe4se\n", "UTF-8. Received: line 2, byte 0xe4"),
    ],
)
def test_a_line_that_would_lose_labels_is_refused(tmp_path, text, message):
    write_folder(tmp_path, ROWS)
    (tmp_path / "labels.csv").write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=f"labels.csv'.* {message}"):
        data.load(str(tmp_path))


def test_images_that_are_not_there_and_new_classes_are_refused(tmp_path):
    write_folder(tmp_path / "train", ROWS)
    write_folder(tmp_path / "test", [("a.png", "fish")])
    with pytest.raises(ValueError, match="Received also: .'fish'"):
        data.load(str(tmp_path))
    (tmp_path / "train" / "b.png").unlink()
    with pytest.raises(ValueError, match="'b.png', which is not there"):
        data.load(str(tmp_path))


@pytest.mark.filterwarnings("default")
def test_a_column_of_parts_is_not_ignored_in_silence(tmp_path):
    rows = [(*row, "test" if i % 2 else "train") for i, row in enumerate(ROWS)]
    write_folder(tmp_path, rows, header="image,labels,split")
    with pytest.warns(UserWarning, match="`split`.*labels.csv.*'test', 'tr"):
        data.load(str(tmp_path))


def test_broken_files_are_skipped_on_request(tmp_path):
    write_folder(tmp_path, ROWS)
    (tmp_path / "c.png").write_bytes(b"no image")
    train, evaluation = data.load(str(tmp_path), broken="skip")
    assert train.num_examples + evaluation.num_examples == 4
    assert [path.rsplit("/")[-1] for path in train.skipped] == ["c.png"]


class SeveralLabels(tfds.core.GeneratorBasedBuilder):
    """As VOC: no supervised keys, and two sequences of labels."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        names = tfds.features.ClassLabel(names=["a bird", "cat", "dog"])
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(None, None, 3)),
                    "labels": tfds.features.Sequence(names),
                    "labels_no_difficult": tfds.features.Sequence(names),
                }
            ),
        )

    def _split_generators(self, dl_manager):
        return dict(
            train=self._generate_examples(range(5)),
            test=self._generate_examples(range(2)),
        )

    def _generate_examples(self, numbers):
        for i in numbers:
            labels = [name.strip() for name in ROWS[i][1].split(";") if name]
            yield (
                i,
                dict(
                    image=np.full((6, 6, 3), 10 * i, "uint8"),
                    labels=labels,
                    labels_no_difficult=[],
                ),
            )


def test_sequences_of_classes_are_labels(tmp_path):
    train, evaluation = data.load("several_labels", data_dir=str(tmp_path))
    assert train.multi_label
    assert train.class_names == ("a bird", "cat", "dog")
    batches = data.train_batches(train, **SIZES, crop="none", flip=False)
    (batch,) = batches.take(1).as_numpy_iterator()
    assert by_number(batch) == dict(enumerate(TARGETS))
    (batch,) = data.eval_batches(evaluation, **SIZES).as_numpy_iterator()
    rows = {i: TARGETS[i] for i in range(2)}
    found = by_number({key: value[:2] for key, value in batch.items()})
    assert found == rows


def test_a_list_of_test_images_beside_that_of_the_folder_is_used(tmp_path):
    write_folder(tmp_path, ROWS)
    write_folder(tmp_path / "test", ROWS[:2])
    train, evaluation = data.load(str(tmp_path))
    assert (train.num_examples, evaluation.num_examples) == (5, 2)
