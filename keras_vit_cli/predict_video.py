"""Classifies videos over time, and draws the model's attention."""

import csv
import json
import sys

import numpy as np

from keras_vit import inspection
from keras_vit.data import video_files
from keras_vit.data.clips import Sampling, frame_numbers
from keras_vit.inspection import figures
from keras_vit_cli import runs
from keras_vit_cli.rows import as_objects, best, print_table

# Clips in the figure of attention.
NUM_DRAWN = 12


def run(options, classifier, paths: list[str]) -> int:
    """Predict for each clip of each file, one after the other in time.

    Args:
        classifier: A `opening.KerasClassifier` of videos.

    Returns:
        The exit status: 1 if a file could not be read, else 0.

    Raises:
        ValueError: If nothing states the frames of a clip.
    """
    step, rate = runs.clip_frames(
        options.model, options.frame_step, options.frame_rate
    )
    num_frames = classifier.model.input_shape[1]
    sampling = Sampling(num_frames=num_frames, step=step, rate=rate)
    print_video = _printer(options.format)
    drawn, broken = [], 0
    for path in paths:
        times, scores, shown = [], [], []
        try:
            for batch, clips in _read(
                path, classifier.model, sampling, options.batch_size
            ):
                times += batch
                scores += [*classifier.scores(clips)]
                # Of long videos not all clips fit into memory.
                shown += [*clips[: NUM_DRAWN - len(drawn) - len(shown)]]
        except ValueError as error:
            broken += 1
            print(error, file=sys.stderr)
            if options.format == "jsonl":
                print(json.dumps(dict(video=path, error=str(error))))
            continue
        rows = [best(classifier.names, each, options.top_k) for each in scores]
        mean = np.mean(scores, axis=0)
        overall = best(classifier.names, mean, options.top_k)
        print_video(path, overall, list(zip(times, rows, strict=True)))
        # Of fewer clips than rows, if enough are shown.
        drawn += zip(times, shown, [row[0] for row in rows], strict=False)
    if options.attention and drawn:
        _draw(classifier.model, drawn, options.attention)
        print(f"Where the model looked: {options.attention}", file=sys.stderr)
    return 1 if broken else 0


def _clips(count, sampling):
    """Return the first frame of each clip, its end, and its frames.

    The clips follow each other; the last one ends with the video, and may
    begin before the end of the one before.
    """
    if not sampling.step:
        numbers = frame_numbers(0.5, count, sampling).numpy()
        return [(0, count, numbers)]
    latest = max(0, count - sampling.span)
    starts = {*range(0, latest, sampling.span), latest}
    offsets = np.arange(sampling.num_frames) * sampling.step
    return [
        (first, min(first + sampling.span, count), first + offsets)
        for first in sorted(starts)
    ]


def _read(path, model, sampling, batch_size):
    """Yield the start and end of clips in seconds, and the clips."""
    height, width, channels = model.input_shape[2:]

    def plan(*size):
        return (0, 0, *size), (height, width)

    with video_files.open_video(path, sampling.rate) as video:
        chosen = _clips(video.num_frames, sampling)
        for i in range(0, len(chosen), batch_size):
            times, clips = [], []
            for first, end, numbers in chosen[i : i + batch_size]:
                frames = video.frames(numbers.tolist())
                clips.append(video_files.to_pixels(frames, channels, plan))
                times.append((first / video.rate, end / video.rate))
            yield times, np.stack(clips)


def _printer(kind):
    """Return what prints the rows of a video and of its clips."""
    writer = csv.writer(sys.stdout)
    if kind == "csv":
        columns = ["start", "end", "rank", "index", "class", "score"]
        writer.writerow(["video", *columns])

    def table(path, overall, clips):
        print_table(path, overall)
        for (start, end), rows in clips:
            _, name, score = rows[0]
            print(f"  {start:7.2f} to {end:.2f} s  {score:7.2%}  {name}")

    def lines(path, overall, clips):
        for (start, end), rows in clips:
            for rank, (index, name, score) in enumerate(rows, 1):
                times = f"{start:.3f}", f"{end:.3f}"
                writer.writerow(
                    [path, *times, rank, index, name, f"{score:.6g}"]
                )

    def objects(path, overall, clips):
        found = [
            dict(start=start, end=end, predictions=as_objects(rows))
            for (start, end), rows in clips
        ]
        predictions = as_objects(overall)
        print(
            json.dumps(dict(video=path, predictions=predictions, clips=found))
        )

    return dict(table=table, csv=lines, jsonl=objects)[kind]


def _draw(model, drawn, out_path):
    clips = np.stack([clip for _, clip, _ in drawn])
    attention = [
        inspection.attention_rollout(model, clip[None]) for clip in clips
    ]
    titles = [
        f"{start:.2f} to {end:.2f} s: {name} {score:.0%}"
        for (start, end), _, (_, name, score) in drawn
    ]
    figures.plot_clips(clips, np.concatenate(attention), titles, out_path)
