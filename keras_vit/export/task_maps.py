"""Maps of the size of an image as PNG bytes, computed by TensorFlow.

Each function does for one image what `interpret` of its head does in NumPy.
Scores of many classes or masks at the size of an image would need gigabytes:
rows are resized one by one, and only what they decide is kept.
"""

from typing import NamedTuple

from keras_vit.data.optional_imports import tensorflow

# A Full HD image has less. Larger maps are divided by a whole number.
MAX_PIXELS = 2**21
_MAX_SIDE = 2**14


class Thresholds(NamedTuple):
    """The options of `keras_vit.heads.segments.interpret` by these names."""

    threshold: float
    mask_threshold: float
    overlap_threshold: float
    stuff_classes: tuple[int, ...]


def size_of(image_size):
    """Return the (height, width) of a map, given those of its image."""
    tf = tensorflow()
    pixels = tf.reduce_prod(tf.cast(image_size, tf.float64))
    divisor = tf.cast(tf.math.ceil(tf.sqrt(pixels / MAX_PIXELS)), tf.int32)
    return tf.clip_by_value(image_size // tf.maximum(divisor, 1), 1, _MAX_SIDE)


def to_png(values, largest: int):
    """Return the bytes of a grey PNG of 8 bits, or of 16 where it needs them.

    Args:
        values: Integers from 0 to `largest`, `[H, W]`.
        largest: At most 65,535.
    """
    tf = tensorflow()
    dtype = tf.uint8 if largest < 256 else tf.uint16
    return tf.io.encode_png(tf.cast(values, dtype)[..., None])


def classes(scores, size):
    """Return the class of each pixel, int32 `[H, W]`.

    Args:
        scores: Of the classes, `[h, w, K]`.
        size: (H, W).
    """
    tf = tensorflow()
    row_at = _rows(scores, size)
    return tf.map_fn(
        lambda i: tf.argmax(row_at(i), -1, tf.int32),
        tf.range(size[0]),
        fn_output_signature=tf.TensorSpec((None,), tf.int32),
    )


def semantic(logits, masks, to_input):
    """Return the scores of classes that classes and masks of queries make.

    Args:
        logits: `[Q, K + 1]`
        masks: Logits, `[h, w, Q]`.
        to_input: Function that resizes maps to the model's input.

    Returns:
        `[height, width, K]`
    """
    tf = tensorflow()
    masks = tf.sigmoid(to_input(masks))
    return tf.tensordot(masks, tf.nn.softmax(logits)[:, :-1], 1)


def panoptic(logits, masks, to_input, size, limits):
    """Return segments that do not overlap.

    Args:
        logits, masks, to_input: As of `semantic`.
        size: (H, W) of the map.
        limits: The `Thresholds`.

    Returns:
        The number of the segment at each pixel, from 1, or 0, int32 `[H, W]`;
        and the class and the score of each segment.
    """
    tf = tensorflow()
    scores = tf.nn.softmax(logits)
    labels = tf.argmax(scores, -1, tf.int32)
    scores = tf.reduce_max(scores, -1)
    kept = (labels < logits.shape[-1] - 1) & (scores > limits.threshold)
    scores, labels, masks = _kept(kept, scores, labels, masks, to_input)
    row_at = _rows(masks, size)

    def decide(i):
        """Return owner, whether it is there, and the pixels of each mask."""
        found = tf.sigmoid(row_at(i))  # [W, k]
        owner = tf.argmax(found * scores, -1, tf.int32)
        inside = found >= limits.mask_threshold
        there = tf.gather(inside, owner, axis=1, batch_dims=1)
        return owner, there, tf.reduce_sum(tf.cast(inside, tf.int32), 0)

    owner, there, areas = tf.map_fn(
        decide,
        tf.range(size[0]),
        fn_output_signature=(
            tf.TensorSpec((None,), tf.int32),
            tf.TensorSpec((None,), tf.bool),
            tf.TensorSpec((None,), tf.int32),
        ),
    )
    count = tf.size(scores)
    owned = tf.math.bincount(owner, minlength=count)
    both = tf.math.bincount(tf.boolean_mask(owner, there), minlength=count)
    share = owned / tf.maximum(tf.reduce_sum(areas, 0), 1)
    valid = (both > 0) & (share > limits.overlap_threshold)
    numbers, first = _numbers(labels, valid, limits.stuff_classes)
    segments = tf.where(there, tf.gather(numbers, owner), 0)
    return segments, tf.boolean_mask(labels, first), scores[first]


def instances(logits, masks, to_input, size, limits):
    """Return segments that may overlap, the last one on top.

    Arguments and results are those of `panoptic`.
    """
    tf = tensorflow()
    scores = tf.nn.softmax(logits)[:, :-1]
    labels = tf.argmax(scores, -1, tf.int32)
    scores = tf.reduce_max(scores, -1)
    kept = scores >= limits.threshold
    scores, labels, masks = _kept(kept, scores, labels, masks, to_input)
    row_at = _rows(masks, size)

    def measure(i):
        row = row_at(i)
        inside = tf.cast(row > 0, tf.float32)
        sums = tf.reduce_sum(tf.sigmoid(row) * inside, 0)
        return tf.stack([sums, tf.reduce_sum(inside, 0)])

    sums, areas = tf.unstack(
        tf.reduce_sum(
            tf.map_fn(
                measure,
                tf.range(size[0]),
                fn_output_signature=tf.TensorSpec((2, None), tf.float32),
            ),
            axis=0,
        )
    )
    scores = scores * sums / (areas + 1e-6)
    valid = (areas > 0) & (scores >= limits.threshold)
    numbers = tf.where(valid, tf.cumsum(tf.cast(valid, tf.int32)), 0)
    segments = tf.map_fn(
        lambda i: tf.reduce_max(tf.where(row_at(i) > 0, numbers, 0), -1),
        tf.range(size[0]),
        fn_output_signature=tf.TensorSpec((None,), tf.int32),
    )
    return segments, tf.boolean_mask(labels, valid), scores[valid]


def depth(values, size):
    """Return depth as integers up to 65,535, the least and the largest depth.

    Args:
        values: `[h, w]`
        size: (H, W).

    Returns:
        int32 `[H, W]`, which is 0 at the least depth; and the two.
    """
    tf = tensorflow()
    rows, columns = (
        _cubic(m, n)
        for m, n in zip(values.shape, tf.unstack(size), strict=True)
    )
    values = tf.matmul(rows @ values, columns, transpose_b=True)
    least, largest = tf.reduce_min(values), tf.reduce_max(values)
    share = tf.math.divide_no_nan(values - least, largest - least)
    return tf.cast(tf.round(share * 65_535), tf.int32), least, largest


def _kept(kept, scores, labels, masks, to_input):
    """Return those of queries that are kept, and one that owns nothing.

    Without any, a maximum over queries would have no value.
    """
    tf = tensorflow()
    masks = tf.boolean_mask(masks, kept, axis=2)
    # Before the resizing, which refuses images without a channel.
    masks = tf.pad(masks, [[0, 0], [0, 0], [0, 1]], constant_values=-1e9)
    masks = to_input(masks)
    scores, labels = (
        tf.pad(tf.boolean_mask(x, kept), [[0, 1]]) for x in (scores, labels)
    )
    return scores, labels, masks


def _numbers(labels, valid, stuff_classes):
    """Return the number of each query's segment, and whether it is the first.

    Queries of one of `stuff_classes` share the segment of the first of them.
    """
    tf = tensorflow()
    stuff = tf.constant(list(stuff_classes), tf.int32)
    is_stuff = tf.reduce_any(labels[:, None] == stuff, -1)
    same = valid & is_stuff[:, None] & (labels[:, None] == labels)
    same |= tf.eye(tf.size(labels)) > 0
    leader = tf.argmax(same, -1, tf.int32)  # the first
    first = valid & (leader == tf.range(tf.size(labels)))
    numbers = tf.gather(tf.cumsum(tf.cast(first, tf.int32)), leader)
    return tf.where(valid, numbers, 0), first


def _rows(maps, size):
    """Return a function from a number to that row of resized maps, `[W, C]`.

    Bilinear, with half-pixel centres and no antialiasing.
    """
    tf = tensorflow()

    def neighbours(m, n):
        scale = tf.cast(m, tf.float32) / tf.cast(n, tf.float32)
        places = (tf.range(n, dtype=tf.float32) + 0.5) * scale - 0.5
        places = tf.clip_by_value(places, 0, tf.cast(m - 1, tf.float32))
        low = tf.minimum(tf.cast(places, tf.int32), tf.maximum(m - 2, 0))
        share = places - tf.cast(low, tf.float32)
        return low, tf.minimum(low + 1, m - 1), share

    shape = tf.shape(maps)
    above, below, vertical = neighbours(shape[0], size[0])
    left, right, horizontal = neighbours(shape[1], size[1])

    def row_at(i):
        first = maps[above[i]]
        row = first + vertical[i] * (maps[below[i]] - first)  # [w, C]
        first = tf.gather(row, left)
        second = tf.gather(row, right)
        return first + horizontal[:, None] * (second - first)

    return row_at


def _cubic(m, n):
    """Return the [n, m] matrix "bicubic" of `keras_vit.weights.resize`."""
    tf = tensorflow()
    a = -0.75
    places = (tf.range(n, dtype=tf.float32) + 0.5) * (
        m / tf.cast(n, tf.float32)
    )
    places -= 0.5
    taps = tf.floor(places)[:, None] + tf.range(-1.0, 3.0)  # [n, 4]
    t = tf.abs(taps - places[:, None])
    near = ((a + 2) * t - (a + 3)) * t * t + 1
    far = ((a * t - 5 * a) * t + 8 * a) * t - 4 * a
    weights = tf.where(t <= 1, near, tf.where(t < 2, far, 0.0))
    read = tf.cast(tf.clip_by_value(taps, 0, m - 1), tf.int32)
    return tf.add_n(
        [tf.one_hot(read[:, i], m) * weights[:, i, None] for i in range(4)]
    )
