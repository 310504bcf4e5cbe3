"""The flags of all recipes, which are read before Keras is imported."""

import contextlib
import os
import re
import typing

from absl import flags

# Overrides of the config: they are read when its class is imported.
OVERRIDE = re.compile(r"--?(no)?config\.")


class Options(typing.NamedTuple):
    """The flags of all recipes, and the arguments that are none of them."""

    config: str
    workdir: str
    help: bool
    debug: bool
    overrides: list[str]


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
