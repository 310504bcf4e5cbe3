"""Common parts of all commands: flags, a quiet start, errors as messages.

Imports nothing but the standard library: it runs before TensorFlow loads.
"""

import argparse
import contextlib
import difflib
import functools
import glob
import io
import os
import pathlib
import re
import runpy
import sys
import traceback
from collections.abc import Callable, Iterable

# Errors of the user: a wrong value, a file or an address, a missing package.
# Any other exception is a bug and shows its traceback.
USER_ERRORS = (ValueError, OSError, ImportError)
LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"


class Parser(argparse.ArgumentParser):
    """A parser whose commands have the flag --debug.

    Flags have underscores, as the fields of the recipes' configs have; hyphens
    are read as well. The error of a misspelt choice has the nearest one. Help
    keeps the lines of the description, and calls a module `python -m MODULE`.
    """

    def __init__(self, **kwargs):
        import __main__  # what Python was started with

        spec = getattr(__main__, "__spec__", None)
        if spec:  # Python 3.14 does so itself
            name = spec.name.removesuffix(".__main__")
            kwargs.setdefault("prog", f"python -m {name}")
        kwargs.setdefault("formatter_class", argparse.RawTextHelpFormatter)
        super().__init__(**kwargs)
        self.add_argument(
            "--debug", action="store_true", help="show an error's traceback"
        )

    def parse_known_args(self, args=None, namespace=None):
        words = sys.argv[1:] if args is None else list(args)
        end = words.index("--") if "--" in words else len(words)
        flags = [re.sub(r"^--[\w-]+", _underscored, x) for x in words[:end]]
        return super().parse_known_args(flags + words[end:], namespace)

    def error(self, message):
        found = re.search(
            r"invalid choice: '(.*)' \(choose from (.*)\)", message
        )
        if found:
            word, choices = found[1], re.findall(r"[\w.-]+", found[2])
            for near in difflib.get_close_matches(word, choices, n=1):
                message += f". Did you mean {near!r}?"
        super().error(message)


def _underscored(match):
    return "--" + match[0][2:].replace("-", "_")


def count(text: str) -> int:
    """Return what an option gives, an integer of at least 1."""
    return _integer(text, 1)


def natural(text: str) -> int:
    """Return what an option gives, an integer of at least 0."""
    return _integer(text, 0)


def _integer(text, least):
    if not re.fullmatch("[0-9]+", text) or int(text) < least:
        raise argparse.ArgumentTypeError(
            f"must be an integer of at least {least}. Received: {text!r}"
        )
    return int(text)


def several(kind: Callable = str, known: Iterable[str] = ()) -> Callable:
    """Return what reads an option of several values, "A,B", as a list.

    Args:
        kind: Reads one of them.
        known: What they may be; () is anything.
    """

    def read(text):
        words = [word for word in text.split(",") if word]
        unknown = [word for word in words if known and word not in known]
        if unknown:
            raise argparse.ArgumentTypeError(
                f"must be of {', '.join(known)}. Received: {unknown}"
            )
        return [kind(word) for word in words]

    return read


def entry(main):
    """Decorate `main(arguments)` of a command.

    TensorFlow is quiet. An error that the user caused is reported, and the
    exit status is 2. It is 141, without a message, where what reads the output
    has ended, as `| head` does.

    Args:
        main: Takes the arguments, parses them with `Parser`, and returns the
            exit status.

    Returns:
        The same function; its arguments are those of sys.argv by default.
    """

    @functools.wraps(main)
    def wrapped(arguments: list[str] | None = None) -> int:
        arguments = sys.argv[1:] if arguments is None else arguments
        quiet_tensorflow()
        escape_output()
        try:
            with read_by_another():
                return main(arguments)
        except USER_ERRORS as error:
            report(error, "--debug" in arguments)
            return 2

    return wrapped


@contextlib.contextmanager
def read_by_another():
    """End the process quietly where its output is no longer read.

    Raises:
        SystemExit: With the status 141, 128 + SIGPIPE as shells count.
    """
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes what is left at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(141)


def escape_output() -> None:
    """Print what the encoding of stdout lacks as in stderr, such as \\xe4.

    What is printed to a closed one of them, as by `>&-`, goes nowhere.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def report(error: Exception, debug: bool = False) -> None:
    """Print the message of one of `USER_ERRORS` to stderr."""
    text = _message(error)
    if debug:
        text = "".join(traceback.format_exception(error)).rstrip()
    print(text, file=sys.stderr, flush=True)


def _message(error):
    """Return the message; for an error of another library, also its origin."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    frame, line = list(traceback.walk_tb(error.__traceback__))[-1]
    module = frame.f_globals.get("__name__", "")
    text = str(error) or "no message"
    # "<run_path>" is the file of --config.
    ours = (
        "keras_vit",
        "keras_vit_cli",
        "recipes",
        "tools",
        "__main__",
        "<run_path>",
    )
    if module.split(".")[0] in ours and str(error):
        return text
    return (
        f"{type(error).__name__}: {text}\n"
        f"Raised in {module}, line {line}; --debug shows the traceback."
    )


def choose_backend() -> str:
    """Select an installed backend, as `import keras_vit` does, but at once.

    Returns:
        Its name.

    Raises:
        ImportError: If none is installed, or not the one that is set.
    """
    return installation()["choose_backend"]()


def installation() -> dict:
    """Return what keras_vit._installation defines, without keras_vit."""
    package = pathlib.Path(__file__).parents[1] / "keras_vit"
    return runpy.run_path(str(package / "_installation.py"))


def quiet_tensorflow() -> None:
    """Hide the log of TensorFlow, unless TF_CPP_MIN_LOG_LEVEL is set.

    Errors stay visible if there is a GPU; without one, TensorFlow reports its
    absence as an error. TensorFlow respects the variable only after its import,
    during which it logs some lines.
    """
    has_gpu = bool(glob.glob("/dev/nvidia[0-9]*"))
    os.environ.setdefault(LOG_LEVEL, "2" if has_gpu else "3")
