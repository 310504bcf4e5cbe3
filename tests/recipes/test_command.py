"""How a command starts, and how it ends after an error."""

import csv
import importlib
import io
import os
import pathlib
import signal
import sys

import keras
import processes
import pytest

import keras_vit
import keras_vit_cli
from keras_vit_cli import arguments, command
from recipes import finetune, start

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


def print_to_nobody(words):
    close_output()
    sys.exit(keras_vit_cli.main(words))


def train_for_nobody(rank):
    close_output()
    sys.argv = ["finetune"]
    os.environ["RANK"] = rank
    finetune.run = lambda config, workdir: print("trained", flush=True)
    start.main("recipes.finetune")


def close_output():
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, 1)
    sys.stdout = open(1, "w", closefd=False)


@pytest.mark.parametrize("words", [["weights", "list"], ["--help"]])
def test_output_that_nobody_reads_ends_the_command_quietly(words):
    ended = processes.Forked(print_to_nobody, words).end(60)
    assert ended == (141, "")


# Only the first process says what starts; others print what runs.
@pytest.mark.parametrize("rank", ["0", "1"])
def test_output_that_nobody_reads_ends_a_recipe_quietly(rank):
    ended = processes.Forked(train_for_nobody, rank).end(60)
    assert ended == (141, "")


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_what_is_printed_to_a_closed_output_goes_nowhere(name, monkeypatch):
    monkeypatch.setattr(sys, name, None)  # as `>&-` makes it

    def write(words):
        return csv.writer(getattr(sys, name)).writerow(words)

    assert command.entry(write)(["x"]) == 3
    with getattr(sys, name) as made:
        assert not made.isatty()


def test_names_that_stdout_cannot_print_are_escaped(monkeypatch):
    printed = io.BytesIO()
    stdout = io.TextIOWrapper(printed, "ascii")
    monkeypatch.setattr(sys, "stdout", stdout)
    command.entry(lambda words: print(*words))(["z\xe4", "\u65e5"])
    assert printed.getvalue().splitlines() == [rb"z\xe4 \u65e5"]


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


@pytest.mark.parametrize(
    ("option", "least"),
    [("--top_k", 1), ("--batch_size", 1), ("--frame_step", 0)],
)
@pytest.mark.parametrize("change", [-1, 0.5])
def test_numbers_out_of_range_are_refused(option, least, change, capsys):
    parser = arguments.parser()
    parser.parse_args(["predict", "m", "a.jpg", f"{option}={least}"])
    with pytest.raises(SystemExit, match="2"):
        parser.parse_args(
            ["predict", "m", "a.jpg", f"{option}={least + change}"]
        )
    message = f"argument {option}: must be an integer of at least {least}."
    assert message in capsys.readouterr().err


def test_no_program_takes_integers_of_any_sign():
    rooms = ("keras_vit_cli", "recipes", "tools")
    files = [file for room in rooms for file in (ROOT / room).rglob("*.py")]
    assert len(files) > 100
    assert not [x for x in files if "type=int" in x.read_text("utf-8")]


def test_the_version_is_shown(capsys):
    with pytest.raises(SystemExit, match="0"):
        keras_vit_cli.main(["--version"])
    assert capsys.readouterr().out == f"{keras_vit.__version__}\n"


@pytest.mark.parametrize(
    ("before", "after"), [("0", ("0",)), (None, ("2", "3"))]
)
def test_tensorflow_is_quiet_unless_the_user_asks(monkeypatch, before, after):
    monkeypatch.delenv(command.LOG_LEVEL, raising=False)
    if before:
        monkeypatch.setenv(command.LOG_LEVEL, before)
    ending_in(ValueError("no"))([])
    assert os.environ[command.LOG_LEVEL] in after


NAMES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for package in ("keras_vit_cli", "recipes", "tools")
    for path in (ROOT / package).rglob("*.py")
    if path.stem != "__main__"
)
# These import libraries of the documentation, or of the benchmarks.
OPTIONAL = ("mkdocs", "griffe")


def import_all():
    """Imports each module; raises where that changes the process."""

    def state():
        handlers = {number: signal.getsignal(number) for number in signals}
        return dict(
            handlers=handlers,
            arguments=list(sys.argv),
            finders=list(sys.meta_path),
            environment=dict(os.environ),
            functions=(keras.ops.mean, keras.layers.Layer.__call__),
        )

    signals = signal.Signals.SIGINT, signal.Signals.SIGTERM
    before = state()
    for name in NAMES:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            assert error.name.split(".")[0] in OPTIONAL, name
        after = state()
        assert after == before, (name, before, after)


def test_importing_programs_changes_nothing_in_the_process():
    processes.call(import_all)
