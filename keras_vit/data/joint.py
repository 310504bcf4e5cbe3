"""Random views of an image together with its boxes, masks and depth."""

from typing import Annotated

from keras_vit._arguments import Count, Positive, checked
from keras_vit.data.optional_imports import tensorflow
from keras_vit.data.seeds import check_seed, fold

Level = Annotated[int, "an integer from 0 to 255", lambda n: 0 <= n <= 255]


@checked
def jitter_scale(
    example: dict,
    image_size: tuple[Count, Count],
    seed,
    scales: tuple[Positive, Positive] = (0.1, 2.0),
    flip: bool = True,
    fill: Level = 128,
    keep_ratio: bool = True,
) -> dict:
    """Resize, crop or pad, and flip an image and its objects alike.

    The image is resized to fit the output times a random scale, cropped at a
    random place where it is larger, and padded at the right and below where it
    is smaller. Objects of which no pixel is left get the label -1. The result
    depends only on the arguments.

    Args:
        example: "images", `[H, W, C]`, and what there is of "boxes", `[M, 4]`,
            with "labels", `[M]`, as `pad_objects` returns them, "masks",
            `[M, H, W]`, "areas", `[M]` in pixels, "classes" and "depth",
            `[H, W]`.
        image_size: (height, width) of the output.
        seed: Two integers, such as derived from the seed of a run, the epoch
            and the index of the example.
        scales: The least and the largest scale.
        flip: Whether half of the images are mirrored.
        fill: Value of the padding of images; 255 is that of "classes", 0 that
            of "depth".
        keep_ratio: Whether the image keeps the ratio of its sides, rather than
            being stretched to that of the output.

    Returns:
        The same keys; images are float32.

    Raises:
        ValueError: If an argument is out of range.

    Reference:
        Ghiasi et al. 2020 (2012.07177), large scale jittering.
    """
    if scales[0] > scales[1]:
        raise ValueError(
            "`scales` must be the least and the largest. Received: "
            f"scales={scales}"
        )
    check_seed(seed)
    tf = tensorflow()
    size = tf.constant(image_size)
    before = tf.shape(example["images"])[:2]
    scaled, start = _drawn(before, size, seed, scales, keep_ratio)
    mirrored = tf.random.stateless_uniform([], fold(seed, 2)) < 0.5
    mirrored = tf.logical_and(mirrored, flip)

    def view(image, method, value):
        """Return the view of `[H, W, C]`."""
        image = tf.image.resize(image, scaled, method)
        image = image[start[0] :, start[1] :][: size[0], : size[1]]
        missing = size - tf.shape(image)[:2]
        padding = [[0, missing[0]], [0, missing[1]], [0, 0]]
        image = tf.pad(
            image, padding, constant_values=tf.cast(value, image.dtype)
        )
        image = tf.cond(mirrored, lambda: image[:, ::-1], lambda: image)
        return tf.ensure_shape(image, (*image_size, None))

    found = dict(example)
    channels = example["images"].shape[-1]
    image = view(tf.cast(example["images"], "float32"), "bilinear", fill)
    found["images"] = tf.ensure_shape(image, (*image_size, channels))
    if "masks" in example:
        masks = tf.cast(tf.transpose(example["masks"], (1, 2, 0)), "uint8")
        masks = tf.transpose(view(masks, "nearest", 0), (2, 0, 1))
        found["masks"] = tf.cast(masks, example["masks"].dtype)
    for key, value in (("classes", 255), ("depth", 0)):
        if key in example:
            pixels = example[key][:, :, None]
            found[key] = view(pixels, "nearest", value)[:, :, 0]
    if "boxes" not in example:
        return found
    found["boxes"], kept = _boxes(
        example["boxes"],
        tf.cast(scaled, "float32"),
        tf.cast(start, "float32"),
        tf.cast(size, "float32"),
        mirrored,
    )
    if "masks" in example:
        pixels = tf.cast(found["masks"], "int32")
        kept = tf.logical_and(kept, tf.reduce_any(pixels > 0, axis=(1, 2)))
    found["labels"] = tf.where(kept, example["labels"], -1)
    if "areas" in example:
        found["areas"] = _areas(example, found, before, size)
    return found


def _drawn(before, size, seed, scales, keep_ratio):
    """Draw the size of an image, and where the output begins in it."""
    tf = tensorflow()
    scale = tf.random.stateless_uniform([], fold(seed, 0), *scales)
    fit = tf.cast(size, "float32") / tf.cast(before, "float32")
    if keep_ratio:
        fit = tf.reduce_min(fit)
    scaled = tf.cast(
        tf.round(tf.cast(before, "float32") * fit * scale), size.dtype
    )
    scaled = tf.maximum(scaled, 1)
    place = tf.random.stateless_uniform([2], fold(seed, 1))
    room = tf.maximum(scaled - size, 0)
    start = tf.cast(place * tf.cast(room + 1, "float32"), size.dtype)
    return scaled, start


def _areas(example, found, before, size):
    """Return the objects' areas in the view: their pixels, or as much of them
    as of their boxes."""
    tf = tensorflow()
    if "masks" in found:
        pixels = tf.cast(found["masks"], "int32") > 0
        return tf.reduce_sum(tf.cast(pixels, "float32"), axis=(1, 2))

    def extent(boxes, shape):
        return tf.reduce_prod(boxes[:, 2:] * tf.cast(shape, "float32"), axis=1)

    areas = tf.cast(example["areas"], "float32")
    whole = extent(example["boxes"], before)
    part = extent(found["boxes"], size)
    return areas * tf.math.divide_no_nan(part, whole)


def _boxes(boxes, scaled, start, size, mirrored):
    """Return the boxes of a view, and which of them have an area there."""
    tf = tensorflow()
    centre, extent = boxes[:, :2], boxes[:, 2:]
    begin = (centre - extent / 2) * scaled[::-1] - start[::-1]
    end = (centre + extent / 2) * scaled[::-1] - start[::-1]
    begin = tf.clip_by_value(begin, 0.0, size[::-1]) / size[::-1]
    end = tf.clip_by_value(end, 0.0, size[::-1]) / size[::-1]
    centre, extent = (begin + end) / 2, end - begin
    x = tf.where(mirrored, 1 - centre[:, :1], centre[:, :1])
    boxes = tf.concat([x, centre[:, 1:], extent], axis=1)
    return boxes, tf.reduce_all(extent > 0, axis=1)


def jitter_colours(
    image,
    seed,
    strength: float = 0.4,
    saturation: float | None = None,
    hue: float = 0.0,
):
    """Change brightness, contrast and, in colour, saturation and hue at random.

    Args:
        image: `[H, W, 1]` or `[H, W, 3]`, in [0, 255].
        seed: Two integers; the result depends only on these and the image.
        strength: The largest relative change; 0 for none.
        saturation: That of saturation, if it is another.
        hue: The largest turn of the circle of hues, at most 0.5.

    Returns:
        float32, in [0, 255].
    """
    tf = tensorflow()
    image = tf.cast(image, "float32")
    if not strength:
        return image

    def factor(number, most=strength):
        return tf.random.stateless_uniform(
            [], fold(seed, number), 1 - most, 1 + most
        )

    image = image * factor(10)
    mean = tf.reduce_mean(
        tf.image.rgb_to_grayscale(image) if image.shape[-1] == 3 else image
    )
    image = mean + (image - mean) * factor(11)
    if image.shape[-1] == 3:
        grey = tf.image.rgb_to_grayscale(image)
        most = strength if saturation is None else saturation
        image = grey + (image - grey) * factor(12, most)
    image = tf.clip_by_value(image, 0.0, 255.0)
    if image.shape[-1] == 3 and hue:
        turn = tf.random.stateless_uniform([], fold(seed, 13), -hue, hue)
        image = tf.image.adjust_hue(image, turn)
    return image
