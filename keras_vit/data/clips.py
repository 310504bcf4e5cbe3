"""Clips of videos: the choice of their frames, and functions on frames."""

import dataclasses

from keras_vit._arguments import checked
from keras_vit.data.optional_imports import tensorflow, unconverted
from keras_vit.data.seeds import fold


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampling:
    """The frames of a video that form a clip: T frames, every `step`-th one.

    Attributes:
        num_frames: Number T of frames of a clip.
        step: Frames of the video from one frame of the clip to the next; 0
            takes a frame of each of T equal segments of the whole video.
        rate: Frames per second in which `step` counts, for video files; 0
            counts each file's own frames.
    """

    num_frames: int
    step: int = 1
    rate: float = 0.0

    @classmethod
    def of(cls, options) -> "Sampling | None":
        """Make that of `batches.ClipOptions`; None for images."""
        if not options.get("num_frames"):
            return None
        return cls(
            num_frames=options["num_frames"],
            step=options.get("frame_step", 1),
            rate=options.get("frame_rate", 0.0),
        )

    @property
    def span(self) -> int:
        """Number of video frames from the first of a clip to the last."""
        return (self.num_frames - 1) * self.step + 1


def first_frame(place, num_frames, sampling: Sampling):
    """Return the number of a clip's first frame; 0 if the video is too short.

    `place` is the position of the clip in the video, from 0 (its start) to 1.
    """
    tf = tensorflow()
    latest = tf.maximum(num_frames - sampling.span, 0)
    first = tf.floor(place * tf.cast(latest + 1, "float32"))
    return tf.minimum(tf.cast(first, "int32"), latest)


def frame_numbers(place, num_frames, sampling: Sampling):
    """Return the numbers of a clip's frames, `[T]`, ascending.

    They may exceed those of a short video, whose last frame is then repeated.

    Args:
        place: Position of the clip in the video, from 0 (its start) to 1; of
            segments that of the frame in its segment, perhaps `[T]`.
        num_frames: Number of frames of the video.
        sampling: The frames of a clip.

    Reference:
        Segments: `get_seq_frames` in slowfast/datasets/ssv2.py of
        facebookresearch/SlowFast, whose segments share their ends.
    """
    tf = tensorflow()
    count = sampling.num_frames
    if sampling.step:
        first = first_frame(place, num_frames, sampling)
        return first + tf.range(count) * sampling.step
    size = tf.cast(num_frames - 1, "float32") / count
    ends = tf.round(size * tf.range(count + 1, dtype="float32"))
    first, last = ends[:-1], ends[1:]
    # The middle is rounded down.
    chosen = tf.math.ceil(place * (last - first + 1)) - 1
    return tf.cast(first + tf.maximum(chosen, 0), "int32")


def random_place(seed, sampling: Sampling):
    """Return a random position of a clip, or of a frame in each segment."""
    shape = [] if sampling.step else [sampling.num_frames]
    return tensorflow().random.stateless_uniform(shape, seed)


def take_frames(video, place, sampling: Sampling):
    """Return the frames of a clip; repeat the last one of a short video.

    Args:
        video: All frames, `[F, ...]`: pixels, or the bytes of each frame.
        place, sampling: See `frame_numbers`.
    """
    tf = tensorflow()
    count = tf.shape(video)[0]
    frames = frame_numbers(place, count, sampling)
    return tf.gather(video, tf.minimum(frames, count - 1))


def places(num_clips: int) -> list[float]:
    """Return the positions of clips that are spread evenly over a video."""
    if num_clips == 1:
        return [0.5]
    return [i / (num_clips - 1) for i in range(num_clips)]


@checked
@unconverted
def shuffle_frames(batches, seed: int = 0):
    """Shuffle the frames of each clip, each in its own random order.

    Args:
        batches: Elements with "images", `[B, ..., T, H, W, C]`.
        seed: Seed of the orders.

    Returns:
        A tf.data.Dataset of the same elements with shuffled "images".

    Raises:
        ValueError: If "images" are no clips.

    Reference:
        Fan et al. 2021, the test of frame shuffling: a model that uses time
        loses accuracy.
    """
    tf = tensorflow()
    spec = getattr(batches, "element_spec", batches)
    clips = spec.get("images") if isinstance(spec, dict) else None
    if len(getattr(clips, "shape", ())) < 5:
        raise ValueError(
            "`batches` must be a tf.data.Dataset with clips, [B, ..., T, H, W, "
            f"C], as 'images'. Received: elements {spec}"
        )

    def shuffle(step, batch):
        clips = batch["images"]
        num_frames = clips.shape[-4]

        def order(i):
            return tf.random.experimental.stateless_shuffle(
                tf.range(num_frames), fold((seed, 2), step, i)
            )

        count = tf.reduce_prod(tf.shape(clips)[:-4])
        orders = tf.map_fn(order, tf.range(count), fn_output_signature="int32")
        flat = tf.reshape(clips, (-1, *clips.shape[-4:]))
        shuffled = tf.gather(flat, orders, batch_dims=1)
        shuffled = tf.reshape(shuffled, tf.shape(clips))
        return {**batch, "images": tf.ensure_shape(shuffled, clips.shape)}

    return batches.enumerate().map(
        shuffle, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )
