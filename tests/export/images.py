"""Images in every format, valid and broken."""

import io

import numpy as np
from PIL import Image


def pixels(height=20, width=30, seed=0):
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (5, 5, 3)).astype("uint8")
    return np.array(Image.fromarray(coarse).resize((width, height)))


def encode(array, kind, mode="RGB", **options):
    file = io.BytesIO()
    Image.fromarray(array).convert(mode).save(file, kind, **options)
    return file.getvalue()


def valid():
    """Name -> bytes of an image that decodes."""
    array = pixels()
    exif = Image.Exif()
    exif[0x010E] = "a" * 3000
    return {
        "jpeg": encode(array, "JPEG"),
        "jpeg of another size": encode(pixels(41, 11), "JPEG"),
        "progressive jpeg": encode(array, "JPEG", progressive=True),
        "jpeg with exif": encode(array, "JPEG", exif=exif),
        "grey jpeg": encode(array, "JPEG", "L"),
        "cmyk jpeg": encode(array, "JPEG", "CMYK"),
        # As phones write them: a film, or a second picture.
        "jpeg with bytes after it": encode(array, "JPEG") + bytes(range(200)),
        "jpeg with a thumbnail": thumbnailed(array),
        "png with bytes after it": encode(array, "PNG") + bytes(range(200)),
        "png": encode(array, "PNG"),
        "grey png": encode(array, "PNG", "L"),
        "png with alpha": encode(array, "PNG", "RGBA"),
        "png with a palette": encode(array, "PNG", "P"),
        "gif": encode(array, "GIF"),
        "animated gif": encode(
            array,
            "GIF",
            save_all=True,
            append_images=[Image.fromarray(pixels(seed=1))],
            # Each is an extension before the first frame.
            comment=b"two frames",
            loop=0,
            transparency=3,
        ),
        "gif with a line's end": encode(array, "GIF") + b"\r\n",
        "bmp": encode(array, "BMP"),
        "bmp with a byte more": encode(array, "BMP") + b"\0",
        "webp": encode(array, "WEBP", lossless=True),
        "lossy webp": encode(array, "WEBP"),
        "interlaced png": encode(array, "PNG", "P", optimize=True),
        "1x1 png": encode(pixels(1, 1), "PNG"),
    }


def thumbnailed(array):
    """A JPEG with another, complete, in its EXIF."""
    outer, inner = encode(array, "JPEG"), encode(array[:8, :8], "JPEG")
    segment = b"\xff\xe1" + (len(inner) + 8).to_bytes(2, "big") + b"Exif\0\0"
    return outer[:2] + segment + inner + outer[2:]


def broken(number=300, seed=0):
    """Name -> bytes of what is no image, or a part of one.

    Those that claim more than they hold are in test_limits.
    """
    rng = np.random.default_rng(seed)
    images = valid()
    jpeg, png = images["jpeg"], images["png"]
    gif, bmp, webp = images["gif"], images["bmp"], images["webp"]
    size = jpeg.index(b"\xff\xc0") + 5
    found = {
        "empty": b"",
        "text": b"an image",
        "html": b"<html><body>404</body></html>",
        "jpeg magic": b"\xff\xd8\xff",
        "png magic": b"\x89PNG\r\n\x1a\n",
        "gif magic": b"GIF89a",
        "bmp magic": b"BM",
        "jpeg of no pixels": jpeg[:size] + bytes(4) + jpeg[size + 4 :],
        "jpeg without a scan": jpeg[: jpeg.index(b"\xff\xda") + 12]
        + b"\xff\xd9",
        "jpeg of 12 bits": jpeg[: size - 1] + b"\x0c" + jpeg[size:],
        "png without data": png.replace(b"IDAT", b"teXt"),
        "gif without a frame": gif[:13] + b"\0;",
        "markers without end": b"\xff\xd8" + b"\xff" * 5000,
        "segments of no length": b"\xff\xd8" + b"\xff\xe0\0\0" * 2000,
    }
    kinds = [jpeg, png, gif, bmp, webp, images["progressive jpeg"]]
    kinds.append(images["jpeg with a thumbnail"])
    for i in range(number - len(found)):
        content = kinds[i % len(kinds)]
        if i % 3 == 0:
            noise = rng.integers(0, 256, int(rng.integers(1, 3000)))
            start = content[: int(rng.integers(0, 12))]
            found[f"noise {i}"] = start + noise.astype("uint8").tobytes()
        else:
            # Shorter than the end marker's neighbourhood.
            length = int(rng.integers(1, len(content) - 1))
            found[f"cut {i}"] = content[:length]
    return found
