"""Model inputs from examples: crops of an image, clips of a video."""

import dataclasses
import typing
from typing import Any, Literal

from keras_vit.data import clips, crops, decode, video_files
from keras_vit.data.optional_imports import tensorflow
from keras_vit.data.seeds import fold
from keras_vit.data.sources import Source

Crop = Literal["inception", "pad", "resize", "none"]
CROPS = typing.get_args(Crop)
# Option of a crop -> the one that reads it.
READ_WITH = dict(min_area="inception", pad="pad", resize="resize")
MAX_RESIZE = 8192  # a square of this side takes 805 MB


@dataclasses.dataclass(frozen=True, slots=True)
class Cropping:
    """How training crops an image; see `batches.CropOptions`."""

    crop: Crop = "inception"
    min_area: float = crops.MIN_AREA
    pad: int = 0
    resize: int = 0

    @classmethod
    def of(cls, image_size, options) -> "Cropping":
        """Make the cropping of `batches.CropOptions`.

        Raises:
            ValueError: If `resize` is smaller than the crop, `min_area` is no
                share, or an option is not of this crop.
        """
        names = [field.name for field in dataclasses.fields(cls)]
        found = cls(**{k: v for k, v in options.items() if k in names})
        for name, crop in READ_WITH.items():
            value = getattr(found, name)
            if found.crop != crop and value != getattr(cls(), name):
                raise ValueError(
                    f"`{name}` must be given with crop={crop!r} alone. "
                    f"Received: crop={found.crop!r}, {name}={value}"
                )
        if found.crop == "resize":
            check_resize(found.resize, min(image_size))
        if found.crop == "inception" and not 0 < found.min_area <= 1:
            raise ValueError(
                "`min_area` must be above 0 and at most 1. Received: "
                f"min_area={found.min_area}"
            )
        return found


class Views:
    """Turns the examples of a source into inputs of a model.

    Args:
        source: A source of `load`.
        image_size: (height, width) in pixels.
        channels: 1 or 3, or the channels of the source's arrays.
        options: Its clips, as `batches.ClipOptions`.
        cache: Whether to keep video files in memory after the first reading.

    Raises:
        ValueError: If an argument is out of range.
    """

    def __init__(
        self,
        source: Source,
        image_size: tuple[int, int],
        channels: int,
        options,
        cache: bool = False,
    ):
        sampling = clips.Sampling.of(options)
        _check_channels(source, channels)
        _check_sampling(source, sampling)
        self.source = source
        height, width = image_size
        self.image_size = (height, width)
        self.channels = channels
        self.sampling: Any = sampling  # None of images
        # Video files are decoded in Python, so a dictionary is the cache.
        self._stored = {} if cache else None

    @property
    def reads_files(self) -> bool:
        """Whether the examples are paths of video files."""
        return self.source.is_video and self.source.paths is not None

    def drawn(self, example, seed, cropping: Cropping):
        """Return a random crop of an image, or of a random clip of a video.

        `example` is bytes, pixels or frames; the result is
        `[..., height, width, C]`.
        """
        tf = tensorflow()
        crop, min_area = cropping.crop, cropping.min_area
        if self.sampling is not None:
            place = clips.random_place(fold(seed, 3), self.sampling)
            if self.reads_files and crop == "inception":
                # Cropped and resized while it is decoded.
                return self._drawn_of_file(example, place, seed, min_area)
            size = self.image_size
            if crop == "resize":
                size = crops.scaled(self.image_size, cropping.resize)
            example = self._clip(example, place, lambda *_: size, size)
        if crop == "inception":
            if self.sampling is not None or example.dtype != tf.string:
                example = self.pixels(example)
            return crops.inception_crop(
                example, self.image_size, self.channels, seed, min_area
            )
        image = self.pixels(example)
        if crop == "pad":
            return crops.pad_crop(image, self.image_size, cropping.pad, seed)
        if crop == "resize":
            resize = cropping.resize
            return crops.resize_crop(image, self.image_size, resize, seed)
        return decode.resize(image, self.image_size)

    def fixed(self, example, resize, num_clips=1, num_crops=1):
        """Return the whole image or its central crop, or crops of clips.

        Of several clips or crops it is `[V, T, height, width, C]`.
        """
        tf = tensorflow()
        if self.sampling is None:
            return self._cropped(self.pixels(example), resize, [0.5])[0]

        def size_of_file(height, width):
            if not resize:
                return self.image_size
            return crops.scaled((height, width), resize)

        static = (None, None) if resize else self.image_size
        views = [
            view
            for place in clips.places(num_clips)
            for view in self._cropped(
                self.pixels(self._clip(example, place, size_of_file, static)),
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
        """Return the frames of a clip, pixels or bytes.

        Frames of a file are resized while they are decoded, to the size that
        `size_of_file` returns for their height and width; `static` is that
        size as far as it is known.
        """
        if not self.reads_files:
            return clips.take_frames(video, place, self.sampling)

        def plan(height, width):
            return (0, 0, height, width), size_of_file(height, width)

        pixels = self._read_clip(video, place, plan)
        pixels.set_shape((self.sampling.num_frames, *static, self.channels))
        return pixels

    def _drawn_of_file(self, path, place, seed, min_area):
        def plan(height, width, seed):
            begin, size = crops.sample_window(
                (height, width, 3), seed, min_area
            )
            window = (*begin[:2].numpy().tolist(), *size[:2].numpy().tolist())
            return window, self.image_size

        pixels = self._read_clip(path, place, plan, seed)
        shape = (self.sampling.num_frames, *self.image_size, self.channels)
        return tensorflow().ensure_shape(pixels, shape)

    def _read_clip(self, path, place, plan, *seed):
        return video_files.read_clip(
            path,
            place,
            *seed,
            sampling=self.sampling,
            channels=self.channels,
            plan=plan,
            stored=self._stored,
        )

    def pixels(self, image):
        """Return pixels `[..., H, W, channels]` of bytes or of an array."""
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
        """Return the pixels of a file's bytes, or of those of each frame."""
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


def check_resize(resize: int, least: int) -> None:
    """Raise ValueError if the shorter side is less than the crop, or huge."""
    if not least <= resize <= MAX_RESIZE:
        raise ValueError(
            f"`resize` must be at least the {least} pixels that are cropped "
            f"from it, and at most {MAX_RESIZE}. Received: resize={resize}"
        )


def _check_channels(source, channels):
    native = source.images.shape[-1] if source.images is not None else None
    if channels not in (1, 3, native) or (
        native not in (None, 1, 3) and channels != native
    ):
        raise ValueError(
            "`channels` must be 1 or 3, or the channels of arrays. Received: "
            f"channels={channels} for {source.name!r}"
            + (f" with {native} channels" if native else "")
        )


def _check_sampling(source, sampling):
    if source.is_video != (sampling is not None):
        kind = "videos" if source.is_video else "images"
        raise ValueError(
            "`num_frames` must be given for videos, and only for videos. "
            f"Received: {sampling} for {source.name!r}, a set of {kind}"
        )
