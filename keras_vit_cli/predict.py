"""Classifies images or videos, or finds what a model with a head finds."""

import csv
import glob
import json
import math
import os
import sys

import numpy as np

import keras_vit
from keras_vit.data import video_files
from keras_vit.inspection import figures
from keras_vit.text import TwoTowers
from keras_vit_cli import files, opening, predict_tasks, predict_video, words
from keras_vit_cli.rows import as_objects, best, print_table


def run(options) -> int:
    """Predict as the command line asks; return 1 if a file is not read."""
    _check_options(options)
    if not any(
        os.path.exists(name) or glob.glob(name, recursive=True)
        for name in options.images
    ):
        # Noticed here, since loading a model may download its weights.
        raise ValueError(
            "IMAGE must be a file, a folder or a pattern. Received: "
            f"{' '.join(options.images)!r}, which is not there"
        )
    model = (
        None
        if opening.is_savedmodel(options.model)
        else opening.load(options.model)
    )
    if isinstance(model, TwoTowers):
        templates = options.templates or words.TEMPLATE
        model = words.model_of(model, options.classes, templates)
    elif options.classes is not None:
        raise ValueError(
            "--classes needs a model with a text tower, such as CLIP's. "
            f"Received: {options.model!r}"
        )
    classifier = opening.asked(options.model, model)
    takes_video = getattr(classifier, "takes_video", False)
    if not takes_video:
        _refuse(options, ("frame_step", "frame_rate"), "a model of videos")
    if hasattr(classifier, "find"):
        _refuse(options, ("top_k",), "a classifier")
        return predict_tasks.run(
            options, classifier, files.find(options.images)
        )
    if options.drawing or options.score is not None:
        raise ValueError(
            "--drawing and --score need a model with a head of "
            "keras_vit.heads; --attention shows where a classifier looked. "
            f"Received: {options.model!r}"
        )
    if options.attention:
        _check_attention(classifier)
    options.top_k = options.top_k or 5
    options.format = options.format or "table"
    if takes_video:
        paths = files.find(options.images, video_files.EXTENSIONS)
        return predict_video.run(options, classifier, paths)
    return _classify(options, classifier, files.find(options.images))


def _classify(options, classifier, paths):
    """Print the classes of images; return 1 if a file is not read."""
    print_row = _printer(options.format)
    shown, broken = [], 0
    for i in range(0, len(paths), options.batch_size):
        batch = paths[i : i + options.batch_size]
        for path, image, scores in classifier.predict(batch):
            if isinstance(scores, str):
                broken += 1
                print(scores, file=sys.stderr)
                if options.format == "jsonl":
                    print(json.dumps(dict(image=path, error=scores)))
                continue
            rows = best(classifier.names, scores, options.top_k)
            print_row(path, rows)
            if options.attention:
                shown.append((image, rows[0]))
        if sys.stderr.isatty():
            done = min(i + options.batch_size, len(paths))
            print(f"Read {done} of {len(paths)}", file=sys.stderr)
    if shown:
        images = np.stack([image for image, _ in shown])
        figures.plot_attention(
            images,
            _attention(classifier.model, images, options.batch_size),
            [f"{name} {score:.0%}" for _, (_, name, score) in shown],
            options.attention,
        )
        print(f"Where the model looked: {options.attention}", file=sys.stderr)
    return 1 if broken else 0


def _printer(kind):
    """Return what prints an image's (index, name, score) rows."""
    writer = csv.writer(sys.stdout)
    if kind == "csv":
        writer.writerow(["image", "rank", "index", "class", "score"])

    def lines(path, rows):
        for rank, (index, name, score) in enumerate(rows, 1):
            writer.writerow([path, rank, index, name, f"{score:.6g}"])

    def objects(path, rows):
        print(json.dumps(dict(image=path, predictions=as_objects(rows))))

    return dict(table=print_table, csv=lines, jsonl=objects)[kind]


def _check_options(options):
    """Refuse what is wrong whatever the model is."""
    rate = options.frame_rate
    if rate is not None and not 0 <= rate < math.inf:
        raise ValueError(
            f"--frame_rate must be at least 0. Received: --frame_rate={rate}"
        )
    if options.score is not None and math.isnan(options.score):
        raise ValueError("--score must be a number. Received: --score=nan")
    for name in ("attention", "drawing"):
        if getattr(options, name) is not None:
            files.check_picture(name, getattr(options, name))
    if options.templates is not None and not options.classes:
        raise ValueError(
            "--templates needs --classes, the names to put into them. "
            f"Received: --templates={options.templates!r} alone"
        )


def _refuse(options, names, needed):
    """Refuse options that the model would ignore."""
    for name in names:
        value = getattr(options, name)
        if value is not None:
            raise ValueError(
                f"--{name} needs {needed}. Received: --{name}={value} for "
                f"{options.model!r}, which is none"
            )


def _check_attention(classifier):
    if not isinstance(classifier, opening.KerasClassifier):
        raise ValueError(
            "--attention needs a .keras file or weights: a SavedModel does "
            "not give its attention. Received a SavedModel"
        )
    if not keras_vit.inspection.has_rollout(classifier.model):
        raise ValueError(
            "--attention needs a model with attention among tokens. "
            f"Received a model named {classifier.model.name}, which has none"
        )


def _attention(model, images, batch_size):
    return np.concatenate(
        [
            keras_vit.inspection.attention_rollout(
                model, images[i : i + batch_size]
            )
            for i in range(0, len(images), batch_size)
        ]
    )
