"""Folders of images with COCO's JSON, with masks of classes, or with depth.

COCO: `annotations/instances_train2017.json` beside `train2017/` and the same of
`val2017`, or `train/_annotations.coco.json` beside the images, and `valid/`.
Panoptic: `annotations/panoptic_train2017.json`, and beside it a folder of that
name with the PNGs of the segments.

Masks: `images/training/*.jpg` and `annotations/training/*.png`, and the same of
`validation` (ADE20K); or `train/images/` and `train/masks/`, and `val/` or
`test/`. A mask is a PNG, grey or with a palette, whose values are classes, and
255 where a pixel does not count. `classes.txt` has a name in each line.

Depth: `train/images/` and `train/depth/`, and `val/` or `test/`: a PNG of 16
bits, or an npz file with `depth` in metres; 0 where it is unknown.

Images beside masks and depth are JPEG, PNG, WebP or BMP. Their EXIF orientation
is not applied: targets are those of the stored pixels.
"""

import hashlib
import io
import math
import pathlib
import warnings
import zipfile
from collections.abc import Callable
from typing import Literal

import numpy as np

from keras_vit._paths import NPZ_ERRORS, is_hidden
from keras_vit.data.coco import read_coco
from keras_vit.data.optional_imports import optional
from keras_vit.data.panoptic import read_panoptic
from keras_vit.data.tables import read_text

_TRAIN, _EVAL = ("train", "training"), ("val", "valid", "validation", "test")
# Other names of one part; "test" stands in for a part that is not there.
_SAME = (_TRAIN, _EVAL[:-1], _EVAL[-1:])
_IMAGES = (".jpg", ".jpeg", ".png", ".webp", ".bmp")
IGNORED = 255
MASKS_LOOKED_AT = 16


def find(
    path: str,
    task: str,
    broken: Literal["error", "skip"],
    zero_is_ignored: bool,
    depth_unit: float,
) -> tuple[dict, dict]:
    """Return the fields of a training and an evaluation `TaskSource`.

    Args:
        path: The folder.
        task: Which targets to read.
        broken, zero_is_ignored, depth_unit: See `load_task`.

    Raises:
        ValueError: If the folder has none of these forms, an image has no
            target, or a target is wrong.
    """
    root = pathlib.Path(path)
    if task in ("detection", "instances"):
        files = _coco_files(root)
        train, evaluation = (
            _of_coco(part, images, task, broken, is_train)
            for (part, images), is_train in zip(
                files, (True, False), strict=True
            )
        )
        return _same_classes(train, evaluation)
    if task == "panoptic":
        files = _coco_files(root, "panoptic")
        return _same_classes(*(_of_panoptic(*part) for part in files))
    kind = "masks" if task == "segmentation" else "depth"
    pairs = [_pairs(root, names, kind) for names in (_TRAIN, _EVAL)]
    if task == "depth":

        def read(file):
            return {"depth": read_depth(file, depth_unit)}

        names: tuple[str, ...] = ()
    else:
        # Pixels are bytes, and 255 is no class.
        names = _class_names(root, IGNORED - zero_is_ignored)

        def read(file):
            classes = read_classes(file, len(names), zero_is_ignored)
            return {"classes": classes}

        _warn_of_two_values(pairs[0], read)

    train, evaluation = (_of_pairs(p, read, names) for p in pairs)
    return train, evaluation


def _coco_files(root, kind="instances"):
    """Return (JSON file, folder of images) of both parts."""
    train, evaluation, test = (_of_part(root, kind, names) for names in _SAME)
    found = []
    for part, names in ((train, _TRAIN), (evaluation or test, _EVAL)):
        if not part:
            file = f"annotations/{kind}_{names[0]}*.json"
            if kind == "instances":
                file = f"{names[0]}/_annotations.coco.json or {file}"
            raise ValueError(
                f"A folder of objects must hold {file}, and the same of the "
                f"other part. Received: {str(root)!r}, without"
            )
        if len(part) > 1:
            raise ValueError(
                f"A folder of objects must hold one JSON file of the part "
                f"{names[0]!r}. Received: {sorted(map(str, part))}"
            )
        found += part.items()
    return found


def _of_part(root, kind, names):
    """Return all files of a part: JSON file -> folder of images."""
    found = {}
    for name in names:
        own = root / name / "_annotations.coco.json"
        if kind == "instances" and own.is_file():
            found[own] = own.parent
        for file in root.glob(f"annotations/{kind}_{name}*.json"):
            found[file] = root / file.stem.removeprefix(f"{kind}_")
    return found


def _of_coco(file, images, task, broken, is_train):
    annotated, names = read_coco(file, images, broken)
    if task == "instances":
        for each in annotated:  # before a run is in the middle of them
            each.check_masks()
    labels = {label for each in annotated for label in each.labels.tolist()}
    if annotated and not labels:
        raise ValueError(
            f"{str(file)!r} must have an object. Received: none in "
            f"{len(annotated)} images"
        )
    missing = [name for i, name in enumerate(names) if i not in labels]
    if missing and is_train:
        warnings.warn(
            f"{str(file)!r} has no object of {len(missing)} of its "
            f"{len(names)} classes, such as {missing[0]!r}: they are not "
            "learned",
            stacklevel=2,
        )

    def load(index):
        image = annotated[index]
        encoded = pathlib.Path(image.path).read_bytes()
        _check_size(encoded, image)
        found = dict(
            images=encoded,
            path=image.path,
            boxes=image.boxes,
            labels=image.labels,
            crowd=image.crowd,
            areas=image.areas,
        )
        if task == "instances":
            found["masks"] = image.masks()
        return found

    most = max((int((~each.crowd).sum()) for each in annotated), default=0)
    fields = _fields(file, names, load, len(annotated), file.read_bytes())
    return fields | dict(most_objects=most)


def _check_size(encoded, annotated):
    """Refuse boxes that are shares of another size than that of the file."""
    image = optional("PIL.Image", extra="images")
    try:
        with image.open(io.BytesIO(encoded)) as opened:
            width, height = opened.size
    except OSError:
        return  # whoever decodes it says what is wrong
    if (height, width) != tuple(annotated.size):
        raise ValueError(
            "The JSON file must state the size of each image. Received: "
            f"(height, width)={annotated.size} for {annotated.path!r} of "
            f"{(height, width)}"
        )


def _of_panoptic(file, images):
    loaders, names, stuff, most = read_panoptic(file, images)

    def load(index):
        return loaders[index]()

    fields = _fields(file, names, load, len(loaders), file.read_bytes())
    return fields | dict(stuff_classes=stuff, most_objects=most)


def _same_classes(train, evaluation):
    if train["class_names"] != evaluation["class_names"]:
        raise ValueError(
            "Both parts must have the same categories. Received: "
            f"{train['class_names']} in {train['name']!r} and "
            f"{evaluation['class_names']} in {evaluation['name']!r}"
        )
    return train, evaluation


def _pairs(root, parts, kind):
    """Return (image, target) files of a part, sorted."""
    targets = "annotations" if kind == "masks" else kind
    places = [(root / "images" / p, root / targets / p) for p in parts]
    places += [(root / p / "images", root / p / kind) for p in parts]
    for images, folder in places:
        if images.is_dir() and folder.is_dir():
            return _matched(images, folder)
    raise ValueError(
        f"A folder must hold {parts[0]}/images and {parts[0]}/{kind}, or "
        f"images/{parts[0]} and {targets}/{parts[0]}, and the same of the "
        f"other part. Received: {str(root)!r}, without"
    )


def _matched(images, folder):
    suffixes = (".png", ".npz") if folder.name == "depth" else (".png",)
    targets = _by_stem(folder, suffixes)
    files = sorted(_by_stem(images, _IMAGES).values())
    lonely = [file for file in files if file.stem not in targets]
    if lonely or not files:
        missing = lonely[0].stem if lonely else "any image"
        raise ValueError(
            f"Each image of {str(images)!r} must have a target of its name in "
            f"{str(folder)!r}. Missing: {missing}"
        )
    unused = sorted(targets.keys() - {file.stem for file in files})
    if unused:
        warnings.warn(
            f"{len(unused)} targets in {str(folder)!r} are left out, such as "
            f"{targets[unused[0]].name!r}: {str(images)!r} has no image of "
            f"their name that ends in one of {_IMAGES}",
            stacklevel=2,
        )
    return [(file, targets[file.stem]) for file in files]


def _warn_of_two_values(pairs, read):
    """Warn of masks of 0 and 255, where 255 is probably meant as a class."""
    chosen = pairs[:: math.ceil(len(pairs) / MASKS_LOOKED_AT)]
    values: set[int] = set()
    for _, target in chosen:
        try:
            values |= set(np.unique(read(target)["classes"]).tolist())
        except (ValueError, OSError):
            return  # what reads all of them names it
    if IGNORED in values and values <= {0, IGNORED}:
        warnings.warn(
            f"{len(chosen)} masks of {str(chosen[0][1].parent)!r} have no "
            f"class but the first beside {IGNORED}, which is where a pixel "
            "does not count. The values of classes are 0, 1, 2 and so on.",
            stacklevel=3,
        )


def _by_stem(folder, suffixes):
    """Return the files of a folder by their names without suffixes."""
    found: dict[str, pathlib.Path] = {}
    for file in sorted(folder.iterdir()):
        if is_hidden(file.name) or file.suffix.lower() not in suffixes:
            continue
        if other := found.get(file.stem):
            raise ValueError(
                f"Each image and its target must be one file of a name. "
                f"Received: {other.name!r} and {file.name!r} in {str(folder)!r}"
            )
        found[file.stem] = file
    return found


def _of_pairs(pairs, read: Callable, class_names):
    def load(index):
        image, target = pairs[index]
        return {
            "images": image.read_bytes(),
            "path": str(image),
            **read(target),
        }

    names = "\n".join(f"{a.name} {b.name} {b.stat().st_size}" for a, b in pairs)
    folder = pairs[0][0].parent
    return _fields(folder, class_names, load, len(pairs), names.encode())


def _fields(name, class_names, load, count, content):
    if not count:
        raise ValueError(f"{str(name)!r} must have an image. Received: none")
    return dict(
        name=str(name),
        class_names=class_names,
        num_examples=count,
        load=load,
        digest=hashlib.blake2b(content, digest_size=16).hexdigest(),
    )


def _class_names(root, most):
    file = root / "classes.txt"
    if not file.is_file():
        raise ValueError(
            "A folder of masks must hold classes.txt, with the name of a class "
            f"in each line. Missing: {str(file)!r}"
        )
    lines = read_text(file).strip().splitlines()
    names = tuple(name.strip() for name in lines)
    if "" in names:
        raise ValueError(
            f"{str(file)!r} must name a class in each line, since masks count "
            f"them. Received: nothing in line {names.index('') + 1}"
        )
    if len(names) < 2 or len(set(names)) < len(names):
        raise ValueError(
            f"{str(file)!r} must name at least two classes, each once. "
            f"Received: {list(names[:5])}"
        )
    if len(names) > most:
        raise ValueError(
            f"{str(file)!r} must name at most {most} classes. Received: "
            f"{len(names)}"
        )
    return names


def read_classes(
    file: pathlib.Path, num_classes: int, zero_is_ignored: bool = False
) -> np.ndarray:
    """Read the classes of pixels, uint8 `[H, W]`.

    Of a PNG with a palette the indices are read, not the colours.

    Raises:
        ValueError: If the file is no such PNG, or has another class.
    """
    pixels = _png(file, ("P", "L", "1", "I;16", "I"))
    if zero_is_ignored:
        pixels = np.where(np.isin(pixels, (0, IGNORED)), IGNORED, pixels - 1)
    return check_classes(pixels, num_classes, str(file))


def check_classes(pixels, num_classes: int, name: str) -> np.ndarray:
    """Return classes as uint8; raise ValueError if there is another one."""
    wrong = (pixels != IGNORED) & (pixels >= num_classes)
    if wrong.any():
        raise ValueError(
            f"A mask must hold classes from 0 to {num_classes - 1}, or "
            f"{IGNORED}. Received: {int(pixels[wrong][0])} in {name!r}"
        )
    return pixels.astype("uint8")


def read_depth(file: pathlib.Path, unit: float) -> np.ndarray:
    """Read depth in metres, float32 `[H, W]`, 0 where it is unknown.

    Raises:
        ValueError: If the file is neither a PNG of 16 bits nor such an npz, or
            a depth is negative.
    """
    if file.suffix.lower() == ".png":
        depth = _png(file, ("I;16", "I")).astype("float32") * np.float32(unit)
    else:
        try:
            if not zipfile.is_zipfile(file):
                raise ValueError("it is not a complete file .npz")
            with np.load(file, allow_pickle=False) as archive:
                depth = archive["depth"].astype("float32")
        except NPZ_ERRORS as error:
            raise ValueError(
                f"{str(file)!r} must be an npz file with `depth`: {error}"
            ) from None
    depth = np.where(np.isfinite(depth), depth, 0)
    if depth.ndim != 2 or (depth < 0).any():
        raise ValueError(
            "Depth must be [H, W], in metres, 0 where it is unknown. Received: "
            f"shape {depth.shape}, from {depth.min(initial=np.inf)} in "
            f"{str(file)!r}"
        )
    return depth


def _png(file, modes):
    image = optional("PIL.Image", extra="images")
    try:
        with image.open(file, formats=("PNG",)) as opened:
            # Pillow scales grey values of 2 or 4 bits to 255, as colours.
            stored = {opened.mode, *(tile[3] for tile in opened.tile)}
            if opened.mode not in modes or stored & {"L;2", "L;4"}:
                raise ValueError(f"its mode is {max(stored)}, not of {modes}")
            return np.asarray(opened).astype("int64")
    except (OSError, SyntaxError, ValueError) as error:
        raise ValueError(
            f"{str(file)!r} must be a PNG of one value for each pixel: {error}"
        ) from None
