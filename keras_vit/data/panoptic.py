"""Panoptic segments: COCO's JSON beside images of their numbers, and scenes."""

import json
import pathlib
import warnings

import numpy as np

from keras_vit.data.optional_imports import optional


def read_panoptic(
    path: pathlib.Path, images: pathlib.Path
) -> tuple[list, tuple[str, ...], tuple[int, ...], int]:
    """Read a panoptic JSON file of COCO.

    The PNG of an image is in the folder of the file's name. Its pixels are
    numbers of segments, R + 256 G + 65536 B, and 0 of no segment.

    Args:
        path: The file.
        images: Folder of the images that it names.

    Returns:
        A function for each image that reads its example (`TaskSource`), the
        class names, the classes that are regions ("stuff"), and the most
        segments of an image, crowds not counted.

    Raises:
        ValueError: If the file is not of that form, or an image is missing.
    """
    try:
        content = json.loads(path.read_bytes())
        for name, key in (
            ("categories", "id"),
            ("images", "id"),
            ("annotations", "image_id"),
        ):
            _check_once(content[name], name, key)
        categories = sorted(content["categories"], key=lambda c: c["id"])
        names = tuple(each["name"] for each in categories)
        stuff = tuple(i for i, c in enumerate(categories) if not c["isthing"])
        index = {each["id"]: i for i, each in enumerate(categories)}
        files = {each["id"]: each["file_name"] for each in content["images"]}
        found, most = [], 0
        for each in content["annotations"]:
            image = images / files[each["image_id"]]
            segments = path.with_suffix("") / each["file_name"]
            for file in (image, segments):
                if not file.is_file():
                    raise ValueError(f"missing: {str(file)!r}")
            _check_once(each["segments_info"], "segments_info", "id")
            infos = [
                (s["id"], index[s["category_id"]], bool(s.get("iscrowd")))
                for s in each["segments_info"]
            ]
            found.append(_reader(image, segments, infos))
            most = max(most, sum(not crowd for *_, crowd in infos))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{str(path)!r} must be a panoptic JSON file of COCO, whose images "
            f"exist: {error}"
        ) from error
    absent = sorted(
        files.keys() - {each["image_id"] for each in content["annotations"]}
    )
    if absent:
        warnings.warn(
            f"{len(absent)} images of {str(path)!r} are left out, such as "
            f"{files[absent[0]]!r}: they have no entry in `annotations`",
            stacklevel=2,
        )
    return found, names, stuff, most


def _check_once(entries, name, key):
    values = [each[key] for each in entries]
    if len(set(values)) < len(values):
        raise ValueError(f"two entries of `{name}` share `{key}`")


def _reader(image, file, infos):
    def load():
        module = optional("PIL.Image", extra="images")
        try:
            with module.open(file) as opened:
                pixels = np.asarray(opened.convert("RGB")).astype("int64")
        except (OSError, SyntaxError) as error:
            raise ValueError(
                f"{str(file)!r} must be an image of segments: {error}"
            ) from None
        numbers = pixels @ (1, 256, 65536)
        masks = np.array([numbers == number for number, *_ in infos], bool)
        masks = masks.reshape(len(infos), *numbers.shape)
        for mask, (number, *_) in zip(masks, infos, strict=True):
            if not mask.any():
                raise ValueError(
                    "Each segment must have pixels. Received: none of segment "
                    f"{number} in {str(file)!r}"
                )
        return dict(
            images=image.read_bytes(),
            path=str(image),
            boxes=boxes_of(masks),
            labels=np.array([label for _, label, _ in infos], "int64"),
            masks=masks,
            crowd=np.array([crowd for *_, crowd in infos], bool),
        )

    return load


def boxes_of(masks: np.ndarray) -> np.ndarray:
    """Return the boxes of masks that are not empty.

    Args:
        masks: bool `[n, H, W]`.

    Returns:
        float32 `[n, 4]`: centre x, centre y, width and height in shares of the
        image.
    """
    sides = []
    for axis in (1, 2):  # of columns, then of rows
        along = np.asarray(masks.any(axis=axis))
        size = along.shape[1]
        first = along.argmax(axis=1)
        last = size - along[:, ::-1].argmax(axis=1)
        sides.append(((first + last) / 2 / size, (last - first) / size))
    (x, width), (y, height) = sides
    return np.stack([x, y, width, height], axis=1).astype("float32")


def with_ground(load, number: int):
    """Return the function of a scene of digits with the ground as a region.

    Args:
        load: Function of an index, see `keras_vit.data.digit_scenes`.
        number: Class of the ground.
    """

    def load_panoptic(index):
        found = load(index)
        ground = np.expand_dims(found["classes"] == 0, 0)  # [1, H, W]
        return found | dict(
            masks=np.concatenate([found["masks"], ground]),
            boxes=np.concatenate([found["boxes"], boxes_of(ground)]),
            labels=np.append(found["labels"], number),
        )

    return load_panoptic
