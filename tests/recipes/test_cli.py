"""The command line of a recipe."""

import pytest

from recipes import cli, experiment, finetune, sweep

pytestmark = pytest.mark.backend_independent


def parse(*arguments):
    return cli.parse(["recipe", *arguments], finetune.DEFAULT_CONFIG)


def test_without_arguments_the_config_is_that_of_the_digits():
    config, workdir, wants_help = parse()
    assert (config.model, config.dataset) == ("ViT", "digits")
    assert (workdir, wants_help) == ("", False)


@pytest.mark.parametrize(
    ("flag", "flip"),
    [("dataset=photos", True), ("model=MLPMixer", False), ("weights=a", False)],
)
def test_what_fits_the_digits_alone_is_not_that_of_others(flag, flip):
    assert parse()[0].image_size == (16,)
    config, *_ = parse(f"--config.{flag}", "--config.base_lr=0.3")
    assert config.image_size == (0,)
    assert config.architecture == experiment.Architecture()
    assert (config.flip, config.base_lr) == (flip, 0.3)
    assert str(getattr(config, flag.split("=")[0])) == flag.split("=")[1]


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
        (
            ["--config.batch_size=1.5"],
            "batch_size must be a whole number. Received: '1.5'",
        ),
        (["--config.base_lr=fast"], "must be a finite number. Received: 'fast"),
        (["--config.flip=maybe"], "must be true or false. Received: 'maybe'"),
        (
            ["--config.architecture.num_heads=x"],
            "architecture.num_heads must be a whole number. Received: 'x'",
        ),
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


def test_help_lists_fields_and_values(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["recipe", "--help"])
    cli.main(finetune.run, finetune.DEFAULT_CONFIG)
    text = capsys.readouterr().out
    assert "--config.architecture.patch_size=1\n" in text
    assert "base_lr: The highest learning rate." in text
    common, described, architecture = (
        text.index(part)
        for part in (
            "  --config.base_lr=0.2\n",
            "base_lr: The",
            "Fields of architecture:",
        )
    )
    assert common < described < text.index("--config.momentum") < architecture
    assert architecture < text.index("--config.architecture.")


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


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("image_size=a", "--config.image_size must be a whole number, or sev"),
        ("augment=1", "--config.augment must be text, or several"),
        ("base_lr=nan", "--config.base_lr must be a finite number"),
        (
            "architecture.resnet_units=1.5",
            "--config.architecture.resnet_units must be a whole number",
        ),
    ],
)
def test_a_value_of_another_type_is_refused_by_its_field(argument, message):
    with pytest.raises(ValueError, match=message):
        parse(f"--config.{argument}")


def test_a_sweep_over_what_is_no_number_is_refused(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["sweep", "--config.base_lrs=0.1,abc"])
    with pytest.raises(SystemExit, match="2"):
        cli.main(sweep.run, sweep.DEFAULT_CONFIG)
    error = capsys.readouterr().err
    assert error.startswith("--config.base_lrs must be a finite number, or")
    assert "Received: ('0.1,abc',)" in error and "Traceback" not in error


CONFIG = """
from recipes import experiment

def get_config():
    return experiment.Config({})
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def get_config(:", "line 1: SyntaxError"),
        ("import no_such_module", "line 1: ModuleNotFoundError"),
        ("def get_config():\n    return missing", "line 2: NameError"),
        ("def get_config():\n    return None", "must return the Config"),
        (CONFIG.format("epochs=1"), "line 5: TypeError"),
        (CONFIG.format("batch_size='64'"), "batch_size must be a whole number"),
        (CONFIG.format("weights=None"), "weights must be text. Received: None"),
        (CONFIG.format("flip=1"), "flip must be true or false. Received: 1"),
    ],
)
def test_a_broken_config_file_is_named(tmp_path, text, message):
    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        parse(f"--config={file}")


def test_the_config_of_another_recipe_is_refused(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["x", f"--config={sweep.DEFAULT_CONFIG}"])
    with pytest.raises(SystemExit, match="2"):
        cli.main(finetune.run, finetune.DEFAULT_CONFIG)
    assert "recipes.experiment.Config. Received" in capsys.readouterr().err


def test_with_debug_main_shows_the_traceback(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["x", "--debug", "--config.num_epochs=-1"])
    with pytest.raises(SystemExit, match="2"):
        cli.main(finetune.run, finetune.DEFAULT_CONFIG)
    error = capsys.readouterr().err
    assert error.startswith("Traceback") and "`num_epochs`" in error


def test_a_bug_in_a_recipe_keeps_its_traceback(monkeypatch):
    def run(config, workdir):
        raise TypeError("a bug")

    monkeypatch.setattr("sys.argv", ["x"])
    with pytest.raises(TypeError, match="a bug"):
        cli.main(run, finetune.DEFAULT_CONFIG)


@pytest.mark.parametrize(
    ("name", "value"),
    [("drop_path_rate", 1.5), ("num_layers", -1), ("resnet_units", (0, 1))],
)
def test_an_architecture_out_of_range_is_refused(name, value):
    changed = experiment.Architecture(**{name: value})
    config = experiment.Config(num_epochs=1, architecture=changed)
    with pytest.raises(ValueError, match=f"`architecture.{name}` must be"):
        experiment.check(config)


def test_a_dtype_policy_that_cannot_train_is_refused():
    config = experiment.Config(num_epochs=1, dtype_policy="int8")
    with pytest.raises(ValueError, match="`dtype_policy` must be one of"):
        experiment.check(config)
