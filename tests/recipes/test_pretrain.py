"""Pre-training as the paper's Table 3 has it."""

import csv

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import data
from recipes import (
    checks,
    cli,
    finetune,
    inputs,
    pretrain,
    training_step,
)

pytestmark = pytest.mark.backend("torch")


def config_of(argument):
    flag = f"--config={pretrain.DEFAULT_CONFIG}:{argument}"
    return cli.parse(["pretrain", flag], pretrain.DEFAULT_CONFIG)[0]


@pytest.mark.backend("torch")
@pytest.mark.parametrize("model", ["MLPMixer", "MixerS16", "BiT"])
def test_digits_train_without_other_flags(tmp_path, model):
    config = cli.parse(
        ["finetune", f"--config.model.name={model}"], finetune.DEFAULT_CONFIG
    )[0]
    checks.check(config)
    train, evaluation = inputs.load(config)
    info = inputs.dataset_info(config, train)
    assert info.image_size == ((32, 32) if model == "MixerS16" else (8, 8))
    # But for the depth of the large one, and the number of steps.
    config.model.architecture.num_layers = 1 if model == "MixerS16" else 0
    config.schedule.total_steps, config.data.batch_size = 2, 16
    images, _ = inputs.pipelines(config, info, train, evaluation)
    trainer = training_step.build(config, info).trainer
    history = trainer.fit(
        data.as_pairs(images(0)), steps_per_epoch=2, shuffle=False, verbose=0
    )
    assert np.isfinite(history.history["loss"]).all()


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("ViTB16,jft300m,sgd", "must be a BiT ResNet on jft300m"),
        ("BiTR50x1,jft300m,adam", "must be MODEL,DATASET"),
        ("MixerB16,jft300m", "Table 3 trains on jft300m"),
        ("ViTB16", "must be MODEL,DATASET"),
        ("ViTS16,jft300m", "Table 3 trains on jft300m: .*ViTH14"),
        ("ViTX9,imagenet2012", "Received: 'ViTX9'"),
    ],
)
def test_other_rows_are_refused(argument, message):
    with pytest.raises(ValueError, match=message):
        config_of(argument)


def test_sigmoid_and_linear_decay_train(tmp_path, make_config):
    config = make_config(
        loss="sigmoid",
        head_bias=-10.0,
        schedule="linear",
        total_steps=4,
        micro_batches=2,
        remat=True,
        clip_norm=0.0,
        fewshot_dataset="digits",
        fewshot_shots=(1, 2),
    )
    results = pretrain.run(config, str(tmp_path / "run"))
    # About 10 for the class that is right, and nothing for the others.
    assert 5 < results["loss"] < 11
    with open(tmp_path / "run" / "metrics.csv", newline="") as file:
        row = list(csv.DictReader(file))[-1]
    assert 0.1 < float(row["digits/1-shot"]) < float(row["digits/2-shot"])
    model = keras.models.load_model(tmp_path / "run" / "last.keras")
    assert model.get_layer("encoderblock_0").remat
    # What fine-tuning begins with.
    keras_vit.ViT(weights=str(tmp_path / "run" / "last.keras"), classes=3)
