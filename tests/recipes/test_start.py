"""What a recipe prints before it imports Keras."""

import os
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.backend_independent

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def run(tmp_path):
    """Runs a recipe until it imports a library that takes seconds."""
    for name in ("keras", "tensorflow", "jax", "torch"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(__name__)")

    def run(module, *arguments, **environment):
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=os.environ
            | {"PYTHONPATH": str(tmp_path), "KERAS_BACKEND": "jax"}
            | environment,
        )
        return done.stdout, done.stderr, done.returncode

    return run


def test_a_recipe_says_what_starts_before_it_imports_keras(run):
    flags = (
        "--config.data.dataset=photos",
        "--config.seed",
        "1",
        "--workdir",
        "w",
    )
    printed, stopped_at, _ = run("recipes.pretrain", *flags)
    assert stopped_at == "keras\n"
    assert printed == (
        "Starting recipes.pretrain on jax with recipes/configs/pretrain.py "
        "--config.data.dataset=photos --config.seed 1 --workdir=w "
        "(importing libraries)\n"
    )


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--work=x", "Unknown command line flag 'work'"),
        ("--config=nowhere.py", "'nowhere.py', which is no file"),
    ],
)
def test_a_wrong_flag_is_refused_before_keras_is_imported(run, flag, message):
    printed, error, status = run("recipes.finetune", flag)
    assert (printed, status) == ("", 2)
    assert message in error and error.endswith("are listed by --help.\n")
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("module", "flag"),
    [("recipes.finetune", "--help"), ("recipes.evaluate", "--work=x")],
)
def test_help_and_programs_without_config_print_nothing(run, module, flag):
    assert run(module, flag)[:2] == ("", "keras\n")


def test_several_processes_train_together_or_are_refused_by_name(run):
    second = dict(RANK="1", WORLD_SIZE="2", KERAS_BACKEND="torch")
    assert run("recipes.finetune", **second)[:2] == ("", "keras\n")
    for module in ("recipes.evaluate", "recipes.miniature"):
        printed, error, status = run(module, **second)
        assert (printed, status) == ("", 2)
        assert error.startswith(f"{module} runs in one process; finetune, ")
