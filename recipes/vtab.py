"""Fine-tunes on each of the 19 tasks of VTAB-1k and scores the model."""

from recipes import start

if __name__ == "__main__":  # before the imports, which take seconds
    start.main("recipes.vtab")

import dataclasses
import itertools
import json
import pathlib
import statistics

import keras

from keras_vit.data import vtab
from keras_vit.evaluation import vtab_scores
from recipes import checks, experiment, fields, finetune, fitting
from recipes import workdir as workdirs

DEFAULT_CONFIG = pathlib.Path(__file__).parent / "configs" / "vtab.py"


@dataclasses.dataclass(kw_only=True, slots=True)
class Config:
    """The config of all tasks.

    Attributes:
        run: The config of each run, that of recipes.finetune; its data.dataset
            is set here, and data.crop and data.flip are switched off if they
            would change the label.
        tasks: Names of `keras_vit.data.vtab.TASKS`, all by default.
        base_lrs: Learning rates to select from; () is that of `run`.
        total_steps: Numbers of steps to select from; () is that of `run`.
    """

    run: experiment.Config = dataclasses.field(
        default_factory=experiment.Config
    )
    tasks: tuple[str, ...] = tuple(vtab.TASKS)
    base_lrs: tuple[float, ...] = ()
    total_steps: tuple[int, ...] = ()


def config_of(config: experiment.Config, task: str) -> experiment.Config:
    """Return the config of fine-tuning on one task.

    Raises:
        ValueError: If there is no such task.

    Reference:
        Kolesnikov et al. 2020 (arXiv 1912.11370), appendix F: the tasks whose
        images are not cropped, and not flipped.
    """
    properties = vtab.task_of(task)
    changes = {
        "data.dataset": f"{vtab.PREFIX}{task}",
        "data.crop": config.data.crop if properties.crop else "none",
        "data.flip": config.data.flip and properties.flip,
    }
    return fields.changed(config, changes)


def run(config: Config, workdir: str = "") -> dict[str, dict[str, float]]:
    """Fine-tune on one task after another, and average the accuracies.

    A finished task is not run again; a stopped one resumes. Of several
    `base_lrs` or `total_steps`, those with the highest mean over the tasks are
    used, after training on 800 images of each task and testing on the other
    200. The test images have no part in the choice.

    Usage:
        python -m recipes.vtab
            The ViT-L/16 of Table 9, pre-trained on ImageNet-21k. TFDS downloads
            and prepares the data sets, except that the archives of
            diabetic_retinopathy and resisc45 must be placed in
            --config.run.data.manual_dir by hand.
        python -m recipes.vtab --config=recipes/configs/vtab.py:ViTB16
            Another model.
        python -m recipes.vtab --config.base_lrs=0.003,0.01 \\
            --config.total_steps=500,2500
            Selects one of two rates and one of two numbers of steps first, as
            in appendix B of the ViT paper, which does not print them.

    The workdir, "runs/vtab-" and the model unless given, receives a folder
    for each task, in the form of recipes.finetune, and results.json, with the
    accuracies of the last evaluations. They have not been measured yet. The
    runs of a selection are in lr_0.01_steps_2500 and the like, and their mean
    accuracies in selection.json.

    Returns:
        "accuracies" of the tasks, and "scores", the means of `vtab_scores`.

    Raises:
        ValueError: If the config is not that of all tasks, a task is unknown,
            or the workdir was begun with another config.
    """
    if not isinstance(config, Config):
        raise ValueError(
            "`config` must be that of all tasks, recipes/configs/vtab.py:MODEL."
            f" Received: one of fine-tuning on {config.data.dataset!r}"
        )
    name = workdirs.default(config.run.model.name, "vtab")
    workdir = workdirs.path_of(workdir or name)
    # A flag's "dtd,dmlab" is one string.
    tasks = ",".join(config.tasks).split(",")
    candidates = _candidates(config)
    for each in (config.run, *candidates.values()):
        for task in tasks:
            checks.check(config_of(each, task))
    devices = fitting.set_up(config.run)
    with workdirs.lock(workdir, devices):
        chosen = _select(candidates, workdir, devices, tasks) or config.run
        results = _run_tasks(chosen, workdir, devices, tasks)
    if devices.is_main:
        print(
            f"\n{_table(results)}\n\n  {workdir / 'results.json'}", flush=True
        )
    return results


def _candidates(config):
    """Return the runs to select from by the names of their folders."""
    run = config.run
    if not (config.base_lrs or config.total_steps):
        return {}
    pairs = list(
        itertools.product(
            config.base_lrs or (run.optim.base_lr,),
            config.total_steps or (run.schedule.total_steps,),
        )
    )
    found = {
        f"lr_{base_lr:g}_steps_{steps}": fields.changed(
            run,
            {
                "optim.base_lr": base_lr,
                "schedule.total_steps": steps,
                "evaluation.every": steps,
            },
        )
        for base_lr, steps in pairs
    }
    if len(found) < len(pairs):
        raise ValueError(
            "`base_lrs` and `total_steps` must be different, rates in the six "
            "digits by which folders are named. Received: "
            f"base_lrs={config.base_lrs}, total_steps={config.total_steps}"
        )
    return found


def _select(candidates, workdir, devices, tasks):
    """Return the run that is best on validation images, None without any."""
    if len(candidates) < 2:
        return next(iter(candidates.values()), None)
    scores = {}
    for name, run in candidates.items():
        splits = {"data.train_split": "train800", "data.eval_split": "val200"}
        run = fields.changed(run, splits)
        found = _run_tasks(run, workdir / name, devices, tasks)["accuracies"]
        scores[name] = statistics.fmean(found[task] for task in tasks)
    best = max(scores, key=scores.__getitem__)  # the first of equal ones
    if devices.is_main:
        selection = {"scores": scores, "selected": best}
        workdirs.write_json(workdir / "selection.json", selection)
        print(f"\nSelected {best}, {scores[best]:.2%}", flush=True)
    return candidates[best]


def _run_tasks(run, workdir, devices, tasks):
    """Fine-tune on the tasks that are not finished; return all results."""
    workdirs.refuse_other_config(workdir, run, free=fields.RUNTIME)
    accuracies = _accuracies(workdir)
    if devices.is_main:
        workdirs.write_config(workdir, run, {"tasks": tasks})
    for task in tasks:
        if task in accuracies:
            if devices.is_main:
                print(f"vtab/{task} is finished.", flush=True)
            continue
        if devices.is_main:
            print(f"\nvtab/{task}", flush=True)
        keras.utils.clear_session()  # frees the previous task
        results = finetune.run(config_of(run, task), str(workdir / task))
        accuracies[task] = results["accuracy"]
        if devices.is_main:
            so_far = _results(accuracies)
            workdirs.write_json(workdir / "results.json", so_far)
    return _results(accuracies)


def _accuracies(workdir):
    """Return the results of the finished tasks."""
    path = workdir / "results.json"
    try:
        found = json.loads(path.read_text())["accuracies"]
        return {task: float(x) for task, x in found.items()}
    except FileNotFoundError:
        return {}
    except (AttributeError, LookupError, TypeError, ValueError):
        raise ValueError(
            "results.json must hold accuracies by task, as this recipe writes "
            f"it. Received: {str(path)!r}, which does not. Remove it: finished "
            "tasks are not trained again."
        ) from None


def _results(accuracies):
    ordered = {
        task: accuracies[task] for task in vtab.TASKS if task in accuracies
    }
    return {"accuracies": ordered, "scores": vtab_scores(ordered)}


def _table(results):
    """Return the accuracies by group, and the means, as text."""
    lines = []
    for group in vtab.GROUPS:
        mean = results["scores"].get(group)
        lines.append(f"{group:22}{'' if mean is None else f'{mean:8.2%}'}")
        lines += [
            f"  {task:20}{accuracy:8.2%}"
            for task, accuracy in results["accuracies"].items()
            if vtab.TASKS[task].group == group
        ]
    if "mean" in results["scores"]:
        lines.append(f"{'mean of 19 tasks':22}{results['scores']['mean']:8.2%}")
    return "\n".join(lines)
