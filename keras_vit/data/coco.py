"""Boxes and masks of COCO's JSON files, and targets padded to one number."""

import dataclasses
import json
import os
import pathlib
import warnings
from typing import Literal

import numpy as np

from keras_vit._arguments import Natural, checked
from keras_vit._paths import require_file

# More boxes than this share that do not fit their images are in another
# convention, such as corners in place of corner and size.
_MOSTLY = 0.5
# Pixels by which a box may exceed its image, from rounding.
_TOLERANCE = 1.0
# What entries of the file must have.
_FIELDS: dict[str, dict] = {
    "images": dict(
        id=(int, str), file_name=str, height=(int, float), width=(int, float)
    ),
    "categories": dict(id=(int, str), name=str),
    "annotations": {},
}


@dataclasses.dataclass(frozen=True)
class AnnotatedImage:
    """An image file and its objects.

    Attributes:
        path: The file.
        image_id: Its number in the JSON file.
        size: (height, width) in pixels.
        boxes: `[n, 4]`, float32: centre x, centre y, width and height in shares
            of the image.
        labels: `[n]`, int64: indices of class names.
        crowd: `[n]`, bool: whether an object is a crowd.
        areas: `[n]`, float32, in pixels, as the file states them, or those of
            the boxes.
        segmentations: Of each object, as in the file; None without one.
    """

    path: str
    image_id: int
    size: tuple[int, int]
    boxes: np.ndarray
    labels: np.ndarray
    crowd: np.ndarray
    areas: np.ndarray
    segmentations: tuple

    def check_masks(self) -> None:
        """Raise ValueError if an object has no mask, without drawing any."""
        for i, coded in enumerate(self.segmentations):
            if not coded:
                raise ValueError(
                    f"Each object must have a mask. Object {i} of "
                    f"{self.path!r} has none"
                )

    def masks(self) -> np.ndarray:
        """Return the objects' masks, bool `[n, H, W]`.

        Raises:
            ImportError: If pycocotools is not installed, which draws polygons
                and expands run lengths.
            ValueError: If an object has none, or one of another size.
        """
        try:
            from pycocotools import mask
        except ImportError as error:
            raise ImportError(
                "Masks of COCO need pycocotools: pip install pycocotools"
            ) from error
        height, width = self.size
        self.check_masks()
        found = np.zeros((len(self.labels), height, width), bool)
        for i, coded in enumerate(self.segmentations):
            is_coded = isinstance(coded, dict)
            if is_coded and tuple(coded.get("size", ())) != self.size:
                raise ValueError(
                    f"A mask must have the size {self.size} of its image. "
                    f"Received: {coded.get('size')} of object {i} of "
                    f"{self.path!r}"
                )
            try:
                if is_coded:  # whose size may be of floats
                    coded = coded | dict(size=[height, width])
                if isinstance(coded, list):
                    coded = mask.merge(mask.frPyObjects(coded, height, width))
                elif isinstance(coded["counts"], list):
                    coded = mask.frPyObjects(coded, height, width)
                found[i] = mask.decode(coded)
            except Exception as error:  # of several types, of pycocotools
                raise ValueError(
                    "A mask must be polygons of at least 3 points, or run "
                    f"lengths. Received: {str(self.segmentations[i])[:60]} of "
                    f"object {i} of {self.path!r}"
                ) from error
        return found


@checked
def read_coco(
    path: str | os.PathLike,
    images: str | os.PathLike,
    broken: Literal["error", "skip"] = "error",
) -> tuple[list[AnnotatedImage], tuple[str, ...]]:
    """Read a COCO JSON file of detection or instance segmentation.

    Args:
        path: The file.
        images: Folder of the images that it names.
        broken: "error", or "skip" to leave out boxes that are malformed or
            outside, with a warning of how many. COCO's train2017 has two.

    Returns:
        All its images, in its order, those without objects included; and the
        class names in the order of the categories' numbers.

    Raises:
        ValueError: If the file is missing or not JSON of that form, two images
            or two categories share an id, an image file is missing, or a box
            is not four finite numbers, has no area, lies outside its image, or
            has an unknown category or image. The message names the file and
            the number of the annotation. If most boxes do not fit, it names
            the convention: left, top, width, height in pixels.
    """
    content = _content(path)
    names = {each["id"]: each["name"] for each in content["categories"]}
    index = {number: i for i, number in enumerate(sorted(names))}
    objects, outside, skipped = _objects(content, path, index, broken == "skip")
    boxes = [each["bbox"] for own in objects.values() for each in own]
    within = sum(left + a <= 1 and top + b <= 1 for left, top, a, b in boxes)
    if within > _MOSTLY * len(boxes):
        raise ValueError(
            "`bbox` must be left, top, width and height in pixels. Received: "
            f"{within} of {len(boxes)} boxes within the first pixel in "
            f"{str(path)!r}. Are they shares of the image?"
        )
    if outside:
        most = len(outside) > _MOSTLY * len(content["annotations"])
        raise ValueError(
            "`bbox` must be left, top, width and height in pixels, inside the "
            f"image. Received: {outside[0]}; {len(outside)} of "
            f"{len(content['annotations'])} boxes lie outside"
            + (
                ". Most are: are they corners, or shares of the image?"
                if most
                else ""
            )
        )
    if skipped:
        warnings.warn(
            f"{len(skipped)} of {len(content['annotations'])} boxes are left "
            f"out, first {skipped[0]}",
            stacklevel=2,
        )
    found = [
        _annotated(image, objects[image["id"]], index, path, images)
        for image in content["images"]
    ]
    return found, tuple(names[number] for number in index)


def _objects(content, path, index, skips):
    """Return the annotations of each image, and the boxes that do not fit.

    The latter are descriptions of those outside, and of those left out.
    """
    entries = {each["id"]: each for each in content["images"]}
    objects: dict = {number: [] for number in entries}
    outside, skipped = [], []
    for entry in content["annotations"]:
        where = f"annotation {entry.get('id')} in {str(path)!r}"
        if entry.get("image_id") not in entries:
            raise ValueError(
                f"Each annotation must be of an image of the file. Received: "
                f"image_id={entry.get('image_id')} of {where}"
            )
        if entry.get("category_id") not in index:
            raise ValueError(
                "Each annotation must have one of the categories "
                f"{list(index)}. Received: category_id="
                f"{entry.get('category_id')} of {where}"
            )
        image = entries[entry["image_id"]]
        fault = _fault(entry.get("bbox"), image["height"], image["width"])
        if fault and skips:
            skipped.append(where)
            continue
        if fault == "outside":
            outside.append(f"{entry['bbox']} of {where}")
        elif fault:
            raise ValueError(
                f"`bbox` must be left, top, width and height in pixels, with "
                f"an area. Received: {entry.get('bbox')} of {where}"
            )
        objects[entry["image_id"]].append(entry)
    return objects, outside, skipped


@checked
def pad_objects(
    boxes, labels, max_objects: Natural, masks=None, name: str = "an image"
) -> dict:
    """Pad the targets of an image to one number of objects.

    Args:
        boxes: `[n, 4]`.
        labels: `[n]`.
        max_objects: M, at most the number of a model's queries.
        masks: `[n, H, W]`, or None.
        name: Of the image, for the message.

    Returns:
        "boxes", `[M, 4]`, "labels", `[M]`, -1 for padding, and "masks",
        `[M, H, W]`, if given.

    Raises:
        ValueError: If there are more objects than `max_objects`, or the
            numbers of boxes, labels and masks differ.
    """
    count = len(labels)
    shapes = np.shape(boxes), np.shape([] if masks is None else masks)[:1]
    if shapes[0] != (count, 4) and (count or np.size(boxes)):
        raise ValueError(
            f"`boxes` must be [{count}, 4], as many as the labels of {name}. "
            f"Received: shape {shapes[0]}"
        )
    if masks is not None and shapes[1] != (count,):
        raise ValueError(
            f"`masks` must be [{count}, H, W], as many as the labels of "
            f"{name}. Received: shape {np.shape(masks)}"
        )
    if count > max_objects:
        raise ValueError(
            "`max_objects` must be at least the number of objects of each "
            f"image. Received: max_objects={max_objects} for {count} objects "
            f"of {name}"
        )
    padding = max_objects - count
    boxes = np.reshape(np.asarray(boxes, "float32"), (count, 4))
    found = {
        "boxes": np.pad(boxes, [(0, padding), (0, 0)]),
        "labels": np.pad(
            np.asarray(labels, "int64"), (0, padding), constant_values=-1
        ),
    }
    if masks is not None:
        found["masks"] = np.pad(masks, [(0, padding), (0, 0), (0, 0)])
    return found


def _content(path):
    require_file(path)
    try:
        content = json.loads(pathlib.Path(path).read_bytes())
    except ValueError as error:
        raise ValueError(
            f"{str(path)!r} must be JSON. Received: {error}"
        ) from error
    found = content if isinstance(content, dict) else {}
    missing = _FIELDS.keys() - found.keys()
    if missing:
        raise ValueError(
            f"{str(path)!r} must have the keys of COCO. Missing: "
            f"{sorted(missing)}"
        )
    for key, kinds in _FIELDS.items():
        entries = content[key] if isinstance(content[key], list) else [None]
        seen = set()
        for entry in entries:
            if not isinstance(entry, dict) or any(
                not isinstance(entry.get(name), kind)
                for name, kind in kinds.items()
            ):
                raise ValueError(
                    f"`{key}` must be a list of objects with {[*kinds]}. "
                    f"Received: {str(entry)[:100]} in {str(path)!r}"
                )
            if kinds and entry["id"] in seen:
                raise ValueError(
                    f"Each of `{key}` must have an id of its own. Received: "
                    f"id={entry['id']!r} twice in {str(path)!r}"
                )
            seen.add(entry.get("id"))
    return content


def _fault(box, height, width):
    """Return "outside", "malformed" or "" of a box in pixels."""
    try:
        left, top, across, down = box
    except (TypeError, ValueError):
        return "malformed"
    if not all(isinstance(x, (int, float)) for x in box):  # strings, or null
        return "malformed"
    if not np.isfinite([left, top, across, down]).all():
        return "malformed"
    if across <= 0 or down <= 0:
        return "malformed"
    right, bottom = left + across, top + down
    fits = min(left, top) >= -_TOLERANCE
    fits = fits and right <= width + _TOLERANCE
    fits = fits and bottom <= height + _TOLERANCE
    # A part of it is inside, also of a box narrower than the tolerance.
    fits = fits and left < width and top < height and min(right, bottom) > 0
    return "" if fits else "outside"


def _size(image, path):
    """Return (height, width), integers, which some tools write as floats."""
    size = image["height"], image["width"]
    if not all(float(n).is_integer() and n > 0 for n in size):
        raise ValueError(
            "`height` and `width` must be whole pixels. Received: "
            f"{size} of image {image['id']} in {str(path)!r}"
        )
    return tuple(map(int, size))


def _annotated(image, objects, index, path, images):
    file = pathlib.Path(images) / image["file_name"]
    if not file.is_file():
        raise ValueError(
            f"Each image must exist. Missing: {str(file)!r}, image "
            f"{image['id']} in {str(path)!r}"
        )
    height, width = _size(image, path)
    boxes = np.array([each["bbox"] for each in objects], float).reshape(-1, 4)
    start = np.clip(boxes[:, :2], 0, (width, height))
    end = np.clip(boxes[:, :2] + boxes[:, 2:], 0, (width, height))
    boxes = np.concatenate([(start + end) / 2, end - start], axis=1)
    boxes /= (width, height) * 2
    return AnnotatedImage(
        path=str(file),
        image_id=image["id"],
        size=(height, width),
        boxes=boxes.astype("float32"),
        labels=np.array([index[o["category_id"]] for o in objects], "int64"),
        crowd=np.array([bool(o.get("iscrowd")) for o in objects], bool),
        areas=np.array(
            [
                o["bbox"][2] * o["bbox"][3]
                if o.get("area") is None
                else o["area"]
                for o in objects
            ],
            "float32",
        ),
        segmentations=tuple(o.get("segmentation") for o in objects),
    )
