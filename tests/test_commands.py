"""Every command of the documentation parses, and its program starts.

Commands are read off README.md, docs/, CONTRIBUTING.md and the docstrings of
programs; a page's code that is no command is listed in `NO_COMMANDS`.
"""

import argparse
import configparser
import dataclasses
import functools
import importlib
import re
import runpy
import shlex
import subprocess
import sys

import processes
import pytest

from keras_vit_cli import arguments
from recipes import checks, cli, experiment
from tests.documented import BLOCKS, ROOT, Block

pytestmark = pytest.mark.backend_independent

PYTHON = ("python", "py", "example")
# What a shell block may begin with, besides our own programs.
SHELL = """curl docker export gcloud git keras-vit kubectl make mv pip
pre-commit python torchrun""".split()
# Blocks that are neither Python nor shell, by their first words.
NO_COMMANDS = {
    "README.md": ["@inproceedings"],
    "docs/finetune.md": ["path/to/images/train"],
    "docs/notebooks/build_vit.ipynb": ["z_0", "[q,", "MSA(z)", "z'_l", "y"],
    "docs/notebooks/dictionary.ipynb": ["answer", "q"],
    "docs/notebooks/mixers.ipynb": ["u"],
    "docs/serving.md": ["serving/vit/", "prometheus_config"],
}
# Options of programs that are not ours, and of their pages.
OTHERS = {
    "docs/serving.md": {
        "--file_system_poll_wait_seconds",
        "--monitoring_config_file",
        "--rest_api_timeout_in_ms",
    },
    "docs/tpu.md": {
        "--max_restarts",
        "--nnodes",
        "--nproc_per_node",
        "--rdzv_endpoint",
    },
}
# A call at the beginning of a line, or after another.
CALL = re.compile(
    r"(?:^|&& )(?:[A-Z_]+=\S+ )*"
    r"(?:(?:python|torchrun(?: --\S+)*) -m ([\w.]+)|(keras-vit))(?: (.*)|$)"
)
OURS = ("recipes.", "tools.", "keras_vit")
TESTS = "tools.test_backends"  # hands its arguments to pytest
SECTIONS = configparser.ConfigParser()
SECTIONS.read(ROOT / "setup.cfg")
NAME = SECTIONS["metadata"]["name"]


@dataclasses.dataclass(frozen=True)
class Command:
    """A program of ours and its arguments, and where they are documented."""

    where: str
    program: str
    words: tuple[str, ...]

    def __str__(self):
        return f"{self.where}: {' '.join((self.program, *self.words))}"


def lines_of(block):
    """Yields the lines of code, continued ones joined."""
    text = re.sub(r"\\\n\s*", " ", block.text)
    if block.language == "docstring":
        # Beside lines, code in sentences; optional arguments are in brackets.
        text = re.sub(r"[\[\]]", "", text)
        yield from (
            " ".join(code.split()) for code in re.findall(r"`([^`]+)`", text)
        )
    if block.language == "inline":
        text = " ".join(text.split())
    yield from (line.strip() for line in text.splitlines() if line.strip())


def split(text):
    """Returns the words of a command, up to an operator of the shell."""
    if text.count('"') % 2:  # the command is a part of a quoted one
        text = text[: text.rindex('"')]
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";|&<>")
    lexer.whitespace_split = True
    words = []
    for word in lexer:
        if set(word) <= set(";|&<>"):
            break
        words.append(word)
    return words


def commands():
    """Yields a Command for each call of a program of ours."""
    texts = [
        Block("keras_vit_cli/arguments.py", 0, "docstring", text, name)
        for name, text in vars(arguments).items()
        if isinstance(text, str) and not name.startswith("_")
    ]
    for block in [*BLOCKS, *texts]:
        if block.language in PYTHON:
            continue
        for line in lines_of(block):
            for module, script, rest in CALL.findall(line):
                words = [
                    word.removesuffix(":...")
                    for word in split(rest)
                    if word != "..."
                ]
                if script:
                    yield Command(str(block), "keras_vit_cli", tuple(words))
                elif module.startswith(OURS) and module != TESTS:
                    yield Command(str(block), module, tuple(words))


COMMANDS = sorted(set(commands()), key=str)
PROGRAMS = sorted({command.program for command in COMMANDS})


class Parsed(Exception):
    """Ends a program's main function when its arguments were read."""


@functools.cache
def parser_of(program):
    """Returns the argparse parser that a program reads its arguments with."""

    def stop(parser, *arguments):
        raise Parsed(parser)

    with pytest.MonkeyPatch.context() as patch:
        for method in ("parse_args", "parse_known_args"):
            patch.setattr(argparse.ArgumentParser, method, stop)
        try:
            importlib.import_module(program).main([])
        except Parsed as parsed:
            return parsed.args[0]
    raise AssertionError(f"{program}.main reads no arguments")


def parse(command, patch):
    """Reads a command's arguments as its program does."""
    words = list(command.words)
    module = importlib.import_module(command.program)
    if hasattr(module, "DEFAULT_CONFIG"):
        if not command.program.startswith("recipes."):
            # Its own options, and those of a recipe.
            _, words = parser_of(command.program).parse_known_args(words)
        config, *_ = cli.parse(["", *words], module.DEFAULT_CONFIG)
        # What is the user's own, tests/recipes/test_choices.py trains with.
        is_run = isinstance(config, experiment.Config)
        if is_run and ":" not in config.optim.name:
            checks.check(config)
        return

    if len(words) < 2:
        return  # a sentence names a program without its arguments

    parse_args = argparse.ArgumentParser.parse_args

    def stop(parser, *arguments):
        parse_args(parser, *arguments)
        raise Parsed

    patch.setattr(argparse.ArgumentParser, "parse_args", stop)
    with pytest.raises(Parsed):
        module.main(words)


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_the_command_parses(command, monkeypatch):
    monkeypatch.chdir(ROOT)
    parse(command, monkeypatch)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("recipes.finetune", "--config.batchsize=1"),
        ("recipes.finetune", "--config=recipes/configs/finetune.py:ViTB17,x"),
        ("recipes.evaluate", "model.keras --data=digits --top"),
        ("tools.plan_tpu", "v3-8 --config.nothing=1"),
        ("tools.near_duplicates", "--pretrain=a --test=b --nothing -- --c"),
        ("keras_vit_cli", "export model.keras serving/vit/1 --quick"),
    ],
)
def test_a_command_with_a_wrong_argument_fails(program, words, monkeypatch):
    monkeypatch.chdir(ROOT)
    command = Command("here", program, tuple(words.split()))
    with pytest.raises((ValueError, SystemExit)):
        parse(command, monkeypatch)


def test_the_programs_start():
    printed = processes.call(show_help, PROGRAMS)
    texts = printed.split("\n== ")[1:]
    assert [text.split()[0] for text in texts] == PROGRAMS
    for text in texts:
        assert "--" in text, text


def show_help(programs):
    """Does what `python -m program --help` does, for each program."""
    for program in programs:
        print("\n==", program, flush=True)
        # As if it were the first that is imported.
        for name in [*sys.modules]:
            if f"{name}.".startswith(OURS[:2]):
                del sys.modules[name]
        sys.argv = [program, "--help"]
        try:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        except SystemExit as end:
            assert not end.code, program


def shell_blocks():
    for block in BLOCKS:
        if block.language in (*PYTHON, "docstring", "inline"):
            continue
        text = block.text.strip()
        known = NO_COMMANDS.get(block.path, [])
        if not text.startswith((*known, "--")):
            yield block


@pytest.mark.parametrize("block", list(shell_blocks()), ids=str)
def test_the_block_is_shell(block):
    """A page's code in another language must be named in `NO_COMMANDS`."""
    program = re.match(r"(?:[A-Z_]+=\S+ )*(\S+)", block.text.strip())[1]
    assert program in SHELL, f"{block} is neither shell nor Python"
    done = subprocess.run(
        ["bash", "-n"], input=block.text, capture_output=True, text=True
    )
    assert done.returncode == 0 and not done.stderr, done.stderr


def test_what_is_no_command_is_there():
    for path, starts in NO_COMMANDS.items():
        texts = [block.text.strip() for block in BLOCKS if block.path == path]
        for start in starts:
            assert any(text.startswith(start) for text in texts), start


def options():
    """Yields (page, option) for each option that stands without a program."""
    for block in BLOCKS:
        if block.language in (*PYTHON, "docstring"):
            continue
        for line in lines_of(block):
            if not line.startswith("-- ") and line.startswith("--"):
                # An explanation may follow after several spaces.
                for word in split(re.split(r"\s{2,}", line)[0]):
                    if word.startswith("--"):
                        yield block.path, word


@pytest.mark.parametrize(("page", "option"), sorted(set(options())))
def test_the_option_is_one_of_a_program(page, option, monkeypatch):
    monkeypatch.chdir(ROOT)
    name, *_ = option.partition("=")
    if name in OTHERS.get(page, ()):
        return
    if name.startswith("--config."):
        recipes = [name for name in PROGRAMS if name.startswith("recipes.")]
        assert any(takes(recipe, option) for recipe in recipes), option
    else:
        known = {word for name in PROGRAMS for word in options_of(name)}
        assert name in known, option


def takes(recipe, option):
    """Whether a recipe has the field, and takes its value if one is given."""
    module = importlib.import_module(recipe)
    if not hasattr(module, "DEFAULT_CONFIG"):
        return False
    if "=" in option:
        # A field of the config of a task, or of the recipe's own.
        default = module.DEFAULT_CONFIG
        for field, file in (
            ("task", "detect"),
            ("text", "contrastive"),
            ("distill", "distill"),
        ):
            if option.startswith(f"--config.{field}."):
                default = default.with_name(f"{file}.py")
        try:
            cli.parse(["", option], default)
        except ValueError:
            return False
        return True
    config, *_ = cli.parse([""], module.DEFAULT_CONFIG)
    for field in option.split(".")[1:]:
        if not hasattr(config, field):
            return False
        config = getattr(config, field)
    return True


def options_of(program):
    """Yields the options of a program and of its commands."""
    if hasattr(importlib.import_module(program), "run"):
        yield from ("--config", "--debug", "--help", "--workdir")
        return
    parsers = [parser_of(program)]
    while parsers:
        parser = parsers.pop()
        for action in parser._actions:
            yield from action.option_strings
            if isinstance(action, argparse._SubParsersAction):
                parsers += action.choices.values()


def test_what_is_installed_is_an_extra_or_a_file_of_this_project():
    extras = set(SECTIONS["options.extras_require"])
    found = 0
    for block in BLOCKS:
        for words in re.findall(r"pip install ([^`&|]*)", block.text):
            for name, asked in re.findall(r"([\w.-]+)\[([\w,-]+)\]", words):
                if name in (".", NAME):
                    found += 1
                    assert set(asked.split(",")) <= extras, f"{block}: {words}"
                assert name != "keras_vit", f"{block}: another package"
            for path in re.findall(r"-r\s+([\w/-]+\.txt)", words):
                found += 1
                assert (ROOT / path).is_file(), f"{block}: {words}"
    assert found


def test_targets_of_make_are_there():
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.M))
    for block in BLOCKS:
        if block.language in ("", "inline", "sh"):
            asked = set(re.findall(r"\bmake (\w+)", block.text))
            assert asked <= targets, block
