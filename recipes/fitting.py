"""Training with checkpoints, logs and saved models."""

import contextlib
import dataclasses
import errno
import os
import pathlib
import shutil
import sys
import traceback
from collections.abc import Callable

import keras

from keras_vit import data, distribution, training
from keras_vit._paths import save_whole
from recipes import (
    compilation_cache,
    console,
    experiment,
    fields,
    inputs,
    others,
    probes,
    training_step,
)
from recipes import workdir as workdirs


class Diverged(ValueError):
    """A loss that is not finite ended the training."""


def set_up(config: experiment.Config) -> distribution.Devices:
    """Return the devices of a run; must be the first call of a recipe."""
    devices = distribution.setup(
        config.run.devices,  # type: ignore[arg-type]
        config.run.strategy,  # type: ignore[arg-type]
        model_parallel=config.run.model_parallel,
        **dataclasses.asdict(config.run.cluster),
    )
    compilation_cache.enable()
    keras.utils.set_random_seed(config.seed)
    keras.config.set_dtype_policy(config.model.dtype_policy)
    return devices


@contextlib.contextmanager
def opened(config: experiment.Config, workdir: pathlib.Path):
    """Yield the devices of a run, and whether it has finished, which it says.

    No other run may write to the workdir before the context is left.

    Raises:
        ValueError: If the workdir holds a run with another config, there are no
            such weights, or what the run measures or learns from has changed.
    """
    devices = set_up(config)
    with workdirs.lock(workdir, devices):
        workdirs.refuse_other_config(workdir, config, free=fields.RUNTIME)
        finished = workdirs.is_finished(workdir, devices)
        if finished:
            workdirs.say_finished(workdir, devices)
        else:
            inputs.check_weights(config.model)
            others.refuse_changed(workdir, config)
        yield devices, finished


def check_batches(batches: tuple[Callable, Callable]) -> int:
    """Refuse invalid settings of batches before the workdir is written.

    Returns:
        The number of batches to evaluate.

    Raises:
        ValueError: If there can be no such batches.
    """
    train_batches, eval_batches = batches
    # As one process reads them, which need not make them again.
    train_batches(0, 0, 1, 1)
    return int(eval_batches(0, 1, 1).cardinality())


def fit(
    built: training_step.TrainingStep,
    config: experiment.Config,
    devices: distribution.Devices,
    workdir: pathlib.Path,
    batches: tuple[Callable, Callable],
    *,
    eval_steps: int,
    train_source: data.Source,
    measurements: tuple[keras.callbacks.Callback, ...] = (),
) -> None:
    """Train from the newest checkpoint of the workdir, or from the start.

    Args:
        workdir: Receives checkpoints/, metrics.csv, tensorboard/, and the
            models of the last and of the best evaluation, last.keras and
            best.keras.
        batches: The batches of training, a function of (first step,
            shard_index, num_shards, num_replicas), and those of evaluation, a
            function of the last three.
        eval_steps: Number of batches to evaluate.
        train_source: The training images.
        measurements: Callbacks that add to the logs of evaluations, or change
            training by its step.

    Raises:
        Diverged: If the loss or a weight is not finite.
        OSError: If the disk is full.
        SystemExit: On SIGTERM (143) and Ctrl-C (130), after the state was
            saved.
    """
    train_batches, eval_batches = batches
    evaluation = devices.batches(
        lambda *shard: data.as_pairs(eval_batches(*shard))
    )
    with (
        _naming_full_disk(workdir),
        devices.training_scope(),
        distribution.preemption(devices) as must_stop,
    ):
        progress = _progress(
            built, config, devices, workdir, evaluation, must_stop
        )
        distribution.synchronize(built.trainer)
        first_step = progress.step
        train = devices.batches(
            lambda *shard: data.as_pairs(train_batches(first_step, *shard))
        )
        measurements += _few_shot(built.model, config, train_source)
        callbacks = _callbacks(
            built, config, devices, workdir, progress, measurements
        )
        printed = console.Console(
            progress,
            batch_size=config.data.batch_size,
            eval_steps=eval_steps,
            schedule=built.schedule,
        )
        if devices.is_main:
            callbacks.append(printed)
        try:
            with (
                _explaining_ends(config, devices, progress.checkpoints),
                contextlib.closing(printed),
            ):
                _fit(built, train, evaluation, eval_steps, progress, callbacks)
                if reason := must_stop():  # since the last step
                    raise training.Preempted(built.total_steps, reason)
                # The log is complete before another process reads it.
                distribution.any_process(devices, False)
        finally:
            progress.checkpoints.close()
            _close_logs(callbacks)


def _progress(built, config, devices, workdir, evaluation, must_stop):
    """Return the callback of checkpoints, which has restored the newest."""
    checkpoints = training.Checkpoints(
        workdir / "checkpoints",
        keep=config.run.keep_checkpoints,
        is_main=devices.is_main,
        restart=config.run.restart,
    )
    if checkpoints.latest:
        # Makes the variables of the metrics, which are restored too.
        built.trainer.evaluate(evaluation, steps=1, verbose=0)
    progress = training.Progress(
        checkpoints,
        built.trainer,
        total_steps=built.total_steps,
        eval_every=built.eval_every,
        checkpoint_every=config.run.checkpoint_every,
        steps_per_execution=built.steps_per_execution,
        must_stop=must_stop,
    )
    if devices.is_main:
        print(
            f"Training with {keras.backend.backend()} on "
            f"{devices.num_devices} {devices.kind}; results go to {workdir}.",
            flush=True,
        )
        if progress.step:
            print(f"Resuming from step {progress.step}.", flush=True)
    return progress


def _fit(built, train, evaluation, eval_steps, progress, callbacks):
    epochs = -(-built.total_steps // built.eval_every)
    built.trainer.fit(
        train,
        steps_per_epoch=built.eval_every,
        initial_epoch=progress.epoch,
        epochs=epochs,
        validation_data=evaluation,
        validation_steps=eval_steps,
        callbacks=_Callbacks(
            callbacks,
            add_history=True,
            model=built.trainer,
            verbose=0,
            epochs=epochs,
            steps=built.eval_every,
        ),
        shuffle=False,  # the batches are shuffled already
        verbose=0,
    )


@contextlib.contextmanager
def _explaining_ends(config, devices, checkpoints):
    """Say why training ends before its last step, and what to do."""
    try:
        yield
    except FloatingPointError as error:
        raise Diverged(
            f"{error} `optim.base_lr` must be low enough for training to "
            f"converge. Received: optim.base_lr={config.optim.base_lr}. Lower "
            "it, or set `optim.clip_norm` or `schedule.warmup_steps`. The last "
            f"good checkpoint, of step {checkpoints.latest}, is kept in "
            f"{checkpoints.directory}."
        ) from None
    except training.Preempted as stop:
        if devices.is_main:
            print(f"{stop} Run the same command again to resume.", flush=True)
        sys.exit(128 + stop.reason)  # as shells count
    except Exception:
        if devices.num_processes > 1:
            _end_with_the_others(devices, checkpoints)
        raise


def results(log: pathlib.Path, best_by: str = "accuracy") -> dict[str, float]:
    """Return the results of the last evaluation, and those of the best.

    The best evaluation is selected on the evaluation images, so the result to
    report is the last one.

    Args:
        log: The metrics.csv of a run.
        best_by: "accuracy", of which more is better, or "loss".

    Returns:
        "loss", "accuracy" and "step" of the last evaluation, and "best_loss",
        "best_accuracy" and "best_step".
    """
    rows = workdirs.read_log(log, f"val_{best_by}")
    last = _evaluation(rows[-1])
    best = _evaluation(_best(rows, best_by))
    return last | {f"best_{name}": value for name, value in best.items()}


def _evaluation(row):
    return {
        name.removeprefix("val_"): float(value)
        for name, value in row.items()
        if name.startswith("val_")
    } | {"step": int(row["step"])}


def _best(rows, best_by):
    """Return the row that best.keras is from."""
    name = f"val_{best_by}"
    best = rows[0]
    for row in rows[1:]:
        if _is_better(float(row[name]), float(best[name]), best_by):
            best = row
    return best


def _is_better(value, best, best_by):
    """Whether a loss improved by more than rounding, which devices change."""
    gain = best - value if best_by == "loss" else value - best
    return gain > 1e-6


@contextlib.contextmanager
def _naming_full_disk(workdir):
    """Replace the error of a full disk, which Orbax raises without a path."""
    try:
        yield
    except Exception as error:  # of several types, by the library that writes
        full = map(os.strerror, (errno.ENOSPC, errno.EDQUOT))
        if not any(reason in str(error) for reason in full):
            raise
        raise OSError(
            f"The disk of {workdir} is full, or its quota. Free space there, "
            "then run the same command again: it resumes from the last "
            "complete checkpoint. `run.keep_checkpoints` limits their number."
        ) from error


def _end_with_the_others(devices, checkpoints):
    """End this process now; a normal exit would wait for the others."""
    traceback.print_exc()
    print(
        f"Process {devices.process_index} of {devices.num_processes} ends, "
        "for the reason above or because another process has ended. Start all "
        f"of them again to resume from step {checkpoints.latest}.",
        flush=True,
    )
    os._exit(1)


def _callbacks(built, config, devices, workdir, progress, measurements):
    log = workdir / "metrics.csv"
    every = built.eval_every
    evaluated = range(every, progress.step + 1, every)
    workdirs.refuse_missing_log(workdir, evaluated, f"val_{built.best_by}")
    rows = workdirs.cut_log(log, progress.step) if devices.is_main else []
    callbacks = [progress]
    if config.optim.ema_momentum:
        # Callbacks after this one see the averaged weights.
        callbacks.append(training.SwapAverages(swap_on_epoch=True))
    callbacks += measurements  # of which one may choose the best model
    callbacks.append(_SaveModels(built, workdir, devices, rows))
    if devices.is_main:
        _remove_parts(workdir)
        callbacks += [
            keras.callbacks.CSVLogger(log, append=bool(rows)),
            keras.callbacks.TensorBoard(
                str(workdir / "tensorboard"), write_graph=False
            ),
        ]
    return callbacks


def _few_shot(model, config, train_source):
    """Return the callback of `fewshot_dataset`, if it is given."""
    dataset = config.evaluation.fewshot_dataset
    if not dataset:
        return ()
    return (
        probes.callback(
            model,
            probes.source_of(config, dataset),
            config.evaluation.fewshot_shots,
            every=config.evaluation.fewshot_every,
            seed=config.seed,
            train_source=train_source,
        ),
    )


def _close_logs(callbacks):
    """Keras' CSVLogger leaves its file open when `fit` ends in an error."""
    for callback in callbacks:
        if isinstance(callback, keras.callbacks.CSVLogger):
            if callback.csv_file is not None:
                callback.csv_file.close()


def _remove_parts(workdir):
    """Remove models that a killed process has left incomplete.

    No other writes those of a run, which holds the workdir.
    """
    for name in ("last.keras", "best.keras", "autoencoder.keras"):
        for part in workdir.glob(f".part-*/{name}"):
            shutil.rmtree(part.parent, ignore_errors=True)


class _Callbacks(keras.callbacks.CallbackList):
    """Leaves the logs of a step on the device until a callback reads them.

    Keras' callback list reads them before it calls callbacks, so that the host
    waits for each step.
    """

    def on_train_batch_end(self, batch, logs=None):
        for callback in self.callbacks:
            callback.on_train_batch_end(batch, logs=logs)


class _SaveModels(keras.callbacks.Callback):
    """Saves the models of the best evaluation and of the last one.

    Must come before the callback that logs the evaluation, so that the models
    of a logged evaluation exist.
    """

    def __init__(self, built, workdir, devices, rows):
        super().__init__()
        self.built = built
        self.workdir = workdir
        self.devices = devices
        self.best = None
        if rows:
            best_by = built.best_by
            self.best = float(_best(rows, best_by)[f"val_{best_by}"])

    def on_epoch_end(self, epoch, logs=None):
        best_by = self.built.best_by
        found = logs[f"val_{best_by}"]
        names = []
        if self.best is None or _is_better(found, self.best, best_by):
            self.best = found
            names.append("best.keras")
        if logs["step"] >= self.built.total_steps:
            names.append("last.keras")
        if not names:
            return
        # Every process takes part: each may hold a shard of the variables.
        gathered = distribution.gather(self.built.model, self.devices)
        if self.devices.is_main:
            for name in names:
                save_whole(gathered, self.workdir / name)
