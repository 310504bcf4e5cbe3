"""The tasks of VTAB-1k: sets, splits and labels."""

import numpy as np
import pytest

from keras_vit import data
from keras_vit.data import vtab
from tests.mocked import mocked_tfds

tf = pytest.importorskip("tensorflow")
tfds = pytest.importorskip("tensorflow_datasets")

# Of TFDS itself, on reading and on preparing a set.
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.backend_independent,
    pytest.mark.usefixtures("plain_decoding"),
]

# Group and number of classes, as the benchmark has them.
TASKS = {
    "caltech101": ("natural", 102),
    "cifar100": ("natural", 100),
    "dtd": ("natural", 47),
    "oxford_flowers102": ("natural", 102),
    "oxford_iiit_pet": ("natural", 37),
    "sun397": ("natural", 397),
    "svhn_cropped": ("natural", 10),
    "patch_camelyon": ("specialized", 2),
    "eurosat": ("specialized", 10),
    "resisc45": ("specialized", 45),
    "diabetic_retinopathy": ("specialized", 5),
    "clevr_count": ("structured", 8),
    "clevr_distance": ("structured", 6),
    "dmlab": ("structured", 6),
    "dsprites_location": ("structured", 16),
    "dsprites_orientation": ("structured", 16),
    "kitti_distance": ("structured", 4),
    "smallnorb_azimuth": ("structured", 18),
    "smallnorb_elevation": ("structured", 9),
}
# Numbers of training examples in TFDS, and the parts that follow from them by
# the percentages of the authors' repository.
PARTS = {
    "caltech101": (3060, "train[2754:2954]", "test[0:]"),
    "cifar100": (50_000, "train[45000:45200]", "test[0:]"),
    "oxford_iiit_pet": (3680, "train[2944:3144]", "test[0:]"),
    "svhn_cropped": (73_257, "train[65931:66131]", "test[0:]"),
    "eurosat": (27_000, "train[16200:16400]", "train[21600:]"),
    "resisc45": (31_500, "train[18900:19100]", "train[25200:]"),
    "clevr_count": (70_000, "train[63000:63200]", "validation[0:]"),
    "clevr_distance": (70_000, "train[63000:63200]", "validation[0:]"),
    "dsprites_location": (737_280, "train[589824:590024]", "train[663552:]"),
    "dsprites_orientation": (
        737_280,
        "train[589824:590024]",
        "train[663552:]",
    ),
    "smallnorb_azimuth": (24_300, "test[0:200]", "test[12150:]"),
    "smallnorb_elevation": (24_300, "test[0:200]", "test[12150:]"),
}


def test_the_tasks_are_those_of_the_benchmark():
    assert TASKS == {
        name: (task.group, task.classes) for name, task in vtab.TASKS.items()
    }


@pytest.mark.parametrize("name", TASKS)
def test_parts_are_cut_where_the_benchmark_cuts_them(name):
    size, val, test = PARTS.get(name, (5000, "validation[0:200]", "test[0:]"))
    sizes = {"train": size, "validation": 5000, "test": size}
    found = [
        vtab.tfds_split(vtab.TASKS[name], split, sizes) for split in vtab.SPLITS
    ]
    assert found == ["train[:800]", val, f"train[:800]+{val}", test]


def test_crops_and_flips_are_off_where_the_label_would_not_survive():
    names = TASKS.keys()
    assert {name for name in names if not vtab.TASKS[name].crop} == {
        "clevr_count",
        "clevr_distance",
        "dmlab",
        "dsprites_location",
        "kitti_distance",
    }
    assert {name for name in names if not vtab.TASKS[name].flip} == {
        "dsprites_location",
        "dsprites_orientation",
        "smallnorb_azimuth",
    }


def label_of(name, example):
    label = int(vtab.TASKS[name].label(example))
    assert 0 <= label < vtab.TASKS[name].classes
    return label


@pytest.mark.parametrize("count", [3, 10])
def test_objects_are_counted(count):
    example = {"objects": {"size": tf.zeros([count], "int64")}}
    label = label_of("clevr_count", example)
    assert vtab.TASKS["clevr_count"].class_names[label] == f"{count} objects"


@pytest.mark.parametrize(
    ("distance", "label"),
    [(5, 0), (8, 0), (8.2, 1), (8.5, 1), (8.7, 2), (9.3, 3), (9.6, 4), (20, 5)],
)
def test_the_nearest_object_decides(distance, label):
    places = tf.constant([[0, 0, 50.0], [1, 1, distance], [2, 2, 60.0]])
    example = {"objects": {"pixel_coords": places}}
    assert label_of("clevr_distance", example) == label


@pytest.mark.parametrize(
    ("kinds", "depths", "label"),
    [
        ([0], [5.0], 0),
        ([1, 0], [30.0, 19.5], 1),
        ([2], [20.5], 2),
        # A pedestrian is no vehicle, however near.
        ([3, 2], [1.0, 10.0], 1),
        ([3, 4], [1.0, 30.0], 3),
        ([], [], 3),
    ],
)
def test_the_nearest_vehicle_decides(kinds, depths, label):
    places = np.zeros((len(depths), 3), "float32")
    places[:, 2] = depths
    places[:, 0] = -100  # to the left, not behind
    example = {
        "objects": {"type": tf.constant(kinds, "int64"), "location": places}
    }
    assert label_of("kitti_distance", example) == label


def test_neighbouring_values_become_one_class():
    for name, key, values in (
        ("dsprites_location", "label_x_position", 32),
        ("dsprites_orientation", "label_orientation", 40),
    ):
        labels = [label_of(name, {key: value}) for value in range(values)]
        expected = np.arange(values) // (values / 16)
        np.testing.assert_array_equal(labels, expected)


@pytest.mark.parametrize(
    "name",
    ["dtd", "smallnorb_azimuth"]  # and each function of an example
    + [name for name, task in vtab.TASKS.items() if callable(task.label)],
)
def test_tasks_give_batches(name):
    with mocked_tfds(num_examples=2):
        train, evaluation = data.load(f"vtab/{name}")
        assert train.name == f"vtab/{name} train800val200"
        assert len(train.class_names) == TASKS[name][1]
        batch = next(
            iter(data.eval_batches(evaluation, batch_size=2, image_size=(8, 8)))
        )
    assert batch["images"].shape == (2, 8, 8, 3)
    np.testing.assert_array_equal(batch["labels"].numpy().sum(-1), 1)


class LittleSprites(tfds.core.GeneratorBasedBuilder):
    """1,500 black and white images without content that have a number."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        label = tfds.features.ClassLabel(num_classes=32)
        image = tfds.features.Image(shape=(4, 4, 1))
        features = {"image": image, "label_x_position": label}
        return self.dataset_info_from_configs(
            features=tfds.features.FeaturesDict(features)
        )

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        for i in range(1500):
            bits = [i >> bit & 1 for bit in range(16)]
            image = np.array(bits, "uint8").reshape(4, 4, 1)
            yield i, {"image": image, "label_x_position": i % 32}


def numbers_in(source):
    """The numbers that images spell, by their labels."""
    batches = data.eval_batches(
        source, batch_size=100, image_size=(4, 4), channels=1
    )
    numbers, labels = [], []
    for batch in batches.as_numpy_iterator():
        kept = batch["weights"] > 0
        images = batch["images"][kept]
        assert set(np.unique(images)) == {0, 255}
        numbers += (
            images.reshape(-1, 16) // 255 @ (1 << np.arange(16))
        ).tolist()
        labels += batch["labels"][kept].argmax(-1).tolist()
    return dict(zip(map(int, numbers), labels, strict=True))


def test_a_prepared_set_is_cut_and_labelled(tmp_path, monkeypatch):
    sprites = vtab.Task(
        "little_sprites",
        16,
        "train:80",
        "train:90",
        label=vtab.TASKS["dsprites_location"].label,
        reads=vtab.TASKS["dsprites_location"].reads,
        scale=255,
    )
    monkeypatch.setitem(vtab.TASKS, "little_sprites", sprites)
    whole, _ = tfds.load(
        "little_sprites",
        split=["train", "train[:1]"],
        data_dir=str(tmp_path),
    )

    def number(image):
        return int(image.reshape(16) @ (1 << np.arange(16)))

    expected = [
        (number(x["image"]), x["label_x_position"] // 2)
        for x in tfds.as_numpy(whole)
    ]
    parts = {
        "train800": expected[:800],
        "val200": expected[1200:1400],
        "train800val200": expected[:800] + expected[1200:1400],
        "test": expected[1350:],
    }
    name, data_dir = "vtab/little_sprites", str(tmp_path)
    train, test = data.load(name, data_dir=data_dir)
    train800, val200 = data.load(
        name, train_split="train800", eval_split="val200", data_dir=data_dir
    )
    for split, source in (
        ("train800val200", train),
        ("test", test),
        ("train800", train800),
        ("val200", val200),
    ):
        assert source.num_examples == len(parts[split])
        assert numbers_in(source) == dict(parts[split])
    # The order of training is drawn from decoded sprites as from any stream.
    batch = next(
        iter(data.train_batches(train, batch_size=4, image_size=(4, 4)))
    )
    assert batch["images"].shape == (4, 4, 4, 3)


@pytest.mark.parametrize(
    ("name", "split", "message"),
    [
        (
            "vtab/clever_count",
            "",
            "one of the 19. .*Nearest names.*clevr_count",
        ),
        ("vtab/dtd", "train", "one of .*train800.*Received: 'train'"),
    ],
)
def test_what_is_not_there_is_refused_before_a_download(name, split, message):
    with pytest.raises(ValueError, match=message):
        data.load(name, train_split=split)
