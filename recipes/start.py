"""Starts a recipe, before Keras is imported, which takes seconds."""

import importlib
import os
import pathlib
import signal
import sys
from typing import NoReturn

from keras_vit_cli import command

FOLDER = pathlib.Path(__file__).parent
# Modules without which no recipe starts.
NEEDED = ("fcntl", "absl", "ml_collections")
# Recipes whose processes train one model together; others would do the same
# thing as often as they are started.
TRAIN_TOGETHER = (
    "finetune",
    "pretrain",
    "unlabelled",
    "vtab",
    "sweep",
    "study",
)


def main(module: str, config: str = "") -> NoReturn:
    """Run a recipe with the arguments of `python -m`, which runs its file.

    Checks the flags, prints what starts, and imports the recipe by its real
    name, so that it is the module that a file of --config imports, and not
    `__main__`.

    Args:
        module: Name of the recipe's module.
        config: Name of its default config, if that is another.

    Raises:
        SystemExit: With the status 2 after a user error, 141 where what reads
            the output has ended (see `command.entry`), and 0 for success.
    """
    command.quiet_tensorflow()
    command.escape_output()
    with command.read_by_another():
        _start(module, config)
    sys.exit()


def _start(module, config):
    name = config or module.removeprefix("recipes.")
    default_config = FOLDER / "configs" / f"{name}.py"
    try:
        _refuse_processes(module)
        backend = command.choose_backend()
        for needed in NEEDED:
            _require(needed)
        if default_config.is_file():
            _announce(module, default_config, backend)
    except (ImportError, ValueError) as error:
        command.report(error, "--debug" in sys.argv)
        sys.exit(2)
    # During the imports, Ctrl-C ends the process: Python's KeyboardInterrupt is
    # lost if it is raised in a callback of JAX.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    recipe = importlib.import_module(module)
    if not default_config.is_file():
        sys.exit(recipe.main())
    from recipes import cli

    cli.main(recipe.run, default_config)


def _refuse_processes(module):
    count = os.environ.get("WORLD_SIZE", "1")
    name = module.removeprefix("recipes.")
    if "RANK" in os.environ and count != "1" and name not in TRAIN_TOGETHER:
        raise ValueError(
            f"{module} runs in one process; {', '.join(TRAIN_TOGETHER)} run "
            f"in several. Received: process {os.environ['RANK']} of {count}, "
            "as torchrun starts them. Start it with python instead."
        )


def _require(module):
    try:
        importlib.import_module(module)
    except ImportError as error:
        remedy = command.installation()["pip_install"]("recipes")
        if module == "fcntl":  # a part of Python itself
            remedy = "on Windows use the Windows Subsystem for Linux (WSL)"
        raise ImportError(
            f"Recipes need `{module}`, which is not installed: {remedy}"
        ) from error


def _announce(module, default_config, backend):
    """Check the flags, and print what starts, unless help is requested."""
    from recipes import options

    with options.naming_help():
        given = options.read([module, *sys.argv[1:]], default_config)
    if given.help or os.environ.get("RANK", "0") != "0":
        return
    config = given.config
    if config.startswith(f"{FOLDER}{os.sep}"):
        config = os.path.relpath(config, FOLDER.parent)
    words = ["Starting", module, "on", backend, "with", config]
    words += given.overrides
    if given.workdir:
        words.append(f"--workdir={given.workdir}")
    print(*words, "(importing libraries)", flush=True)
