"""Optimizers, schedules, layers and data of the user's own, by name."""

import json
import pathlib
import re
import shlex

import keras
import numpy as np
import pytest

from recipes import choices, cli, finetune

pytestmark = pytest.mark.backend("torch")

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "finetune.md"


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Writes mine.py of the page; returns the flags of its command."""
    section = PAGE.read_text().split("### Your own")[1]
    (code,) = re.findall(r"```python\n(.*?)```", section.split("## ")[0], re.S)
    (tmp_path / "mine.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    command = re.search(
        r"    python -m recipes.finetune (.*?\n)\n", section, re.S
    )[1]
    return shlex.split(command.replace("\\\n", " "))


def run(*flags):
    arguments = ["recipe", *flags[0], "--workdir=run", *flags[1:]]
    config, workdir, _ = cli.parse(arguments, finetune.DEFAULT_CONFIG)
    finetune.run(config, workdir)


@pytest.mark.usefixtures("no_pictures")
def test_the_pages_example_trains(mine, tmp_path):
    run(mine, "--config.schedule.num_epochs=1")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert "mine:stripes" in json.dumps(config)
    assert (tmp_path / "run" / "last.keras").is_file()


def test_what_a_module_of_the_user_lacks_is_named_itself(mine, tmp_path):
    (tmp_path / "minetoo.py").write_text("import min")
    with pytest.raises(ModuleNotFoundError, match="'min'"):
        choices.find_optimizer("minetoo:Signs")


def test_names_of_keras_and_of_the_user_are_found(mine):
    found, keywords = choices.find_optimizer("Lion(beta_1=0.95)")
    assert (found, keywords) == (keras.optimizers.Lion, {"beta_1": 0.95})
    found, keywords = choices.find_optimizer("mine:Signs")
    assert issubclass(found, keras.optimizers.SGD) and not keywords
    make, positional, keywords = choices.find_schedule("mine:halving(times=2)")
    rate = make(0.8, 10, *positional, **keywords)
    np.testing.assert_allclose([rate(4), rate(5)], [0.8, 0.4], rtol=1e-6)


@pytest.mark.parametrize(
    ("find", "text", "words"),
    [
        (choices.find_optimizer, "adamw", "AdamW is 'adam' with"),
        (choices.find_optimizer, "Lio", "Nearest names: ['Lion'"),
        (choices.find_optimizer, "mine:Sings", "Nearest names: ['Signs']"),
        (choices.find_optimizer, "mine:stripes", "must be a class of optim"),
        (choices.find_optimizer, "Lion(0.9)", "arguments by name"),
        (choices.find_optimizer, "Lion(x=y)", "with literal arguments"),
        # The rate would be constant, and the averages never evaluated.
        (choices.find_optimizer, "Lion(learning_rate=1.0)", "`optim.base_lr`"),
        (choices.find_optimizer, "Lion(use_ema=True)", "`optim.ema_momentum`"),
        (choices.find_optimizer, "nowhere:Signs", "file nowhere.py"),
        (choices.find_schedule, "cosinus", "`schedule.name` must be one of"),
    ],
)
def test_other_names_are_refused(mine, find, text, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        find(text)


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("optim.name='Lion(banana=1)'", "banana"),
        ("schedule.name=PiecewiseConstantDecay", "`schedule.name` must take"),
        ("data.dataset=mine:Signs", "`keras_vit.data.Source`"),
        ("data.augment='\"mine:Signs\"'", "`augment` must name a Keras layer"),
    ],
)
def test_what_they_do_not_take_is_said(mine, flag, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        run(mine, *shlex.split(f"--config.{flag}"))
