"""Folders of video files: the right frames, or the file that is wrong."""

import fractions
import gc
import io
import struct

import numpy as np
import pytest
import videos
from PIL import Image
from videos import take

from keras_vit import data
from keras_vit.data import video_files
from recipes import inputs

pytest.importorskip("av")

pytestmark = pytest.mark.backend_independent


def shades_of(path, numbers, rate=0.0, **arguments):
    """The mean shade of frames, as numbers of `videos.numbered`."""
    with video_files.open_video(str(path), rate) as video:
        frames = video.frames(list(numbers))
        return video_files.to_pixels(frames, **arguments).mean((1, 2, 3)) / 5


def make_folder(root, count=3, num_frames=12, suffix=".mp4"):
    for label, name in enumerate(("left", "right")):
        for i in range(count):
            frames = videos.numbered(num_frames) + np.uint8(60 * label)
            videos.write(root / name / f"{i}{suffix}", frames)
    return root


@pytest.mark.parametrize("suffix", videos.CODECS)
def test_frames_are_those_asked_for_wherever_they_lie(tmp_path, suffix):
    path = videos.write(tmp_path / f"a{suffix}", videos.numbered(45))
    for numbers in ([0, 1, 2], [17, 21, 25], [42, 43, 44]):
        np.testing.assert_allclose(shades_of(path, numbers), numbers, atol=0.7)
    # Beyond the end the last frame is repeated.
    np.testing.assert_allclose(shades_of(path, [43, 50]), [43, 44], atol=0.7)


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
def test_of_a_variable_rate_the_frame_shown_at_a_time_is_taken(
    tmp_path, suffix
):
    times = np.cumsum([0, 40, 400, 40, 40, 900, 40, 300, 200, 40, 1000])
    path = tmp_path / f"a{suffix}"
    videos.write(path, videos.numbered(11), milliseconds=times)
    numbers = np.arange(0, 30, 3)  # of ten a second
    shown = np.searchsorted(times, 100 * numbers + 25, side="right") - 1
    found = shades_of(path, numbers, rate=10.0)
    np.testing.assert_allclose(found, shown, atol=0.7)


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
@pytest.mark.parametrize(("rate", "every"), [(5.0, 5), (1.0, 25)])
def test_of_a_lower_rate_frames_are_not_earlier_than_their_times(
    tmp_path, suffix, rate, every
):
    path = videos.write(tmp_path / f"a{suffix}", videos.numbered(51))
    numbers = np.arange(51 // every)
    found = shades_of(path, numbers, rate=rate)
    np.testing.assert_allclose(found, every * numbers, atol=0.7)


def test_a_file_is_sought_and_not_decoded_from_its_start(tmp_path):
    path = videos.write(tmp_path / "a.mp4", videos.numbered(50))
    with video_files.open_video(str(path)) as video:
        decoded = []
        container = video.container

        class Counting:
            seek = container.seek

            def decode(self, stream):
                for frame in container.decode(stream):
                    decoded.append(frame)
                    yield frame

        video.container = Counting()
        video.frames([44, 46])
        # A keyframe is the first of every ten; none is decoded after the clip.
        assert 3 <= len(decoded) <= 12


def test_frames_are_cut_resized_and_turned_as_they_are_decoded(
    tmp_path, monkeypatch
):
    frames = np.zeros((3, 32, 48, 3), "uint8")
    frames[:, :16, :24] = 200  # the upper left quarter
    path = videos.write(tmp_path / "a.mkv", frames)
    with video_files.open_video(str(path)) as video:
        found = video.frames([0, 2])
        whole = video_files.to_pixels(found)
        np.testing.assert_array_equal(whole, frames[[0, 2]])
        cut = video_files.to_pixels(
            found, 1, lambda height, width: ((8, 12, 16, 24), (8, 12))
        )
        assert cut.shape == (2, 8, 12, 1)
        np.testing.assert_allclose(cut[:, :3, :5], 200, atol=2)
        np.testing.assert_allclose(cut[:, 5:], 0, atol=2)
        monkeypatch.setattr(video_files, "_turns", lambda frame: 1)
        turned = video_files.to_pixels(found)
        clockwise = np.rot90(frames[[0, 2]], -1, (1, 2))
        np.testing.assert_array_equal(turned, clockwise)


@pytest.mark.parametrize(
    ("matrix", "expected"),
    [
        ((0, 1, -1, 0), lambda x: np.rot90(x, -1, (1, 2))),
        ((0, -1, 1, 0), lambda x: np.rot90(x, 1, (1, 2))),
        ((-1, 0, 0, -1), lambda x: np.rot90(x, 2, (1, 2))),
        # Of cameras that show a mirror.
        ((-1, 0, 0, 1), lambda x: x[:, :, ::-1]),
        ((1, 0, 0, -1), lambda x: x[:, ::-1]),
        ((0, 1, 1, 0), lambda x: x.swapaxes(1, 2)),
        ((0, -1, -1, 0), lambda x: np.rot90(x, 2, (1, 2)).swapaxes(1, 2)),
    ],
)
def test_frames_are_upright_as_the_file_states(tmp_path, matrix, expected):
    frames = np.zeros((2, 32, 48, 3), "uint8")
    frames[:, :16, :24], frames[:, 16:, :24] = 200, 100
    path = videos.write(tmp_path / "a.mp4", frames)
    content = path.read_bytes()
    unit = 1 << 16
    identity = struct.pack(">9i", unit, 0, 0, 0, unit, 0, 0, 0, 1 << 30)
    a, b, c, d = (unit * x for x in matrix)
    stated = struct.pack(">9i", a, b, 0, c, d, 0, 0, 0, 1 << 30)
    start = content.index(identity, content.index(b"tkhd"))
    path.write_bytes(content[:start] + stated + content[start + len(stated) :])
    with video_files.open_video(str(path)) as video:
        found = video_files.to_pixels(video.frames([0, 1]))
    assert found.shape == expected(frames).shape
    assert np.abs(found - expected(frames).astype("float32")).mean() < 8


def test_frames_are_freed_at_once(tmp_path):
    import av

    path = videos.write(tmp_path / "a.mp4", videos.numbered(4))
    gc.collect()
    gc.disable()
    try:
        shades_of(path, [0, 2])
        kept = [x for x in gc.get_objects() if isinstance(x, av.VideoFrame)]
    finally:
        gc.enable()
    assert not kept


def test_motion_jpeg_with_exif_is_read(tmp_path):
    import av

    exif, content = Image.Exif(), io.BytesIO()
    exif[0x010F] = "maker"
    Image.new("RGB", (48, 32), (90, 90, 90)).save(content, "JPEG", exif=exif)
    with av.open(str(tmp_path / "a.mkv"), "w") as container:
        stream = container.add_stream("mjpeg", rate=5)
        stream.width, stream.height, stream.pix_fmt = 48, 32, "yuvj420p"
        packet = av.Packet(content.getvalue())
        packet.stream, packet.time_base = stream, fractions.Fraction(1, 5)
        packet.pts = packet.dts = 0
        packet.is_keyframe = True
        container.mux(packet)
    assert shades_of(tmp_path / "a.mkv", [0]).shape == (1,)


def test_a_folder_of_videos_is_split_and_read(tmp_path):
    make_folder(tmp_path)
    (tmp_path / "left" / "thumbnail.jpg").write_bytes(b"ignored")
    train, evaluation = data.load(str(tmp_path), eval_fraction=0.3)
    assert train.is_video and (train.num_examples, train.image_shape) == (
        4,
        None,
    )
    assert train.ignored == {("unsupported", ".jpg"): 1}
    arguments = dict(batch_size=2, image_size=(16, 16), num_frames=3)
    [batch] = data.eval_batches(
        evaluation,
        **arguments,
        frame_step=4,
        num_clips=2,
        num_crops=3,
        resize=16,
    ).as_numpy_iterator()
    assert batch["images"].shape == (2, 6, 3, 16, 16, 3)
    shades = batch["images"].mean((3, 4, 5))[:, ::3].reshape(2, 6)
    expected = np.array([0, 4, 8, 3, 7, 11]) * 5
    for found, label in zip(shades, batch["labels"].argmax(-1), strict=True):
        np.testing.assert_allclose(found, expected + 60 * label, atol=4)
    [plain] = take(data.eval_batches(evaluation, **arguments), 1)
    assert plain.shape == (2, 3, 16, 16, 3) and plain.dtype == np.uint8


@pytest.mark.parametrize(
    "crop",
    [
        dict(crop="inception"),
        dict(crop="pad", pad=2),
        dict(crop="resize", resize=20),
    ],
)
def test_training_on_files_resumes_at_any_step(tmp_path, crop):
    make_folder(tmp_path)
    train, _ = data.load(str(tmp_path), eval_fraction=0.3)
    arguments = dict(
        batch_size=2,
        image_size=(16, 16),
        num_frames=3,
        frame_step=2,
        **crop,
        seed=5,
    )
    run = take(data.train_batches(train, **arguments), 5)
    assert run[0].shape == (2, 3, 16, 16, 3)
    later = take(data.train_batches(train, **arguments, start_step=3), 2)
    np.testing.assert_array_equal(run[3:], later)
    if crop == "inception":
        steps = np.diff(np.concatenate(run).mean((2, 3, 4)), axis=1)
        np.testing.assert_allclose(steps, 10, atol=2.5)


def cut_off(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 6 // 10])


def empty(path):
    path.write_bytes(b"")


def text(path):
    path.write_text("no video")


def cut_to_its_header(path):
    path.write_bytes(path.read_bytes()[:50])


def of_another_codec(path):
    path.write_bytes(path.read_bytes().replace(b"FMP4", b"ZZZZ"))


def with_a_damaged_frame(path):
    content = bytearray(path.read_bytes())
    begin = len(content) * 3 // 10
    content[begin : begin + 16] = bytes(16)
    path.write_bytes(content)


def without_frames(path):
    path.unlink()
    videos.write(path, videos.numbered(0))


@pytest.mark.parametrize(
    ("suffix", "damage"),
    [
        *((suffix, cut_off) for suffix in (".mkv", ".mp4", ".webm", ".avi")),
        (".mp4", empty),
        (".mkv", text),
        (".mkv", cut_to_its_header),
        (".avi", of_another_codec),
        (".mp4", with_a_damaged_frame),
        (".mp4", without_frames),
        (".webm", without_frames),
    ],
)
def test_a_broken_file_is_named_with_the_reason(tmp_path, suffix, damage):
    path = videos.write(tmp_path / f"a{suffix}", videos.numbered(30))
    whole = videos.write(tmp_path / f"b{suffix}", videos.numbered(30))
    damage(path)
    broken = video_files.find_broken([whole, path])
    assert list(broken) == [str(path)] and broken[str(path)]


def test_a_broken_file_stops_the_run_and_is_named(tmp_path):
    make_folder(tmp_path)
    text(tmp_path / "left" / "0.mp4")
    with pytest.raises(ValueError, match=r"left/0\.mp4' does not decode as a"):
        train, _ = data.load(str(tmp_path), eval_fraction=0.01)
        held_out, _ = data.load(str(tmp_path), eval_fraction=0.01, seed=1)
        for source in (train, held_out):  # it may be held out of one
            with inputs.naming_broken_files(source):
                batches = data.train_batches(
                    source, batch_size=4, image_size=(8, 8), num_frames=2
                )
                take(batches, 2)
    train, evaluation = data.load(str(tmp_path), broken="skip")
    assert train.num_examples + evaluation.num_examples == 5
    assert list(train.skipped) == [str(tmp_path / "left" / "0.mp4")]
    assert data.explain_broken(train) is None


def test_without_pyav_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    with pytest.raises(ImportError, match=r"\[video\]"):
        video_files.find_broken([tmp_path / "a.mp4"])
