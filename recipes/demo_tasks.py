"""Models for detection, segmentation, depth and pose behind the web page."""

import dataclasses
import io
from collections.abc import Sequence

import numpy as np

from keras_vit.inspection import task_figures
from keras_vit_cli import predict_tasks
from recipes import demo_drawing

# Side of an image in the picture, in inches.
_SIDE = 4.5


@dataclasses.dataclass(frozen=True)
class Found:
    """What was found in an image, which the slider draws.

    Attributes:
        pixels: The image upright, uint8 `[H, W, 3]`, as the page shows it.
        found: What `TaskModel.interpret` returns for an image of this size, of
            any score.
        class_names: Names of the classes, or None.
    """

    pixels: np.ndarray
    found: dict
    class_names: Sequence[str] | None

    @property
    def has_scores(self) -> bool:
        """Whether a slider chooses what is shown."""
        return "scores" in self.found or "segments_info" in self.found


class TaskModel:
    """A model with a head, as `keras_vit_cli.opening.asked` returns it."""

    def __init__(self, finder):
        self._finder = finder
        # `interpret` leaves out what scores less.
        self._options = {}
        if finder.task == "detection" or finder.kind in (
            "panoptic",
            "instance",
        ):
            self._options = dict(threshold=0.05)

    def find(self, path: str, pixels: np.ndarray) -> Found:
        """Return what is in an image file.

        Args:
            path: The file.
            pixels: Its image, as the page shows it.

        Raises:
            ValueError: If it does not decode.
        """
        _, found = self._finder.find(path, pixels.shape[:2], **self._options)
        return Found(pixels, found, self._finder.class_names)


def draw(state: Found, score: float) -> str:
    """Return a picture of what was found, and its scores as bars.

    Args:
        state: What was found.
        score: The least score of a box, a segment or a keypoint.
    """
    found = _above(state.found, score)
    file = io.BytesIO()
    task_figures.plot_task(
        [state.pixels], [found], file, state.class_names, _SIDE
    )
    picture = demo_drawing.figure(file.getvalue(), _caption(found))
    rows = demo_drawing.classes(_rows(state, found))
    return f'<div class="task">{picture}</div>{rows}'


def _above(found, score):
    """Return what has at least a score."""
    if "boxes" in found or "keypoints" in found:
        kept = np.flatnonzero(found["scores"] >= score)
        return {
            name: [value[i] for i in kept]
            if isinstance(value, list)
            else value[kept]
            for name, value in found.items()
        }
    if "segments_info" in found:
        info = [x for x in found["segments_info"] if x["score"] >= score]
        kept = [x["id"] for x in info]
        there = np.isin(found["segments"], kept)
        segments = np.where(there, found["segments"], -1)
        return dict(segments=segments, segments_info=info)
    return found


def _rows(state, found):
    """Return (name, score) of what was found; of classes, their shares."""
    if "segments_info" in found:
        rows = [(x["name"], x["score"]) for x in found["segments_info"]]
    elif "scores" in found:
        rows = zip(found["names"], found["scores"], strict=True)
    elif "classes" in found:
        rows = predict_tasks.summary(found, state.class_names)[
            "classes"
        ].items()
    else:
        rows = []
    return tuple(sorted(rows, key=lambda row: -row[1]))


def _caption(found):
    if "depth" in found:
        low, high = np.min(found["depth"]), np.max(found["depth"])
        return f"Depth from {low:.3g} to {high:.3g}; near places are bright"
    if "classes" in found:
        return "Classes, and their shares of the image"
    names = dict(boxes="boxes", keypoints="keypoints")
    what = next((x for x in names if x in found), "segments")
    key = "segments_info" if what == "segments" else "scores"
    return f"{len(found[key])} {what}"
