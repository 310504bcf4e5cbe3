"""Data sets for detection, segmentation and depth."""

import dataclasses
import json
import struct
import zlib

import keras
import numpy as np
import pytest
import tensorflow_datasets as tfds
from PIL import Image

from keras_vit import data
from keras_vit.data import joint, task_files
from keras_vit.data.task_windows import image_windows

pytestmark = pytest.mark.backend_independent


def first_of(batches, count=1):
    return list(batches.take(count).as_numpy_iterator())


def scenes(task):
    return data.load_task("digit_scenes", task)


def test_a_scene_agrees_with_itself():
    train, evaluated = scenes("instances")
    assert (train.num_examples, evaluated.num_examples) == (20_000, 500)
    sizes = set()
    for i in range(40):
        found = train.load(i)
        sizes.add(len(found["labels"]))
        background = ~found["masks"].any(0)
        # Digits, some of which are hidden for the most part, are nearer.
        assert (found["depth"][~background] <= 2).all()
        assert (found["depth"][found["classes"] == 0] > 2).all()
        for box, label, mask in zip(
            found["boxes"], found["labels"], found["masks"], strict=True
        ):
            assert (found["classes"][mask] == label + 1).all()
            assert len(np.unique(found["depth"][mask])) == 1
            rows, columns = np.nonzero(mask)
            x, y, width, height = box * 48
            assert x - width / 2 <= columns.min()
            assert columns.max() < x + width / 2
            assert y - height / 2 <= rows.min()
            assert rows.max() < y + height / 2
    assert sizes == {0, 1, 2, 3}
    again = scenes("depth")[0].load(3)
    np.testing.assert_array_equal(again["images"], train.load(3)["images"])


def test_depth_has_the_size_of_images():
    train, _ = scenes("depth")
    (batch,) = first_of(
        data.task_batches(train, batch_size=4, image_size=(48, 32), channels=1)
    )
    (depth,) = batch["labels"].values()
    assert depth.shape == (4, 48, 32)


def test_batches_are_those_of_a_run_that_resumes():
    options = dict(
        batch_size=4,
        image_size=(48, 32),
        channels=1,
        max_objects=5,
        scales=(0.5, 1.5),
        colours=0.3,
        seed=7,
    )
    train, _ = scenes("instances")
    batches = first_of(data.task_batches(train, **options), 3)
    (resumed,) = first_of(data.task_batches(train, start_step=2, **options))
    keras.tree.map_structure(np.testing.assert_array_equal, batches[2], resumed)
    assert batches[0]["images"].shape == (4, 48, 32, 1)
    assert not np.array_equal(batches[0]["images"], batches[1]["images"])
    shapes = {k: v.shape for k, v in resumed["labels"].items()}
    expected = dict(boxes=(4, 5, 4), labels=(4, 5), masks=(4, 5, 48, 32))
    assert shapes == expected
    halves = [
        first_of(
            data.task_batches(train, shard_index=i, num_shards=2, **options)
        )[0]
        for i in (0, 1)
    ]
    joined = np.concatenate([half["images"] for half in halves])
    np.testing.assert_array_equal(joined, batches[0]["images"])


def test_without_flips_views_are_the_examples():
    train = dataclasses.replace(scenes("segmentation")[0], num_examples=8)
    options = dict(batch_size=8, image_size=(48, 48), channels=1, flip=False)
    (found,) = first_of(data.task_batches(train, **options))
    examples = [train.load(i)["classes"] for i in range(8)]
    for view in found["labels"]["classes"]:
        assert any((view == each).all() for each in examples)


def test_classes_become_masks():
    train, _ = scenes("segmentation")
    options = dict(batch_size=4, image_size=(64, 64), channels=1, flip=False)
    options |= dict(scales=(0.5, 0.5))  # padded with ignored pixels
    (plain,) = first_of(data.task_batches(train, **options))
    assert plain["labels"]["classes"].shape == (4, 64, 64)
    (found,) = first_of(
        data.task_batches(train, max_objects=6, as_masks=True, **options)
    )
    for classes, labels, masks in zip(
        plain["labels"]["classes"],
        found["labels"]["labels"],
        found["labels"]["masks"],
        strict=True,
    ):
        present = np.setdiff1d(classes, [255])
        assert labels.tolist() == [*present, *[-1] * (6 - len(present))]
        for label, mask in zip(labels, masks, strict=True):
            np.testing.assert_array_equal(mask, classes == label)


def test_every_example_is_evaluated_once():
    _, evaluated = scenes("detection")
    numbers = []
    for shard in range(3):
        for batch in data.task_eval_batches(
            evaluated,
            batch_size=48,
            image_size=(32, 32),
            channels=1,
            shard_index=shard,
            num_shards=3,
        ).as_numpy_iterator():
            numbers.extend(batch["index"])
            padding = batch["index"] < 0
            has_object = (batch["labels"]["labels"] >= 0).any(axis=1)
            assert not has_object[padding].any()
            assert has_object[batch["index"] == 0].all()
            assert (batch["sizes"] == 48).all()
    assert sorted(n for n in numbers if n >= 0) == list(range(500))
    assert len(numbers) == 528  # each process has the same number of batches


def write_coco(root, part, box=(2, 3, 4, 5)):
    """Write a folder of Roboflow's form with one image."""
    folder = root / part
    folder.mkdir(parents=True)
    Image.new("RGB", (20, 10), (200, 0, 0)).save(folder / "a.png")
    content = dict(
        images=[dict(id=4, file_name="a.png", width=20, height=10)],
        categories=[dict(id=1, name="cat"), dict(id=7, name="dog")],
        annotations=[
            dict(id=1, image_id=4, category_id=7, bbox=list(box)),
            dict(id=2, image_id=4, category_id=1, bbox=[0, 0, 9, 9], iscrowd=1),
        ],
    )
    (folder / "_annotations.coco.json").write_text(json.dumps(content))


def test_a_folder_of_coco(tmp_path):
    write_coco(tmp_path, "train")
    write_coco(tmp_path, "valid")
    train, _ = data.load_task(str(tmp_path), "detection")
    assert train.class_names == ("cat", "dog")
    (batch,) = first_of(
        data.task_batches(
            train, batch_size=1, image_size=(10, 20), max_objects=2, flip=False
        )
    )
    # The crowd is not trained on.
    assert batch["labels"]["labels"].tolist() == [[1, -1]]
    np.testing.assert_allclose(
        batch["labels"]["boxes"][0, 0], [4 / 20, 5.5 / 10, 4 / 20, 5 / 10]
    )
    np.testing.assert_array_equal(batch["images"][0, 0, 0], [200, 0, 0])


def test_masks_of_0_and_255_are_told(tmp_path):
    for part in ("train", "val"):
        for kind in ("images", "masks"):
            (tmp_path / part / kind).mkdir(parents=True)
        Image.new("RGB", (2, 1)).save(tmp_path / part / "images/a.png")
        mask = np.array([[0, 255]], "uint8")
        Image.fromarray(mask).save(tmp_path / part / "masks/a.png")
    (tmp_path / "classes.txt").write_text("background\nobject\n")
    with pytest.warns(UserWarning, match="no class but the first beside 255"):
        data.load_task(str(tmp_path), "segmentation")


def test_folders_of_masks_and_depth(tmp_path):
    for part in ("train", "val"):
        for kind in ("images", "masks", "depth"):
            (tmp_path / part / kind).mkdir(parents=True)
            (tmp_path / part / kind / "._a.png").write_bytes(b"of macOS")
        Image.new("RGB", (6, 4)).save(tmp_path / part / "images/a.png")
        mask = np.zeros((4, 6), "uint8")
        mask[0, :4] = (1, 2, 255, 3)
        palette = Image.fromarray(mask, "P")
        palette.putpalette([9, 9, 9, 200, 0, 0, 0, 90, 0] + [0] * 759)
        palette.save(tmp_path / part / "masks/a.png")
        depth = (mask * 100).astype("uint16")
        Image.fromarray(depth).save(tmp_path / part / "depth/a.png")
    (tmp_path / "classes.txt").write_text("sky\nroad\ncar\ntree\n")
    train, _ = data.load_task(str(tmp_path), "segmentation")
    assert train.class_names == ("sky", "road", "car", "tree")
    assert train.load(0)["classes"][0].tolist() == [1, 2, 255, 3, 0, 0]
    train, _ = data.load_task(
        str(tmp_path), "segmentation", zero_is_ignored=True
    )
    assert train.load(0)["classes"][0].tolist() == [0, 1, 255, 2, 255, 255]
    train, _ = data.load_task(str(tmp_path), "depth", depth_unit=0.01)
    np.testing.assert_allclose(train.load(0)["depth"][0, :2], [1, 2])
    palette.save(tmp_path / "train/masks/b.png")
    Image.new("RGB", (6, 4)).save(tmp_path / "train/images/b.tif")
    with pytest.warns(UserWarning, match=r"1 targets .*'b\.png'"):
        data.load_task(str(tmp_path), "segmentation")
    np.savez(tmp_path / "train/depth/a.npz", depth=np.full((4, 6), np.nan))
    (tmp_path / "train/depth/a.png").unlink()
    train, _ = data.load_task(str(tmp_path), "depth")
    assert (train.load(0)["depth"] == 0).all()
    whole = (tmp_path / "train/depth/a.npz").read_bytes()
    for content in (b"", whole[:-30], whole.replace(b"depth", b"other")):
        (tmp_path / "train/depth/a.npz").write_bytes(content)
        with pytest.raises(ValueError, match=r"a\.npz' must be an npz file"):
            train.load(0)
    for wrong in (np.full((4, 6), -1), np.ones((4, 6, 1)), np.ones((0, 6, 1))):
        np.savez(tmp_path / "train/depth/a.npz", depth=wrong)
        with pytest.raises(ValueError, match=r"must be \[H, W\].*a\.npz"):
            train.load(0)


@pytest.mark.parametrize("bits", [2, 4])
def test_grey_masks_of_few_bits_are_refused(tmp_path, bits):
    """Are their values classes, or shares of white as of a picture?"""
    header = struct.pack(">IIBBBBB", 1, 1, bits, 0, 0, 0, 0)
    parts = (
        (b"IHDR", header),
        (b"IDAT", zlib.compress(b"\0\x10")),
        (b"IEND", b""),
    )
    content = b"\x89PNG\r\n\x1a\n"
    for name, part in parts:
        checksum = zlib.crc32(name + part)
        content += struct.pack(">I", len(part)) + name + part
        content += struct.pack(">I", checksum)
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(ValueError, match=f"its mode is L;{bits}"):
        task_files.read_classes(tmp_path / "a.png", 150)


def test_a_folder_of_panoptic_segments(tmp_path):
    for part in ("train2017", "val2017"):
        (tmp_path / part).mkdir()
        Image.new("RGB", (6, 4)).save(tmp_path / part / "a.png")
        folder = tmp_path / "annotations" / f"panoptic_{part}"
        folder.mkdir(parents=True)
        numbers = np.zeros((4, 6), int)
        numbers[:, :2], numbers[0, 3] = 7, 70_000
        rgb = [numbers % 256, numbers // 256 % 256, numbers // 65536]
        Image.fromarray(np.stack(rgb, -1).astype("uint8")).save(
            folder / "b.png"
        )
        segments = [
            dict(id=7, category_id=9, iscrowd=0),
            dict(id=70_000, category_id=2, iscrowd=1),
        ]
        content = dict(
            images=[dict(id=1, file_name="a.png")],
            categories=[
                dict(id=9, name="sky", isthing=0),
                dict(id=2, name="cat", isthing=1),
            ],
            annotations=[
                dict(image_id=1, file_name="b.png", segments_info=segments)
            ],
        )
        (folder.with_suffix(".json")).write_text(json.dumps(content))
    train, _ = data.load_task(str(tmp_path), "panoptic")
    assert (train.class_names, train.stuff_classes) == (("cat", "sky"), (1,))
    assert train.most_objects == 1  # without the crowd
    found = train.load(0)
    assert found["labels"].tolist() == [1, 0]
    assert found["crowd"].tolist() == [False, True]
    assert found["masks"].sum((1, 2)).tolist() == [8, 1]
    np.testing.assert_allclose(
        found["boxes"], [[1 / 6, 0.5, 1 / 3, 1], [3.5 / 6, 1 / 8, 1 / 6, 1 / 4]]
    )
    file = tmp_path / "annotations" / "panoptic_train2017" / "b.png"
    Image.new("RGB", (6, 4), (7, 0, 0)).save(file)
    with pytest.raises(ValueError, match=r"none of segment 70000 in .*b\.png"):
        train.load(0)
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(ValueError, match=r"b\.png' must be an image of segm"):
        train.load(0)
    index = tmp_path / "annotations/panoptic_train2017.json"
    more = [*content["images"], dict(id=2, file_name="c.png")]
    index.write_text(json.dumps(content | dict(images=more)))
    with pytest.warns(UserWarning, match=r"1 images .* such as 'c\.png'"):
        data.load_task(str(tmp_path), "panoptic")
    file.unlink()
    with pytest.raises(ValueError, match=r"missing: .*b\.png"):
        data.load_task(str(tmp_path), "panoptic")
    for key, name in (
        ("categories", "id"),
        ("images", "id"),
        ("annotations", "image_id"),
    ):
        twice = content | {key: content[key] * 2}
        (tmp_path / "annotations/panoptic_train2017.json").write_text(
            json.dumps(twice)
        )
        with pytest.raises(ValueError, match=f"`{key}` share `{name}`"):
            data.load_task(str(tmp_path), "panoptic")


def test_windows_of_an_image_cover_its_longer_side():
    example = dict(
        images=np.arange(10 * 25 * 3, dtype="uint8").reshape(10, 25, 3)
    )
    source = data.TaskSource(
        name="x",
        task="segmentation",
        class_names=("a", "b"),
        num_examples=1,
        load=lambda index: example,
    )
    (found,) = first_of(data.task_windows(source, side=10))
    # Of tue-mps/eomt: 3 windows, which overlap by 2.5 pixels.
    assert found["starts"].tolist() == [[0, 0], [0, 7], [0, 15]]
    for (_, left), window in zip(found["starts"], found["images"], strict=True):
        np.testing.assert_array_equal(
            window, example["images"][:, left : left + 10]
        )
    assert found["sizes"].tolist() == found["scaled"].tolist() == [10, 25]
    rounded = image_windows(np.zeros((9, 25, 3), "uint8"), 10)
    assert rounded["scaled"].tolist() == [10, 28]


@pytest.mark.parametrize(
    ("name", "mode", "channels"),
    [
        ("a.jpg", "CMYK", 1),
        ("a.jpg", "CMYK", 3),
        ("a.png", "RGB", 1),
        ("a.bmp", "L", 3),
    ],
)
def test_files_have_the_pixels_that_others_read(tmp_path, name, mode, channels):
    for part in ("train", "val"):
        for kind in ("images", "masks"):
            (tmp_path / part / kind).mkdir(parents=True)
        image = Image.new("RGB", (6, 4), (200, 30, 90)).convert(mode)
        image.save(tmp_path / part / "images" / name)
        Image.new("L", (6, 4)).save(tmp_path / part / "masks/a.png")
    (tmp_path / "classes.txt").write_text("sky\nroad\n")
    _, evaluated = data.load_task(str(tmp_path), "segmentation")
    options = dict(channels=channels)
    (batch,) = data.task_eval_batches(
        evaluated, batch_size=1, image_size=(4, 6), **options
    ).as_numpy_iterator()
    path = tmp_path / "val/images" / name
    expected = data.read_image(path, (4, 6), **options)
    np.testing.assert_array_equal(batch["images"][0], expected)
    (found,) = first_of(data.task_windows(evaluated, side=4, **options))
    np.testing.assert_array_equal(found["images"][0], expected[:, :4])
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(Exception, match=f"val/images/{name}' does not decode"):
        first_of(
            data.task_eval_batches(
                evaluated, batch_size=1, image_size=(4, 6), **options
            )
        )
    with pytest.raises(Exception, match=f"val/images/{name}' does not decode"):
        first_of(data.task_windows(evaluated, side=4, **options))


def test_several_files_of_one_part_are_refused(tmp_path):
    write_coco(tmp_path, "train")
    write_coco(tmp_path, "valid")
    write_coco(tmp_path, "test")  # not used, since there is valid/
    data.load_task(str(tmp_path), "detection")
    (tmp_path / "annotations").mkdir()
    file = tmp_path / "annotations/instances_train2017.json"
    file.write_bytes((tmp_path / "train/_annotations.coco.json").read_bytes())
    with pytest.raises(ValueError, match=r"one .* 'train'.*train2017.*coco"):
        data.load_task(str(tmp_path), "detection")
    (tmp_path / "train/_annotations.coco.json").rename(
        tmp_path / "annotations/instances_train2014.json"
    )
    with pytest.raises(ValueError, match=r"one .* 'train'.*2014.*train2017"):
        data.load_task(str(tmp_path), "detection")


def test_bad_folders_are_refused(tmp_path):
    with pytest.raises(ValueError, match="must be an existing folder"):
        data.load_task("/nowhere", "depth")
    for place in (str(tmp_path), "digit_scenes"):
        for split in ("train_split", "eval_split"):
            with pytest.raises(ValueError, match=f"{split}='test'"):
                data.load_task(place, "detection", **{split: "test"})
    with pytest.raises(ValueError, match="_annotations.coco.json"):
        data.load_task(str(tmp_path), "detection")
    write_coco(tmp_path, "train", box=(0, 0, 0, 5))
    write_coco(tmp_path, "valid")
    with pytest.raises(ValueError, match=r"with an area.*annotation 1 in .*"):
        data.load_task(str(tmp_path), "detection")
    with pytest.warns(UserWarning) as warned:
        train, _ = data.load_task(str(tmp_path), "detection", broken="skip")
    assert train.load(0)["labels"].tolist() == [0]
    messages = "\n".join(str(each.message) for each in warned)
    assert "1 of 2 boxes are left out" in messages
    assert "no object of 1 of its 2 classes, such as 'dog'" in messages
    file = tmp_path / "valid/_annotations.coco.json"
    content = json.loads(file.read_text())
    file.write_text(json.dumps(content | dict(annotations=[])))
    with (
        pytest.raises(ValueError, match=r"must have an object.*in 1 images"),
        pytest.warns(UserWarning),
    ):
        data.load_task(str(tmp_path), "detection", broken="skip")
    shares = [dict(id=1, image_id=4, category_id=7, bbox=[0.1, 0.2, 0.5, 0.5])]
    others = [dict(each, name="bird") for each in content["categories"]]
    file.write_text(json.dumps(content | dict(categories=others)))
    with (
        pytest.raises(ValueError, match="the same categories.*'bird'"),
        pytest.warns(UserWarning),
    ):
        data.load_task(str(tmp_path), "detection", broken="skip")
    file.write_text(json.dumps(content | dict(annotations=shares)))
    with pytest.raises(ValueError, match="1 of 1 boxes within the first pixel"):
        data.read_coco(file, file.parent)
    Image.new("RGB", (10, 20)).save(tmp_path / "train/a.png")
    with pytest.raises(ValueError, match=r"\(10, 20\) for .* of \(20, 10\)"):
        train.load(0)
    with pytest.raises(ValueError, match="train/images and train/masks"):
        data.load_task(str(tmp_path), "segmentation")
    (tmp_path / "classes.txt").write_text("sky\nroad\n")
    for part in ("train", "val"):
        for kind in ("images", "masks"):
            (tmp_path / part / kind).mkdir(parents=True)
        Image.new("RGB", (6, 4)).save(tmp_path / part / "images/a.png")
    with pytest.raises(ValueError, match="Missing: a"):
        data.load_task(str(tmp_path), "segmentation")
    for part in ("train", "val"):
        Image.new("L", (6, 5), 7).save(tmp_path / part / "masks/a.png")
    train, _ = data.load_task(str(tmp_path), "segmentation")
    with pytest.raises(ValueError, match=r"from 0 to 1.*7 in .*a\.png"):
        train.load(0)
    Image.new("RGB", (6, 4)).save(tmp_path / "train/images/a.jpg")
    with pytest.raises(ValueError, match=r"'a\.jpg' and 'a\.png' in .*train"):
        data.load_task(str(tmp_path), "segmentation")
    (tmp_path / "train/images/a.jpg").unlink()
    for part in ("train", "val"):
        Image.new("L", (6, 5), 1).save(tmp_path / part / "masks/a.png")
    for kept, options in ((255, {}), (254, dict(zero_is_ignored=True))):
        names = "\n".join(map(str, range(kept + 1)))
        (tmp_path / "classes.txt").write_text(names)
        with pytest.raises(ValueError, match=f"at most {kept} classes"):
            data.load_task(str(tmp_path), "segmentation", **options)
    with pytest.raises(Exception, match="must have its size"):
        first_of(data.task_batches(train, batch_size=1, image_size=(8, 8)))


def test_more_objects_than_queries_are_named():
    train, _ = scenes("detection")
    batches = data.task_batches(
        train, batch_size=16, image_size=(64, 64), channels=1, max_objects=1
    )
    with pytest.raises(Exception, match=r"max_objects=1 for \d objects of exa"):
        first_of(batches)


def test_what_a_folder_lacks_is_told_before_its_images_are_read(tmp_path):
    for part in ("train", "valid"):
        write_coco(tmp_path, part)
    file = tmp_path / "valid" / "_annotations.coco.json"
    content = json.loads(file.read_text())
    (one, crowd) = content["annotations"]
    content["annotations"] = [one, one | dict(id=3), crowd]
    file.write_text(json.dumps(content))
    parts = data.load_task(str(tmp_path), "detection")
    assert [part.most_objects for part in parts] == [1, 2]
    options = dict(batch_size=1, image_size=(8, 8), max_objects=1)
    data.task_batches(parts[0], **options)
    with pytest.raises(ValueError, match="max_objects=1 for 2 objects of an"):
        data.task_eval_batches(parts[1], **options)
    with pytest.raises(ValueError, match=r"Object 0 of .*a\.png' has none"):
        data.load_task(str(tmp_path), "instances")


def test_tfds_boxes_are_read_by_index():
    objects = dict(
        bbox=np.array([[0.1, 0.2, 0.5, 0.8], [0.3, 0.3, 0.3, 0.9]], "float32"),
        label=np.array([4, 5]),
        area=np.array([2.5, 1.0]),
        is_difficult=np.array([True, False]),
    )
    example = dict(image=np.zeros((4, 6, 3), "uint8"), objects=objects)
    mock = dict(as_data_source_fn=lambda self, split, **_: [example])
    with tfds.testing.mock_data(**mock):
        train, _ = data.load_task("voc/2012", "detection", broken="skip")
        with pytest.raises(ValueError, match="object 1 in example 0 of voc"):
            data.load_task("voc/2012", "detection")[0].load(0)
        with pytest.raises(ValueError, match="must have targets"):
            data.load_task("voc/2012", "segmentation")
    found = train.load(0)
    np.testing.assert_allclose(found["boxes"], [[0.5, 0.3, 0.6, 0.4]])
    assert found["areas"].tolist() == [2.5]
    assert found["crowd"].tolist() == [True]
    assert train.class_names[4] == "bottle" and found["labels"] == [4]


def test_hues_turn_and_brightness_stays():
    red = np.full((2, 2, 3), (255, 0, 0), "float32")
    seen = {
        tuple(joint.jitter_colours(red, (0, i), 1e-6, hue=0.1).numpy()[0, 0])
        for i in range(16)
    }
    for colour in seen:
        np.testing.assert_allclose(max(colour), 255, atol=1e-2)
        assert min(colour) < 1e-2
    assert {green > blue for _, green, blue in seen} == {True, False}
    turns = [sorted(colour)[1] / 255 / 6 for colour in seen]
    assert 0.08 < max(turns) <= 0.1 and min(turns) < 0.05


def test_wrong_names_of_classes_are_refused(tmp_path):
    file = tmp_path / "classes.txt"
    with pytest.raises(ValueError, match="Missing: .*classes.txt"):
        task_files._class_names(tmp_path, 255)
    file.write_text("\ufeffsky\nroad\n", encoding="utf-8")
    assert task_files._class_names(tmp_path, 255) == ("sky", "road")
    for content, message in (
        (b"sky\n\nroad\n", "nothing in line 2"),
        (b"sky\nsky\n", "two classes, each once.*'sky', 'sky'"),
        (b"", "two classes, each once"),
        (b"sky\nM\xfcll\n", "classes.txt' must be text in UTF-8.*line 2"),
    ):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            task_files._class_names(tmp_path, 255)
