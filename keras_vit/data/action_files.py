"""AVA: what persons do, in boxes at key frames of videos."""

import hashlib
import os
import pathlib
import re
import warnings

import numpy as np

from keras_vit._arguments import Count, NotNegative, checked
from keras_vit.data import video_files
from keras_vit.data.decode import Channels
from keras_vit.data.tables import read_cells, read_text
from keras_vit.data.task_sources import TaskSource
from keras_vit.data.video_lists import videos_below

# A detected person with a lower score is left out.
LEAST_SCORE = 0.8
# Longer shorter sides of frames are reduced to as many pixels.
SIDE = 320
# The second of the film with which cut videos begin, and the most that one
# lasts: 901 seconds in PySlowFast's instructions, and some before a keyframe.
CUT_AT, LONGEST_CUT = 900, 910
_TRAIN, _VALIDATION = "ava_train_v2.2.csv", "ava_val_v2.2.csv"
_CLASSES = "ava_action_list_v2.2*.pbtxt"
_EXCLUDED = "ava_val_excluded_timestamps_v2.2.csv"
_DETECTIONS = (
    "ava_val_predicted_boxes.csv",
    "ava_detection_val_boxes_and_labels.csv",
)


@checked
def load_actions(
    dataset: str,
    *,
    num_frames: Count = 16,
    frame_step: Count = 4,
    frame_rate: NotNegative = 30.0,
    channels: Channels = 3,
) -> tuple[TaskSource, TaskSource]:
    """Find AVA; return its training and its evaluation part.

    An example is a clip around a key frame, and the boxes of its persons: of
    training the true ones, of evaluation those of a detector, of at least 0.8.
    Without a file of these the true ones are taken, with a warning. Videos that
    are not there are left out, and without the file of excluded seconds none
    is, both with a warning.

    Args:
        dataset: A folder with the published lists in it or in its
            `annotations`: `ava_train_v2.2.csv`, `ava_val_v2.2.csv`,
            `ava_action_list_v2.2_for_activitynet_2019.pbtxt`,
            `ava_val_excluded_timestamps_v2.2.csv`, and of detected persons
            `ava_val_predicted_boxes.csv` or
            `ava_detection_val_boxes_and_labels.csv`. The videos, `ID.mp4`, lie
            anywhere below, whole or cut to seconds 900 to 1801. Not cut to the
            end of the film: such a length does not show where a video begins.
        num_frames: Frames T of a clip.
        frame_step: Frames of the video from one frame of a clip to the next.
        frame_rate: Frames per second in which these count.
        channels: 1 or 3.

    Returns:
        Two `TaskSource` of the task "actions": "images", uint8 `[H, W, T C]`,
        frame after frame; "boxes", `[n, 4]`; "labels", 0 for each person; and
        "actions", uint8 `[n, K]`, 0 or 1.

    Raises:
        ValueError: If a file is missing or wrong, or none of its videos is
            there.
    """
    dataset = os.path.expanduser(dataset)
    root = _annotations(dataset)
    names, scored = _classes(root)
    videos = videos_below(dataset)
    true = {
        part: _boxes(root / part, len(names)) for part in (_TRAIN, _VALIDATION)
    }
    excluded = _excluded(root / _EXCLUDED)
    detected = _detected(root)
    if detected is None:
        warnings.warn(
            f"{str(root)!r} has no {_DETECTIONS[0]}: actions are evaluated in "
            "the true boxes, which is easier than in detected ones",
            stacklevel=2,
        )
        detected = true[_VALIDATION]
    keys = {*true[_VALIDATION], *detected} - excluded
    clip = (num_frames, frame_step, frame_rate, channels)
    parts = (
        (_TRAIN, sorted(true[_TRAIN]), true[_TRAIN], true[_TRAIN]),
        (_VALIDATION, sorted(keys), detected, true[_VALIDATION]),
    )
    train, evaluation = (
        _source(f"{dataset}/{part}", own, given, targets, names, videos, clip)
        for part, own, given, targets in parts
    )
    ignored = tuple(i for i in range(len(names)) if i not in scored)
    for each in (train, evaluation):
        each["unscored_classes"] = ignored
    return TaskSource(**train), TaskSource(**evaluation)


def _annotations(path):
    for root in (pathlib.Path(path), pathlib.Path(path) / "annotations"):
        if (root / _TRAIN).is_file():
            return root
    raise ValueError(
        f"A folder of AVA must hold {_TRAIN}, or its folder `annotations`. "
        f"Received: {str(path)!r}, without"
    )


def _classes(root):
    """Return the names by class, and the classes that are scored.

    Of two lists that of the longer name, "_for_activitynet_2019", has those
    that are scored, and the other one all names.
    """
    files = sorted(root.glob(_CLASSES), key=lambda file: len(file.name))
    if not files:
        raise ValueError(f"{str(root)!r} must hold {_CLASSES}")
    lists = [_named(file) for file in files]
    found = {n: name for each in lists for n, name in each.items()}
    names = (found.get(n, f"action {n}") for n in range(1, max(found) + 1))
    return tuple(names), {n - 1 for n in lists[-1]}


def _named(file):
    found = {}
    for block in re.findall(r"\{([^}]*)\}", read_text(file)):
        name = re.search(r'\bname:\s*"([^"]*)"', block)
        number = re.search(r"\b(?:label_)?id:\s*(\d+)", block)
        if name is None or number is None or int(number[1]) < 1:
            raise ValueError(
                f"{str(file)!r} must have a `name` and a `label_id` of at "
                f"least 1 of each action. Received: {block.strip()!r}"
            )
        found[int(number[1])] = name[1]
    if not found:
        raise ValueError(
            f"{str(file)!r} must have a `name` and a `label_id` of each "
            "action. Received: none"
        )
    return found


def _rows(file, score=False):
    """Yield (video, second), a box and its action, or its score."""
    for line, cells in read_cells(file):
        try:
            key = cells[0], _second(cells[1])
            box = tuple(map(float, cells[2:6]))
            action = float(cells[7]) if score else int(cells[6])
            x1, y1, x2, y2 = box
            # Detected boxes end a little beyond the frame.
            if not -0.1 <= x1 <= x2 <= 1.1 or not -0.1 <= y1 <= y2 <= 1.1:
                raise ValueError
        except (IndexError, OverflowError, ValueError) as error:
            raise ValueError(
                f"Each line of {str(file)!r} must have a video, a second, the "
                "left, top, right and bottom of a box, in shares of the frame, "
                f"and an action{' or none, and a score' if score else ''}. "
                f"Received: line {line}, {','.join(cells)!r}"
            ) from error
        yield key, box, action


def _second(text):
    if float(text) != int(float(text)):
        raise ValueError(text)
    return int(float(text))


def _boxes(file, count):
    """Return {(video, second): {box: its actions}}."""
    found: dict = {}
    for key, box, action in _rows(file):
        if not 1 <= action <= count:
            raise ValueError(
                f"Actions of {str(file)!r} must be 1 to {count}. Received: "
                f"{action!r} in {key}"
            )
        found.setdefault(key, {}).setdefault(box, []).append(action - 1)
    return found


def _detected(root):
    for name in _DETECTIONS:
        if (root / name).is_file():
            found: dict = {}
            for key, box, score in _rows(root / name, score=True):
                if score >= LEAST_SCORE:
                    found.setdefault(key, {})[box] = []
            return found
    return None


def _excluded(file):
    if not file.is_file():
        warnings.warn(
            f"{str(file)!r} is not there: seconds that the published "
            "evaluation leaves out are counted",
            stacklevel=3,
        )
        return set()
    found = set()
    for line, cells in read_cells(file):
        try:
            video, second = cells
            found.add((video, _second(second)))
        except (OverflowError, ValueError) as error:
            raise ValueError(
                f"Each line of {str(file)!r} must have a video and a second. "
                f"Received: line {line}, {','.join(cells)!r}"
            ) from error
    return found


def _source(name, keys, given, true, names, videos, clip):
    """Return the fields of a `TaskSource`."""
    kept = [key for key in keys if key[0] in videos]
    if not kept:
        raise ValueError(
            f"A video of {name!r} must be there. Received: none of "
            f"{len({video for video, _ in keys})}, such as "
            f"{keys[0][0] if keys else None!r}"
        )
    missing = {video for video, _ in keys} - {*videos}
    if missing:
        warnings.warn(
            f"{len(missing)} videos of {name!r} are not there, such as "
            f"{min(missing)!r}: they are left out",
            stacklevel=4,
        )
    last: dict = {}
    for video, second in kept:
        last[video] = max(second, last.get(video, 0))

    def objects(boxes):
        corners = np.array([*boxes], "float32").reshape(-1, 4).clip(0, 1)
        begin, end = corners[:, :2], corners[:, 2:]
        actions = np.zeros((len(corners), len(names)), "uint8")
        for row, own in zip(actions, boxes.values(), strict=True):
            row[own] = 1
        return dict(
            boxes=np.concatenate([(begin + end) / 2, end - begin], 1),
            labels=np.zeros(len(corners), "int64"),
            actions=actions,
        )

    def load(index):
        video, second = kept[index]
        frames = _clip(videos[video], second, last[video], *clip)
        return dict(images=frames) | objects(given.get(kept[index], {}))

    content = repr([(key, given.get(key), true.get(key)) for key in kept])
    return dict(
        name=name,
        task="actions",
        class_names=names,
        num_examples=len(kept),
        load=load,
        targets=lambda index: objects(true.get(kept[index], {})),
        num_frames=clip[0],
        most_objects=max(len(given.get(key, {})) for key in kept),
        digest=hashlib.blake2b(content.encode(), digest_size=16).hexdigest(),
    )


def _clip(path, second, last, count, step, rate, channels):
    """Return the frames around a second, `[H, W, T C]`.

    A video that ends before `last`, the last listed second, was cut.
    """

    def plan(height, width):
        scale = min(1.0, SIDE / min(height, width))
        return (0, 0, height, width), (
            round(height * scale),
            round(width * scale),
        )

    with video_files.open_video(path, rate) as video:
        if video.seconds < last:
            if not last - CUT_AT <= video.seconds <= LONGEST_CUT:
                raise ValueError(
                    f"it lasts {video.seconds:.2f} seconds, neither as long as "
                    f"its last key frame, second {last}, nor cut to seconds "
                    f"{CUT_AT} to 1801"
                )
            second -= CUT_AT
        numbers = round(second * video.rate) - count * step // 2
        numbers = numbers + np.arange(count) * step
        numbers = np.clip(numbers, 0, video.num_frames - 1)
        frames = video.frames(numbers.tolist())
        pixels = video_files.to_pixels(frames, channels, plan)
    return np.concatenate([*pixels], axis=-1)
