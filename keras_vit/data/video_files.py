"""Clips of video files, decoded by PyAV.

Decoding starts at the keyframe before a clip and stops at the clip's end. The
whole file is never decoded. Frames are selected by their time stamps: a clip
has the frame that is shown at each of its times, also at a variable frame rate.
"""

import concurrent.futures
import contextlib
import io
import os
from collections.abc import Callable

import numpy as np

from keras_vit._paths import why_no_file
from keras_vit.data import clips
from keras_vit.data.optional_imports import optional, tensorflow

EXTENSIONS = (".avi", ".mkv", ".mov", ".mp4", ".webm")
BROKEN = "does not decode as a video"
DAMAGED = "frames of it are damaged"
# A frame that is later than a time by at most this fraction of a frame counts
# as shown at that time, because containers round time stamps: of a frame of the
# file or of the rate, whichever is shorter.
TOLERANCE = 0.25


class VideoFile:
    """An open file; see `open_video`."""

    def __init__(self, path: str, container, rate: float = 0.0):
        if not container.streams.video:
            raise ValueError("it has no video stream")
        self.path = path
        self.container = container
        self.stream = container.streams.video[0]
        # Clips are decoded in parallel, each in one thread.
        self.stream.thread_count = 1
        self.start = float(
            (self.stream.start_time or 0) * self.stream.time_base
        )
        own = self.stream.average_rate or self.stream.guessed_rate
        self.rate = rate or float(own or 0)
        if not self.rate:
            raise ValueError("it does not state its frame rate")
        self.tolerance = TOLERANCE / max(self.rate, float(own or 0))
        self.seconds, self.is_exact = self._length()

    @property
    def num_frames(self) -> int:
        """Number of frames of the whole video, at its rate."""
        return max(1, round(self.seconds * self.rate))

    def frames(self, numbers: list[int]) -> list:
        """Return PyAV's frames by number, ascending, at the video's rate."""
        last = self.num_frames - 1
        times = [self.start + min(n, last) / self.rate for n in numbers]
        found = self._decode(times, seek=numbers[0] > 0)
        # Some files state a time for a keyframe that is too early.
        found = found or self._decode(times, seek=False)
        if not found:
            raise ValueError("no frame of it can be decoded")
        if any(frame.is_corrupt for frame in found):
            raise ValueError(DAMAGED)
        return found

    def _decode(self, times, seek):
        """Return the frame at each time; none if decoding starts too late."""
        tolerance = self.tolerance
        base = self.stream.time_base
        self.container.seek(
            int(times[0] / base) if seek else self.stream.start_time or 0,
            stream=self.stream,
        )
        found, before = [], None
        for frame in self.container.decode(self.stream):
            if frame.time is None:
                continue
            while len(found) < len(times):
                late = frame.time - times[len(found)]
                if late < -tolerance:
                    break
                if late > tolerance and before is None and seek:
                    return []
                is_shown = late <= tolerance or before is None
                found.append(frame if is_shown else before)
            before = frame
            if len(found) == len(times):
                return found
        if before is None:
            return []
        end = before.time + float((before.duration or 0) * base)
        if self.is_exact and end + 1 / self.rate < times[-1]:
            raise ValueError(
                f"its frames end at {end - self.start:.2f} of "
                f"{self.seconds:.2f} seconds, as if it were cut off"
            )
        return found + [before] * (len(times) - len(found))

    def _length(self):
        """Return the seconds of the stream, and whether they are exact."""
        base = self.stream.time_base
        if self.stream.duration:
            return float(self.stream.duration * base), True
        stated = self.stream.metadata.get("DURATION")  # in Matroska files
        if stated:
            hours, minutes, seconds = map(float, stated.split(":"))
            return 3600 * hours + 60 * minutes + seconds - self.start, True
        if self.container.duration:
            # The duration of the longest stream, which may be the audio.
            return self.container.duration / 1_000_000 - self.start, False
        # A live recording states no duration: read the time of each packet.
        ends = [
            float((packet.pts + (packet.duration or 0)) * base)
            for packet in self.container.demux(self.stream)
            if packet.pts is not None
        ]
        if not ends:
            raise ValueError("it has no frames")
        return max(ends) - self.start, True


@contextlib.contextmanager
def open_video(path: str, rate: float = 0.0, stored: dict | None = None):
    """Open a video file; errors in the context name the file.

    Args:
        path: The file.
        rate: Frames per second in which frames are counted; 0 is the file's
            own rate.
        stored: Path -> bytes of files. The bytes of this file are added. None
            reads only the parts of the file that are needed.

    Raises:
        ImportError: If PyAV is not installed.
        ValueError: If the file is missing or does not decode.
    """
    av = _av()
    try:
        with av.open(_content(path, stored)) as container:
            yield VideoFile(path, container, rate)
    except (av.FFmpegError, OSError, ValueError, OverflowError) as error:
        raise ValueError(f"{path!r} {BROKEN}: {_reason(error)}") from error


def to_pixels(
    frames: list, channels: int = 3, plan: Callable | None = None
) -> np.ndarray:
    """Turn frames upright, crop, resize and convert them in one step.

    Args:
        frames: Frames of one file.
        channels: 1 or 3.
        plan: Function from (height, width) of the upright frames to the window
            to crop, (row, column, rows, columns), and the (height, width) to
            resize it to; None returns whole frames at their own size.

    Returns:
        uint8 `[T, height, width, channels]`.
    """
    graphs, pixels = {}, []
    size = None
    for frame in frames:
        turns, flips = _turns(frame), _flips(frame)
        key = (frame.width, frame.height, frame.format.name, turns, flips)
        if key not in graphs:
            shape = (frame.height, frame.width)
            shape = shape[::-1] if turns % 2 else shape
            window, wanted = plan(*shape) if plan else ((0, 0, *shape), shape)
            # All frames get the size of the first one.
            size = size or wanted
            steps = [("vflip", None)] * flips + [("transpose", "clock")] * turns
            graphs[key] = _graph(frame, steps, window, size, channels)
        graph = graphs[key]
        graph.push(frame)
        image = graph.pull().to_ndarray()
        pixels.append(image[..., np.newaxis] if channels == 1 else image)
    return np.stack(pixels)


def write_video(path: str, frames: np.ndarray, rate: int = 25) -> None:
    """Write uint8 frames `[T, H, W, C]` without loss, FFV1 in Matroska."""
    av = _av()
    is_grey = frames.shape[-1] == 1
    with av.open(path, "w") as container:
        stream = container.add_stream("ffv1", rate=rate)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "gray" if is_grey else "bgr0"
        for pixels in frames:
            pixels = np.ascontiguousarray(pixels[..., 0] if is_grey else pixels)
            frame = av.VideoFrame.from_ndarray(
                pixels, format="gray" if is_grey else "rgb24"
            )
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def read_clip(
    path,
    place,
    *seed,
    sampling: clips.Sampling,
    channels: int,
    plan: Callable,
    stored: dict | None = None,
):
    """Return the pixels of a clip, uint8, in a `tf.data` pipeline.

    Args:
        path: The file, a scalar string tensor.
        place: See `clips.frame_numbers`.
        *seed: Tensors that `plan` takes after height and width.
        sampling, channels, plan, stored: See `to_pixels` and `open_video`.
    """
    tf = tensorflow()

    def read(path, place, *seed):
        file = open_video(os.fsdecode(path.numpy()), sampling.rate, stored)
        with tf.device("CPU"), file as video:
            numbers = clips.frame_numbers(place, video.num_frames, sampling)
            frames = video.frames(numbers.numpy().tolist())
            return to_pixels(frames, channels, lambda *size: plan(*size, *seed))

    pixels = tf.py_function(read, (path, place, *seed), "uint8")
    return tf.ensure_shape(pixels, (sampling.num_frames, None, None, channels))


def find_broken(paths) -> dict[str, str]:
    """Decode every frame; return the files that fail, and the reasons."""
    paths = [os.fspath(path) for path in paths]
    _av()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        reasons = pool.map(_why_broken, paths)
        return {
            path: reason
            for path, reason in zip(paths, reasons, strict=True)
            if reason
        }


def _why_broken(path):
    try:
        with open_video(path) as video:
            for frame in video.container.decode(video.stream):
                if frame.is_corrupt:
                    raise ValueError(DAMAGED)
            video.frames([video.num_frames - 1])
    except ValueError as error:
        return str(error).removeprefix(f"{path!r} {BROKEN}: ")
    return None


def _graph(frame, steps, window, size, channels):
    """Return PyAV's filters: `steps`, crop, resize and convert the format."""
    graph = _av().filter.Graph()
    row, column, rows, columns = window
    steps = steps + [
        ("crop", f"{columns}:{rows}:{column}:{row}:exact=1"),
        ("scale", f"{size[1]}:{size[0]}:flags=bilinear"),
        ("format", "gray" if channels == 1 else "rgb24"),
        ("buffersink", None),
    ]
    last = graph.add_buffer(
        width=frame.width,
        height=frame.height,
        format=frame.format,
        time_base=frame.time_base,
    )
    for name, arguments in steps:
        node = graph.add(name, arguments)
        last.link_to(node)
        last = node
    graph.configure()
    return graph


def _turns(frame):
    """Return the clockwise quarter turns that make a frame upright."""
    return -round((frame.rotation or 0) / 90) % 4


def _flips(frame):
    """Return 1 for a frame to flip upside down before it is turned, else 0."""
    side_data = optional("av.sidedata.sidedata", extra="video")
    try:
        # A frame and its own `side_data` hold each other: their memory would
        # wait for Python's collector.
        matrix = side_data.SideDataContainer(frame).get("DISPLAYMATRIX")
    except ValueError:  # PyAV does not know all kinds, such as EXIF
        matrix = None
    if matrix is None:
        return 0
    a, b, _, c, d = np.frombuffer(matrix, "int32")[:5].astype("float64")
    return int(a * d < b * c)  # it mirrors


def _content(path, stored):
    """Return the argument for `av.open`: the path, or the bytes in memory."""
    is_stored = stored is not None and path in stored
    reason = None if is_stored else why_no_file(path)
    if reason:
        raise ValueError(f"it {reason}")
    if stored is None:
        return path
    if not is_stored:
        with open(path, "rb") as file:
            stored[path] = file.read()
    return io.BytesIO(stored[path])


def _reason(error):
    """Return the message of an error without PyAV's number and the path."""
    return getattr(error, "strerror", None) or str(error)


def _av():
    return optional("av", extra="video")
