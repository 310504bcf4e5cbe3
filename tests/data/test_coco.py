"""COCO's files, and what is wrong with them by name."""

import json

import numpy as np
import pytest

from keras_vit import data

pytestmark = pytest.mark.backend_independent


def written(folder, **changes):
    """Writes two images, the second without objects; returns the file."""
    for name in ("a.jpg", "b.jpg"):
        (folder / name).touch()
    entry = {"id": 7, "image_id": 1, "category_id": 9, "bbox": [2, 4, 4, 2]}
    entry["segmentation"] = [[2, 4, 6, 4, 6, 6, 2, 6]]
    content = {
        "images": [
            {"id": 1, "file_name": "a.jpg", "height": 10, "width": 20},
            {"id": 2, "file_name": "b.jpg", "height": 10, "width": 20},
        ],
        "categories": [{"id": 9, "name": "cat"}, {"id": 3, "name": "dog"}],
        "annotations": [entry | changes],
    }
    path = folder / "annotations.json"
    path.write_text(json.dumps(content))
    return path


def test_boxes_are_shares_and_images_without_objects_stay(tmp_path):
    (one, empty), names = data.read_coco(written(tmp_path), tmp_path)
    assert names == ("dog", "cat")
    np.testing.assert_allclose(one.boxes, [[0.2, 0.5, 0.2, 0.2]])
    assert one.labels.tolist() == [1] and one.size == (10, 20)
    assert empty.boxes.shape == (0, 4) and empty.labels.shape == (0,)
    # Up to a pixel outside is cut off; an area may be that of a mask.
    for left, centre in ((-0.5, 0.1), (16, 0.9)):
        path = written(tmp_path, bbox=[left, 4, 4.5, 2], area=5)
        (one, _), _ = data.read_coco(path, tmp_path)
        np.testing.assert_allclose(one.boxes, [[centre, 0.5, 0.2, 0.2]])
        assert one.areas.tolist() == [5]


@pytest.mark.parametrize(
    "segmentation",
    [
        [[2, 4, 6, 4, 6, 6, 2, 6]],
        # Runs down the columns, off and on in turn.
        {"size": [10, 20], "counts": [24, 2, 8, 2, 8, 2, 8, 2, 144]},
    ],
)
def test_masks_of_polygons_and_run_lengths(tmp_path, segmentation):
    path = written(tmp_path, segmentation=segmentation)
    (one, _), _ = data.read_coco(path, tmp_path)
    expected = np.zeros((1, 10, 20), bool)
    expected[0, 4:6, 2:6] = True
    np.testing.assert_array_equal(one.masks(), expected)


def test_masks_of_one_pixel_and_of_another_size(tmp_path):
    coded = {"size": [10, 20], "counts": [55, 1, 144]}
    path = written(tmp_path, segmentation=coded)
    (one, _), _ = data.read_coco(path, tmp_path)
    assert np.argwhere(one.masks()[0]).tolist() == [[5, 5]]
    path = written(tmp_path, segmentation=coded | {"size": [20, 10]})
    (one, _), _ = data.read_coco(path, tmp_path)
    with pytest.raises(ValueError, match=r"\[20, 10\] of object 0 of .*a.jpg"):
        one.masks()


@pytest.mark.parametrize("of_mask", [[10, 20], [10.0, 20.0]])
def test_sizes_may_be_whole_floats(tmp_path, of_mask):
    """As tools write them whose tables hold floats."""
    coded = {"size": of_mask, "counts": [55, 1, 144]}
    path = written(tmp_path, segmentation=coded)
    content = json.loads(path.read_text())
    content["images"][0] |= dict(height=10.0, width=20.0)
    path.write_text(json.dumps(content))
    (one, _), _ = data.read_coco(path, tmp_path)
    assert np.argwhere(one.masks()[0]).tolist() == [[5, 5]]
    content["images"][0]["width"] = 20.5
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"whole pixels.*20.5\) of image 1"):
        data.read_coco(path, tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bbox": [2, 4, 0, 2]}, "with an area.*annotation 7 in"),
        ({"bbox": [2, 4, 4, 0]}, "with an area.*annotation 7 in"),
        ({"bbox": [2, 4, float("nan"), 2]}, "with an area.*annotation 7"),
        ({"bbox": [2, 4]}, "with an area.*annotation 7"),
        ({"bbox": ["2", "4", "4", "2"]}, "with an area.*annotation 7"),
        ({"bbox": [12, 4, 18, 6]}, "annotation 7.*1 of 1.*are they corners"),
        ({"bbox": [20, 4, 0.9, 2]}, "inside the image.*annotation 7"),
        ({"bbox": [2, -1, 4, 1]}, "inside the image.*annotation 7"),
        ({"category_id": 5}, "category_id=5 of annotation 7 in"),
        ({"image_id": 5}, "image_id=5 of annotation 7 in"),
    ],
)
def test_bad_entries_are_named(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        data.read_coco(written(tmp_path, **changes), tmp_path)


def test_an_area_that_is_null_is_that_of_the_box(tmp_path):
    (one, _), _ = data.read_coco(written(tmp_path, area=None), tmp_path)
    assert one.areas.tolist() == [8]


@pytest.mark.parametrize(
    "key, entry, message",
    [
        ("images", {"id": 1}, "id=1 twice"),
        ("categories", {"id": 9}, "id=9 twice"),
        ("images", {"height": None}, "list of objects with .*'height'"),
        ("categories", {"name": None}, "list of objects with .*'name'"),
        ("annotations", None, "`annotations` must be a list"),
    ],
)
def test_entries_of_the_file_are_whole_and_have_own_ids(
    tmp_path, key, entry, message
):
    path = written(tmp_path)
    content = json.loads(path.read_text())
    content[key] = entry and [*content[key], content[key][-1] | entry]
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message):
        data.read_coco(path, tmp_path)


@pytest.mark.parametrize(
    "segmentation",
    [[[2, 4, 6, 4]], [[]], [], {"size": [10, 20], "counts": [900]}],
)
def test_malformed_masks_are_named(tmp_path, segmentation):
    path = written(tmp_path, segmentation=segmentation)
    (one, _), _ = data.read_coco(path, tmp_path)
    with pytest.raises(
        ValueError,
        match=r"(polygons of .* o|have a mask. O)bject 0 of .*a\.jpg",
    ):
        one.masks()


def test_names_are_read_in_utf_8_with_a_mark_of_bytes_too(tmp_path):
    path = written(tmp_path)
    text = path.read_text().replace('"cat"', '"Kätzchen"')
    path.write_text(text, encoding="utf-8-sig")
    assert data.read_coco(path, tmp_path)[1] == ("dog", "Kätzchen")


def test_missing_files_and_bad_json_are_named(tmp_path):
    path = written(tmp_path)
    (tmp_path / "b.jpg").unlink()
    with pytest.raises(ValueError, match="b.jpg', image 2 in"):
        data.read_coco(path, tmp_path)
    for content, message in (
        (b"{\n  oops", "annotations.json.*line 2"),
        (b'{"a": "\xff"}', "annotations.json' must be JSON"),
        (b"5", "annotations.json' must have the keys of COCO"),
        (b'["annotations", "categories", "images"]', "must have the keys"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            data.read_coco(path, tmp_path)


def test_objects_are_padded_or_refused():
    found = data.pad_objects(np.zeros((0, 4)), [], 3)
    assert found["labels"].tolist() == [-1, -1, -1]
    assert found["boxes"].shape == (3, 4)
    many = data.pad_objects(np.ones((10_000, 4)), np.ones(10_000), 10_000)
    assert (many["labels"] == 1).all()
    with pytest.raises(ValueError, match="2 for 3 objects of a.jpg"):
        data.pad_objects(np.ones((3, 4)), [0, 0, 0], 2, name="a.jpg")
    with pytest.raises(ValueError, match=r"`masks` must be \[1, H, W\]"):
        data.pad_objects(np.ones((1, 4)), [0], 3, masks=np.ones((2, 4, 5)))
    with pytest.raises(ValueError, match=r"`boxes` must be \[1, 4\]"):
        data.pad_objects(np.ones((2, 4)), [0], 3)
