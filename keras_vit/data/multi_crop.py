"""Several crops of each image for learning without labels, some masked."""

import dataclasses
import math
from typing import Unpack

from keras_vit._arguments import Count, Natural, checked
from keras_vit.data import augment as augmentation
from keras_vit.data import joint, order
from keras_vit.data.batches import ShardOptions
from keras_vit.data.optional_imports import tensorflow, unconverted
from keras_vit.data.seeds import fold
from keras_vit.data.sources import Source
from keras_vit.data.views import Views

# Of the two large crops and of the small ones, the probabilities of blurring
# and of inverting what is bright (Caron et al. 2021, appendix; checked against
# dinov2/data/augmentations.py of facebookresearch/dinov2).
_DISTORTIONS = ((1.0, 0.0), (0.1, 0.2), (0.5, 0.0))
_JITTERED, _GREY = 0.8, 0.2
_CONTRAST, _SATURATION, _HUE = 0.4, 0.2, 0.1
# Pixels that a blur reaches.
_REACH = 4
# Blocks of masked patches: the fewest patches, the ratio of their sides, and
# how many are tried.
_FEWEST, _RATIO, _TRIES = 4, 0.3, 10


@checked
@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Crops:
    """The crops of an image; the defaults are those of DINO.

    Attributes:
        local_size: (height, width) of the small crops in pixels.
        num_local: Number of small crops.
        global_area: Least and largest share of the area of the large crops.
        local_area: That of the small crops.
        flip: Whether each crop is flipped with probability one half.
        distort: Whether colours, sharpness and brightness change.
        grid_size: (rows, columns) of patches of a large crop, of which some
            are masked; None masks none.
        masked: Least and largest share of patches that are masked in one of
            the large crops.
    """

    local_size: tuple[Count, Count] = (96, 96)
    num_local: Natural = 8
    global_area: tuple[float, float] = (0.4, 1.0)
    local_area: tuple[float, float] = (0.05, 0.4)
    flip: bool = True
    distort: bool = True
    grid_size: tuple[Count, Count] | None = None
    masked: tuple[float, float] = (0.1, 0.5)

    def __post_init__(self):
        """Refuse impossible values."""
        for name in ("global_area", "local_area", "masked"):
            shares = tuple(getattr(self, name))
            if len(shares) != 2 or not 0 < shares[0] <= shares[1] <= 1:
                raise ValueError(
                    f"`{name}` must be two shares, above 0 and at most 1, the "
                    f"smaller first. Received: {name}={shares}"
                )
        patches = math.prod(self.grid_size or ())
        if self.grid_size and int(patches * self.masked[1]) < _FEWEST:
            raise ValueError(
                f"`masked` must be a share of at least {_FEWEST} patches, the "
                f"smallest rectangle. Received: masked={self.masked} of "
                f"{patches} patches"
            )


@checked
@unconverted
def crop_batches(
    source: Source,
    crops: Crops,
    *,
    batch_size: Count,
    image_size: tuple[Count, Count],
    channels: Count = 3,
    seed: int = 0,
    start_step: Natural = 0,
    cache: bool = False,
    **options: Unpack[ShardOptions],
):
    """Return an infinite data set of batches of crops, two of them large.

    Order, crops and masks depend only on (seed, epoch, example), so that a run
    that starts at any step sees the same batches as an uninterrupted one.

    Args:
        source: The training source of `load`, of images; labels are not used.
        crops: The crops of an image.
        batch_size: Images in each batch, over all processes.
        image_size: (height, width) of the large crops in pixels.
        channels: 1 or 3, or the channels of the source's arrays.
        seed: Seed of order and crops.
        start_step: Number of batches to skip.
        cache: Whether to keep encoded images in memory.
        **options: `shard_index`, `num_shards` and `num_replicas`.

    Returns:
        A tf.data.Dataset of {"images": {"global_crops": float32
        `[B, 2, H, W, C]`, in [0, 255]; with small crops "local_crops",
        `[B, L, h, w, C]`; with masks, which are those of the first large crop,
        "sources", "places" and "shares", as `SelfDistillation` takes them},
        "labels": zeros `[B]`}.

    Raises:
        ValueError: If an argument is out of range.
    """
    shard = order.Shard.of(batch_size, options)
    views = Views(source, image_size, channels, {}, cache)
    reading = order.Reading(
        shard=shard, start_step=start_step, seed=seed, cache=cache
    )
    draw = _drawer(crops, image_size, channels)

    def prepare(example_seed, image, label):
        return draw(views.pixels(image), example_seed)

    examples = order.shuffled(source, reading, prepare)
    batches = examples.batch(shard.element_size, drop_remainder=True)
    return batches.map(_with_labels).prefetch(tensorflow().data.AUTOTUNE)


@checked
@unconverted
def crop_eval_batches(
    source: Source,
    crops: Crops,
    *,
    batch_size: Count,
    image_size: tuple[Count, Count],
    channels: Count = 3,
    seed: int = 0,
    **options: Unpack[ShardOptions],
):
    """Return crops of every image once, in order, the same in every call.

    Args:
        source: A source of `load`, of images.
        crops, batch_size, image_size, channels: See `crop_batches`.
        seed: Seed of the crops.
        **options: `shard_index`, `num_shards` and `num_replicas`.

    Returns:
        A tf.data.Dataset of elements like those of `crop_batches`, with
        "weights": float32 `[B]`, 0 for padding and 1 on average.
    """
    tf = tensorflow()
    shard = order.Shard.of(batch_size, options)
    views = Views(source, image_size, channels, {})
    draw = _drawer(crops, image_size, channels)
    examples = order.in_order(
        source, shard, lambda image, label: views.pixels(image)
    )
    # A number from which no example's seed in training is derived.
    examples = examples.enumerate(shard.range_of(source.num_examples)[0]).map(
        lambda index, image: (
            draw(image, fold((seed, 2), index)),
            tf.constant(shard.weight_of(source.num_examples), "float32"),
        ),
        num_parallel_calls=tf.data.AUTOTUNE,
        deterministic=True,
    )
    batches = order.padded_batches(examples, source.num_examples, shard)
    return batches.map(
        lambda images, w: dict(_with_labels(images), weights=w)
    ).prefetch(tf.data.AUTOTUNE)


def _with_labels(images):
    tf = tensorflow()
    return {
        "images": images,
        "labels": tf.zeros_like(images["global_crops"][:, 0, 0, 0, 0]),
    }


def _drawer(crops, image_size, channels):
    """Return a function of pixels and a seed: the crops of an image."""
    tf = tensorflow()
    blurs = [
        augmentation.find_layers(
            (
                # Below a single number Keras draws the probability.
                f"RandomGaussianBlur(factor={(blur, blur)}, "
                f"kernel_size={2 * _REACH + 1}, sigma=(0.1, 2.0))",
            ),
            0,
        )[0]
        for blur, _ in _DISTORTIONS
    ]

    def distorted(kind, seed, view):
        view = _change_colours(view, fold(seed, 0))
        view = _blurred(blurs[kind], view, fold(seed, 1))
        bright = _happens(_DISTORTIONS[kind][1], fold(seed, 2))
        view = tf.where(bright & (view >= 128.0), 255.0 - view, view)
        return tf.ensure_shape(view, (None, None, channels))

    def views(image, count, size, area, seed):
        found = _windows(image, count, size, area, fold(seed, 0))
        if crops.flip:
            drawn = tf.random.stateless_uniform([count, 1, 1, 1], fold(seed, 1))
            found = tf.where(drawn < 0.5, found[:, :, ::-1], found)
        return tf.ensure_shape(found, (count, *size, channels))

    def draw(image, seed):
        large = views(image, 2, image_size, crops.global_area, fold(seed, 0))
        if crops.distort:
            large = tf.stack(
                [distorted(i, fold(seed, 10 + i), large[i]) for i in range(2)]
            )
        # Either is the first, of which patches may be masked.
        swapped = _happens(0.5, fold(seed, 1))
        found = {"global_crops": tf.where(swapped, large[::-1], large)}
        if crops.num_local:
            small = views(
                *(image, crops.num_local, crops.local_size),
                *(crops.local_area, fold(seed, 2)),
            )
            if crops.distort:
                small = tf.map_fn(
                    lambda x: distorted(2, fold(seed, 4, x[0]), x[1]),
                    (tf.range(crops.num_local, dtype="int64"), small),
                    fn_output_signature=tf.TensorSpec(
                        (*crops.local_size, channels), "float32"
                    ),
                )
            found["local_crops"] = small
        if crops.grid_size is not None:
            found |= _masked(crops.grid_size, crops.masked, fold(seed, 3))
        return found

    return draw


def _windows(image, count, size, area, seed):
    """Cut out random windows and resize them, `[count, height, width, C]`.

    Their area is a share of the image's, at an aspect of 3/4 to 4/3.
    """
    tf = tensorflow()
    draws = tf.random.stateless_uniform([4, count], seed)
    share = area[0] + (area[1] - area[0]) * draws[0]
    sides = tf.cast(tf.shape(image)[:2], "float32")
    pixels = share * sides[0] * sides[1]
    # Of the aspects for which a window of this area lies within the image.
    widest, own = math.log(4 / 3), tf.math.log(sides[1] / sides[0])
    low = tf.maximum(-widest, own + tf.math.log(share))
    high = tf.minimum(widest, own - tf.math.log(share))
    ratio = tf.exp(low + (high - low) * draws[1])
    boxes = []
    for side, wished, place in (
        (sides[0], tf.sqrt(pixels / ratio), draws[2]),
        (sides[1], tf.sqrt(pixels * ratio), draws[3]),
    ):
        length = tf.clip_by_value(wished, 1.0, side)
        first = place * (side - length)
        last = tf.maximum(side - 1.0, 1.0)
        boxes.append((first / last, (first + length - 1.0) / last))
    (top, bottom), (left, right) = boxes
    return tf.image.crop_and_resize(
        image[None],
        tf.stack([top, left, bottom, right], axis=1),
        tf.zeros([count], "int32"),
        size,
    )


def _blurred(layers, image, seed):
    """Blur an image, which is mirrored at its border; Keras adds black."""
    reach = [(min(_REACH, n),) * 2 for n in image.shape[:2]]
    (top, _), (left, _) = reach
    image = tensorflow().pad(image, [*reach, (0, 0)], "SYMMETRIC")
    found = augmentation.augment_image(layers, image, seed)
    return found[top:-top, left:-left]


def _happens(probability, seed):
    return tensorflow().random.stateless_uniform([], seed) < probability


def _change_colours(image, seed):
    """Change brightness, contrast and colours of most images."""
    tf = tensorflow()
    changed = joint.jitter_colours(
        image, fold(seed, 0), _CONTRAST, saturation=_SATURATION, hue=_HUE
    )
    image = tf.where(_happens(_JITTERED, fold(seed, 2)), changed, image)
    if image.shape[-1] != 3:
        return image
    grey = tf.image.rgb_to_grayscale(image) * tf.ones_like(image)
    return tf.where(_happens(_GREY, fold(seed, 3)), grey, image)


def _masked(grid_size, shares, seed):
    """Draw the masked patches of a crop, as `SelfDistillation` takes them."""
    tf = tensorflow()
    patches = grid_size[0] * grid_size[1]
    most = max(1, int(patches * shares[1]))
    share = tf.random.stateless_uniform([], fold(seed, 0), *shares)
    wanted = tf.cast(share * patches, "int32")
    mask = tf.reshape(mask_blocks(grid_size, wanted, fold(seed, 1)), [-1])
    count = tf.reduce_sum(tf.cast(mask, "int32"))
    places = tf.argsort(tf.cast(~mask, "int32"), stable=True)[:most]
    there = tf.cast(tf.range(most) < count, "float32")
    return dict(
        sources=tf.where(mask, patches, tf.range(patches)),
        places=places,
        shares=there / tf.maximum(tf.cast(count, "float32"), 1.0),
    )


def mask_blocks(grid_size: tuple[int, int], count, seed):
    """Draw rectangles of patches, which may overlap.

    Args:
        grid_size: (rows, columns) of patches.
        count: The most patches to mask, int32, a scalar.
        seed: Two integers; the result depends only on the arguments.

    Returns:
        Which are masked, bool `[rows, columns]`; a few less than `count`.

    Reference:
        Bao et al. 2022 (BEiT, 2106.08254), algorithm 1; in form as
        dinov2/data/masking.py, which draws again where one does not fit.
    """
    tf = tensorflow()
    rows, columns = (tf.range(n) for n in grid_size)

    def within(places, start, length):
        room = tf.cast(places.shape[0] - length + 1, "float32")
        first = tf.cast(start * room, "int32")
        return (places >= first) & (places < first + length)

    def add(mask, number):
        area, ratio, top, left = tf.unstack(
            tf.random.stateless_uniform([4], fold(seed, number))
        )
        room = tf.cast(count - tf.reduce_sum(tf.cast(mask, "int32")), "float32")
        area = _FEWEST + area * tf.maximum(room - _FEWEST, 0.0)
        ratio = tf.exp((2.0 * ratio - 1.0) * math.log(1 / _RATIO))
        sides = [tf.sqrt(area * ratio), tf.sqrt(area / ratio)]
        height, width = (tf.cast(tf.round(x), "int32") for x in sides)
        block = (
            within(rows, top, height)[:, None]
            & within(columns, left, width)[None]
        )
        new = mask | block
        fits = (height < grid_size[0]) & (width < grid_size[1])
        fits &= tf.reduce_sum(tf.cast(new, "int32")) <= count
        return tf.where(fits, new, mask)

    return tf.foldl(
        add, tf.range(_TRIES, dtype="int64"), tf.zeros(grid_size, "bool")
    )
