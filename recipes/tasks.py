"""Trains a model with a head: objects, segments, depth, or what persons do."""

import contextlib
import dataclasses
import functools
import os
import pathlib
import re
import shlex

import keras
import numpy as np

from keras_vit import data, evaluation, heads, training
from keras_vit.data.optional_imports import tensorflow
from keras_vit.evaluation.task_scores import BEST_BY
from keras_vit.inspection import figures, task_figures
from recipes import (
    begin,
    checks,
    experiment,
    fitting,
    inputs,
    scored,
    training_step,
)
from recipes import workdir as workdirs

HEADS = dict(
    detection=("yolos",),
    segmentation=("eomt", "linear", "dpt"),
    instances=("eomt",),
    panoptic=("eomt",),
    depth=("dpt",),
    actions=("actions",),
)
# Images in predictions.png and in examples/.
NUM_SHOWN = 8
# How images get the size of the model in evaluation.
EVAL_VIEWS = ("stretched", "padded", "windows")
# What `interpret` makes of the outputs of EoMT.
KINDS = dict(segmentation="semantic", instances="instance", panoptic="panoptic")
# What only classification has; another value than the default is refused.
UNUSED = (
    *("model.head_bias", "optim.loss", "optim.label_smoothing"),
    *("evaluation.fewshot_dataset", "run.micro_batches"),
    *(
        f"data.{name}"
        for name in (
            "manual_dir try_gcs exclude dev_fraction shots train_images cache "
            "crop min_area pad resize eval_resize augment repeats"
        ).split()
    ),
)
# And what only videos have, or only images.
OF_CLIPS = ("data.num_frames", "data.frame_step", "data.frame_rate")
OF_IMAGES = (
    *("data.train_split", "data.eval_split", "data.data_dir", "data.broken"),
    *("data.eval_fraction", "data.split_seed"),
)

# The heads that read a field of `Task`; others refuse it.
SETS = ("yolos", "eomt")
READ_BY = {
    "head_width": ("dpt",),
    "num_queries": (*SETS, "actions"),
    "max_objects": (*SETS, "actions"),
    "auxiliary_blocks": SETS,
    "num_blocks": ("eomt",),
    "mid_positions": ("yolos",),
    "anchors": ("yolos",),
    "patch_classes": ("yolos",),
    "num_points": ("eomt",),
    "no_object_weight": SETS,
}
# Those that only folders of one's own need.
OF_FOLDERS = ("task.zero_is_ignored", "task.depth_unit")
# And those that only one task reads.
OF_TASK = {"zero_is_ignored": "segmentation", "depth_unit": "depth"}


@dataclasses.dataclass(kw_only=True, slots=True)
class Task:
    """A task with an answer for each place of an image; `data.dataset` has it.

    Attributes:
        name: "detection", "instances", "panoptic", "segmentation" or "depth";
            or "actions", what persons do in videos (AVA).
        head: "yolos" for detection, "eomt" for masks, "eomt" or "linear" for
            segmentation, "dpt" for segmentation and depth, "actions"; "" is
            the first of these.
        head_width: Channels of the fused maps of "dpt"; 0 is 256.
        num_queries: Most objects that are found in an image, or most classes.
        max_objects: Most objects of an image of the data set; 0 is
            `num_queries`.
        auxiliary_blocks: Blocks, counted from 1, that are trained to predict as
            well.
        num_blocks: Last blocks through which the queries of "eomt" run.
        masked_attention: Whether these blocks of "eomt" are trained with masks,
            which are annealed, and to predict before each of them. The saved
            model has neither.
        mid_positions: Whether "yolos" learns positions after each block.
        anchors: Whether the tokens of "yolos" begin at places of a grid.
        patch_classes: Whether "yolos" is trained to class the patches as well.
        num_points: Points at which masks are compared.
        no_object_weight: Weight of "no object" in the loss.
        scales: The least and the largest size of a training image relative to
            `data.image_size`, which is cropped or padded. Images keep the ratio
            of their sides unless they are evaluated "stretched".
        colours: The largest relative change of brightness, contrast and
            saturation in training, and ten times that of hue.
        eval_view: How images get the size of the model in evaluation, and in
            `find_in` and `keras-vit predict`: "stretched", "padded" (EoMT; the
            ratio is kept) or "windows" (segmentation with EoMT; the shorter
            side is the model's).
        zero_is_ignored: Whether masks count classes from 1, with 0 where a
            pixel does not count.
        depth_unit: Metres of 1 in a PNG of 16 bits.
    """

    name: str = "detection"
    head: str = ""
    head_width: int = 0
    num_queries: int = 100
    max_objects: int = 0
    auxiliary_blocks: tuple[int, ...] = ()
    num_blocks: int = 4
    masked_attention: bool = False
    mid_positions: bool = False
    anchors: bool = False
    patch_classes: bool = False
    num_points: int = 12_544
    no_object_weight: float = 0.1
    scales: tuple[float, ...] = (1.0, 1.0)
    colours: float = 0.0
    eval_view: str = "stretched"
    zero_is_ignored: bool = False
    depth_unit: float = 0.001


@dataclasses.dataclass(kw_only=True, slots=True)
class Config(experiment.Config):
    """A run of a task. In all fields 0 and "" mean off.

    Attributes:
        task: What is predicted at each place of an image.
    """

    task: Task = dataclasses.field(default_factory=Task)


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
        described = scored.described(train, evaluated)
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


def check(config: Config) -> None:
    """Refuse a head of another task, and what tasks do not support."""
    checks.check(config)
    task = config.task
    checks.check_choice("task.name", task.name, tuple(HEADS))
    if task.num_queries < 1 or not 0 <= task.colours < 1:
        raise ValueError(
            "`task.num_queries` must be at least 1 and `task.colours` in "
            f"[0, 1). Received: task.num_queries={task.num_queries}, "
            f"task.colours={task.colours}"
        )
    if task.head not in ("", *HEADS[task.name]):
        raise ValueError(
            f"`task.head` must be one of {HEADS[task.name]} with "
            f"task.name={task.name!r}. Received: task.head={task.head!r}"
        )
    checks.check_range("task.num_points", task.num_points, 1)
    checks.check_range("task.head_width", task.head_width or 2, 2)
    if _head(config) in SETS and task.max_objects > task.num_queries:
        raise ValueError(
            "`task.max_objects` must be at most `task.num_queries`. Received: "
            f"task.max_objects={task.max_objects}, "
            f"task.num_queries={task.num_queries}"
        )
    _check_eval_view(config)
    masks = task.masked_attention
    if masks and (_head(config) != "eomt" or task.auxiliary_blocks):
        raise ValueError(
            "`task.masked_attention` is for the head 'eomt', which then "
            "predicts before each of its blocks: leave "
            "`task.auxiliary_blocks` empty. Received: task.head="
            f"{_head(config)!r}, task.auxiliary_blocks={task.auxiliary_blocks}"
        )
    _refuse_unused(config)
    if len(task.scales) != 2 or not 0 < task.scales[0] <= task.scales[1]:
        raise ValueError(
            "`task.scales` must be the least and the largest scale. Received: "
            f"task.scales={task.scales}"
        )
    if config.model.tune == "lora":
        raise ValueError(
            "`model.tune` must be 'all' or 'head' for tasks. Received: 'lora'"
        )


def _refuse_unused(config):
    """Refuse settings that the task, its head or its data do not read."""
    scored.refuse_unused(config, UNUSED, "a task")
    task, head = config.task, _head(config)
    unread = [f"task.{k}" for k, names in READ_BY.items() if head not in names]
    scored.refuse_unused(config, unread, f"the head {head!r}")
    unread = [f"task.{k}" for k, name in OF_TASK.items() if name != task.name]
    scored.refuse_unused(config, unread, f"task.name={task.name!r}")
    if task.name == "actions":
        scored.refuse_unused(config, OF_IMAGES, "actions in videos")
    else:
        scored.refuse_unused(config, OF_CLIPS, "a task of images")
        dataset = config.data.dataset
        if dataset != "digit_scenes":
            unread = ("data.eval_fraction", "data.split_seed")
            kind = f"{dataset!r}, which has a part for evaluation"
            scored.refuse_unused(config, unread, kind)
        if not os.path.isdir(os.path.expanduser(dataset)):
            kind = f"{dataset!r}, which is no folder"
            scored.refuse_unused(config, OF_FOLDERS, kind)
        if dataset == "digit_scenes" or task.name in ("segmentation", "depth"):
            kind = "a task without files of boxes"
            scored.refuse_unused(config, ["data.broken"], kind)


def _check_eval_view(config):
    view, name = config.task.eval_view, config.task.name
    checks.check_choice("task.eval_view", view, EVAL_VIEWS)
    wrong = view != "stretched" and _head(config) != "eomt"
    if view == "windows":
        size = config.data.image_size
        wrong = wrong or name != "segmentation" or len({*size}) > 1
    if wrong:
        raise ValueError(
            "`task.eval_view` must be 'stretched', or with the head 'eomt' "
            "'padded', or for its segmentation of square images 'windows'. "
            f"Received: task.eval_view={view!r} with task.name={name!r}, the "
            f"head {_head(config)!r}, data.image_size={config.data.image_size}"
        )


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
    if _head(config) == "yolos":
        boxes = (count, 4), "float32"
        return dict(boxes=boxes, labels=((count,), "int32"))
    if _head(config) == "eomt":
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
        as_masks=_head(config) == "eomt",
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


def _head(config):
    return config.task.head or HEADS[config.task.name][0]


def objective(
    config: Config, class_names: tuple[str, ...]
) -> training_step.Objective:
    """Return the head and the loss of a task."""
    task, name = config.task, _head(config)
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
        model=f"with the head {_head(config)}",
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
