r"""Selects a learning rate on a dev split, then fine-tunes on all images.

python -m recipes.sweep
python -m recipes.sweep --config=recipes/configs/sweep.py:ViTB16,cifar10
python -m recipes.sweep --config.base_lrs=0.01,0.03 --config.num_seeds=5
"""

import dataclasses
import itertools
import pathlib

import keras
import numpy as np

from recipes import cli, experiment, finetune, fitting
from recipes import workdir as workdirs

DEFAULT_CONFIG = pathlib.Path(__file__).parent / "configs" / "sweep.py"


@dataclasses.dataclass(kw_only=True, slots=True)
class Config:
    """What to choose from, and what to run with it.

    Attributes:
        run: The config of each run, that of recipes.finetune; its base_lr and
            dev_fraction are set here, and its seed is the first one.
        base_lrs: The learning rates to try.
        dev_fraction: Share of the training images in the dev split.
        num_seeds: Number of final runs on all training images, with consecutive
            seeds from that of `run`.
    """

    run: experiment.Config = dataclasses.field(
        default_factory=experiment.Config
    )
    base_lrs: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03)
    dev_fraction: float = 0.1
    num_seeds: int = 3


def run(config: Config, workdir: str = "") -> dict:
    """Tries each learning rate on a dev split, and reports the best.

    The rate with the highest accuracy on the held-out images is used to train
    on all training images, once for each seed, and tested on the evaluation
    images, which the selection has not used. The reported accuracy is that of
    the last evaluation. A stopped sweep resumes when it is started again.

    Usage:
        python -m recipes.sweep
            Scikit-learn's handwritten digits, from scratch.
        python -m recipes.sweep \\
            --config=recipes/configs/sweep.py:ViTB16,oxford_iiit_pet
            A cell of the paper's Table 2.

    The workdir, "runs/", the data set's name and "-sweep" unless given,
    receives a folder for each run, lr_0.01/ and seed_0/, and results.json.

    Returns:
        The content of results.json: the accuracy of each rate on the dev split,
        the selected rate, and the accuracies of the seeds with their mean and
        standard deviation (None for one seed), all of the last evaluation.
    """
    name = workdirs.default(config.run.model, config.run.dataset)
    workdir = workdirs.path_of(workdir or f"{name}-sweep")
    _check(config)
    devices = fitting.set_up(config.run)
    with workdirs.lock(workdir, devices):
        results = _sweep(config, workdir)
        if devices.is_main:
            workdirs.write_json(workdir / "results.json", results)
            _report(workdir, results)
    return results


def _sweep(config, workdir):
    """Trains all runs; returns what results.json holds."""

    num_runs = len(config.base_lrs) + config.num_seeds
    count = itertools.count(1)

    def accuracy(folder, **changes):
        print(f"\nRun {next(count)} of {num_runs}: {folder}", flush=True)
        keras.utils.clear_session()  # frees the previous run
        changed = dataclasses.replace(config.run, **changes)
        # That of the last evaluation: the best one would be selected on the
        # images on which it is measured.
        return finetune.run(changed, str(workdir / folder))["accuracy"]

    tried = {
        base_lr: accuracy(
            f"lr_{base_lr:g}",
            base_lr=base_lr,
            dev_fraction=config.dev_fraction,
        )
        for base_lr in config.base_lrs
    }
    base_lr = max(tried, key=tried.get)  # the first of equal ones
    seeds = [config.run.seed + i for i in range(config.num_seeds)]
    accuracies = [
        accuracy(f"seed_{seed}", base_lr=base_lr, dev_fraction=0.0, seed=seed)
        for seed in seeds
    ]
    return dict(
        model=config.run.model,
        weights=config.run.weights,
        dataset=config.run.dataset,
        dev_accuracies={f"{rate:g}": value for rate, value in tried.items()},
        base_lr=base_lr,
        seeds=seeds,
        accuracies=accuracies,
        accuracy_mean=float(np.mean(accuracies)),
        # The sample deviation, as in Table 2; one run has none.
        accuracy_std=float(np.std(accuracies, ddof=1))
        if len(seeds) > 1
        else None,
    )


def _report(workdir, results):
    """Prints the rates, and the accuracy with the one chosen."""
    rate = f"{results['base_lr']:g}"
    print("\nbase_lr   dev accuracy (last evaluation)")
    for tried, accuracy in results["dev_accuracies"].items():
        mark = "  <- chosen" if tried == rate else ""
        print(f"{tried:<9} {accuracy:.2%}{mark}")
    mean, deviation = results["accuracy_mean"], results["accuracy_std"]
    runs = len(results["seeds"])
    print(
        f"{runs} run{'s' * (runs > 1)} with base_lr={rate}: {mean:.2%}"
        + ("" if deviation is None else f" +- {deviation:.2%}")
        + f" at the last evaluation ({workdir / 'results.json'})",
        flush=True,
    )


def _check(config):
    experiment.check(config.run)
    if not config.base_lrs or len(set(config.base_lrs)) < len(config.base_lrs):
        raise ValueError(
            "`base_lrs` must be one or more different learning rates. "
            f"Received: base_lrs={config.base_lrs}"
        )
    for base_lr in config.base_lrs:
        experiment.check(dataclasses.replace(config.run, base_lr=base_lr))
    if not 0 < config.dev_fraction < 1:
        raise ValueError(
            "`dev_fraction` must lie between 0 and 1. "
            f"Received: dev_fraction={config.dev_fraction}"
        )
    experiment.check_range("num_seeds", config.num_seeds, 1)


if __name__ == "__main__":
    cli.main(run, DEFAULT_CONFIG)
