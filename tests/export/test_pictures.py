"""A picture has one score: served, read from its file, decoded by Pillow."""

import io

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

import keras_vit
from keras_vit import data
from keras_vit.export import signatures

SIZE = (32, 48)
pytestmark = [
    # Reading is TensorFlow's, whatever computes.
    pytest.mark.backend("tensorflow"),
]


def pictures():
    """Bytes by name: whatever is not JPEG or "lossy" keeps its pixels."""
    noise = np.random.default_rng(0).integers(0, 256, (9, 13, 3), "uint8")
    image = Image.fromarray(noise).resize((150, 100))
    grey = image.convert("L")
    deep = Image.fromarray(np.asarray(grey).astype("uint16") * 257)
    found = {}

    def add(name, picture, **options):
        file = io.BytesIO()
        kind = name.rpartition(".")[2].replace("jpg", "jpeg")
        picture.save(file, kind, **options)
        found[name] = file.getvalue()

    for kind in ("png", "bmp", "jpg"):
        add(f"colour.{kind}", image)
        add(f"grey.{kind}", grey)
    for kind in ("png", "gif"):
        add(f"palette.{kind}", image.quantize(64))
    add("bits.png", image.convert("1"))
    add("deep.png", deep)
    add("alpha.png", image.convert("RGBA"))
    add("cmyk.jpg", image.convert("CMYK"))
    add("lossy.webp", image)
    add("lossless.webp", image, lossless=True)
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x112] = orientation
        add(f"exif{orientation}.png", image, exif=exif)
        if orientation == 6:  # as cameras turn, in their other formats
            add("exif6.jpg", image, exif=exif)
            add("exif6.webp", image, exif=exif, lossless=True)
    return found


def upright_pixels(encoded):
    image = ImageOps.exif_transpose(Image.open(io.BytesIO(encoded)))
    if image.mode.startswith("I"):  # 16 bits
        image = Image.fromarray((np.asarray(image) // 257).astype("uint8"))
    pixels = np.asarray(image.convert("RGB"), "float32")
    return tf.image.resize(pixels, SIZE).numpy()


def test_a_picture_has_one_score_however_it_is_read(tmp_path):
    model = keras_vit.ViT(
        patch_size=8,
        hidden_size=32,
        num_layers=1,
        num_heads=2,
        mlp_dim=32,
        classes=5,
        input_shape=(*SIZE, 3),
        classifier_activation="softmax",
    )
    kernel = model.get_layer("head").kernel
    # Small, so that no class takes it all.
    rng = np.random.default_rng(1)
    kernel.assign(rng.normal(scale=0.3, size=kernel.shape))
    found = pictures()
    answers = signatures.Answers(
        lambda x, number: (x, model(x)), tuple("abcde"), 5, "none", len(found)
    )
    served = signatures.signatures(answers, SIZE, 3)["predict"]
    answers = served(tf.constant(list(found.values())))
    assert answers["valid"].numpy().all()

    def scores(images):
        return keras.ops.convert_to_numpy(model.predict_on_batch(images))

    read = []
    for name, encoded in found.items():
        (tmp_path / name).write_bytes(encoded)
        read.append(data.read_image(tmp_path / name, SIZE))
    decoded = np.stack([upright_pixels(encoded) for encoded in found.values()])
    probabilities = answers["probabilities"].numpy()
    assert np.ptp(probabilities, axis=0).max() > 0.01  # they do differ
    np.testing.assert_allclose(probabilities, scores(np.stack(read)), atol=1e-5)
    # Decoders of JPEG and lossy WebP differ by some levels.
    lossy = (".jpg", "lossy.webp")
    exact = [not name.endswith(lossy) for name in found]
    np.testing.assert_allclose(
        probabilities[exact], scores(decoded)[exact], atol=1e-5
    )
