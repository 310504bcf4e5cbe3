"""The start of a recipe, before Keras is imported, which takes seconds."""

import contextlib
import os
import pathlib
import re
import sys
import typing

from absl import flags

from keras_vit_cli import command

FOLDER = pathlib.Path(__file__).parent
# Overrides of the config: they are read when its class is imported.
OVERRIDE = re.compile(r"--?(no)?config\.")


class Options(typing.NamedTuple):
    """The flags of all recipes, and the arguments that are none of them."""

    config: str
    workdir: str
    help: bool
    debug: bool
    overrides: list[str]


def announce(arguments: list[str], module: str) -> None:
    """Check the flags of a recipe, and print what starts.

    Prints nothing for modules without a config.

    Args:
        module: Name of the module that `python -m` runs.

    Raises:
        SystemExit: With status 2, if a flag is unknown or the config is no
            file.
    """
    name = module.removeprefix("recipes.")
    default_config = FOLDER / "configs" / f"{name}.py"
    if not (default_config.is_file() and (FOLDER / f"{name}.py").is_file()):
        return
    try:
        with naming_help():
            options = read([module, *arguments], default_config)
    except ValueError as error:
        command.report(error, "--debug" in arguments)
        sys.exit(2)
    if options.help:
        return
    config = options.config
    if config.startswith(f"{FOLDER}{os.sep}"):
        config = os.path.relpath(config, FOLDER.parent)
    words = ["Starting", module, "on", command.choose_backend(), "with", config]
    words += options.overrides
    if options.workdir:
        words.append(f"--workdir={options.workdir}")
    print(*words, "(importing libraries)", flush=True)


def read(argv: list[str], default_config: str | os.PathLike) -> Options:
    """Read the flags of all recipes.

    Raises:
        ValueError: If a flag is unknown or the config is no file.
    """
    values = flags.FlagValues()
    values.set_gnu_getopt()
    flags.DEFINE_string(
        "config", os.fspath(default_config), "", flag_values=values
    )
    flags.DEFINE_string("workdir", "", "", flag_values=values)
    flags.DEFINE_bool("help", False, "", flag_values=values)
    flags.DEFINE_bool("debug", False, "", flag_values=values)
    try:
        program, *rest = values(argv, known_only=True)
        values(  # raises
            [program]
            + [x for x in rest if x[:2] == "--" and not OVERRIDE.match(x)]
        )
    except flags.Error as error:
        raise ValueError(f"{error}.") from None
    file = values.config.split(":", 1)[0]
    if not os.path.isfile(file):
        raise ValueError(
            "--config must name a Python file with get_config(), and its "
            f"argument after a colon. Received: {file!r}, which is no file"
        )
    return Options(
        values.config, values.workdir, values.help, values.debug, rest
    )


@contextlib.contextmanager
def naming_help():
    """Add to the error of a command line where the flags are listed."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{error}\nThe flags are listed by --help.") from error
