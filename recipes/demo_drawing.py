"""The contents of the web page, as HTML with embedded images."""

import base64
import dataclasses
import html
import io
import os

import numpy as np
from PIL import Image

CSS = """
.model { border: 1px solid var(--border-color-primary); border-radius: 12px;
  padding: 14px !important; gap: 8px !important; }
.model .block:has(.prose:empty), .model .form:not(:has(*)) { display: none; }
.model .html-container { padding: 0 4px; }
.model h3 { margin: 0; font-size: 15px; overflow-wrap: anywhere; }
.model h4 { margin: 6px 0; font-size: 13px; }
.model .bar { display: grid; grid-template-columns: 1fr 4.2em; gap: 0 8px;
  align-items: center; margin: 5px 0; font-size: 14px; }
.model .bar div { position: relative; border-radius: 5px; overflow: hidden;
  background: var(--background-fill-secondary); padding: 4px 8px; }
.model .bar i { position: absolute; inset: 0 auto 0 0;
  background: var(--color-accent); opacity: 0.35; }
.model .bar span { position: relative; overflow-wrap: anywhere; }
.model .bar b { text-align: right; font-variant-numeric: tabular-nums; }
.model .pictures { display: flex; flex-wrap: wrap; gap: 10px; }
.model figure { margin: 0; flex: 1 1 140px; min-width: 0; max-width: 384px; }
.model .task figure { max-width: 560px; }
.model .near figure { flex: 0 1 96px; }
.model figure img { width: 100%; border-radius: 6px; display: block; }
.model .near img { aspect-ratio: 1; object-fit: cover; }
.model figcaption, .note { font-size: 12px; opacity: 0.8; margin-top: 3px;
  overflow-wrap: anywhere; line-height: 1.35; }
/* Instead of the browser's icon of a broken image. */
.column:has(#message .problem) #upload img { display: none; }
.problem { border-left: 4px solid #c62828; background: #c628281a;
  padding: 10px 12px; border-radius: 6px; overflow-wrap: anywhere; }
"""

# Attention is drawn if a patch has this multiple of the uniform share.
MIN_CONTRAST = 1.5


@dataclasses.dataclass(frozen=True)
class Maps:
    """The attention that sliders draw, without another call of the model.

    Attributes:
        pixels: The image upright, uint8 `[H, W, 3]`.
        rollout: `[rows, columns]`.
        heads: `[A, rows, columns]` for each attention layer.
    """

    pixels: np.ndarray
    rollout: np.ndarray
    heads: tuple[np.ndarray, ...]


def heading(name: str) -> str:
    """Return the heading of a model: its address, or the end of its path."""
    short = name if "://" in name else "/".join(name.split(os.sep)[-2:])
    return f"<h3>{html.escape(short)}</h3>"


def note(height: int, width: int, name: str) -> str:
    """Return the line under a classified image."""
    text = f"{name}: {width} x {height} pixels"
    if name.lower().endswith((".gif", ".webp")):
        text += ". Of an animation, the first frame is classified."
    return f'<p class="note">{html.escape(text)}</p>'


def problem(text: str) -> str:
    """Return the error message that is shown in place of an answer."""
    return f'<p class="problem" role="alert">{html.escape(text)}</p>'


def classes(rows: tuple[tuple[str, float], ...]) -> str:
    """Return the top classes as bars."""
    bars = []
    for name, probability in rows:
        width = 100 * min(max(probability, 0), 1)
        bars.append(
            f'<div class="bar"><div><i style="width: {width:.2f}%"></i>'
            f"<span>{html.escape(name)}</span></div>"
            f"<b>{probability:.2%}</b></div>"
        )
    return "".join(bars)


def maps(state: Maps | None, layer: int, head: int) -> str:
    """Return attention rollout and the map of a head.

    Args:
        state: The attention to draw; None draws nothing.
        layer: Number of the layer, from 1.
        head: Number of the head, from 1; the last one if the layer has fewer.
    """
    if state is None:
        return ""
    layer = min(max(int(layer), 1), len(state.heads))
    heads = state.heads[layer - 1]
    head = min(max(int(head), 1), len(heads))
    return _pictures(
        [
            _overlay(state.pixels, state.rollout, "Attention rollout"),
            _overlay(
                state.pixels,
                heads[head - 1],
                f"Layer {layer} of {len(state.heads)}, "
                f"head {head} of {len(heads)}",
            ),
        ]
    )


def nearest(
    found: list[tuple[np.ndarray, str, float]], vote: str | None
) -> str:
    """Return the nearest images.

    Args:
        found: (pixels, name, cosine similarity), nearest first.
        vote: The class that they vote for, or None.
    """
    title = "Nearest images"
    if vote is not None:
        title += f", which vote for {html.escape(vote)}"
    pictures = [
        (pixels, f"{name}, {similarity:.3f}")
        for pixels, name, similarity in found
    ]
    return f"<h4>{title}</h4>{_pictures(pictures, 'near')}"


def _overlay(pixels, attention, title):
    """Return an image overlaid with its attention, and the caption.

    The colour shows each patch's share of attention. Its full strength is the
    largest share, but at least twice the uniform share. Attention that is
    nearly uniform is not drawn, since it would tint the whole image.
    """
    from matplotlib import colormaps

    multiples = attention * attention.size
    highest = float(multiples.max())
    title += f": up to {highest:.1f} times the uniform share"
    if highest < MIN_CONTRAST:
        return pixels, f"{title}, nearly uniform and not drawn"
    relative = (multiples / max(highest, 2)).astype("float32")
    height, width = pixels.shape[:2]
    resized = Image.fromarray(relative).resize(
        (width, height), Image.Resampling.BILINEAR
    )
    mask = np.clip(np.asarray(resized), 0, 1)[..., None]
    heat = colormaps["inferno"](mask[..., 0])[..., :3] * 255
    grey = pixels.mean(axis=-1, keepdims=True)
    shown = 0.75 * grey * (1 - 0.7 * mask) + 0.7 * heat
    shown = np.clip(shown, 0, 255).astype("uint8")
    return shown, title


def figure(content: bytes, caption: str, kind: str = "png") -> str:
    """Return a picture with its caption.

    Args:
        content: Bytes of the picture.
        caption: Text.
        kind: "png" or "jpeg".
    """
    # Embedded in the page: no address at which others could find it.
    encoded = base64.b64encode(content).decode("ascii")
    caption = html.escape(caption)
    return (
        f'<figure><img src="data:image/{kind};base64,{encoded}" '
        f'alt="{caption}"><figcaption>{caption}</figcaption></figure>'
    )


def _pictures(pictures, kind=""):
    figures = []
    for pixels, caption in pictures:
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "JPEG", quality=88)
        figures.append(figure(file.getvalue(), caption, "jpeg"))
    return f'<div class="pictures {kind}">{"".join(figures)}</div>'
