"""Configs of runs that take seconds, and a small model."""

import csv
import json
import shutil

import keras
import numpy as np

import keras_vit
from recipes import evaluate, fields, finetune


def small_config(config=None, **changes):
    """A config with changes, which `changed` explains."""
    config = config or finetune.Config()
    small = dict(
        dataset="digits",
        architecture=finetune.Architecture(
            patch_size=4, hidden_size=16, num_layers=2, num_heads=2, mlp_dim=32
        ),
        crop="pad",
        batch_size=32,
        total_steps=5,
        eval_every=2,
        warmup_steps=1,
        base_lr=0.01,
        optimizer="adam",
    )
    return changed(config, **small | changes)


def changed(config, **changes):
    """A copy of a config with other values.

    Fields have their names of flat configs: that of "optim.base_lr" is base_lr.
    """
    changes = {fields.current(name): x for name, x in changes.items()}
    return fields.changed(config, changes)


def rows_of(workdir):
    with open(workdir / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


def results_of(capsys, *arguments):
    assert evaluate.main([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def assert_resumes(run, config, results, workdir, copy):
    """Lets a copy of a run end that seems to be killed before its last
    checkpoint was complete; all ends as before. Returns the model."""
    shutil.copytree(workdir, copy)
    shutil.rmtree(max((copy / "checkpoints").glob("*[0-9]")))
    (copy / "last.keras").unlink()
    assert run(config, str(copy)) == results
    for name in ("metrics.csv", "config.json"):
        assert (workdir / name).read_bytes() == (copy / name).read_bytes()
    for path in sorted(workdir.glob("*.keras")):  # the last one is last.keras
        model, other = (
            keras.models.load_model(folder / path.name, compile=False)
            for folder in (workdir, copy)
        )
        for a, b in zip(model.weights, other.weights, strict=True):
            np.testing.assert_array_equal(a, b)
    return model


def small_vit(**changes):
    small = dict(
        patch_size=4,
        hidden_size=8,
        num_layers=1,
        num_heads=1,
        mlp_dim=8,
        input_shape=(8, 8, 1),
        classes=2,
    )
    return keras_vit.ViT(**small | changes)


def seeded_vit(**changes):
    """A `small_vit` of two blocks, with the same weights each time."""
    keras.utils.set_random_seed(0)
    sizes = dict(num_layers=2, num_heads=2, mlp_dim=16)
    images = dict(classes=3, input_shape=(8, 8, 3))
    return small_vit(**sizes | images | changes)
