"""Pre-training as the paper's Table 3 has it."""

import keras
import pytest
from small_runs import rows_of

import keras_vit
from recipes import checks, cli, finetune, inputs, others, pretrain
from recipes import workdir as workdirs

pytestmark = pytest.mark.backend("torch")


def config_of(argument):
    flag = f"--config={pretrain.DEFAULT_CONFIG}:{argument}"
    return cli.parse(["pretrain", flag], pretrain.DEFAULT_CONFIG)[0]


@pytest.mark.parametrize(
    ("model", "side"), [("MLPMixer", 8), ("MixerS16", 32), ("BiT", 8)]
)
def test_digits_are_enlarged_where_a_model_needs_it(model, side):
    flags = ["finetune", f"--config.model.name={model}"]
    config = cli.parse(flags, finetune.DEFAULT_CONFIG)[0]
    checks.check(config)
    info = inputs.dataset_info(config, inputs.load(config)[0])
    assert info.image_size == (side, side)


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


@pytest.mark.usefixtures("no_pictures")
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
    row = rows_of(tmp_path / "run")[-1]
    assert 0.1 < float(row["digits/1-shot"]) < float(row["digits/2-shot"])
    there = workdirs.read_derived(tmp_path / "run")["others"]
    assert there == others.described(config)
    assert len(there["evaluation.fewshot_dataset"]) == 2
    model = keras.models.load_model(tmp_path / "run" / "last.keras")
    assert model.get_layer("encoderblock_0").remat
    # What fine-tuning begins with.
    keras_vit.ViT(weights=str(tmp_path / "run" / "last.keras"), classes=3)
