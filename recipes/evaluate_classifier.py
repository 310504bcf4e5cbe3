"""Measures a classifier, for `recipes.evaluate`."""

import collections
import dataclasses
import sys
from typing import Any

import keras
import numpy as np

from keras_vit import data, evaluation
from keras_vit.export.scores import activation_of
from keras_vit.weights import class_names
from keras_vit_cli import opening, runs
from recipes import experiment, inputs, trained_on

REAL = "imagenet2012_real"
OBJECTNET = "objectnet"


def measure(model: keras.Model, options, defaults: dict) -> dict:
    """Return the accuracy of a model, and what it was measured on.

    Args:
        model: The model.
        options: Those of the command line of `recipes.evaluate`.
        defaults: Values of the options that were not given.

    Raises:
        ValueError: If the model is no classifier, its classes are others than
            those of the data set, or an option has no effect.
    """
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
    _refuse_unused(options, defaults, source)
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


def _refuse_unused(options, defaults, source):
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
        ("zero_is_ignored", False, "a model with a head"),
        ("depth_unit", False, "a model with a head"),
    ):
        value = getattr(options, name)
        if value != defaults[name] and not is_used:
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


def table(results: dict) -> str:
    """Return the results as lines of text."""
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
