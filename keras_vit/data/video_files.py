"""Clips of video files, decoded by PyAV.

A file is sought at the keyframe before a clip and decoded from there to its
end, never as a whole. Frames are chosen by their time stamps, so that a
variable frame rate changes nothing: a clip has the frame that is shown at each
of its times.
"""

import concurrent.futures
import contextlib
import os
from collections.abc import Callable

import numpy as np

from keras_vit.data import clips
from keras_vit.data.optional_imports import optional, tensorflow

EXTENSIONS = (".avi", ".mkv", ".mov", ".mp4", ".webm")
BROKEN = "does not decode as a video"
# A frame this much later than a time, in frames, still counts as shown then:
# containers round time stamps.
TOLERANCE = 0.25


class VideoFile:
    """An open file; see `open_video`.

    Args:
        path: What to call it in messages.
        container: What PyAV opened.
        rate: Frames per second to count in; 0 counts the file's own.
    """

    def __init__(self, path: str, container, rate: float = 0.0):
        if not container.streams.video:
            raise ValueError("it has no video stream")
        self.path = path
        self.container = container
        self.stream = container.streams.video[0]
        # Clips are decoded side by side.
        self.stream.thread_count = 1
        self.start = float(
            (self.stream.start_time or 0) * self.stream.time_base
        )
        own = self.stream.average_rate or self.stream.guessed_rate
        self.rate = rate or float(own or 0)
        if not self.rate:
            raise ValueError("it does not state its frame rate")
        self.seconds, self.is_exact = self._length()

    @property
    def num_frames(self) -> int:
        """Frames of the whole video, at its rate."""
        return max(1, round(self.seconds * self.rate))

    def frames(self, numbers: list[int]) -> list:
        """Returns frames by number, at the video's rate, as PyAV decodes them.

        Args:
            numbers: Which, in ascending order.

        Raises:
            ValueError: If one of them cannot be decoded.
        """
        last = self.num_frames - 1
        times = [self.start + min(n, last) / self.rate for n in numbers]
        found = self._decode(times, seek=numbers[0] > 0)
        # Some files say of a keyframe that it comes earlier than it does.
        found = found or self._decode(times, seek=False)
        if not found:
            raise ValueError("no frame of it can be decoded")
        if any(frame.is_corrupt for frame in found):
            raise ValueError("frames of it are damaged")
        return found

    def _decode(self, times, seek):
        """Returns the frame at each time; none if decoding starts too late."""
        tolerance = TOLERANCE / self.rate
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
        """Returns the seconds of the stream, and whether they are exact."""
        base = self.stream.time_base
        if self.stream.duration:
            return float(self.stream.duration * base), True
        stated = self.stream.metadata.get("DURATION")  # of Matroska
        if stated:
            hours, minutes, seconds = map(float, stated.split(":"))
            return 3600 * hours + 60 * minutes + seconds - self.start, True
        if self.container.duration:
            # The longest stream's, perhaps that of the sound.
            return self.container.duration / 1_000_000 - self.start, False
        # Recorded live: nobody came back to write it down.
        ends = [
            float((packet.pts + (packet.duration or 0)) * base)
            for packet in self.container.demux(self.stream)
            if packet.pts is not None
        ]
        if not ends:
            raise ValueError("it has no frames")
        return max(ends) - self.start, True


@contextlib.contextmanager
def open_video(path: str, rate: float = 0.0):
    """Opens a video file, and names it in what goes wrong.

    Args:
        path: The file.
        rate: Frames per second to count in; 0 counts the file's own.

    Raises:
        ImportError: If PyAV is not installed.
        ValueError: If the file is missing or does not decode.
    """
    av = _av()
    try:
        with av.open(path) as container:
            yield VideoFile(path, container, rate)
    except (OSError, ValueError, OverflowError) as error:
        # Errors of PyAV are of these classes.
        raise ValueError(f"{path!r} {BROKEN}: {_reason(error)}") from error


def to_pixels(
    frames: list, channels: int = 3, plan: Callable | None = None
) -> np.ndarray:
    """Crops and resizes frames, upright, in the step that colours them.

    Args:
        frames: Of one file.
        channels: 1 or 3.
        plan: From (height, width) of the upright frames to the window to cut
            out, (row, column, rows, columns), and the (height, width) to
            resize it to; None takes the whole frame as it is.

    Returns:
        uint8 `[T, height, width, channels]`.
    """
    graphs, pixels = {}, []
    size = None
    for frame in frames:
        turns = _turns(frame)
        key = (frame.width, frame.height, frame.format.name, turns)
        if key not in graphs:
            shape = (frame.height, frame.width)
            shape = shape[::-1] if turns % 2 else shape
            window, wanted = plan(*shape) if plan else ((0, 0, *shape), shape)
            # All frames are of the first one's size.
            size = size or wanted
            graphs[key] = _graph(frame, turns, window, size, channels)
        graph = graphs[key]
        graph.push(frame)
        image = graph.pull().to_ndarray()
        pixels.append(image[..., np.newaxis] if channels == 1 else image)
    return np.stack(pixels)


def write_video(path: str, frames: np.ndarray, rate: int = 25) -> None:
    """Writes a video without loss, FFV1 in Matroska.

    Args:
        path: The file, .mkv.
        frames: uint8 `[T, H, W, C]`, C 1 or 3.
        rate: Frames per second.

    Raises:
        ImportError: If PyAV is not installed.
    """
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
    path, place, sampling: clips.Sampling, channels: int, plan: Callable, *seed
):
    """Returns the pixels of a clip, in a pipeline of `tf.data`.

    Args:
        path: The file, a scalar string tensor.
        place: Where in the video, from 0, at its start, to 1.
        sampling: Which frames make a clip.
        channels: 1 or 3.
        plan: See `to_pixels`; it takes `seed` after height and width.
        *seed: Tensors.

    Returns:
        uint8 `[T, height, width, channels]`.
    """
    tf = tensorflow()

    def read(path, place, *seed):
        with tf.device("CPU"), open_video(_text(path), sampling.rate) as video:
            first = clips.first_frame(place, video.num_frames, sampling)
            numbers = int(first) + np.arange(sampling.num_frames) * (
                sampling.step
            )
            frames = video.frames(numbers.tolist())
            return to_pixels(frames, channels, lambda *size: plan(*size, *seed))

    pixels = tf.py_function(read, (path, place, *seed), "uint8")
    return tf.ensure_shape(pixels, (sampling.num_frames, None, None, channels))


def find_broken(paths) -> dict[str, str]:
    """Returns the files that do not decode and why, after trying every frame.

    Args:
        paths: Video files.

    Returns:
        The reason by path, in the order of `paths`.
    """
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
            for _ in video.container.decode(video.stream):
                pass
            video.frames([video.num_frames - 1])
    except ValueError as error:
        return str(error).removeprefix(f"{path!r} {BROKEN}: ")
    return None


def _graph(frame, turns, window, size, channels):
    """Returns PyAV's filters: turn, cut, resize, and colour."""
    graph = _av().filter.Graph()
    row, column, rows, columns = window
    steps = [("transpose", "clock")] * turns + [
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
    """How often a quarter clockwise the file asks to turn its frames."""
    return -round((frame.rotation or 0) / 90) % 4


def _text(path):
    return os.fsdecode(path.numpy())


def _reason(error):
    """The message of an error without PyAV's number and the path."""
    return getattr(error, "strerror", None) or str(error)


def _av():
    return optional("av", extra="video")
