"""Shares of sets of TensorFlow Datasets."""

import numpy as np
import pytest

from keras_vit import data

tfds = pytest.importorskip("tensorflow_datasets")

# Of TFDS itself, on reading and on preparing a set.
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.backend_independent,
    pytest.mark.usefixtures("plain_decoding"),
]


class NumberedImages(tfds.core.GeneratorBasedBuilder):
    """23 + 7 images that hold their index in every pixel."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(4, 4, 3)),
                    "label": tfds.features.ClassLabel(num_classes=3),
                }
            ),
            supervised_keys=("image", "label"),
        )

    def _split_generators(self, dl_manager):
        return {
            "train": self._generate_examples(0, 23),
            "test": self._generate_examples(23, 30),
        }

    def _generate_examples(self, start, stop):
        for i in range(start, stop):
            image = np.full((4, 4, 3), i, "uint8")
            yield i, {"image": image, "label": i % 3}


class ImagenetOfNumbers(NumberedImages):
    """Whose test images would have no labels."""

    VERSION = tfds.core.Version("1.0.0")

    def _split_generators(self, dl_manager):
        return {
            "train": self._generate_examples(0, 5),
            "validation": self._generate_examples(5, 8),
            "test": self._generate_examples(8, 12),
        }


def test_imagenet_is_evaluated_on_its_labelled_part(tmp_path):
    _, evaluation = data.load("imagenet_of_numbers", data_dir=str(tmp_path))
    assert evaluation.name == "imagenet_of_numbers validation"
    assert evaluation.num_examples == 3


class NumbersOfAChallenge(ImagenetOfNumbers):
    """Whose test images have no labels, as those of i_naturalist2018."""

    VERSION = tfds.core.Version("1.0.0")

    def _generate_examples(self, start, stop):
        for i, example in super()._generate_examples(start, stop):
            yield i, example if i < 8 else example | {"label": -1}


class NumbersOfSeveralClasses(NumbersOfAChallenge):
    """Whose test images have no labels, as those of voc/2012."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        classes = tfds.features.ClassLabel(num_classes=3)
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(4, 4, 3)),
                    "labels": tfds.features.Sequence(classes),
                }
            ),
        )

    def _generate_examples(self, start, stop):
        for i, example in super()._generate_examples(start, stop):
            label = example.pop("label")
            # The first of those that have labels has none.
            labels = [] if i == 5 or label < 0 else [label]
            yield i, example | {"labels": labels}


@pytest.mark.parametrize(
    "name", ["numbers_of_a_challenge", "numbers_of_several_classes"]
)
def test_images_without_labels_are_not_evaluated_on(name, tmp_path):
    place = dict(data_dir=str(tmp_path))
    _, evaluation = data.load(name, **place)
    assert evaluation.name == f"{name} validation"
    with pytest.raises(ValueError, match="must have labels.*eval_split='test'"):
        data.load(name, eval_split="test", **place)


class NumbersByHand(NumberedImages):
    """Whose archive must be downloaded by hand."""

    MANUAL_DOWNLOAD_INSTRUCTIONS = "Register,\nand put numbers.tar there."

    def _split_generators(self, dl_manager):
        dl_manager.manual_dir / "numbers.tar"


def test_a_set_that_is_downloaded_by_hand_is_refused_in_few_lines(tmp_path):
    with pytest.raises(
        ValueError, match="--config.data.manual_dir=FOLDER"
    ) as info:
        data.load(
            "numbers_by_hand", data_dir=str(tmp_path), manual_dir="nowhere"
        )
    assert "Register, and put numbers.tar there." in str(info.value)
    assert str(info.value).count("\n") < 5 and len(str(info.value)) < 900


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """Where `NumberedImages` lies, each split in three files."""
    path = str(tmp_path_factory.mktemp("tfds"))
    tfds.builder("numbered_images", data_dir=path).download_and_prepare(
        download_config=tfds.download.DownloadConfig(num_shards=3)
    )
    return path


def images_of(batches):
    """Images without the padding, whose labels are zeros."""
    batches = list(batches.as_numpy_iterator())
    images = np.concatenate([batch["images"] for batch in batches])
    labels = np.concatenate([batch["labels"] for batch in batches])
    return images[labels.any(-1)]


def everything_and_shards(source, side):
    """Images as one process sees them, and joined as two do."""
    everything, *shards = (
        images_of(
            data.eval_batches(
                source,
                batch_size=4,
                image_size=(side, side),
                shard_index=index,
                num_shards=num_shards,
            )
        )
        for index, num_shards in [(0, 1), (0, 2), (1, 2)]
    )
    return everything, np.concatenate(shards)


@pytest.mark.parametrize(
    ("split", "size"), [("train[:90%]", 21), ("train[20:]+test[:2]", 5)]
)
def test_evaluation_sees_each_example_once(data_dir, split, size):
    source, _ = data.load(
        "numbered_images", train_split=split, data_dir=data_dir
    )
    assert source.num_examples == size
    everything, shards = everything_and_shards(source, 4)
    assert len(np.unique(everything)) == size
    # The runs of the processes are in the order of the set.
    np.testing.assert_array_equal(shards, everything)


def test_sets_that_do_not_state_their_size_are_sharded():
    with tfds.testing.mock_data(num_examples=10):
        source, _ = data.load("cifar10")
        everything, shards = everything_and_shards(source, 32)
    assert len(everything) == 10
    np.testing.assert_array_equal(shards, everything)


def test_sets_of_videos_are_read_by_the_frames_of_a_clip():
    with tfds.testing.mock_data(num_examples=4):
        train, evaluation = data.load("ucf101")
        assert train.is_video and len(train.class_names) == 101
        assert (train.image_shape, train.num_frames) == ((256, 256, 3), None)
        arguments = dict(
            batch_size=2, image_size=(32, 32), num_frames=3, frame_step=2
        )
        run = data.train_batches(train, **arguments, seed=1).take(4)
        run = [batch["images"] for batch in run.as_numpy_iterator()]
        assert run[0].shape == (2, 3, 32, 32, 3)
        later = data.train_batches(train, **arguments, seed=1, start_step=3)
        for batch in later.take(1).as_numpy_iterator():
            np.testing.assert_array_equal(batch["images"], run[3])
        batches = data.eval_batches(
            evaluation, **arguments, num_clips=2, num_crops=3, resize=40
        )
        assert batches.element_spec["images"].shape == (2, 6, 3, 32, 32, 3)
        assert len(images_of(batches)) == 4


def test_what_has_neither_images_nor_videos_with_classes_is_refused():
    with tfds.testing.mock_data(num_examples=2):
        with pytest.raises(ValueError, match="labelled images or videos"):
            data.load("davis")
        with pytest.raises(ValueError, match="label of 'div2k' must be a cla"):
            data.load("div2k")
