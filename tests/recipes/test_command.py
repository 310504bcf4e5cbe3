"""How a command starts, and how it ends after an error."""

import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

import keras_vit
import keras_vit_cli
from keras_vit_cli import arguments, command

# Of plain Python, the same on every backend.
pytestmark = pytest.mark.backend_independent

ROOT = pathlib.Path(__file__).parents[2]


def ending_in(error):
    @command.entry
    def main(arguments):
        """Does it."""
        command.Parser(prog="it").parse_args(arguments)
        raise error

    return main


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("`seed` must be 1."), "`seed` must be 1."),
        (ImportError("pip install it"), "pip install it"),
        (ConnectionError("no answer"), "no answer"),
        (
            FileNotFoundError(2, "No such file or directory", "a.npz"),
            "a.npz: No such file or directory",
        ),
    ],
)
def test_an_error_that_the_user_caused_is_its_message_alone(
    error, message, capsys, monkeypatch
):
    # Errors of this file count as ours, as those of a recipe do.
    monkeypatch.setitem(globals(), "__name__", "recipes.mine")
    assert ending_in(error)([]) == 2
    assert capsys.readouterr() == ("", f"{message}\n")


def test_with_debug_the_traceback_is_shown(capsys):
    assert ending_in(ValueError("no"))(["--debug"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("Traceback") and error.endswith("ValueError: no\n")


def test_of_an_error_of_a_library_the_origin_is_shown_too(capsys):
    assert ending_in(ValueError("no shape"))([]) == 2
    error = capsys.readouterr().err
    assert error.startswith("ValueError: no shape\nRaised in ")
    assert "--debug shows the traceback" in error


@pytest.mark.parametrize("error", [TypeError, KeyError, AssertionError])
def test_a_bug_keeps_its_traceback(error):
    with pytest.raises(error):
        ending_in(error("x"))([])


def test_help_lists_the_debug_flag(capsys):
    with pytest.raises(SystemExit, match="0"):
        ending_in(None)(["--help"])
    assert "--debug" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "near"),
    [(["predct"], "predict"), (["weights", "lsit"], "list")],
)
def test_a_misspelt_command_is_answered_with_the_nearest(words, near, capsys):
    with pytest.raises(SystemExit, match="2"):
        keras_vit_cli.main(words)
    assert f"Did you mean '{near}'?" in capsys.readouterr().err


def test_flags_have_underscores_and_hyphens_are_read_too():
    parser = arguments.parser()
    for flags in (["--num_heads=3"], ["--num-heads=3"], ["--num-heads", "3"]):
        words = ["convert", "a-b", "c", *flags, "--format=jax"]
        options = parser.parse_args(words)
        assert (options.num_heads, options.source) == (3, "a-b")
    words = ["predict", "m", "--", "--a-b.jpg"]
    assert parser.parse_args(words).images == ["--a-b.jpg"]


def test_the_version_is_shown(capsys):
    with pytest.raises(SystemExit, match="0"):
        keras_vit_cli.main(["--version"])
    assert capsys.readouterr().out == f"{keras_vit.__version__}\n"


# A TensorFlow that logs as the real one does while it is imported.
TENSORFLOW = """
import os, sys
print("a warning of Python", file=sys.stderr)
os.write(2, b"WARNING: All log messages before absl::InitializeLog() is\\n")
os.write(2, b"I0000 00:00:1795313130.05    6671 port.cc:153] oneDNN is on\\n")
os.write(2, b"W0000 00:00:1795313130.05    6671 a.cc:1] registered twice\\n")
os.write(2, b"E0000 00:00:1795313130.05    6671 b.cc:1] no factory\\n")
os.write(2, b"2024-01-01 00:00:00.000001: I tensorflow/a.cc:1] oneDNN\\n")
level = os.environ.get("TF_CPP_MIN_LOG_LEVEL")
if os.environ.get("BROKEN"):
    raise ImportError("libcudart.so")
"""


def stderr_of_import(folder, level, package="recipes", **environment):
    """What importing that TensorFlow writes in a process of its own."""
    (folder / "tensorflow.py").write_text(TENSORFLOW)
    program = f"""
        import sys
        sys.path[:0] = [{str(folder)!r}, {str(ROOT)!r}]
        import importlib.util
        import {package}
        from keras_vit_cli import command
        command.quiet_tensorflow()  # a command does so in a recipe
        importlib.util.find_spec("tensorflow")  # as PyTorch asks
        import tensorflow
        import tensorflow as again
        print(tensorflow.level, tensorflow.__spec__.loader.__class__.__name__)
        print("after", file=sys.stderr)
    """
    environment |= {} if level is None else {"TF_CPP_MIN_LOG_LEVEL": level}
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("TF_")}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        env=inherited | environment,
    )


@pytest.mark.parametrize("package", ["recipes", "tools"])
def test_tensorflow_is_quiet_and_nothing_else_is_lost(tmp_path, package):
    done = stderr_of_import(tmp_path, None, package)
    assert done.stderr == "a warning of Python\nafter\n"
    assert done.stdout.split() in (
        ["2", "SourceFileLoader"],  # with a GPU
        ["3", "SourceFileLoader"],
    )


@pytest.mark.parametrize(("level", "lines"), [("0", 7), ("1", 4), ("2", 3)])
def test_what_the_user_asks_tensorflow_to_log_is_shown(tmp_path, level, lines):
    done = stderr_of_import(tmp_path, level)
    assert len(done.stderr.splitlines()) == lines
    assert "no factory" in done.stderr
    assert done.stdout.split()[0] == level


def test_a_tensorflow_that_does_not_load_gives_the_reason(tmp_path):
    done = stderr_of_import(tmp_path, None, BROKEN="1")
    assert done.returncode == 1
    assert "ImportError: libcudart.so" in done.stderr
