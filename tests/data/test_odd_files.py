"""A person's folder, with what such folders hold."""

import io
import warnings

import numpy as np
import pytest

from keras_vit import data

tf = pytest.importorskip("tensorflow")

pytestmark = pytest.mark.backend_independent
pillow = pytest.importorskip("PIL.Image")

RED = (255, 0, 0)


def encoded(image, kind, **arguments):
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        image.save(buffer, kind, **arguments)
    return buffer.getvalue()


def files():
    """Red images of every kind, by name."""
    red = pillow.new("RGB", (12, 9), RED)
    blue = pillow.new("RGB", (12, 9), (0, 0, 255))
    wide = np.zeros((9, 12, 3), "uint16")
    wide[..., 0] = 65535
    return {
        "cmyk.jpg": encoded(
            pillow.new("CMYK", (12, 9), (0, 255, 255, 0)), "JPEG"
        ),
        "sixteen bits.png": tf.io.encode_png(wide).numpy(),
        "animated.gif": encoded(
            red, "GIF", save_all=True, append_images=[blue, blue]
        ),
        "1x1.png": encoded(pillow.new("RGB", (1, 1), RED), "PNG"),
        "20000x10.jpg": encoded(
            pillow.new("RGB", (20_000, 10), RED), "JPEG", quality=95
        ),
        "10x20000.png": encoded(pillow.new("RGB", (10, 20_000), RED), "PNG"),
        "with  two spaces & more.JPG": encoded(red, "JPEG", quality=95),
        "zażółć 猫 ñ [1].png": encoded(red, "PNG"),
    }


@pytest.fixture
def folder(tmp_path):
    """Two classes whose names are odd too, the same files in both."""
    for name in ("red things", "rötliche 猫"):
        (tmp_path / name).mkdir()
        for file, content in files().items():
            (tmp_path / name / file).write_bytes(content)
    return tmp_path


def add_broken(folder):
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 256, (60, 60, 3)).astype("uint8")
    broken = folder / "rötliche 猫" / "truncated später.jpg"
    whole = tf.io.encode_jpeg(noise).numpy()
    broken.write_bytes(whole[: len(whole) // 2])
    return str(broken)


def sources(folder, **arguments):
    return [
        source
        for source in data.load(str(folder), eval_fraction=0.5, **arguments)
        if source.num_examples
    ]


@pytest.mark.parametrize("resize", [0, 10])
def test_every_one_is_right_in_evaluation(folder, resize):
    seen = []
    for source in sources(folder):
        assert source.class_names == ("red things", "rötliche 猫")
        assert not source.skipped
        batches = data.eval_batches(
            source, batch_size=8, image_size=(8, 8), resize=resize
        )
        (batch,) = batches.as_numpy_iterator()
        seen += source.paths
        np.testing.assert_allclose(
            batch["images"], np.broadcast_to(RED, (8, 8, 8, 3)), atol=6
        )
    assert len(set(seen)) == 2 * len(files())


@pytest.mark.parametrize("crop", ["inception", "resize", "pad", "none"])
def test_every_one_is_right_in_training(folder, crop):
    source = sources(folder)[0]
    batches = data.train_batches(
        source, batch_size=16, image_size=(8, 8), crop=crop, resize=10
    )
    (batch,) = batches.take(1).as_numpy_iterator()
    np.testing.assert_allclose(
        batch["images"], np.broadcast_to(RED, (16, 8, 8, 3)), atol=6
    )


@pytest.mark.parametrize("name", sorted(files()))
def test_every_one_is_right_when_read_alone(tmp_path, name):
    (tmp_path / name).write_bytes(files()[name])
    found = data.read_image(tmp_path / name, (8, 8))
    np.testing.assert_allclose(found, np.broadcast_to(RED, (8, 8, 3)), atol=6)
    with pytest.raises(ValueError, match="does not decode") as error:
        (tmp_path / name).write_bytes(files()[name][:20])
        data.read_image(tmp_path / name, (8, 8))
    assert name in str(error.value)


def test_a_truncated_jpeg_stops_and_is_named(folder):
    broken = add_broken(folder)
    for source in sources(folder):
        if broken not in source.paths:
            assert data.explain_broken(source) is None
            continue
        batches = data.eval_batches(source, batch_size=20, image_size=(8, 8))
        with pytest.raises(tf.errors.OpError):
            list(batches)
        message = data.explain_broken(source)
        assert broken in message and message.startswith("1 of ")


def test_a_truncated_jpeg_is_left_out_and_listed(folder):
    broken = add_broken(folder)
    train, evaluation = data.load(str(folder), broken="skip")
    assert list(train.skipped) == [broken]
    assert "Invalid JPEG data" in train.skipped[broken]
    assert train.num_examples + evaluation.num_examples == 2 * len(files())
    for source in (train, evaluation):
        batches = data.eval_batches(source, batch_size=20, image_size=(8, 8))
        assert len(list(batches)) == 1
