"""ReaL labels: one, several or none for an image."""

import numpy as np
import pytest

from keras_vit import data, evaluation

tfds = pytest.importorskip("tensorflow_datasets")

pytestmark = pytest.mark.backend_independent


def test_any_of_the_labels_is_right_and_none_does_not_count():
    labels = [np.array(x, int) for x in ([3], [1, 2], [], [0, 5], [7])]
    assert evaluation.real_accuracy([3, 2, 9, 4, 7], labels) == (0.75, 4)
    assert evaluation.real_accuracy([3, 2, 0, 5, 7], labels) == (1.0, 4)


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(ValueError, match="1 predictions, labels of 2 images"):
        evaluation.real_accuracy([1], [[1], [2]])
    with pytest.raises(ValueError, match="none for 2 images"):
        evaluation.real_accuracy([1, 2], [[], []])
    for wrong in ([[1, 2], [2, 0]], ["1", "2"]):  # as `predictions` returns
        with pytest.raises(ValueError, match="`predicted` must be one class"):
            evaluation.real_accuracy(wrong, [[1], [2]])


class RelabelledImages(tfds.core.GeneratorBasedBuilder):
    """11 images that hold their index in every pixel, labelled again."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        label = tfds.features.ClassLabel(num_classes=12)
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(4, 4, 3)),
                    "original_label": label,
                    "real_label": tfds.features.Sequence(label),
                    "file_name": tfds.features.Text(),
                }
            ),
            supervised_keys=("image", "real_label"),
        )

    def _split_generators(self, dl_manager):
        return {"validation": self._generate_examples()}

    def _generate_examples(self):
        for i in range(11):
            yield (
                i,
                {
                    "image": np.full((4, 4, 3), i, "uint8"),
                    "original_label": i,
                    "real_label": list(range(i, i + i % 3)),
                    "file_name": str(i),
                },
            )


@pytest.mark.filterwarnings("ignore")  # of TFDS itself
def test_images_and_labels_come_in_one_order(tmp_path):
    name, places = "relabelled_images", dict(data_dir=str(tmp_path))
    tfds.builder(name, **places).download_and_prepare(
        download_config=tfds.download.DownloadConfig(num_shards=3)
    )
    source, labels = evaluation.load_real(name=name, **places)
    batches = data.eval_batches(source, batch_size=4, image_size=(4, 4))
    found = [
        (int(image[0, 0, 0]), int(label.argmax()))
        for batch in batches.as_numpy_iterator()
        for image, label in zip(batch["images"], batch["labels"], strict=True)
    ][: source.num_examples]
    order = [index for index, _ in found]
    assert sorted(order) == list(range(11)) and order != sorted(order)
    assert [label for _, label in found] == order
    assert [x.tolist() for x in labels] == [
        list(range(i, i + i % 3)) for i in order
    ]
    with pytest.raises(ValueError, match="'nowhere'"):
        evaluation.load_real("nowhere", name=name, **places)
