"""Self-distillation, from the config to a model that is evaluated."""

import csv

import numpy as np
import pytest
import small_runs

from recipes import cli, dino, experiment, fields, unlabelled

SMALL = {
    "objective": "dino",
    "dino.local_size": 0,  # 4 pixels
    "dino.num_local": 2,
    "dino.local_area": (0.2, 0.5),
    "dino.num_prototypes": 16,
    "dino.hidden_size": 16,
    "dino.bottleneck_size": 8,
    "dino.frozen_steps": 2,
    "dino.temperature_steps": 3,
    "dino.momentum": 0.8,
    "dino.distort": False,
    "optim.weight_decay": 0.04,
    "optim.final_weight_decay": 0.4,
}
V2 = {
    "dino.patch_weight": 1.0,
    "dino.koleo_weight": 0.1,
    "dino.centring": "sinkhorn",
}


def small_config(**changes):
    config = small_runs.small_config(
        unlabelled.Config(),
        architecture=experiment.Architecture(
            patch_size=2,
            hidden_size=8,
            num_layers=1,
            num_heads=2,
            mlp_dim=16,
            dropout_rate=0.1,
        ),
        eval_fraction=0.05,
    )
    return fields.changed(config, SMALL | changes)


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.thorough("tensorflow", "jax")
@pytest.mark.parametrize(
    "changes",
    [pytest.param({}, marks=pytest.mark.thorough), V2],
    ids=["dino", "dinov2"],
)
def test_a_run_that_was_stopped_ends_with_the_same_bits(changes, tmp_path):
    config = small_config(**changes)
    results = unlabelled.run(config, str(tmp_path / "whole"))
    measures = {"teacher_entropy", "mean_entropy", "feature_spread"}
    assert {"loss", "step", "best_loss"} | measures <= set(results)
    assert np.isfinite(list(results.values())).all()

    folders = (tmp_path / name for name in ("whole", "stopped"))
    model = small_runs.assert_resumes(unlabelled.run, config, results, *folders)
    # An ordinary model, which can be trained.
    assert model.output_shape == (None, 8) and model.trainable_weights


@pytest.mark.backend_independent
def test_a_collapse_is_noticed(tmp_path, capsys):
    notice = dino.NoticeCollapse(tmp_path / "metrics.csv")
    high = dict.fromkeys(dino.MEASURES, 0.5)
    rows = [high, high | {"feature_spread": 0.06}]
    with open(notice.log, "w", newline="") as file:
        writer = csv.DictWriter(file, ("step", *dino.MEASURES))
        writer.writeheader()
        writer.writerows(dict(row, step=i) for i, row in enumerate(rows))
    notice.on_train_begin()
    notice.on_epoch_end(2, rows[1])
    assert not capsys.readouterr().out
    notice.on_epoch_end(3, high | {"mean_entropy": 0.04})
    assert "WARNING: mean_entropy fell to 0.04, from 0.5" in (
        capsys.readouterr().out
    )


@pytest.mark.backend_independent
def test_settings():
    def config_of(arguments):
        path = f"recipes/configs/dino.py:{arguments}"
        config, *_ = cli.parse(["", f"--config={path}"], path.split(":")[0])
        unlabelled.check(config)
        return config

    # Caron et al. 2021, and the defaults of main_dino.py.
    common = {
        "dino.num_prototypes": 65_536,
        "dino.hidden_size": 2048,
        "dino.bottleneck_size": 256,
        "dino.student_temperature": 0.1,
        "dino.teacher_temperatures": (0.04, 0.07),
        "dino.local_area": (0.05, 0.4),
        "dino.global_area": (0.4, 1.0),
        "dino.num_local": 8,
        "dino.local_size": 96,
        "dino.centring": "mean",
        "dino.momentum": 0.996,
        "optim.weight_decay": 0.04,
        "optim.final_weight_decay": 0.4,
        "data.batch_size": 1024,
        "model.architecture.drop_path_rate": 0.1,
    }
    for model, own in (
        (
            "ViTS16",
            {
                "optim.name": "AdamW(clipnorm=3.0)",
                "optim.base_lr": 0.0005 * 4,
                "dino.frozen_steps": 1251,
                "dino.temperature_steps": 30 * 1_281_167 // 1024,
            },
        ),
        # From memory.
        ("ViTB16", {"optim.base_lr": 0.00075 * 4, "schedule.num_epochs": 400}),
    ):
        config = config_of(f"{model},imagenet2012")
        for field, value in (common | own).items():
            assert fields.get(config, field) == value, field
    # dinov2/configs/ssl_default_config.yaml.
    config = config_of("DINOv2L14,imagenet2012")
    for field, value in {
        "dino.koleo_weight": 0.1,
        "dino.patch_weight": 1.0,
        "dino.masked": (0.1, 0.5),
        "dino.momentum": 0.992,
        "dino.local_area": (0.05, 0.32),
        "optim.layer_decay": 0.9,
        "optim.clip_norm": 3.0,
        "schedule.total_steps": 100 * 1250,
        "schedule.warmup_steps": 10 * 1250,
    }.items():
        assert fields.get(config, field) == value, field
    for path, value, message in (
        ("dino.centring", "none", "`centring` must be one of"),
        ("dino.student_temperature", 0.0, "`student_temperature` must"),
        ("run.micro_batches", 2, "`run.micro_batches` must be 1"),
        ("model.tune", "head", "`model.tune` must be 'all'"),
        ("optim.ema_momentum", 0.5, "`optim.ema_momentum` must be 0"),
        ("data.augment", ("MixUp",), "`data.augment` has no effect on"),
        ("dino.masked", (0.2, 0.4), "`dino.masked` has no effect on a run of"),
    ):
        with pytest.raises(ValueError, match=message):
            unlabelled.check(small_config(**{path: value}))
