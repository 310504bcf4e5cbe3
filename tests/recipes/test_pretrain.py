"""Pre-training as the paper's Table 3 has it."""

import csv

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import data
from recipes import (
    cli,
    experiment,
    finetune,
    inputs,
    pretrain,
    training_step,
)

pytestmark = pytest.mark.backend("torch")

# Epochs, base learning rate, decay, weight decay and dropout, copied from the
# paper; of two numbers of epochs the larger.
TABLE_3 = {
    "ViTB16,jft300m": (7, 8e-4, "linear", 0.1, 0.0),
    "ViTB32,jft300m": (7, 8e-4, "linear", 0.1, 0.0),
    "ViTL32,jft300m": (7, 6e-4, "linear", 0.1, 0.0),
    "ViTL16,jft300m": (14, 4e-4, "linear", 0.1, 0.0),
    "ViTH14,jft300m": (14, 3e-4, "linear", 0.1, 0.0),
    "BiTR50x1,jft300m": (7, 1e-3, "linear", 0.1, 0.0),
    "BiTR50x2,jft300m": (7, 1e-3, "linear", 0.1, 0.0),
    "BiTR101x1,jft300m": (7, 8e-4, "linear", 0.1, 0.0),
    "BiTR152x1,jft300m": (7, 6e-4, "linear", 0.1, 0.0),
    "BiTR152x2,jft300m": (7, 6e-4, "linear", 0.1, 0.0),
    "R50ViTB16,jft300m": (7, 8e-4, "linear", 0.1, 0.0),
    "R50ViTB32,jft300m": (7, 8e-4, "linear", 0.1, 0.0),
    "R50ViTL32,jft300m": (7, 2e-4, "linear", 0.1, 0.0),
    "R50ViTL16,jft300m": (14, 4e-4, "linear", 0.1, 0.0),
    "ViTB16,imagenet21k": (90, 1e-3, "linear", 0.03, 0.1),
    "ViTB32,imagenet21k": (90, 1e-3, "linear", 0.03, 0.1),
    "ViTL16,imagenet21k": (90, 1e-3, "linear", 0.03, 0.1),
    "ViTL32,imagenet21k": (90, 1e-3, "linear", 0.03, 0.1),
    # Of Tables 5 and 6 and Figure 13: as the models beside them.
    "ViTH14,imagenet21k": (90, 1e-3, "linear", 0.03, 0.1),
    "BiTR200x3,jft300m": (14, 6e-4, "linear", 0.1, 0.0),
    "AxialResNet50,jft300m": (7, 1e-3, "linear", 0.1, 0.0),
    "AxialViTB32,jft300m": (7, 8e-4, "linear", 0.1, 0.0),
    "AxialViTB16,jft300m": (7, 8e-4, "linear", 0.1, 0.0),
    # Hybrids as their ViT counterparts.
    "R50ViTB16,imagenet21k": (90, 1e-3, "linear", 0.03, 0.1),
    "R50ViTB32,imagenet21k": (90, 1e-3, "linear", 0.03, 0.1),
    "R50ViTL16,imagenet21k": (90, 1e-3, "linear", 0.03, 0.1),
    "R50ViTL32,imagenet21k": (90, 1e-3, "linear", 0.03, 0.1),
    "ViTB16,imagenet2012": (300, 3e-3, "cosine", 0.3, 0.1),
    "ViTL32,imagenet2012": (300, 3e-3, "cosine", 0.3, 0.1),
}


def config_of(argument):
    flag = f"--config={pretrain.DEFAULT_CONFIG}:{argument}"
    return cli.parse(["pretrain", flag], pretrain.DEFAULT_CONFIG)[0]


@pytest.mark.parametrize("argument", TABLE_3)
def test_configs_are_the_rows_of_table_3(argument):
    config = config_of(argument)
    assert (
        config.schedule.num_epochs,
        config.optim.base_lr,
        config.schedule.name,
        config.optim.weight_decay,
        config.model.architecture.dropout_rate,
    ) == TABLE_3[argument]
    assert (config.data.batch_size, config.schedule.warmup_steps) == (
        4096,
        10_000,
    )
    assert (config.data.image_size, config.optim.name) == ((224,), "adam")
    imagenet = argument.endswith("imagenet2012")
    assert config.optim.clip_norm == (1.0 if imagenet else 0.0)
    assert config.optim.loss == ("softmax" if imagenet else "sigmoid")
    assert config.model.head_bias == (0.0 if imagenet else -10.0)
    experiment.check(config)


@pytest.mark.parametrize("model", ["BiTR50x1", "BiTR152x2"])
def test_resnets_of_table_7_have_sgd_beside_adam(model):
    adam, sgd = (config_of(f"{model},jft300m{end}") for end in ("", ",sgd"))
    assert (adam.optim.name, sgd.optim.name) == ("adam", "sgd")
    assert adam.schedule.num_epochs == sgd.schedule.num_epochs == 7
    # BiT's own: 0.03 for a batch of 256, and 1e-4 of L2, which a momentum of
    # 0.9 multiplies by 10.
    assert (sgd.optim.base_lr, sgd.optim.momentum) == (0.03 * 16, 0.9)
    assert sgd.optim.weight_decay == pytest.approx(1e-4 / (1 - 0.9))
    assert adam.model.architecture == sgd.model.architecture
    assert adam.model.architecture.activation_order == "post_activation"
    for config in (adam, sgd):
        experiment.check(config)


def test_mixer_and_bit_are_pre_trained_as_big_vision_does():
    mixer = config_of("MixerB16,imagenet2012")
    assert (mixer.schedule.num_epochs, mixer.optim.base_lr) == (300, 1e-3)
    assert (mixer.schedule.name, mixer.schedule.warmup_steps) == (
        "linear",
        10_000,
    )
    assert (mixer.optim.loss, mixer.model.head_bias) == ("sigmoid", -6.9)
    # Theirs is not multiplied by the learning rate.
    assert mixer.optim.weight_decay * mixer.optim.base_lr == pytest.approx(1e-4)
    assert mixer.model.architecture.drop_path_rate == 0.1
    for dataset, rate, warmup in (
        ("imagenet2012", 0.1, 1_000),
        ("imagenet21k", 0.03, 5_000),
    ):
        bit = config_of(f"BiTR101x1,{dataset}")
        assert (bit.schedule.num_epochs, bit.optim.base_lr) == (90, rate * 16)
        assert (bit.schedule.name, bit.schedule.warmup_steps) == (
            "cosine",
            warmup,
        )
        assert bit.optim.weight_decay == 1e-3
        assert bit.model.architecture.activation_order == ""
    for config in (mixer, bit):
        experiment.check(config)


@pytest.mark.backend("torch")
@pytest.mark.parametrize("model", ["MLPMixer", "MixerS16", "BiT"])
def test_digits_train_without_other_flags(tmp_path, model):
    config = cli.parse(
        ["finetune", f"--config.model.name={model}"], finetune.DEFAULT_CONFIG
    )[0]
    experiment.check(config)
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
