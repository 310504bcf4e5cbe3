"""Reads a recipe's command line: `--config`, its overrides, `--workdir`."""

import dataclasses
import difflib
import inspect
import os
import re
import runpy
import sys

from absl import flags
from ml_collections import config_flags


def main(run, default_config: str | os.PathLike) -> None:
    """Runs a recipe as the command line asks.

    Args:
        run: The recipe, a function of (config, workdir).
        default_config: Python file with `get_config()`, read without
            `--config`.
    """
    _name_main_module()
    try:
        config, workdir, wants_help = parse(sys.argv, default_config)
    except ValueError as error:
        sys.exit(f"{error}\nThe flags are listed by --help.")
    if wants_help:
        print(_help(run, config))
    else:
        run(config, workdir)


def parse(argv: list[str], default_config: str | os.PathLike):
    """Reads a command line.

    Args:
        argv: Program and arguments: `--config=FILE[:ARGUMENT]`,
            `--config.FIELD=VALUE`, `--workdir=FOLDER`, `--help`.
        default_config: Python file with `get_config()`, read without
            `--config`.

    Returns:
        The config with its overrides, the workdir ("" if none is given), and
        whether help was asked for.

    Raises:
        ValueError: If the file, a field or a value is not what it must be.
    """
    values = flags.FlagValues()
    values.set_gnu_getopt()
    flags.DEFINE_string(
        "config", os.fspath(default_config), "", flag_values=values
    )
    flags.DEFINE_string("workdir", "", "", flag_values=values)
    flags.DEFINE_bool("help", False, "", flag_values=values)
    try:
        program, *rest = values(argv, known_only=True)
        config = _load(values.config)
        _check_fields(config, rest)
        overrides = flags.FlagValues()
        overrides.set_gnu_getopt()
        config = config_flags.DEFINE_config_dataclass(
            "config", config, flag_values=overrides, sys_argv=[program, *rest]
        )
        positional = overrides([program, *rest])[1:]
    except flags.Error as error:
        raise ValueError(f"{error}.") from None
    if positional:
        raise ValueError(
            "Arguments must be flags, such as --config.seed=1. "
            f"Received: {positional}"
        )
    return config.value, values.workdir, values.help


def _name_main_module():
    """Lets a config file import the recipe that `python -m` runs.

    Its name is `__main__`; under its own name Python would import a second
    copy, whose Config is another class.
    """
    main_module = sys.modules["__main__"]
    if main_module.__spec__ is not None:
        sys.modules.setdefault(main_module.__spec__.name, main_module)


def _load(file_and_argument):
    """Returns what the file's get_config() returns."""
    file, *argument = file_and_argument.split(":", 1)
    if not os.path.isfile(file):
        raise ValueError(
            "--config must name a Python file with get_config(), and its "
            f"argument after a colon. Received: {file!r}, which is no file"
        )
    module = runpy.run_path(file)
    if "get_config" not in module:
        raise ValueError(
            "The file of --config must define get_config(). "
            f"Received: {file!r}, which does not"
        )
    return module["get_config"](*argument)


def _check_fields(config, arguments):
    """Refuses an override of a field that does not exist."""
    for argument in arguments:
        match = re.match(r"--?(?:no)?config\.([^=]+)", argument)
        holder = config
        for name in match[1].split(".") if match else ():
            names = (
                [field.name for field in dataclasses.fields(holder)]
                if dataclasses.is_dataclass(holder)
                else []
            )
            if name not in names:
                near = difflib.get_close_matches(name, names, n=3) or names
                raise ValueError(
                    f"--config.{match[1]} must name a field of the config. "
                    f"{name!r} is none; nearest: {', '.join(near) or 'none'}."
                )
            holder = getattr(holder, name)


def _help(run, config):
    """What the recipe does, its fields, and the values they have."""
    lines = [inspect.getdoc(run), "", inspect.getdoc(config), "", "Values:"]
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            lines += [
                f"  --config.{field.name}.{inner.name}="
                f"{getattr(value, inner.name)}"
                for inner in dataclasses.fields(value)
            ]
        else:
            lines.append(f"  --config.{field.name}={value}")
    return "\n".join([*lines, "  --workdir="])
