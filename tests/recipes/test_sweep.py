"""Choosing a learning rate, then several seeds on everything."""

import dataclasses
import json

import numpy as np
import pytest
from small_runs import rows_of

from recipes import sweep

pytestmark = [
    pytest.mark.backend("torch"),
    pytest.mark.usefixtures("no_pictures"),
]


def last_accuracy(workdir):
    return float(rows_of(workdir)[-1]["val_accuracy"])


def config_in(workdir):
    return json.loads((workdir / "config.json").read_text())


def test_a_sweep_chooses_by_the_dev_split_and_trains_on_everything(
    tmp_path, make_config, monkeypatch, capsys
):
    config = sweep.Config(
        run=make_config(
            total_steps=4,
            eval_every=4,
            seed=5,
            optimizer="sgd",
            clip_norm=0.0,
        ),
        base_lrs=(1e30, 0.01),  # one diverges
        dev_fraction=0.1,
        num_seeds=2,
    )
    results = sweep.run(config, str(tmp_path))
    dev = {"1e+30": 0, "0.01": last_accuracy(tmp_path / "lr_0.01")}
    assert results["dev_accuracies"] == dev
    assert results["base_lr"] == 0.01 and dev["0.01"] > 0
    assert results["seeds"] == [5, 6]
    tested = [last_accuracy(tmp_path / f"seed_{seed}") for seed in (5, 6)]
    assert results["accuracies"] == tested
    assert results["accuracy_mean"] == pytest.approx(np.mean(tested))
    assert results["accuracy_std"] == pytest.approx(np.std(tested, ddof=1))
    assert json.loads((tmp_path / "results.json").read_text()) == results

    # The choice is made on a tenth of the training images.
    chosen_by, final = (
        config_in(tmp_path / name)["derived"] for name in ("lr_0.01", "seed_5")
    )
    assert final["train_images"] == 1438 and final["eval_images"] == 359
    assert chosen_by["train_images"] + chosen_by["eval_images"] == 1438
    assert chosen_by["eval_images"] == pytest.approx(144, abs=5)
    last_seed = config_in(tmp_path / "seed_6")["config"]
    assert last_seed["optim"]["base_lr"] == results["base_lr"]
    assert last_seed["seed"] == 6

    # Without the rate that diverges there is nothing left to do; of one seed
    # there is no deviation.
    monkeypatch.setattr(sweep.fitting, "fit", lambda *_, **__: 1 / 0)
    capsys.readouterr()
    one = dataclasses.replace(config, base_lrs=(0.01,), num_seeds=1)
    one = sweep.run(one, str(tmp_path))
    printed = capsys.readouterr().out
    assert printed.count("is finished") == 2
    assert "+-" not in printed
    assert one["accuracy_std"] is None
    assert one["accuracies"] == tested[:1]


def test_the_pair_is_chosen_by_the_dev_split_alone(
    tmp_path, make_config, monkeypatch
):
    ran = []

    def run(config, workdir):
        ran.append(config)
        dev = {(32, 0.1): 0.5, (32, 0.2): 0.6, (8, 0.1): 0.8, (8, 0.2): 0.7}
        accuracy = dev[config.data.batch_size, config.optim.base_lr]
        return {
            "accuracy": accuracy if config.data.dev_fraction else 1 - accuracy
        }

    monkeypatch.setattr(sweep.finetune, "run", run)
    # The rates of a sweep replace that of a setup.
    small = {"data.batch_size": 8, "optim.base_lr": 9.0}
    setups = {"large": {}, "small": small}
    config = sweep.Config(
        run=make_config(), base_lrs=(0.1, 0.2), setups=setups, num_seeds=2
    )
    results = sweep.run(config, str(tmp_path))
    assert (results["setup"], results["base_lr"]) == ("small", 0.1)
    assert max(results["dev_accuracies"].values()) == 0.8
    assert results["accuracy_mean"] == pytest.approx(0.2)
    assert len(ran) == 6
    assert {(c.data.batch_size, c.optim.base_lr) for c in ran[4:]} == {(8, 0.1)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(base_lrs=()), "`base_lrs` must be one or more"),
        (dict(base_lrs=(0.1, 0.1)), "different learning rates"),
        (dict(base_lrs=(0.1, -1.0)), "`optim.base_lr` must be a positive"),
        (dict(dev_fraction=1.0), "`dev_fraction` must lie between"),
        (dict(num_seeds=0), "`num_seeds` must be at least 1"),
        (dict(setups={}), "`setups` must be one or more"),
        (dict(setups={"a": {"rate": 1}}), "changes of fields of `run`"),
        (dict(setups={"a": {"crop": "pad"}}), "crop is now data.crop"),
        (dict(setups={"a": {"schedule.name": "step"}}), "`schedule.decay_at`"),
        (dict(base_lrs=(0.01, 0.01000000001)), "different learning rates"),
        (dict(setups={"a": {"seed": 1}}), "must leave seed to the sweep"),
        (dict(num_seeds=2**32 + 1), "`seed` must be .* below 4294967296"),
    ],
)
def test_what_cannot_be_swept_is_refused(
    tmp_path, make_config, changes, message
):
    with pytest.raises(ValueError, match=message):
        sweep.run(
            sweep.Config(run=make_config(), **changes), str(tmp_path / "run")
        )
    assert not (tmp_path / "run").exists()


def test_the_dev_split_is_that_of_the_sweep(tmp_path, make_config):
    config = sweep.Config(run=make_config(dev_fraction=0.3))
    with pytest.raises(ValueError, match="a sweep, which has `dev_fraction`"):
        sweep.run(config, str(tmp_path / "run"))
