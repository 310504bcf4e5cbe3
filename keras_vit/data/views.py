"""What a model sees of an example: crops of an image, clips of a video."""

import numpy as np

from keras_vit.data import clips, crops, decode, video_files
from keras_vit.data.optional_imports import tensorflow
from keras_vit.data.seeds import fold
from keras_vit.data.sources import Source

CROPS = ("inception", "pad", "resize", "none")


class Views:
    """Turns the examples of a source into what a model sees of them.

    Args:
        source: A source of `load`.
        image_size: (height, width) in pixels.
        channels: 1 or 3, or the channels of the source's arrays.
        sampling: Which frames of a video make a clip; None of images.

    Raises:
        ValueError: If an argument is out of range.
    """

    def __init__(
        self,
        source: Source,
        image_size: tuple[int, int],
        channels: int,
        sampling: clips.Sampling | None,
    ):
        _check_image_size(image_size)
        _check_channels(source, channels)
        _check_sampling(source, sampling)
        self.source = source
        self.image_size = tuple(image_size)
        self.channels = channels
        self.sampling = sampling

    @property
    def reads_files(self) -> bool:
        """Whether the examples are paths of video files."""
        return self.source.is_video and self.source.paths is not None

    def drawn(self, example, seed, *, crop, pad, resize, min_area):
        """Returns a random crop, of a video that of a random clip.

        Args:
            example: Bytes, pixels or frames.
            seed: Two integers.
            crop, pad, resize, min_area: See `batches.train_batches`.

        Returns:
            `[..., height, width, C]`, one image or one clip.
        """
        tf = tensorflow()
        if self.sampling is not None:
            place = tf.random.stateless_uniform([], fold(seed, 3))
            if self.reads_files and crop == "inception":
                # Cut out and resized as it is decoded.
                return self._drawn_of_file(example, place, seed, min_area)
            size = self.image_size
            if crop == "resize":
                size = crops.scaled(self.image_size, resize)
            example = self._clip(example, place, lambda *_: size, size)
        if crop == "inception":
            if self.sampling is not None or example.dtype != tf.string:
                example = self._pixels(example)
            return crops.inception_crop(
                example, self.image_size, self.channels, seed, min_area
            )
        image = self._pixels(example)
        if crop == "pad":
            return crops.pad_crop(image, self.image_size, pad, seed)
        if crop == "resize":
            return crops.resize_crop(image, self.image_size, resize, seed)
        return decode.resize(image, self.image_size)

    def fixed(self, example, *, resize, num_clips=1, num_crops=1):
        """Returns the whole image or its middle, or crops of clips.

        Args:
            example: Bytes, pixels or frames.
            resize, num_clips, num_crops: See `batches.eval_batches`.

        Returns:
            `[..., height, width, C]`, one image or one clip, or with more
            than one clip or crop `[V, T, height, width, C]`.
        """
        tf = tensorflow()
        if self.sampling is None:
            return self._cropped(self._pixels(example), resize, [0.5])[0]

        def size_of_file(height, width):
            if not resize:
                return self.image_size
            return crops.scaled((height, width), resize)

        static = (None, None) if resize else self.image_size
        views = [
            view
            for place in clips.places(num_clips)
            for view in self._cropped(
                self._pixels(self._clip(example, place, size_of_file, static)),
                resize,
                clips.places(num_crops),
            )
        ]
        return views[0] if len(views) == 1 else tf.stack(views)

    def _cropped(self, image, resize, places):
        if not resize:
            return [decode.resize(image, self.image_size)]
        if not self.reads_files:
            if places == [0.5]:
                return [crops.central_crop(image, self.image_size, resize)]
            image = crops.resize_shorter(image, resize)
        return [crops.cut(image, self.image_size, place) for place in places]

    def _clip(self, video, place, size_of_file, static):
        """Returns the frames of a clip, pixels or bytes.

        Of a file they are resized as they are decoded, to what `size_of_file`
        returns for their height and width; `static` is what is known of it.
        """
        if not self.reads_files:
            return clips.take_frames(video, place, self.sampling)

        def plan(height, width):
            return (0, 0, height, width), size_of_file(height, width)

        pixels = video_files.read_clip(
            video, place, self.sampling, self.channels, plan
        )
        pixels.set_shape((self.sampling.num_frames, *static, self.channels))
        return pixels

    def _drawn_of_file(self, path, place, seed, min_area):
        def plan(height, width, seed):
            begin, size = crops.sample_window(
                (height, width, 3), seed, min_area
            )
            window = (*begin[:2].numpy().tolist(), *size[:2].numpy().tolist())
            return window, self.image_size

        pixels = video_files.read_clip(
            path, place, self.sampling, self.channels, plan, seed
        )
        shape = (self.sampling.num_frames, *self.image_size, self.channels)
        return tensorflow().ensure_shape(pixels, shape)

    def _pixels(self, image):
        """Pixels `[..., H, W, channels]` of encoded bytes or of an array."""
        tf = tensorflow()
        shape = self.source.image_shape or (None, None)
        if image.dtype == tf.string:
            image = self._decoded(image)
            leading = image.shape[:-3]
            return tf.ensure_shape(image, (*leading, *shape[:2], self.channels))
        if image.shape[-1] == self.channels:
            return image
        shape = (*image.shape[:-1], self.channels)
        image = decode.recolour(image, self.channels)
        image.set_shape(shape)
        return image

    def _decoded(self, encoded):
        """Pixels of a file's bytes, or of each frame's."""
        tf = tensorflow()
        if encoded.shape.rank == 0:
            return decode.decode_image(encoded, self.channels)
        return tf.map_fn(
            lambda frame: decode.decode_image(frame, self.channels),
            encoded,
            fn_output_signature=tf.TensorSpec(
                (None, None, self.channels), "uint8"
            ),
        )


def check_crop(crop: str, pad: int, resize: int, image_size) -> None:
    """Refuses what is no crop of training.

    Args:
        crop, pad, resize, image_size: See `batches.train_batches`.
    """
    if crop not in CROPS:
        raise ValueError(f"`crop` must be one of {CROPS}. Received: {crop!r}")
    if pad < 0:
        raise ValueError(f"`pad` must be at least 0. Received: pad={pad}")
    if crop == "resize":
        check_resize(resize, min(image_size))


def check_resize(resize: int, least: int) -> None:
    """Refuses a size that is smaller than what is cropped of it.

    Args:
        resize: Pixels of the shorter side.
        least: The fewest that it may be.
    """
    if not is_count(resize) or resize < least:
        raise ValueError(
            f"`resize` must be at least the {least} pixels that are cropped "
            f"of it. Received: resize={resize}"
        )


def is_count(value) -> bool:
    """Returns whether a value is an integer of at least 1."""
    return isinstance(value, int | np.integer) and value >= 1


def _check_image_size(image_size):
    if (
        not isinstance(image_size, tuple | list)
        or len(image_size) != 2
        or not all(map(is_count, image_size))
    ):
        raise ValueError(
            "`image_size` must be (height, width) in pixels. "
            f"Received: {image_size}"
        )


def _check_channels(source, channels):
    native = source.images.shape[-1] if source.images is not None else None
    if channels not in (1, 3, native) or (
        native not in (None, 1, 3) and channels != native
    ):
        raise ValueError(
            "`channels` must be 1 or 3, or the channels of arrays. Received: "
            f"channels={channels} for {source.name!r}"
            + (f" of {native} channels" if native else "")
        )


def _check_sampling(source, sampling):
    if source.is_video != (sampling is not None):
        kind = "videos" if source.is_video else "images"
        raise ValueError(
            "`num_frames` must be given for videos, and for nothing else. "
            f"Received: {sampling} for {source.name!r}, a set of {kind}"
        )
    if sampling is not None and not (
        is_count(sampling.num_frames)
        and is_count(sampling.step)
        and sampling.rate >= 0
    ):
        raise ValueError(
            "`num_frames` and `frame_step` must be integers of at least 1, "
            f"and `frame_rate` at least 0. Received: {sampling}"
        )
