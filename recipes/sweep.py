"""Selects a learning rate on a dev split, then fine-tunes on all images."""

from recipes import start

if __name__ == "__main__":  # before the imports, which take seconds
    start.main("recipes.sweep")

import dataclasses
import itertools
import pathlib

import keras
import numpy as np

from recipes import checks, experiment, fields, finetune, fitting, scored
from recipes import workdir as workdirs

DEFAULT_CONFIG = pathlib.Path(__file__).parent / "configs" / "sweep.py"
# Fields of `run` that each run has from the sweep, whatever its setup.
SET_HERE = {"data.dev_fraction", "seed"}


@dataclasses.dataclass(kw_only=True, slots=True)
class Config:
    """What to choose from, and what to run with it.

    Attributes:
        run: The config of each run, that of recipes.finetune; its
            optim.base_lr and data.dev_fraction are set here, and its seed is
            the first one.
        base_lrs: The learning rates to try.
        setups: Name -> changes of `run`, such as {"data.crop": "bit"}, each
            tried with every rate; a name "" is not written.
        dev_fraction: Share of the training images in the dev split.
        num_seeds: Number of final runs on all training images, with consecutive
            seeds from that of `run`.
    """

    run: experiment.Config = dataclasses.field(
        default_factory=experiment.Config
    )
    base_lrs: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03)
    setups: dict = dataclasses.field(default_factory=lambda: {"": {}})
    dev_fraction: float = 0.1
    num_seeds: int = 3


def run(config: Config, workdir: str = "") -> dict:
    """Try each setup and learning rate on a dev split, and report the best.

    The pair with the highest accuracy on the held-out images is used to train
    on all training images, once for each seed, and tested on the evaluation
    images, which the selection has not used. The reported accuracy is that of
    the last evaluation; of a rate that diverges it counts as 0. A stopped sweep
    resumes when it is started again.

    Usage:
        python -m recipes.sweep
            Scikit-learn's handwritten digits, from scratch.
        python -m recipes.sweep \\
            --config=recipes/configs/sweep.py:ViTB16,oxford_iiit_pet
            A cell of the paper's Table 2.
        python -m recipes.sweep \\
            --config=recipes/configs/sweep.py:BiTR50x1,oxford_iiit_pet
            A ResNet, with the setup of ViT or that of BiT.

    The workdir, "runs/", the data set's name and "-sweep" unless given,
    receives a folder for each run, lr_0.01/ (lr_0.01_bit/ of the setup "bit")
    and seed_0/, and results.json.

    Returns:
        The content of results.json: the accuracy of each pair on the dev split,
        the selected setup and rate, and the accuracies of the seeds with their
        mean and standard deviation (None for one seed), all of the last
        evaluation.
    """
    name = workdirs.default(config.run.model.name, config.run.data.dataset)
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
    """Train all runs; return what results.json holds."""

    pairs = _pairs(config)
    num_runs = len(pairs) + config.num_seeds
    count = itertools.count(1)

    def accuracy(folder, pair, changes):
        print(f"\nRun {next(count)} of {num_runs}: {folder}", flush=True)
        keras.utils.clear_session()  # frees the previous run
        changed = fields.changed(_changed(config, *pair), changes)
        # That of the last evaluation: the best one would be selected on the
        # images on which it is measured.
        return finetune.run(changed, str(workdir / folder))["accuracy"]

    def on_dev(name, pair):
        changes = {"data.dev_fraction": config.dev_fraction}
        try:
            return accuracy(f"lr_{name}", pair, changes)
        except fitting.Diverged as error:
            print(f"{error} Its accuracy counts as 0.", flush=True)
            return 0.0

    tried = {name: on_dev(name, pair) for name, pair in pairs.items()}
    chosen = max(tried, key=tried.__getitem__)  # the first of equal ones
    setup, base_lr = pairs[chosen]
    seeds = [config.run.seed + i for i in range(config.num_seeds)]
    accuracies = [
        accuracy(
            f"seed_{seed}",
            pairs[chosen],
            {"data.dev_fraction": 0.0, "seed": seed},
        )
        for seed in seeds
    ]
    return dict(
        model=config.run.model.name,
        weights=config.run.model.weights,
        dataset=config.run.data.dataset,
        dev_accuracies=tried,
        setup=setup,
        base_lr=base_lr,
        seeds=seeds,
        accuracies=accuracies,
        accuracy_mean=float(np.mean(accuracies)),
        # The sample deviation, as in Table 2; one run has none.
        accuracy_std=float(np.std(accuracies, ddof=1))
        if len(seeds) > 1
        else None,
    )


def _pairs(config):
    """Return name -> (setup, base_lr) of what is tried."""
    return {
        _name(*pair): pair
        for pair in itertools.product(config.setups, config.base_lrs)
    }


def _name(setup, base_lr):
    return f"{base_lr:g}_{setup}" if setup else f"{base_lr:g}"


def _changed(config, setup, base_lr):
    """Return the config of a run of this setup and rate."""
    changes = config.setups[setup] | {"optim.base_lr": base_lr}
    return fields.changed(config.run, changes)


def _report(workdir, results):
    """Print what was tried, and the accuracy with the best."""
    setup, rate = results["setup"], f"{results['base_lr']:g}"
    chosen = _name(setup, results["base_lr"])
    print("\nbase_lr   dev accuracy (last evaluation)")
    for tried, accuracy in results["dev_accuracies"].items():
        mark = "  <- chosen" if tried == chosen else ""
        print(f"{tried:<9} {accuracy:.2%}{mark}")
    mean, deviation = results["accuracy_mean"], results["accuracy_std"]
    runs = len(results["seeds"])
    print(
        f"{runs} run{'s' * (runs > 1)} with "
        + (f"setup {setup} and " if setup else "")
        + f"base_lr={rate}: {mean:.2%}"
        + ("" if deviation is None else f" +- {deviation:.2%}")
        + f" at the last evaluation ({workdir / 'results.json'})",
        flush=True,
    )


def _check(config):
    checks.check(config.run)
    scored.refuse_unused(
        config.run, ["data.dev_fraction"], "a sweep, which has `dev_fraction`"
    )
    # By six digits, as their folders are named.
    different = {f"{base_lr:g}" for base_lr in config.base_lrs}
    if not config.base_lrs or len(different) < len(config.base_lrs):
        raise ValueError(
            "`base_lrs` must be one or more different learning rates. "
            f"Received: base_lrs={config.base_lrs}"
        )
    paths = fields.flat(dataclasses.asdict(config.run))
    changed = set(itertools.chain(*config.setups.values()))
    if not config.setups or not changed <= set(paths):
        raise ValueError(
            "`setups` must be one or more names, each with changes of fields "
            'of `run`, such as {"bit": {"data.crop": "bit"}}. Received: '
            f"setups={config.setups}" + fields.hint(changed - set(paths))
        )
    if own := sorted(changed & SET_HERE):
        raise ValueError(
            f"`setups` must leave {', '.join(own)} to the sweep. Received: "
            f"setups={config.setups}"
        )
    for pair in _pairs(config).values():
        checks.check(_changed(config, *pair))
    if not 0 < config.dev_fraction < 1:
        raise ValueError(
            "`dev_fraction` must lie between 0 and 1. "
            f"Received: dev_fraction={config.dev_fraction}"
        )
    checks.check_range("num_seeds", config.num_seeds, 1)
    checks.check_range("seed", config.run.seed + config.num_seeds - 1, 0, 2**32)
