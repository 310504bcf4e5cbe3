"""Shows the paper's central claims at a small scale, with one command."""

from recipes import start

if __name__ == "__main__":  # before the imports, which take seconds
    start.main("recipes.miniature")

import concurrent.futures
import contextlib
import dataclasses
import multiprocessing
import os
import pathlib
from collections.abc import Callable

import keras

from recipes import (
    checks,
    experiment,
    fields,
    finetune,
    miniature_report,
    study,
)
from recipes import workdir as workdirs

DEFAULT_CONFIG = pathlib.Path(__file__).parent / "configs" / "miniature.py"
MODELS = ("ResNet", "Hybrid", "ViT")
# The ratio of the rates of Figure 9, 3e-4 and 8e-4. The average was as good as
# a class token with the former, and worse with the latter.
LOW_RATE = 3 / 8


@dataclasses.dataclass(kw_only=True, slots=True)
class Config:
    """The runs to train.

    Attributes:
        run: The config of each run, as in recipes.pretrain. Its
            data.train_images is replaced, and its seed is the first seed.
        models: "ResNet", "Hybrid" and "ViT", as changes of the run.
        sizes: Numbers of training images, besides all of them.
        num_seeds: Number of runs of each model and size.
        num_processes: Number of runs at a time, each in its own process with
            an equal part of the cores; 0 runs one after the other in this
            process.
    """

    run: experiment.Config = dataclasses.field(
        default_factory=experiment.Config
    )
    models: tuple[study.Variant, ...] = ()
    sizes: tuple[int, ...] = (1_000, 7_000)
    num_seeds: int = 1
    num_processes: int = 2


def run(config: Config, workdir: str = "") -> dict:
    """Train ResNet, hybrid and ViT, and draw the paper's claims about them.

    The models have equal cost. Each is trained for the same number of steps on
    nested subsets of the training images (Figures 3 and 4). The ViT is also
    trained on all images without position embeddings (Table 8), and with the
    average of all tokens instead of the class token (Figure 9). The similarity
    of the ViT's position embeddings and its attended distances are drawn
    (Figure 7). Stopped runs resume when the command is started again.

    Usage:
        python -m recipes.miniature
            CIFAR-10, from TensorFlow Datasets.
        python -m recipes.miniature \\
            --config=recipes/configs/miniature.py:path/to/images
            Your own images.

    Writes a folder and a log for each run, results.json, report.md,
    accuracy.png, choices.png, positions.png and distances.png to the workdir,
    which by default is "runs/", the name of the data set and "-miniature".

    Returns:
        The contents of results.json; see `miniature_report.measure`.

    Raises:
        ValueError: If a field is invalid.
    """
    _check(config)
    name = workdirs.default("ViT", config.run.data.dataset)
    workdir = workdirs.path_of(workdir or f"{name}-miniature")
    workdir.mkdir(parents=True, exist_ok=True)
    planned = plan(config)
    print(f"{len(planned)} runs; their logs are in {workdir}.", flush=True)
    accuracies = _train_all(planned, workdir, config.num_processes)
    results = miniature_report.measure(planned, accuracies, workdir)
    workdirs.write_json(workdir / "results.json", results)
    miniature_report.write(results, workdir)
    return results


def plan(config: Config) -> dict[str, experiment.Config]:
    """Return the config of each run by name."""
    planned = {}
    (vit,) = (model for model in config.models if model.name == "ViT")
    for i in range(config.num_seeds):
        seed = config.run.seed + i
        for size in (0, *sorted(config.sizes, reverse=True)):
            for model in config.models:
                planned[f"{model.name}_{size or 'all'}_{seed}"] = _changed(
                    config, model, seed, {"data.train_images": size}
                )
        average = {"model.architecture.pooling": "gap"}
        low_rate = config.run.optim.base_lr * LOW_RATE
        for name, changes in {
            "no_positions": {"model.architecture.position_embedding": "none"},
            "average": average,
            "average_low_rate": average | {"optim.base_lr": low_rate},
        }.items():
            planned[f"ViT_{name}_{seed}"] = _changed(config, vit, seed, changes)
    return planned


def _changed(config, model, seed, changes):
    return fields.changed(config.run, model.changes | {"seed": seed} | changes)


def _train_all(planned, workdir, num_processes):
    """Return the accuracy of each run by its name."""
    accuracies = {}

    def say(name, accuracy):
        accuracies[name] = accuracy
        done = f"{len(accuracies)} of {len(planned)}"
        print(f"{done}: {name} {accuracy:.2%}", flush=True)

    if not num_processes:
        for name, config in planned.items():
            keras.utils.clear_session()  # frees the previous run
            say(name, _train(config, workdir / name))
        return accuracies
    with _processes(num_processes) as start:
        names = {
            start(_train, config, workdir / name): name
            for name, config in planned.items()
        }
        for future in concurrent.futures.as_completed(names):
            say(names[future], future.result())
    return accuracies


def _train(config: experiment.Config, workdir: pathlib.Path) -> float:
    """Train one run; its output goes to the log beside its folder."""
    with (
        open(f"{workdir}.log", "a", encoding="utf-8") as log,
        contextlib.redirect_stdout(log),
    ):
        # The last evaluation: the best would be selected by the same images
        # that it is measured on.
        return finetune.run(config, str(workdir))["accuracy"]


@contextlib.contextmanager
def _processes(number):
    """Yield a function that starts another in one of several processes.

    After an error, waiting calls are cancelled.
    """
    threads = max(1, (os.cpu_count() or 1) // number)
    # Read by the libraries when the processes import them.
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    executor = concurrent.futures.ProcessPoolExecutor(
        number,
        multiprocessing.get_context("spawn"),
        # A new process for each run, so that no state is shared.
        max_tasks_per_child=1,
    )
    try:
        start: Callable[..., concurrent.futures.Future] = executor.submit
        yield start
    finally:
        executor.shutdown(cancel_futures=True)


def _check(config):
    checks.check_range("num_seeds", config.num_seeds, 1)
    checks.check_range("num_processes", config.num_processes, 0)
    names = tuple(model.name for model in config.models)
    if names != MODELS:
        raise ValueError(
            f"`models` must be {', '.join(MODELS)}. Received: {names}"
        )
    sizes = config.sizes
    if not sizes or min(sizes) < 1 or len(set(sizes)) < len(sizes):
        raise ValueError(
            "`sizes` must be one or more different numbers of images. "
            f"Received: sizes={sizes}"
        )
    for each in plan(config).values():
        checks.check(each)
