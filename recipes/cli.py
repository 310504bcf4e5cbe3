"""Reads a recipe's command line: `--config`, its overrides, `--workdir`."""

import atexit
import dataclasses
import difflib
import gc
import inspect
import math
import numbers
import os
import re
import runpy
import sys
import traceback
import typing

from absl import flags
from ml_collections import config_flags

from keras_vit import distribution
from keras_vit.models import families
from keras_vit_cli import command
from recipes import fields, options

# The fields that most runs change, first in --help.
COMMON = (
    "model.name",
    "model.weights",
    "data.dataset",
    "data.image_size",
    "data.batch_size",
    "schedule.num_epochs",
    "schedule.total_steps",
    "optim.base_lr",
    "evaluation.every",
    "seed",
)


def main(run, default_config: str | os.PathLike) -> None:
    """Run a recipe with the config of the command line.

    Raises:
        SystemExit: With status 2 after a user error; see `command.report`.
    """
    try:
        with options.naming_help():
            config, workdir, wants_help = parse(sys.argv, default_config)
            _check_class(config, run)
        if wants_help:
            print(_help(run, config))
            return
        # At exit Python would search all compiled objects for reference cycles,
        # for seconds.
        atexit.register(gc.freeze)
        with distribution.end_at_ctrl_c(
            "Interrupted. Run the same command again to resume."
        ):
            run(config, workdir)
    except BrokenPipeError:  # of the output: see `start.main`
        raise
    except command.USER_ERRORS as error:
        command.report(error, "--debug" in sys.argv)
        sys.exit(2)


def parse(argv: list[str], default_config: str | os.PathLike):
    """Read a command line.

    Returns:
        The config with its overrides, the workdir ("" if none is given), and
        whether help was requested.

    Raises:
        ValueError: If the file, a field or a value is invalid.
    """
    given = options.read(argv, default_config)
    arguments = [argv[0], *given.overrides]
    config = _override(_load(given.config), arguments)
    default = os.fspath(default_config).split(":")[0]
    if ":" not in given.config and os.path.samefile(given.config, default):
        other = _other_names(config, given.config)
        if other:
            config = _override(_load(f"{given.config}:{other}"), arguments)
    return config, given.workdir, given.help


def _other_names(config, file):
    """Return "MODEL,DATASET" where these are not those of a quick try.

    A file whose get_config() needs no argument sets what fits its own model
    and data set: the size of digits, and that they are not flipped.
    """
    get_config = runpy.run_path(file)["get_config"]
    parameters = inspect.signature(get_config).parameters.values()
    if [x.default for x in parameters] != [""]:
        return None
    own, paths = get_config(), ("model.name", "data.dataset", "model.weights")
    if all(fields.get(own, path) == fields.get(config, path) for path in paths):
        return None
    # Other models have weights, or are trained as the small one.
    titles = {family.title for family in families.FAMILIES.values()}
    model = config.model.name
    model = model if model in titles else own.model.name
    return f"{model},{config.data.dataset}"


def _override(config, arguments):
    """Return a config with the fields that are given on the command line."""
    try:
        _check_types(config)
        _check_fields(config, arguments[1:])
        overrides = flags.FlagValues()
        overrides.set_gnu_getopt()
        holder = config_flags.DEFINE_config_dataclass(
            "config", config, flag_values=overrides, sys_argv=arguments
        )
        positional = overrides(arguments)[1:]
    except flags.IllegalFlagValueError as error:
        raise ValueError(_wrong_value(config, str(error))) from None
    except flags.Error as error:
        raise ValueError(f"{error}.") from None
    if positional:
        raise ValueError(
            "Arguments must be flags, such as --config.seed=1. "
            f"Received: {positional}"
        )
    _check_types(holder.value)
    _check_epochs(holder.value, arguments)
    return holder.value


def _check_epochs(config, arguments):
    """Refuse a number of epochs where the file has a number of steps."""
    given = " ".join(arguments)
    for path, total_steps in _values(config):
        if not path.endswith("schedule.total_steps") or not total_steps:
            continue
        epochs = path.replace("total_steps", "num_epochs")
        if (
            f"--config.{epochs}" in given
            and f"--config.{path}" not in given
            and fields.get(config, epochs)
        ):
            raise ValueError(
                f"--config.{epochs} has no effect beside {path}="
                f"{total_steps}, which the file sets. Add --config.{path}=0."
            )


def _load(file_and_argument):
    """Return what the file's get_config() returns."""
    file, *argument = file_and_argument.split(":", 1)
    try:
        module = runpy.run_path(file)
    except Exception as error:
        raise ValueError(_broken_file(file, error)) from error
    if "get_config" not in module:
        raise ValueError(
            "The file of --config must define get_config(). "
            f"Received: {file!r}, which does not"
        )
    try:
        config = module["get_config"](*argument)
    except ValueError:  # its message explains the argument
        raise
    except Exception as error:
        raise ValueError(_broken_file(file, error)) from error
    if not dataclasses.is_dataclass(config):
        raise ValueError(
            "get_config() of --config must return the Config of a recipe. "
            f"Received: {config!r}, from {file!r}"
        )
    return config


def _broken_file(file, error):
    """Return the exception of the file of --config, and its line."""
    if isinstance(error, SyntaxError):
        lines = [error.lineno]
    else:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == file]
    place = f", line {lines[-1]}" if lines else ""
    # An unknown keyword of a Config, or attribute of one.
    unknown = re.findall(r"(?:argument|attribute) '(\w+)'", str(error))
    return (
        "The file of --config must be Python that runs. Received: "
        f"{file!r}{place}: {type(error).__name__}: {error}"
        + fields.hint(unknown)
    )


def _check_class(config, run):
    """Refuse the config of another recipe."""
    wanted = typing.get_type_hints(run).get("config")
    if wanted is not None and not isinstance(config, wanted):
        raise ValueError(
            "The file of --config must return the config of this recipe, "
            f"{wanted.__module__}.{wanted.__name__}. Received: "
            f"{type(config).__module__}.{type(config).__name__}"
        )


def _check_types(config, prefix="--config."):
    """Refuse values of a wrong type, and numbers that are not finite.

    Flags of tuples, and files, accept any value.
    """
    for name, kind in typing.get_type_hints(type(config)).items():
        value = getattr(config, name)
        is_group = dataclasses.is_dataclass(kind)
        if is_group and type(value) is kind:
            _check_types(value, f"{prefix}{name}.")
        elif not _is_of(value, kind):
            raise ValueError(
                f"{prefix}{name} must be {_in_words(kind)}. Received: "
                f"{value!r}" + (fields.hint([name]) if is_group else "")
            )


def _wrong_value(config, message):
    """Return what a field must be, instead of the error of a conversion."""
    match = re.match(r"flag --config\.([\w.]+)=(.*?): ", message, re.DOTALL)
    if match is None:
        return f"{message}."
    path, value = match.groups()
    parent, _, name = path.rpartition(".")
    holder = fields.get(config, parent) if parent else config
    kind = typing.get_type_hints(type(holder))[name]
    return f"--config.{path} must be {_in_words(kind)}. Received: {value!r}"


def _is_of(value, kind):
    if typing.get_origin(kind) is tuple:
        inner, _ = typing.get_args(kind)
        return isinstance(value, tuple) and all(_is_of(v, inner) for v in value)
    if isinstance(value, bool):
        return kind is bool
    if kind is int:
        return isinstance(value, numbers.Integral)
    if kind is float:
        return isinstance(value, numbers.Real) and math.isfinite(value)
    return isinstance(value, kind)


def _in_words(kind):
    if typing.get_origin(kind) is tuple:
        inner, _ = typing.get_args(kind)
        return f"{_in_words(inner)}, or several with commas between them"
    words = {
        int: "a whole number",
        float: "a finite number",
        bool: "true or false",
    }
    return words.get(kind, "text" if kind is str else kind.__name__)


def _check_fields(config, arguments):
    """Refuse an override of a field that does not exist."""
    paths = [path for path, _ in _values(config)]
    for argument in arguments:
        match = re.match(r"--?(?:no)?config\.([^=]+)", argument)
        if match is None or (path := match[1]) in paths:
            continue
        # The runs of a sweep have their fields in `run`.
        inner = path.removeprefix("run.")
        prefix = path.removesuffix(inner)
        current = prefix + fields.current(inner)
        if current != path and current in paths:
            raise ValueError(f"--config.{path} is now --config.{current}.")
        near = difflib.get_close_matches(current, paths, n=3)
        last = path.split(".")[-1]
        near += [x for x in paths if x.split(".")[-1] == last and x not in near]
        raise ValueError(
            f"--config.{path} must name a field of the config. Nearest: "
            f"{', '.join(near) or 'none'}."
        )


def _help(run, config):
    """Return the description of the recipe, its fields and their values.

    Common fields come first, then each group of fields.
    """
    values = {path: f"  --config.{path}={x}" for path, x in _values(config)}
    common = [p for p in values if p.removeprefix("run.") in COMMON]
    lines = [inspect.getdoc(run) or "", "", "Common fields:"]
    lines += [*(values[path] for path in common), "  --workdir="]
    for parent, group in _groups(config):
        own = [
            values[path]
            for path in values
            if path.rpartition(".")[0] == parent and path not in common
        ]
        lines += ["", f"{parent}: {inspect.getdoc(group)}".lstrip(": "), *own]
    return "\n".join([*lines, "", "--debug shows the traceback of an error."])


def _groups(config, path=""):
    """Yield (path, dataclass) of a config and of those nested in it."""
    yield path, config
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from _groups(value, f"{path}.{field.name}".lstrip("."))


def _values(config, prefix=""):
    """Yield (path, value) of all fields, also of nested configs."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            yield from _values(value, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, value
