"""Pre-training as the paper's Table 3 has it."""

import csv

import keras
import pytest

import keras_vit
from recipes import cli, experiment, pretrain

# Epochs, base learning rate, decay, weight decay and dropout, copied from the
# paper; of two numbers of epochs the larger.
TABLE_3 = {
    "ViTB16,jft300m": (7, 8e-4, "linear", 0.1, 0.0),
    "ViTB32,jft300m": (7, 8e-4, "linear", 0.1, 0.0),
    "ViTL32,jft300m": (7, 6e-4, "linear", 0.1, 0.0),
    "ViTL16,jft300m": (14, 4e-4, "linear", 0.1, 0.0),
    "ViTH14,jft300m": (14, 3e-4, "linear", 0.1, 0.0),
    "R50ViTB16,jft300m": (7, 8e-4, "linear", 0.1, 0.0),
    "R50ViTB32,jft300m": (7, 8e-4, "linear", 0.1, 0.0),
    "R50ViTL32,jft300m": (7, 2e-4, "linear", 0.1, 0.0),
    "R50ViTL16,jft300m": (14, 4e-4, "linear", 0.1, 0.0),
    "ViTB16,imagenet21k": (90, 1e-3, "linear", 0.03, 0.1),
    "ViTB32,imagenet21k": (90, 1e-3, "linear", 0.03, 0.1),
    "ViTL16,imagenet21k": (90, 1e-3, "linear", 0.03, 0.1),
    "ViTL32,imagenet21k": (90, 1e-3, "linear", 0.03, 0.1),
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
        config.num_epochs,
        config.base_lr,
        config.schedule,
        config.weight_decay,
        config.architecture.dropout_rate,
    ) == TABLE_3[argument]
    assert (config.batch_size, config.warmup_steps) == (4096, 10_000)
    assert (config.image_size, config.optimizer) == ((224,), "adam")
    imagenet = argument.endswith("imagenet2012")
    assert config.clip_norm == (1.0 if imagenet else 0.0)
    assert config.loss == ("softmax" if imagenet else "sigmoid")
    assert config.head_bias == (0.0 if imagenet else -10.0)
    experiment.check(config)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
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
