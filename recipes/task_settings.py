"""The settings of a task, and which of them go together."""

import dataclasses
import os

from recipes import checks, experiment, scored

HEADS = dict(
    detection=("yolos",),
    segmentation=("eomt", "linear", "dpt"),
    instances=("eomt",),
    panoptic=("eomt",),
    depth=("dpt",),
    actions=("actions",),
)
# How images get the size of the model in evaluation.
EVAL_VIEWS = ("stretched", "padded", "windows")
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


def head_of(config: Config) -> str:
    """Return the head of a config, or the first one of its task."""
    return config.task.head or HEADS[config.task.name][0]


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
    head = head_of(config)
    if head in SETS and task.max_objects > task.num_queries:
        raise ValueError(
            "`task.max_objects` must be at most `task.num_queries`. Received: "
            f"task.max_objects={task.max_objects}, "
            f"task.num_queries={task.num_queries}"
        )
    _check_eval_view(config)
    masks = task.masked_attention
    if masks and (head != "eomt" or task.auxiliary_blocks):
        raise ValueError(
            "`task.masked_attention` is for the head 'eomt', which then "
            "predicts before each of its blocks: leave "
            "`task.auxiliary_blocks` empty. Received: task.head="
            f"{head!r}, task.auxiliary_blocks={task.auxiliary_blocks}"
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
    task, head = config.task, head_of(config)
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
    view, name, head = config.task.eval_view, config.task.name, head_of(config)
    checks.check_choice("task.eval_view", view, EVAL_VIEWS)
    wrong = view != "stretched" and head != "eomt"
    if view == "windows":
        size = config.data.image_size
        wrong = wrong or name != "segmentation" or len({*size}) > 1
    if wrong:
        raise ValueError(
            "`task.eval_view` must be 'stretched', or with the head 'eomt' "
            "'padded', or for its segmentation of square images 'windows'. "
            f"Received: task.eval_view={view!r} with task.name={name!r}, the "
            f"head {head!r}, data.image_size={config.data.image_size}"
        )
