"""The command line of a recipe."""

import types
import typing

import pytest
from small_runs import changed

from keras_vit.models import families
from recipes import checks, cli, experiment, fields, finetune, sweep

pytestmark = pytest.mark.backend_independent


def parse(*arguments):
    return cli.parse(["recipe", *arguments], finetune.DEFAULT_CONFIG)


def test_without_arguments_the_config_is_that_of_the_digits():
    config, workdir, wants_help = parse()
    assert (config.model.name, config.data.dataset) == ("ViT", "digits")
    assert (workdir, wants_help) == ("", False)


@pytest.mark.parametrize(
    ("flag", "flip"),
    [
        ("data.dataset=photos", True),
        ("data.dataset=moving_digits", False),
        ("model.name=MLPMixer", False),
        ("model.weights=a", False),
    ],
)
def test_what_fits_the_digits_alone_is_not_that_of_others(flag, flip):
    assert parse()[0].data.image_size == (16,)
    config, *_ = parse(f"--config.{flag}", "--config.optim.base_lr=0.3")
    assert config.data.image_size == (0,)
    assert config.model.architecture == experiment.Architecture()
    assert (config.data.flip, config.optim.base_lr) == (flip, 0.3)
    path, value = flag.split("=")
    assert fields.get(config, path) == value


@pytest.mark.parametrize(
    "config",
    [
        "finetune.py:BiTR50x1,digits",
        "finetune.py:ViTB16,digits",
        "pretrain.py:DeiTS16,digits",
        "pretrain.py:RaftMLP,digits,short",
        "video.py:MViT,moving_digits",
        "video.py:MViTB16x4,moving_digits",
        "dino.py:ViT,digits",
    ],
)
def test_images_with_a_direction_are_not_mirrored(config):
    configs = finetune.DEFAULT_CONFIG.parent
    assert not parse(f"--config={configs / config}")[0].data.flip
    others = config.replace("moving_", "").replace("digits", "photos")
    assert parse(f"--config={configs / others}")[0].data.flip


def test_flags_override_fields_of_every_type():
    config, workdir, _ = parse(
        "--config.optim.base_lr=1e-3",
        "--config.data.batch_size",
        "32",
        "--config.data.flip",
        "--config.data.dataset=path/to/images",
        "--config.data.image_size=32,48",
        "--config.model.architecture.patch_size=8",
        "--workdir=runs/mine",
    )
    assert config.optim.base_lr == 1e-3
    assert config.data.batch_size == 32
    assert config.data.flip is True
    assert config.data.dataset == "path/to/images"
    assert config.data.image_size == (32, 48)
    assert config.model.architecture.patch_size == 8
    assert workdir == "runs/mine"


def test_one_number_is_an_image_size_too():
    assert parse("--config.data.image_size=32")[0].data.image_size == (32,)


def test_the_argument_after_the_colon_names_model_and_data_set():
    file = f"--config={finetune.DEFAULT_CONFIG}"
    config, *_ = parse(f"{file}:ViTB16,cifar10", "--config.seed=3")
    model = config.model
    assert (model.name, model.weights) == ("ViTB16", "imagenet21k")
    assert config.schedule.total_steps == 10_000
    assert (config.data.image_size, config.seed) == ((384,), 3)
    assert parse(f"{file}:ViTS16,mine")[0].model.weights == "augreg"
    assert parse(f"{file}:ViT,mine")[0].model.weights == ""


def test_of_a_data_set_outside_table_4_the_passes_are_counted():
    file = f"--config={finetune.DEFAULT_CONFIG}"
    config, *_ = parse(f"{file}:ViTL16,path/to/images")
    assert config.schedule.total_steps == 0 and config.schedule.num_epochs > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--config.batchsize=1"], "a field .* Nearest: data.batch_size"),
        (["--config.base_lr=1"], "--config.base_lr is now --config.optim.base"),
        (["--noconfig.flip"], "--config.flip is now --config.data.flip"),
        (["--config.model", "ViTB16"], "is now --config.model.name"),
        (
            ["--config.cluster.num_processes=2"],
            "is now --config.run.cluster.num_processes",
        ),
        (
            ["--config.model.architecture.num_head=1"],
            "Nearest: model.architecture.num_heads",
        ),
        (["--config.seed.x=1"], "must name a field"),
        (
            ["--config.data.batch_size=1.5"],
            "batch_size must be a whole number. Received: '1.5'",
        ),
        (
            ["--config.optim.base_lr=fast"],
            "must be a finite number. Received: 'fast",
        ),
        (
            ["--config.data.flip=maybe"],
            "must be true or false. Received: 'maybe'",
        ),
        (
            ["--config.model.architecture.num_heads=x"],
            "architecture.num_heads must be a whole number. Received: 'x'",
        ),
        (
            ["--config.optim.base_lr"],
            "Missing value for flag --config.optim.base_lr",
        ),
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
    assert "--config.model.architecture.patch_size=1\n" in text
    assert "base_lr: The highest learning rate." in text
    common, described, architecture = (
        text.index(part)
        for part in (
            "  --config.optim.base_lr=0.2\n",
            "base_lr: The",
            "model.architecture: Changes of the model;",
        )
    )
    assert common < architecture < described
    assert described < text.index("--config.optim.momentum")
    assert architecture < text.index("--config.model.architecture.")


def test_main_runs_the_recipe(monkeypatch):
    seen = []
    monkeypatch.setattr("sys.argv", ["recipe", "--workdir=w"])
    cli.main(lambda *received: seen.append(received), finetune.DEFAULT_CONFIG)
    ((config, workdir),) = seen
    assert (config.data.dataset, workdir) == ("digits", "w")


def test_main_ends_with_the_message_alone(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["recipe", "--config.lr=1"])
    with pytest.raises(SystemExit, match="2"):
        cli.main(finetune.run, finetune.DEFAULT_CONFIG)
    assert "--config.lr must name a field" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        (
            "data.image_size=a",
            "--config.data.image_size must be a whole number, or sev",
        ),
        ("data.augment=1", "--config.data.augment must be text, or several"),
        ("optim.base_lr=nan", "--config.optim.base_lr must be a finite number"),
        (
            "model.architecture.resnet_depths=1.5",
            "--config.model.architecture.resnet_depths must be a whole number",
        ),
    ],
)
def test_a_value_of_another_type_is_refused_by_its_field(argument, message):
    with pytest.raises(ValueError, match=message):
        parse(f"--config.{argument}")


def test_epochs_beside_steps_of_the_file_are_refused():
    file = f"--config={finetune.DEFAULT_CONFIG}:BiTR50x1,cifar10"
    epochs = "--config.schedule.num_epochs"
    with pytest.raises(ValueError, match="beside schedule.total_steps=10000"):
        parse(file, f"{epochs}=3")
    config, *_ = parse(file, f"{epochs}=3", "--config.schedule.total_steps=0")
    assert config.schedule.num_epochs == 3
    config, *_ = parse(file, f"{epochs}=0")
    assert config.schedule.total_steps == 10_000


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
        (CONFIG.format("seed='64'"), "seed must be a whole number"),
        (
            CONFIG.format("model=experiment.Model(weights=None)"),
            "model.weights must be text. Received: None",
        ),
        (
            CONFIG.format("data=experiment.Data(flip=1)"),
            "data.flip must be true or false. Received: 1",
        ),
        # The names of flat configs.
        (CONFIG.format("base_lr=1"), "base_lr is now optim.base_lr"),
        (CONFIG.format("model='ViTB16'"), "model is now model.name"),
        (CONFIG.format("schedule='step'"), "schedule is now schedule.name"),
        (
            CONFIG.format("").replace("return", "c =") + "    c.flip = True",
            "line 6: .*flip is now data.flip",
        ),
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
    monkeypatch.setattr(
        "sys.argv", ["x", "--debug", "--config.schedule.num_epochs=-1"]
    )
    with pytest.raises(SystemExit, match="2"):
        cli.main(finetune.run, finetune.DEFAULT_CONFIG)
    error = capsys.readouterr().err
    assert error.startswith("Traceback") and "`schedule.num_epochs`" in error


def test_a_bug_in_a_recipe_keeps_its_traceback(monkeypatch):
    def run(config, workdir):
        raise TypeError("a bug")

    monkeypatch.setattr("sys.argv", ["x"])
    with pytest.raises(TypeError, match="a bug"):
        cli.main(run, finetune.DEFAULT_CONFIG)


@pytest.mark.parametrize(
    ("name", "value"),
    [("drop_path_rate", 1.5), ("num_layers", -1), ("resnet_depths", (0, 1))],
)
def test_an_architecture_out_of_range_is_refused(name, value):
    other = experiment.Architecture(**{name: value})
    config = changed(experiment.Config(), num_epochs=1, architecture=other)
    with pytest.raises(
        ValueError, match=rf"`model.architecture.{name}` must be"
    ):
        checks.check(config)


def test_a_field_of_another_architecture_is_refused_by_name():
    other = experiment.Architecture(num_heads=2)
    config = changed(experiment.Config(), num_epochs=1, architecture=other)
    checks.check(config)
    config.model.name = "MLPMixer"
    message = r"`model.architecture.num_heads` must be left out .*'num_layers'"
    with pytest.raises(ValueError, match=message):
        checks.check(config)


def test_a_dtype_policy_that_cannot_train_is_refused():
    config = changed(experiment.Config(), num_epochs=1, dtype_policy="int8")
    with pytest.raises(ValueError, match="`model.dtype_policy` must be one of"):
        checks.check(config)


def test_every_field_of_a_family_is_one_of_the_architecture():
    expected = {"representation_size": int}
    for family in families.FAMILIES.values():
        for name, kind in typing.get_type_hints(family.config).items():
            if typing.get_origin(kind) in (typing.Union, types.UnionType):
                kind = typing.get_args(kind)[0]
            if typing.get_origin(kind) is typing.Literal:
                kind = str
            if kind == tuple[int, int, int]:
                kind = tuple[int, ...]
            if kind in (int, float, str, tuple[int, ...], tuple[float, ...]):
                expected.setdefault(name, kind)
    assert typing.get_type_hints(experiment.Architecture) == expected
    off = experiment.Architecture()
    assert not any(getattr(off, name) for name in expected)
