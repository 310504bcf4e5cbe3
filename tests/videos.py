"""Small video files, written at test time."""

import fractions

import numpy as np

# Of each container a codec that PyAV's wheels have, and its pixel format.
CODECS = {
    ".avi": ("mpeg4", "yuv420p"),
    ".mkv": ("ffv1", "bgr0"),
    ".mov": ("libx264", "yuv420p"),
    ".mp4": ("libx264", "yuv420p"),
    ".webm": ("libvpx", "yuv420p"),
}


def numbered(num_frames, size=(32, 48), step=5):
    """Frames of which number t is all `step` t."""
    shades = (step * np.arange(num_frames)).astype("uint8")
    shape = (num_frames, *size, 3)
    return np.broadcast_to(shades[:, None, None, None], shape).copy()


def write(path, frames, rate=25, milliseconds=None, options=None):
    """Writes `[T, H, W, 3]`, at a rate or at times, a keyframe every ten."""
    import av

    path.parent.mkdir(parents=True, exist_ok=True)
    codec, pixel_format = CODECS[path.suffix]
    with av.open(str(path), "w", options=options or {}) as container:
        stream = container.add_stream(codec, rate=rate)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = pixel_format
        stream.gop_size, stream.bit_rate = 10, 4_000_000
        clock = fractions.Fraction(
            1, 1000 if milliseconds is not None else rate
        )
        stream.codec_context.time_base = clock
        times = range(len(frames)) if milliseconds is None else milliseconds
        for pixels, time in zip(frames, times, strict=True):
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            frame.pts, frame.time_base = int(time), clock
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def take(dataset, count):
    """The images of the first batches."""
    return [
        batch["images"] for batch in dataset.take(count).as_numpy_iterator()
    ]
