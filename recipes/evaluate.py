"""Measures the accuracy of a classifier on a data set.

python -m recipes.evaluate MODEL --dataset=imagenet2012 --split=validation

MODEL is a .keras file, released weights as CONSTRUCTOR:NAME
(ViTB16:augreg+imagenet2012), or any other checkpoint that
keras_vit.from_pretrained reads. Images are resized directly to the model's
size, as in the authors' evaluation, or as its run evaluated them.

If MODEL is a file of a run on the same data set, the images are those that the
run held out, as config.json beside it says. Of another folder or file without a
part for evaluation a share is held out, too; --split=all takes all images. If
images are measured that MODEL was trained on, the output says how many.

Classes are matched by name. If the data set has the same names in another
order, they are mapped; if it has some of the model's names, as a folder of
ImageNet-A or -R has, predictions are among these. Other names are an error,
unless --by_index declares that the classes of the model and of the data set
have the same order. A model without class names is matched by index, and the
output states this.

For videos, --clips and --crops take several views of each and average their
scores; --highest takes the highest score of each class. An image model is
applied to each frame, and its scores are averaged too. --shuffle_frames
measures a second time with the frames of each clip in random order: a model
that uses time loses accuracy (Fan et al. 2021).

--dataset=imagenet2012_real adds ReaL accuracy: a prediction is correct if it is
among the labels of the reassessed ImageNet validation set. Images without such
labels are left out (Beyer et al. 2020, 2006.07159).

A model with a head is measured on boxes, masks or depth: a folder of COCO's
form, digit_scenes, or coco/2017 of TFDS, each image as `keras-vit predict`
reads it.

--dataset=objectnet --data_dir=objectnet-1.0 measures a classifier of ImageNet
on the 113 classes of ObjectNet that ImageNet has, too (Barbu et al. 2019). The
predictions are among all 1,000 classes.
"""

from recipes import start

if __name__ == "__main__":  # before the imports, which take seconds
    start.main("recipes.evaluate")

import argparse
import collections
import contextlib
import dataclasses
import json
import sys
from typing import Any

import keras
import numpy as np

from keras_vit import data, evaluation
from keras_vit._paths import can_be_written
from keras_vit.export.scores import activation_of
from keras_vit.heads import TaskModel
from keras_vit.weights import class_names
from keras_vit_cli import command, opening, runs
from recipes import evaluate_tasks, experiment, inputs, trained_on

REAL = "imagenet2012_real"
OBJECTNET = "objectnet"


@command.entry
def main(arguments: list[str]) -> int:
    """Evaluate as the command line asks; return 0."""
    parser = _parser()
    options = parser.parse_args(arguments)
    # Before hours of work that would be lost.
    if options.output is not None and not can_be_written(options.output):
        raise ValueError(
            "--output must be a file in a folder that exists and can be "
            f"written. Received: --output={options.output}"
        )
    with contextlib.redirect_stdout(sys.stderr):  # what TFDS prints
        defaults = {x: parser.get_default(x) for x in vars(options)}
        results = _evaluate(options, defaults)
    text = json.dumps(results, indent=2)
    print(text if options.json else _table(results))
    if options.output:
        with open(options.output, "w") as file:
            file.write(text + "\n")
    return 0


def _parser():
    parser = command.Parser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add, count, natural = parser.add_argument, command.count, command.natural
    add("model", metavar="MODEL")
    named = "name of TFDS, folder of images or videos, npz file, digits or "
    add("--dataset", default="imagenet2012", help=f"{named}moving_digits")
    split = (
        "split of TFDS (test or, without labels, validation); else 'train' is "
    )
    split += "what runs train on, 'all' that and what is held out, and of a "
    split += "folder with test and val one of them"
    add("--split", default="", help=split)
    place = "where TFDS keeps data, or the unpacked archive of ObjectNet"
    add("--data_dir", default="", help=place)
    add("--manual_dir", default="", help="where TFDS finds archives")
    resize = "shorter side in pixels before a central crop, 0 for no crop "
    resize += "(that of the run of MODEL, or 0)"
    add("--resize", type=natural, help=resize)
    frames = "frames of a clip (the model's own, or those of its run)"
    add("--num_frames", type=natural, default=0, help=frames)
    add("--clips", type=count, default=1, help="clips of each video (1)")
    crops = "crops of each clip along its longer side (1)"
    add("--crops", type=count, default=1, help=crops)
    add("--batch_size", type=count, default=64, help="images at a time (64)")
    for name, meaning in (
        ("try_gcs", "read TFDS from Google Cloud"),
        ("shuffle_frames", "measure on clips with shuffled frames as well"),
        ("highest", "take the highest score of the views, not the average"),
        ("by_index", "match classes by their order, regardless of names"),
        ("json", "print JSON, no table"),
        ("zero_is_ignored", "masks of classes count from 1, as in a run's"),
    ):
        add(f"--{name}", action="store_true", help=meaning)
    share = "share held out where a set has no part for evaluation (that of "
    share += "the run of MODEL on this data set, or 0.2)"
    add("--eval_fraction", type=float, help=share)
    split_seed = "seed of drawing the held-out part (that of the run, or 0)"
    add("--split_seed", type=natural, help=split_seed)
    add("--seed", type=natural, help="seed of --shuffle_frames (0)")
    step = "frames of a video between those of a clip (that of the run of "
    step += "MODEL); 0 takes the middle of as many segments of the video"
    add("--frame_step", type=natural, help=step)
    rate = "frames per second of --frame_step (that of the run of MODEL, or 0, "
    add("--frame_rate", type=float, help=f"{rate}each file's own)")
    unit = "metres of 1 in a PNG of depth (that of the run of MODEL, or 0.001)"
    add("--depth_unit", type=float, help=unit)
    output = "write JSON to a file as well"
    add("--output", metavar="RESULTS.json", help=output)
    return parser


def _evaluate(options, defaults):
    model = opening.load(options.model)
    if isinstance(model, TaskModel):
        return evaluate_tasks.measure(model, options, defaults)
    for name in ("zero_is_ignored", "depth_unit"):
        if getattr(options, name):
            raise ValueError(
                f"--{name} needs a model with a head. Received: "
                f"--{name}={getattr(options, name)} for {options.model!r}"
            )
    opening.check_classifier(options.model, model)
    opening.check_pixels(options.model, model)
    # Derived from the loss, which a reordered model does not have.
    activation = activation_of(model)
    counts_as = real_labels = None
    if options.dataset == OBJECTNET:
        source, counts_as = evaluation.load_objectnet(options.data_dir)
    else:
        source, real_labels = _load_data(options)
    overlap = trained_on.overlap(source, options.dataset, options.model)
    _refuse_unused(options, source)
    if options.shuffle_frames and (not source.is_video or source.multi_label):
        raise ValueError(
            "--shuffle_frames needs a data set of videos of one class each. "
            f"Received: --dataset={options.dataset}"
        )
    frames = options.num_frames
    if source.is_video and len(model.input_shape) == 4:
        run = runs.config_of(options.model)
        frames = frames or run.get("num_frames", 0)
    num_frames = inputs.num_frames(model, source, frames)
    num_classes = len(source.class_names)
    model, matched = _match_classes(model, source, options)
    batches, model, activation = _views(
        model, source, num_frames, activation, options
    )
    with inputs.naming_broken_files(source):
        if source.multi_label:
            best, found = None, _measure_multi_label(model, batches)
        else:
            best, found = _measure(
                model, batches, num_classes, activation, counts_as
            )
    results = dict(
        model=options.model,
        dataset=source.name,
        images=found.pop("images"),
        kind="videos" if source.is_video else "images",
        classes=matched,
        **found,
        overlap=overlap,
    )
    if counts_as is not None:
        results["loss_note"] = "of the first of the classes that are right"
    elif not source.multi_label:
        results["loss_note"] = _loss_note(options.model)
    if options.shuffle_frames:
        shuffled = data.shuffle_frames(batches, options.seed or 0)
        _, again = _measure(model, shuffled, num_classes, activation)
        results["shuffled_top_1"] = again["top_1"]
    if best is not None and real_labels is not None:
        real, counted = evaluation.real_accuracy(best, real_labels)
        results |= dict(real=real, real_images=counted)
    return results


def _refuse_unused(options, source):
    """Refuse options that would have no effect."""
    several = options.clips * options.crops > 1
    for name, is_used, needed in (
        ("frame_step", source.is_video, "a data set of videos"),
        (
            "frame_rate",
            source.is_video and source.paths is not None,
            "a data set of video files",
        ),
        ("seed", options.shuffle_frames, "--shuffle_frames"),
        ("highest", several, "several views, by --clips or --crops"),
    ):
        value = getattr(options, name)
        if value is not None and value is not False and not is_used:
            raise ValueError(
                f"--{name} needs {needed}. Received: --{name}={value} for "
                f"--dataset={options.dataset} without"
            )


def _loss_note(model):
    """Return why the loss differs from the one in the run's metrics.csv."""
    run = trained_on.config_beside(model)
    optim = experiment.Optim() if run is None else run.optim
    differ = []
    if optim.loss != "softmax":
        differ.append(f"loss={optim.loss}")
    if optim.label_smoothing:
        differ.append(f"label_smoothing={optim.label_smoothing:g}")
    return f"metrics.csv has it with {' and '.join(differ)}" if differ else ""


def _measure_multi_label(model, batches):
    """Return the metrics of images with several labels."""
    scores, targets = evaluation.scores_and_targets(model, batches)
    mean, of_classes = evaluation.mean_average_precision(scores, targets)
    return dict(
        images=len(scores),
        precision_at_1=evaluation.precision_at_1(scores, targets),
        mean_average_precision=mean,
        classes_with_images=int(np.isfinite(of_classes).sum()),
    )


def _measure(model, batches, num_classes, activation, counts_as=None):
    """Return the model's predictions, and its accuracies and loss.

    `counts_as` gives the class that each class counts as.
    """
    best, losses, labels = evaluation.predictions(
        model,
        batches,
        top_k=min(5, num_classes),
        from_logits=activation != "none",
    )
    right = (best if counts_as is None else counts_as[best]) == labels[:, None]
    return best[:, 0], dict(
        images=len(labels),
        top_1=float(right[:, 0].mean()),
        top_5=float(right.any(axis=1).mean()),
        loss=float(losses.mean(dtype="float64")),
    )


def _views(model, source, num_frames, activation, options):
    """Return batches of a source, a model for them, and an activation.

    The activation is the one that the model's scores still need.
    """
    clips = {}
    resize = options.resize
    if resize is None:
        resize = runs.config_of(options.model).get("eval_resize", 0)
    if source.is_video:
        step, rate = runs.clip_frames(
            options.model, options.frame_step, options.frame_rate
        )
        clips = dict(frame_step=step, frame_rate=rate)
    batches = data.eval_batches(
        source,
        batch_size=options.batch_size,
        image_size=model.input_shape[-3:-1],
        channels=model.input_shape[-1],
        num_frames=num_frames,
        **clips,
        num_clips=options.clips,
        num_crops=options.crops,
        resize=resize,
    )
    if num_frames and len(model.input_shape) == 4:
        model = evaluation.average_scores(model, num_frames)
    num_views = options.clips * options.crops
    if num_views > 1 and options.highest:
        model = evaluation.highest_scores(model, num_views)
    elif num_views > 1:
        # Probabilities are averaged, as in the authors' code.
        activation = None if activation == "none" else activation
        model = evaluation.average_scores(model, num_views, activation)
        activation = "none"
    return batches, model, activation


def _match_classes(model, source, options):
    """Return a model with the data set's class order, and how it matched."""
    of_model, names = model.get_layer("head").class_names, source.class_names
    count = model.output_shape[1]
    # Names that were given to numbers say nothing of the classes.
    numbered = names == tuple(map(str, range(len(names))))
    if count != len(names) and (
        options.by_index or of_model is None or numbered
    ):
        raise ValueError(
            f"MODEL must have the {len(names)} classes of {source.name!r}, or "
            "their names among its own. Received: "
            f"{options.model!r}, with {count} classes"
        )
    if options.by_index:
        return model, "by index, as requested"
    if of_model is None:
        return model, "by index, because the model has no class names"
    of_model, names = (
        class_names.as_synsets(of_model),
        class_names.as_synsets(names),
    )
    if of_model == names:
        return model, "by name"
    once = {
        x for x, times in collections.Counter(of_model).items() if times == 1
    }
    if len(set(names)) == len(names) and once.issuperset(names):
        order = [of_model.index(name) for name in names]
        scores = keras.ops.take(model.output, order, axis=-1)
        how = "in another order"
        if count != len(names):
            how = f"{len(names)} of the model's {count}"
        return keras.Model(model.input, scores), f"by name, {how}"
    raise ValueError(
        f"MODEL must have the class names of {source.name!r}. Received: "
        f"{options.model!r}, with other names:\n"
        f"  only in the model: {_some(set(of_model) - set(names))}\n"
        f"  only in the data set: {_some(set(names) - set(of_model))}\n"
        f"  several times in the model: {_some(set(of_model) - once)}\n"
        "Pass --by_index if the classes are the same, in the same order."
    )


def _some(names, limit=5):
    shown = ", ".join(repr(name) for name in sorted(names)[:limit])
    return shown + (f" and {len(names) - limit} more" * (len(names) > limit))


def _load_data(options):
    """Return the images, and their ReaL labels if the data set has any."""
    places = dict(
        data_dir=options.data_dir,
        manual_dir=options.manual_dir,
        try_gcs=options.try_gcs,
    )
    if options.dataset.split(":")[0] == REAL:
        return evaluation.load_real(
            options.split or "validation", name=options.dataset, **places
        )
    config = trained_on.config_beside(options.model)
    run: Any = experiment.Data() if config is None else config.data
    if not trained_on.same_dataset(run.dataset, options.dataset):
        run = experiment.Data()
    for name, value in places.items():
        places[name] = value or getattr(run, name)
    fraction, seed = options.eval_fraction, options.split_seed
    split, by_name = options.split, data.sources.has_splits(options.dataset)
    in_training = split in ("train", "all") and not by_name
    # Of what is not evaluated on; some sets have no split `train`.
    unused = "all" if data.sources.is_of_tfds(options.dataset) else ""
    train, held_out = data.load(
        options.dataset,
        train_split=(split or unused) if by_name else "",
        eval_split="" if in_training else split or run.eval_split,
        eval_fraction=run.eval_fraction if fraction is None else fraction,
        seed=run.split_seed if seed is None else seed,
        broken=run.broken,  # what is left out changes what is held out
        **places,
    )
    data.warn_if_scaled(held_out)
    if train.ignored or held_out.ignored:
        print(data.describe_ignored(train, held_out), file=sys.stderr)
    if in_training:
        return (_together(train, held_out) if split == "all" else train), None
    if not (by_name or split):
        total = train.num_examples + held_out.num_examples
        print(
            f"Measures the {held_out.num_examples} of {total} examples of "
            f"{held_out.name!r} that are held out; --split=all takes all",
            file=sys.stderr,
        )
    return held_out, None


def _together(train, held_out):
    """Return the examples of both parts of a data set."""
    parts = train, held_out
    if train.stream is not None or train.image_shape != held_out.image_shape:
        raise ValueError(
            "--split=all needs files, or arrays of one size. Received: "
            f"{train.name!r}"
        )
    return dataclasses.replace(
        train,
        num_examples=sum(part.num_examples for part in parts),
        labels=np.concatenate([part.labels for part in parts]),
        paths=train.paths and train.paths + held_out.paths,
        images=None
        if train.images is None
        else np.concatenate([part.images for part in parts]),
    )


def _table(results):
    if "task" in results:
        return evaluate_tasks.table(results)
    count, kind = results["images"], results["kind"]
    lines = [
        f"{count} {kind.removesuffix('s') if count == 1 else kind} of "
        f"{results['dataset']}, classes matched {results['classes']}",
    ]
    if results["overlap"]:
        lines.append(f"  WARNING: {results['overlap']}")
    if "mean_average_precision" in results:
        return "\n".join(
            [
                *lines,
                f"  mAP    {results['mean_average_precision']:.2%} of "
                f"{results['classes_with_images']} classes with {kind}",
                f"  P@1    {results['precision_at_1']:.2%}",
            ]
        )
    lines += [
        f"  top-1  {results['top_1']:.2%}",
        f"  top-5  {results['top_5']:.2%}",
        f"  loss   {results['loss']:.4f}  {results['loss_note']}".rstrip(),
    ]
    if "shuffled_top_1" in results:
        lines.append(
            f"  top-1  {results['shuffled_top_1']:.2%} with the frames of each "
            "clip shuffled"
        )
    if "real" in results:
        lines.append(
            f"  ReaL   {results['real']:.2%} of {results['real_images']} "
            "images with a label"
        )
    return "\n".join(lines)
