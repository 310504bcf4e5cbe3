"""The command line of a recipe."""

import pytest

from recipes import cli, finetune

pytestmark = pytest.mark.backend_independent


def parse(*arguments):
    return cli.parse(["recipe", *arguments], finetune.DEFAULT_CONFIG)


def test_without_arguments_the_config_is_that_of_the_digits():
    config, workdir, wants_help = parse()
    assert (config.model, config.dataset) == ("ViT", "digits")
    assert (workdir, wants_help) == ("", False)


def test_flags_override_fields_of_every_type():
    config, workdir, _ = parse(
        "--config.base_lr=1e-3",
        "--config.batch_size",
        "32",
        "--config.flip",
        "--config.dataset=path/to/images",
        "--config.image_size=32,48",
        "--config.architecture.patch_size=8",
        "--workdir=runs/mine",
    )
    assert config.base_lr == 1e-3
    assert config.batch_size == 32
    assert config.flip is True
    assert config.dataset == "path/to/images"
    assert config.image_size == (32, 48)
    assert config.architecture.patch_size == 8
    assert workdir == "runs/mine"


def test_one_number_is_an_image_size_too():
    assert parse("--config.image_size=32")[0].image_size == (32,)


def test_the_argument_after_the_colon_names_model_and_data_set():
    file = f"--config={finetune.DEFAULT_CONFIG}"
    config, *_ = parse(f"{file}:ViTB16,cifar10", "--config.seed=3")
    assert (config.model, config.weights) == ("ViTB16", "imagenet21k")
    assert (config.total_steps, config.batch_size) == (10_000, 512)
    assert (config.image_size, config.seed) == ((384,), 3)
    assert parse(f"{file}:ViTS16,mine")[0].weights == "augreg"
    assert parse(f"{file}:ViT,mine")[0].weights == ""


def test_of_a_data_set_outside_table_4_the_passes_are_counted():
    file = f"--config={finetune.DEFAULT_CONFIG}"
    config, *_ = parse(f"{file}:ViTL16,path/to/images")
    assert config.total_steps == 0 and config.num_epochs > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config.batchsize=1"], "'batchsize' is none; nearest: batch_size"),
        (
            ["--config.architecture.num_head=1"],
            "'num_head' is none; nearest: num_heads",
        ),
        (["--config.seed.x=1"], "must name a field"),
        (["--config.batch_size=1.5"], "--config.batch_size=1.5"),
        (["--config.base_lr=fast"], "--config.base_lr=fast"),
        (["--config.flip=maybe"], "--config.flip=maybe"),
        (["--config.base_lr"], "Missing value for flag --config.base_lr"),
        (["--config=nowhere.py"], "'nowhere.py', which is no file"),
        (["--work=x"], "Unknown command line flag 'work'"),
        (["stray"], "must be flags"),
        ([f"--config={finetune.DEFAULT_CONFIG}:ViTB16"], "MODEL,DATASET"),
        ([f"--config={__file__}"], "must define get_config"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(arguments, message):
    with pytest.raises(ValueError, match=message):
        parse(*arguments)


def test_help_tells_fields_and_values(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["recipe", "--help"])
    cli.main(finetune.run, finetune.DEFAULT_CONFIG)
    text = capsys.readouterr().out
    assert "--config.architecture.patch_size=0\n" in text
    assert "base_lr: The highest learning rate." in text


def test_main_runs_the_recipe(monkeypatch):
    seen = []
    monkeypatch.setattr("sys.argv", ["recipe", "--workdir=w"])
    cli.main(lambda *received: seen.append(received), finetune.DEFAULT_CONFIG)
    ((config, workdir),) = seen
    assert (config.dataset, workdir) == ("digits", "w")


def test_main_ends_with_the_message_alone(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["recipe", "--config.lr=1"])
    with pytest.raises(SystemExit, match="2"):
        cli.main(finetune.run, finetune.DEFAULT_CONFIG)
    assert "'lr' is none" in capsys.readouterr().err
