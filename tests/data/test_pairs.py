"""Images with captions: sources, and the batches of a run that resumes."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from mocked import mocked_tfds
from PIL import Image

from keras_vit import data
from keras_vit.data import digit_sentences

pytestmark = [
    pytest.mark.backend_independent,
    pytest.mark.usefixtures("plain_decoding"),
]


class Letters:
    """A tokenizer of letters, which remembers what it has seen."""

    def __call__(self, texts):
        ids = np.zeros((len(texts), 40), "int32")
        for row, text in zip(ids, texts, strict=True):
            row[: len(text[:40])] = [ord(letter) % 256 for letter in text[:40]]
        return ids


def texts_of(batch):
    return [bytes(row[row > 0].tolist()).decode() for row in batch["ids"]]


def first_of(batches, count=1):
    return list(batches.take(count).as_numpy_iterator())


OPTIONS = dict(batch_size=8, image_size=(8, 8), channels=1)


def test_digits_have_sentences_of_their_own():
    train, evaluated = data.load_pairs("digit_sentences")
    assert not set(train.texts) & set(evaluated.texts)
    assert set(train.captions(0)) <= set(train.texts)
    for part in (train, evaluated):
        for i in range(0, 100, 7):
            name = digit_sentences.NAMES[part.labels[i]]
            forms = {name, str(digit_sentences.NAMES.index(name))}
            assert all(set(t.split()) & forms for t in part.captions(i))
    # Every word of evaluation but a few is one of training.
    words = {word for text in train.texts for word in text.split()}
    unseen = {w for t in evaluated.texts for w in t.split()} - words
    assert len(unseen) <= 3, unseen


def test_batches_are_those_of_a_run_that_resumes():
    train, evaluated = data.load_pairs("digit_sentences")
    options = OPTIONS | dict(crop="pad", pad=1, seed=3)
    batches = first_of(data.pair_batches(train, Letters(), **options), 180)
    resumed = data.pair_batches(train, Letters(), start_step=179, **options)
    keras.tree.map_structure(
        np.testing.assert_array_equal, batches[179], *first_of(resumed)
    )
    halves = [
        first_of(
            data.pair_batches(
                train, Letters(), shard_index=i, num_shards=2, **options
            )
        )[0]["images"]
        for i in (0, 1)
    ]
    for key, whole in batches[0]["images"].items():
        joined = np.concatenate([half[key] for half in halves])
        np.testing.assert_array_equal(joined, whole)
    # In the second epoch, other captions.
    first = {t for b in batches for t in texts_of(b["images"])}
    assert len(first) > 300
    found = first_of(
        data.pair_eval_batches(evaluated, Letters(), **OPTIONS), 1000
    )
    valid = np.concatenate([b["labels"]["valid"] for b in found])
    assert valid.sum() == evaluated.num_examples
    assert set(texts_of(found[0]["images"])) <= set(evaluated.texts)


def write_table(folder, rows, name="captions.csv", header=""):
    path = folder / name
    path.write_text("\n".join(["image,caption" + header, *rows, ""]))
    return path


def test_a_table_of_captions_is_read(tmp_path):
    for i in range(4):
        image = np.full((6, 6, 3), 60 * i, "uint8")
        Image.fromarray(image).save(tmp_path / f"{i}.png")
    rows = [f'{i % 4}.png,"caption {i}, of {i % 4}"' for i in range(6)]
    path = write_table(tmp_path, rows)
    train, evaluated = data.load_pairs(str(path), eval_fraction=0.25)
    assert (train.num_examples, evaluated.num_examples) == (3, 1)
    seen = set()
    options = OPTIONS | dict(batch_size=3, crop="none")
    for batch in first_of(data.pair_batches(train, Letters(), **options), 20):
        found = batch["images"]
        for image, text in zip(found["images"], texts_of(found), strict=True):
            assert int(text[-1]) == round(float(image.mean()) / 60)
            seen.add(text)
    assert seen == set(train.texts)
    rows = [f"{i}.png,a,{'test' if i else 'train'}" for i in range(4)]
    with pytest.warns(UserWarning, match="`split` of .*captions.csv"):
        data.load_pairs(str(write_table(tmp_path, rows, header=",split")))

    for rows, message in (
        (["0.png,a", "9.png,b"], "captions.csv', line 3: .*9.png"),
        (["0.png,a", "1.png,"], "line 3, for '1.png'"),
        (["0.png,a, b"], "between quotes"),
        ([], "must have a line"),
        (["0.png,a"], "at least 2 images"),
    ):
        path = write_table(tmp_path, rows)
        with pytest.raises(ValueError, match=message):
            data.load_pairs(str(path))
    with pytest.raises(ValueError, match="folder with train.csv"):
        data.load_pairs(str(tmp_path))
    write_table(tmp_path, ["0.png,a", "1.png,b"], "train.csv")
    write_table(tmp_path, ["2.png,c"], "test.csv")
    train, evaluated = data.load_pairs(str(tmp_path))
    assert (train.texts, evaluated.texts) == (("a", "b"), ("c",))


def test_records_and_tfds_are_streams(tmp_path):
    def example(i):
        found = tf.train.Example()
        feature = found.features.feature
        image = tf.io.encode_png(np.full((6, 6, 3), 20 * i, "uint8")).numpy()
        feature["image"].bytes_list.value.append(image)
        captions = [f"{i} {form}".encode() for form in "ab"]
        feature["captions"].bytes_list.value.extend(captions)
        return found.SerializeToString()

    splits = dict(train={"a.tfrecord": 6}, test={"b.tfrecord": 2})
    for files in splits.values():
        for name, count in files.items():
            with tf.io.TFRecordWriter(str(tmp_path / name)) as writer:
                for i in range(count):
                    writer.write(example(i))
    (tmp_path / "pairs.json").write_text(json.dumps(dict(splits=splits)))
    train, _ = data.load_pairs(str(tmp_path))
    options = OPTIONS | dict(batch_size=6, crop="none")
    seen = set()
    for batch in first_of(data.pair_batches(train, Letters(), **options), 6):
        found = batch["images"]
        for image, text in zip(found["images"], texts_of(found), strict=True):
            assert int(text[0]) == round(float(image.mean()) / 20)
            seen.add(text)
    assert len(seen) == 12

    with mocked_tfds(8):
        train, evaluated = data.load_pairs("coco_captions")
        batches = data.pair_batches(train, Letters(), **OPTIONS)
        (batch,) = first_of(batches)
        assert batch["images"]["ids"].shape == (8, 40)
        assert batch["images"]["images"].shape == (8, 8, 8, 1)
        with pytest.raises(ValueError, match="feature `image`, and captions"):
            data.load_pairs("mnist")


def test_splits_of_a_table_without_parts_are_refused(tmp_path):
    path = write_table(tmp_path, ["0.png,a", "1.png,b"])
    with pytest.raises(ValueError, match="`train_split` and `eval_split`"):
        data.load_pairs(str(path), eval_split="nothing")


def test_wrong_data_sets_and_mixtures_are_refused(tmp_path):
    with pytest.raises(ValueError, match="Received: dataset='./no.csv', which"):
        data.load_pairs("./no.csv")
    for content, message in (
        ("[]", "pairs.json' must be JSON of `splits`. Received: TypeError"),
        ('{"splits": {"train": {"a": -1}}}', "file's number of examples"),
        ('{"splits": {"train": {}}}', "examples of the split 'train'"),
    ):
        (tmp_path / "pairs.json").write_text(content)
        with pytest.raises(ValueError, match=message):
            data.load_pairs(str(tmp_path))
    train, _ = data.load_pairs("digit_sentences")
    with pytest.raises(ValueError, match="captions cannot be mixed"):
        data.pair_batches(train, Letters(), augment=("MixUp",), **OPTIONS)
