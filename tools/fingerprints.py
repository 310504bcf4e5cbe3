"""Similarity of images that may be resized, re-encoded or slightly cropped.

The comparison uses the discrete cosine transform of a grey thumbnail, without
its mean, each coefficient multiplied by its frequency: this evens out the
spectrum of photographs, in which low frequencies dominate. Distances are 1 -
cosine: 0 between equal images, around 1 between unrelated ones. Brightness and
contrast have no influence.
"""

import functools

import numpy as np

from keras_vit.data.decode import decode_image
from keras_vit.data.optional_imports import tensorflow

SIDE = 32
# Frequencies in each direction, in the coarse and in the fine comparison.
COARSE, FINE = 8, 12
# Dot products of integer vectors of this length are exact in float32, whatever
# the order and the batch in which they are computed.
LENGTH = 2048
# Windows of a side in the fine comparison: up to a tenth is cut off.
WINDOWS = (
    *((0.0, 1.0), (0.0, 0.95), (0.025, 0.975), (0.05, 1.0)),
    *((0.0, 0.9), (0.05, 0.95), (0.1, 1.0)),
)
# Smallest standard deviation of a thumbnail, in shades of 255: flatter images
# have no features, and would resemble all other flat images.
FLAT = 2.0


def thumbnail(image) -> np.ndarray | None:
    """Return a small grey thumbnail of an image.

    Args:
        image: Bytes of a JPEG, PNG, BMP or GIF file, or pixels `[H, W, C]`.

    Returns:
        uint8 `[32, 32]`, or None if the image is one flat shade.

    Raises:
        ValueError: If the bytes do not decode.
    """
    tf = tensorflow()
    try:
        with tf.device("CPU"):
            is_file = isinstance(image, bytes)
            pixels = image if is_file else np.asarray(image, "float32")
            small = _shrinking(is_file)(pixels)
    except tf.errors.OpError as error:
        raise ValueError(
            "`image` must decode as JPEG, PNG, GIF, BMP or WebP: "
            f"{error.message}"
        ) from None
    small = small.numpy()
    return None if small.std() < FLAT else small


def coarse(thumbnails) -> np.ndarray:
    """Return the features of the coarse comparison, for dot products.

    Args:
        thumbnails: `[B, 32, 32]`, or a list of `[32, 32]`.

    Returns:
        `[B, 64]` float32 of integers, of length 2048 up to rounding.
    """
    spectra = [_spectra(one, COARSE, ((0.0, 1.0),))[0] for one in thumbnails]
    spectra = np.reshape(spectra, (-1, COARSE**2))
    return np.round(LENGTH * spectra).astype("float32")


def coarse_distances(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the distances of all pairs of `coarse`, `[B, M]` float32.

    Each is independent of the others in the batch.
    """
    return 1 - (first @ second.T) / LENGTH**2


def distance(first: np.ndarray, second: np.ndarray) -> float:
    """Compare two thumbnails finely, each with parts of the other.

    The smallest distance counts, to 4 digits.
    """
    a, b = (_spectra(one, FINE, WINDOWS) for one in (first, second))
    # The first part is the complete image.
    return round(1 - float(max((a @ b[0]).max(), (b @ a[0]).max())), 4)


def _spectra(thumbnail, frequencies, windows):
    """Return the unit spectra of an image's parts, `[len(windows)**2, K]`."""
    basis = _basis(frequencies, windows)
    spectra = basis @ thumbnail.astype("float64") @ basis.T
    shape = (len(windows), frequencies) * 2
    spectra = np.reshape(spectra, shape).transpose(0, 2, 1, 3)
    spectra = spectra * np.hypot(*np.indices((frequencies, frequencies)))
    spectra = spectra.reshape(len(windows) ** 2, -1)
    length = np.linalg.norm(spectra, axis=1, keepdims=True)
    # A part may be flat although the image is not.
    return spectra / np.maximum(length, 1e-9)


@functools.cache
def _basis(frequencies, windows):
    """Return cosines over parts of a side, `[len(windows) * frequencies, 32]`.

    A pixel counts by the fraction of it in the part.
    """
    k = np.arange(frequencies)[:, np.newaxis]
    scale = np.where(k == 0, 1, np.sqrt(2))
    bases = []
    for start, stop in windows:
        edges = np.clip(np.arange(SIDE + 1) / SIDE, start, stop)
        centres = ((edges[:-1] + edges[1:]) / 2 - start) / (stop - start)
        overlap = np.diff(edges) / (stop - start)
        bases.append(scale * overlap * np.cos(np.pi * k * centres))
    return np.concatenate(bases)


@functools.cache
def _shrinking(is_file):
    """Return what makes a thumbnail of the bytes of a file, or of pixels."""
    tf = tensorflow()
    if not is_file:
        pixels = tf.TensorSpec((None, None, None), "float32")
        return tf.function(_shrink, input_signature=[pixels])
    return tf.function(
        lambda encoded: _shrink(decode_image(encoded)),
        input_signature=[tf.TensorSpec((), "string")],
    )


def _shrink(image):
    tf = tensorflow()
    colour = tf.cast(image, "float32")
    # The luma of television for three channels.
    grey = tf.cond(
        tf.shape(colour)[-1] >= 3,
        lambda: tf.tensordot(colour[..., :3], [0.299, 0.587, 0.114], 1),
        lambda: colour[..., 0],
    )
    grey = grey[..., tf.newaxis]
    small = tf.image.resize(grey, (SIDE, SIDE), antialias=True)[..., 0]
    return tf.cast(tf.round(tf.clip_by_value(small, 0, 255)), "uint8")
