"""Trains a model with a head: objects, segments, depth, or what persons do."""

import contextlib
import functools
import pathlib
import re
import shlex

import keras
import numpy as np

from keras_vit import data, evaluation, heads, training
from keras_vit.data.optional_imports import tensorflow
from keras_vit.evaluation.task_scores import BEST_BY
from keras_vit.inspection import figures, task_figures
from recipes import begin, fitting, inputs, scored, training_step
from recipes import workdir as workdirs
from recipes.task_settings import SETS, Config, check, head_of

# Images in predictions.png and in examples/.
NUM_SHOWN = 8
# What `interpret` makes of the outputs of EoMT.
KINDS = dict(segmentation="semantic", instances="instance", panoptic="panoptic")


def run(config: Config, workdir: pathlib.Path) -> dict[str, float]:
    """Train and save a model with a head, and draw what it finds.

    Returns:
        Loss, scores and step of the last evaluation, and those of the best one
        as "best_loss" and so on.
    """
    check(config)
    with fitting.opened(config, workdir) as (devices, finished):
        train, evaluated = load(config)
        info = dataset_info(config, train)
        described = scored.described(config.data.dataset, train, evaluated)
        workdirs.refuse_other_data(workdir, described)
        batches = pipelines(config, info, train, evaluated)
        if not finished:
            with _naming_wrong_examples():
                _train(
                    *(config, workdir, devices, info),
                    *((train, evaluated), described),
                )
        best_by = BEST_BY[config.task.name]
        log = workdir / "metrics.csv"
        results = fitting.results(log, best_by)
        if devices.is_main:
            figures.plot_curves(log, workdir / "curves.png")
            examples = _draw(workdir, evaluated, batches[1])
            _report(workdir, results, best_by, examples)
    return results


@contextlib.contextmanager
def _naming_wrong_examples():
    """Replace an error of the pipeline by the one of its example."""
    try:
        yield
    except tensorflow().errors.OpError as error:
        # Of Python, or of an assertion, whose parts are in brackets.
        found = re.search(
            r"ValueError: (.*)|assertion failed: \[(.*)\]", error.message
        )
        if found is None:
            raise
        text = found[1] or found[2].replace("] [", " ").replace("\\'", "'")
        raise ValueError(text) from None


def load(config: Config) -> tuple[data.TaskSource, data.TaskSource]:
    """Return the training and the evaluation part of the data set.

    Raises:
        ValueError: See `keras_vit.data.load_task`.
    """
    source, task = config.data, config.task
    if task.name == "actions":
        return data.load_actions(
            source.dataset,
            num_frames=inputs.frames_of(config),
            frame_step=source.frame_step,
            frame_rate=source.frame_rate,
            channels=source.channels or 3,
        )
    return data.load_task(
        source.dataset,
        task.name,  # type: ignore[arg-type]
        **inputs.parts(source),
        broken=source.broken,  # type: ignore[arg-type]
        zero_is_ignored=task.zero_is_ignored,
        depth_unit=task.depth_unit,
    )


def dataset_info(config: Config, train: data.TaskSource) -> inputs.DatasetInfo:
    """Return the properties of the data set that the experiment uses."""
    return inputs.DatasetInfo(
        image_size=inputs.image_size(config, train),
        channels=config.data.channels or (train.image_shape or (3,))[-1],
        class_names=train.class_names,
        train_images=train.num_examples,
        num_frames=train.num_frames,
    )


def planned(config: Config, info: inputs.DatasetInfo) -> tuple:
    """Return the objective of a config, and what makes its symbolic batch."""
    targets = {
        name: keras.Input(shape, name=name, dtype=dtype)
        for name, (shape, dtype) in _targets(config, info).items()
    }
    made = objective(config, info.class_names)
    return made, lambda model: (model.input, targets)


def _targets(config, info):
    """Return the shape and type of what the loss reads of an image."""
    size = tuple(info.image_size)
    count = config.task.max_objects or config.task.num_queries
    if head_of(config) == "yolos":
        boxes = (count, 4), "float32"
        return dict(boxes=boxes, labels=((count,), "int32"))
    if head_of(config) == "eomt":
        masks = (count, *size), "uint8"
        return dict(masks=masks, labels=((count,), "int32"))
    if config.task.name == "depth":
        return dict(depth=(size, "float32"))
    if config.task.name == "actions":
        actions = (count, len(info.class_names)), "uint8"
        return dict(actions=actions, labels=((count,), "int32"))
    return dict(classes=(size, "uint8"))


def pipelines(config, info, train, evaluated):
    """Return functions that make batches, as `inputs.pipelines` does."""
    task = config.task
    common = dict(
        batch_size=config.data.batch_size,
        image_size=info.image_size,
        channels=info.channels,
        max_objects=task.max_objects or task.num_queries,
        as_masks=head_of(config) == "eomt",
    )

    def train_batches(start_step, *shard):
        return data.task_batches(
            train,
            **common,
            seed=config.seed,
            start_step=start_step,
            scales=tuple(task.scales),
            # As the images on which the run is scored, and those of `predict`.
            keep_ratio=task.eval_view != "stretched",
            fill=128 if task.eval_view == "stretched" else 0,
            flip=config.data.flip,
            colours=task.colours,
            **inputs.shard_options(*shard),
        )

    def eval_batches(*shard):
        return data.task_eval_batches(
            evaluated,
            **common,
            padded=task.eval_view == "padded",
            **inputs.shard_options(*shard),
        )

    return functools.cache(train_batches), functools.cache(eval_batches)


def objective(
    config: Config, class_names: tuple[str, ...]
) -> training_step.Objective:
    """Return the head and the loss of a task."""
    task, name = config.task, head_of(config)
    options: dict = {}
    if task.name != "depth":
        options["class_names"] = class_names
    if name in SETS:
        options["auxiliary_blocks"] = task.auxiliary_blocks
    if name == "yolos":
        options |= dict(
            num_detection_tokens=task.num_queries,
            mid_positions=task.mid_positions,
            anchors=task.anchors,
            patch_classes=task.patch_classes,
        )
        loss: training.TaskLoss = training.SetDetectionLoss(
            no_object_weight=task.no_object_weight
        )
    elif name == "eomt":
        options |= dict(
            num_queries=task.num_queries,
            num_blocks=task.num_blocks,
            kind=KINDS[task.name],
            view=task.eval_view,
        )
        loss = training.SetSegmentationLoss(
            no_object_weight=task.no_object_weight,
            num_points=task.num_points,
            seed=config.seed,
        )
    elif task.name == "depth":
        loss = training.MetricDepthLoss()
    elif task.name == "actions":
        loss = training.ActionLoss()
    else:
        loss = training.PixelCrossentropy()
    if name == "dpt" and task.head_width:
        options["fusion_size"] = task.head_width
        options["neck_sizes"] = (task.head_width,) * 4
    return training_step.Objective(
        loss=loss,
        predictor=heads.mask_attention
        if task.masked_attention
        else training_step.second,
        include_top=False,
        best_by=BEST_BY[task.name],
        add_head=functools.partial(getattr(heads, name), **options),
    )


def _train(config, workdir, devices, info, sources, described):
    """Build the model, write config.json, and train."""
    train, evaluated = sources
    batches = pipelines(config, info, train, evaluated)
    eval_steps = fitting.check_batches(batches)
    devices.check_batch(config.data.batch_size, config.run.micro_batches)
    with devices.scope():
        built = training_step.build(
            config, info, devices.kind, objective(config, train.class_names)
        )
    begin.record(
        *(config, workdir, devices, info, built, described),
        size=info.pixels,
        model=f"with the head {head_of(config)}",
        examples="clips" if info.num_frames else "images",
    )
    view = config.task.eval_view
    shown = batches[1]()
    if view == "windows":
        shown = data.task_windows(
            evaluated, side=info.image_size[0], channels=info.channels
        )
    measured = evaluation.TaskScores(
        evaluated, shown, built.model, padded=view == "padded"
    )
    callbacks: tuple[keras.callbacks.Callback, ...] = (measured,)
    if config.task.masked_attention:
        callbacks += (training.MaskAnnealing(built.total_steps),)
    fitting.fit(
        built,
        config,
        devices,
        workdir,
        batches,
        eval_steps=eval_steps,
        train_source=train,
        measurements=callbacks,
    )


def _draw(workdir, evaluated, batches):
    """Draw what the last model finds, and write the images; return paths."""
    model = keras.models.load_model(workdir / "last.keras", compile=False)
    step = max(1, evaluated.num_examples // NUM_SHOWN)
    shown = (
        batches()
        .unbatch()
        .filter(lambda x: (x["index"] >= 0) & (x["index"] % step == 0))
    )
    images = keras.tree.map_structure(
        lambda *each: np.stack(each),
        *(x["images"] for x in shown.take(NUM_SHOWN).as_numpy_iterator()),
    )
    found = model.interpret(model.predict(images, verbose=0))
    if evaluated.task == "actions":
        clips = images["videos"]
        images = clips[:, clips.shape[1] // 2]
    task_figures.plot_task(
        list(images), found, workdir / "predictions.png", model.class_names
    )
    if evaluated.task == "actions":  # the boxes are in no file of images
        return []
    return scored.save_examples(workdir, images[:3])


def _report(workdir, results, best_by, examples):
    """Print the scores, and how to use the model."""
    scored.say_scores(results, best_by)
    print(f"{workdir / 'predictions.png'} shows what the model finds.")
    if not examples:
        return
    command = ["keras-vit", "predict", str(workdir / "last.keras"), *examples]
    command += ["--drawing", str(workdir / "found.png")]
    print(f"Use it:\n  {shlex.join(command)}", flush=True)
