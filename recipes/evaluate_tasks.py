"""Measures a model with a head, for `recipes.evaluate`."""

from keras_vit import data, evaluation
from keras_vit.heads import TaskModel
from keras_vit_cli import opening, runs
from recipes import trained_on

# The task of a model of queries, by its `kind`.
_OF_KIND = dict(
    semantic="segmentation", instance="instances", panoptic="panoptic"
)
_TASKS = ("detection", "segmentation", "depth")
# The options that are read; of the others a value would have no effect.
_READ = ("model", "dataset", "split", "data_dir", "eval_fraction", "split_seed")
_READ += ("zero_is_ignored", "depth_unit", "json", "output")


def measure(model: TaskModel, options, defaults: dict) -> dict:
    """Return the scores of a model, as `keras-vit predict` applies it.

    Args:
        model: The model.
        options: Those of the command line of `recipes.evaluate`.
        defaults: Values of the options that were not given.

    Returns:
        "model", "dataset", "images", "task", and the scores of
        `keras_vit.evaluation.task_scores`.

    Raises:
        ValueError: If the model has another task, an option has no effect, or
            the data set has other classes.
    """
    if model.task not in _TASKS or isinstance(model.input, dict):
        raise ValueError(
            f"MODEL must be a classifier, or a model of images for {_TASKS}. "
            f"Received: {options.model!r}, for {model.task!r}"
        )
    opening.check_pixels(options.model, model)
    for name, default in defaults.items():
        if name not in _READ and getattr(options, name) != default:
            raise ValueError(
                f"--{name} needs a classifier. Received: "
                f"--{name}={getattr(options, name)} for {options.model!r}"
            )
    task = _OF_KIND.get(model.options.get("kind", ""), model.task)
    source = _load(task, options)
    return dict(
        model=options.model,
        dataset=source.name,
        images=source.num_examples,
        task=task,
        **evaluation.task_scores(model, source),
    )


def table(results: dict) -> str:
    """Return the scores as lines of text."""
    first = "{images} images of {dataset}, {task}".format(**results)
    scores = {k: x for k, x in results.items() if isinstance(x, float)}
    width = max(map(len, scores))
    return "\n".join(
        [first, *(f"  {k:{width}}  {x:.4f}" for k, x in scores.items())]
    )


def _load(task, options):
    """Return the evaluation part of the data set, as a run would read it."""
    run, beside = {}, trained_on.config_beside(options.model)
    if beside and trained_on.same_dataset(beside.data.dataset, options.dataset):
        run = runs.config_of(options.model)
    given = dict(
        eval_split=options.split,
        data_dir=options.data_dir,
        eval_fraction=options.eval_fraction,
        split_seed=options.split_seed,
        zero_is_ignored=options.zero_is_ignored or None,
        depth_unit=options.depth_unit,
    )
    names = *given, "broken"
    known = {name: run[name] for name in names if name in run}
    chosen = known | {k: v for k, v in given.items() if v not in (None, "")}
    if "split_seed" in chosen:
        chosen["seed"] = chosen.pop("split_seed")
    _, evaluated = data.load_task(options.dataset, task, **chosen)
    return evaluated
