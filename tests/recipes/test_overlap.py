"""No command measures on training images without saying so."""

import dataclasses
import json
import pathlib
import re
import shutil

import numpy as np
import pytest
from small_runs import results_of

from keras_vit import data
from recipes import (
    distill,
    experiment,
    fewshot,
    fields,
    finetune,
    fitting,
    others,
    sweep,
    trained_on,
    unlabelled,
)
from recipes import workdir as workdirs

pytestmark = [
    pytest.mark.backend("torch"),
    pytest.mark.usefixtures("no_pictures"),
]


@pytest.fixture
def leaky(tmp_path):
    """An npz file of digits, 7 of whose 40 test images are in the training."""
    train, test = data.load("digits")
    images = np.concatenate([test.images[:33], train.images[:7]])
    labels = np.concatenate([test.labels[:33], train.labels[:7]])
    np.savez(
        tmp_path / "leaky.npz",
        x_train=train.images,
        y_train=train.labels,
        x_test=images,
        y_test=labels,
    )
    return str(tmp_path / "leaky.npz")


@pytest.mark.parametrize(
    "command", ["finetune", "unlabelled", "sweep", "fewshot", "callback"]
)
def test_shared_images_are_counted(
    command, leaky, tmp_path, make_config, capsys
):
    config = make_config(dataset=leaky, total_steps=2)
    workdir = str(tmp_path / "run")
    if command == "finetune":
        finetune.run(config, workdir)
    elif command == "unlabelled":
        groups = {
            f.name: getattr(config, f.name) for f in dataclasses.fields(config)
        }
        groups["objective"] = "masked_patch"
        unlabelled.run(unlabelled.Config(**groups), workdir)
    elif command == "sweep":  # and vtab, study, miniature: runs of finetune
        sweep.run(
            sweep.Config(run=config, base_lrs=(0.1,), num_seeds=1), workdir
        )
    elif command == "fewshot":
        fewshot.run(
            fewshot.Config(data=fewshot.Data(dataset=leaky), shots=(1,)),
            workdir,
        )
    else:
        # Measured on other images than those that the run holds out.
        config = make_config(
            total_steps=2, fewshot_dataset=leaky, fewshot_shots=(1,)
        )
        finetune.run(config, workdir)
    printed = capsys.readouterr().out
    assert "WARNING: 7 of the 40 " in printed
    assert "training images" in printed


def test_every_recipe_that_measures_is_above():
    """A new module with an accuracy needs a case of its own."""
    folder = pathlib.Path(finetune.__file__).parent
    measuring = {
        path.stem
        for path in folder.glob("*.py")
        if re.search(
            r"data\.load\(|inputs\.(load|load_source|prepare)\(",
            path.read_text(),
        )
    }
    assert measuring == {
        "inputs",
        "finetune",
        "unlabelled",
        "fewshot",
        "probes",
        "evaluate_classifier",
        # Read it to count images, draw pictures of it, or notice changes.
        "study",
        "miniature_report",
        "others",
        "trained_on",
    }


@pytest.fixture(scope="module")
def seed_1(tmp_path_factory, make_config):
    """A run that held out half of the images, drawn with another seed."""
    workdir = tmp_path_factory.mktemp("run")
    finetune.run(
        make_config(total_steps=2, split_seed=1, eval_fraction=0.5),
        str(workdir),
    )
    return workdir


def test_evaluate_takes_the_images_that_the_run_held_out(seed_1, capsys):
    found = results_of(capsys, seed_1 / "last.keras", "--dataset=digits")
    assert found["overlap"] == ""
    log = (seed_1 / "metrics.csv").read_text().splitlines()
    column = log[0].split(",").index("val_accuracy")
    assert found["top_1"] == pytest.approx(float(log[-1].split(",")[column]))


def test_evaluate_counts_training_images_of_another_split(seed_1, capsys):
    train = data.load("digits", seed=1, eval_fraction=0.5)[0]
    other = data.load("digits")[1]
    expected = data.count_shared(other, train)
    found = results_of(
        capsys,
        seed_1 / "last.keras",
        "--dataset=digits",
        "--split_seed=0",
        "--eval_fraction=0.2",
    )
    assert f"{expected} of the 359 evaluation images were" in found["overlap"]


def test_weights_are_followed_to_the_first_run(
    seed_1, tmp_path, make_config, capsys, monkeypatch
):
    second = tmp_path / "second"
    monkeypatch.chdir(seed_1.parent)
    weights = f"{seed_1.name}/last.keras"
    config = make_config(total_steps=2, weights=weights)
    finetune.run(config, str(second))
    printed = capsys.readouterr().out
    assert "of the 359 evaluation images were trained" in printed
    assert f"ViT from {weights}, " in printed
    derived = json.loads((second / "config.json").read_text())["derived"]
    assert weights in derived["overlap"]
    held_out = data.load("digits")[1]
    monkeypatch.chdir(tmp_path)  # from which the config's path leads nowhere
    assert str(seed_1 / "last.keras") in trained_on.overlap(
        held_out, "digits", second / "last.keras"
    )


def test_training_images_that_are_gone_are_named(tmp_path, seed_1):
    workdir = tmp_path / "copy"
    shutil.copytree(seed_1, workdir)
    content = json.loads((workdir / "config.json").read_text())
    content["config"]["dataset"] = "photos"
    content["derived"]["data"]["place"] = str(tmp_path / "photos")
    (workdir / "config.json").write_text(json.dumps(content))
    held_out = data.load("digits")[1]
    text = trained_on.overlap(held_out, "digits", workdir / "last.keras")
    assert "cannot be read: evaluation images may be among them" in text


def test_a_config_of_an_earlier_version_splits_by_its_seed(tmp_path):
    (tmp_path / "last.keras").touch()
    (tmp_path / "config.json").write_text(
        json.dumps({"config": {"dataset": "digits", "seed": 3}})
    )
    config = trained_on.config_beside(tmp_path / "last.keras")
    assert (config.seed, config.data.split_seed) == (3, 3)
    assert trained_on.config_beside(tmp_path / "other.keras") is None


def test_a_changed_data_set_is_not_resumed(tmp_path, make_config):
    dataset = tmp_path / "a.npz"
    rng = np.random.default_rng(0)
    arrays = dict(
        x_train=rng.integers(0, 256, (40, 8, 8), "uint8"),
        y_train=np.arange(40) % 2,
    )
    np.savez(dataset, **arrays)
    config = make_config(dataset=str(dataset), total_steps=2)
    finetune.run(config, str(tmp_path / "run"))
    arrays["y_train"][:2] = arrays["y_train"][1::-1]
    np.savez(dataset, **arrays)
    log = (tmp_path / "run" / "metrics.csv").read_bytes()
    with pytest.raises(ValueError, match="`dataset` must hold .*Restore the"):
        finetune.run(config, str(tmp_path / "run"))
    assert (tmp_path / "run" / "metrics.csv").read_bytes() == log


@pytest.mark.parametrize(
    "field", ["evaluation.fewshot_dataset", "probe.dataset", "distill.teacher"]
)
def test_a_changed_set_to_measure_on_or_teacher_is_not_resumed(field, tmp_path):
    path = tmp_path / "other.npz"
    rng = np.random.default_rng(0)
    arrays = dict(
        x_train=rng.integers(0, 256, (30, 8, 8), "uint8"),
        y_train=np.arange(30) % 2,
    )
    np.savez(path, **arrays)
    kind = dict(probe=unlabelled.Config, distill=distill.Config)
    config = kind.get(field.split(".")[0], experiment.Config)()
    config = fields.changed(config, {field: str(path)})
    workdir = tmp_path / "run"
    made = dict(others=others.described(config))
    workdirs.write_config(workdir, config, made)
    with fitting.opened(config, workdir) as (_, finished):
        assert not finished
    arrays["y_train"][:2] = arrays["y_train"][1::-1]
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match=f"`{field}` must be as when .*Restor"):
        with fitting.opened(config, workdir):
            pass
    # Which its figures do not need.
    made |= dict(total_steps=1)
    workdirs.write_config(workdir, config, made)
    (workdir / "metrics.csv").write_text("step\n1\n")
    (workdir / "last.keras").touch()
    with fitting.opened(config, workdir) as (_, finished):
        assert finished
