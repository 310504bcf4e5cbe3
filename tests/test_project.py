"""Facts that several files of the project state are the same in each."""

import ast
import configparser
import pathlib
import re
import tomllib

import pytest
import yaml

ROOT = pathlib.Path(__file__).parents[1]
pytestmark = pytest.mark.backend_independent


def read(name):
    return (ROOT / name).read_text()


def setup(section, option):
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser[section][option]


def test_every_file_pins_the_same_ruff():
    (pinned,) = re.findall(
        r"^ruff==(.*)$", read("requirements/test.txt"), re.MULTILINE
    )
    ruff = tomllib.loads(read("pyproject.toml"))["tool"]["ruff"]
    assert ruff["required-version"] == f"=={pinned}"
    assert f"rev: v{pinned}\n" in read(".pre-commit-config.yaml")


def test_every_file_states_the_version_that_the_changelog_describes():
    version = setup("metadata", "version")
    released = re.findall(
        r"^## \[(\d\S*)\] - (\S+)$", read("CHANGELOG.md"), re.MULTILINE
    )
    citation = read("CITATION.cff")
    assert released[0][0] == version
    assert f'\n__version__ = "{version}"\n' in read("keras_vit/__init__.py")
    assert f"\nversion: {version}\n" in citation
    assert f"\ndate-released: {released[0][1]}\n" in citation


def test_the_workflow_of_the_public_host_runs_the_same_commands():
    workflow = yaml.safe_load(read(".github/workflows/ci.yml"))
    jobs = workflow["jobs"]
    matrix = jobs["test"]["strategy"]["matrix"]
    supported = re.findall(r"Python :: (3\.\d+)", read("setup.cfg"))
    assert matrix["python"] == supported
    assert set(matrix["backend"]) == {"tensorflow", "jax", "torch"}
    versions = {each["versions"] for each in matrix["include"]}
    assert versions == {"floor", "nightly"}
    steps = [s.get("run", "") for job in jobs.values() for s in job["steps"]]
    asked = set(re.findall(r"make ([a-z ]+)", "\n".join(steps)))
    assert asked == {"lint types docs", "test"}
    lines = re.findall(r"^make (.+) PYTHON=", read(".ci/run"), re.MULTILINE)
    targets = {word for line in lines for word in line.split()}
    assert {word for word in targets if word[0] != "-"} == {
        *("lint", "types", "docs", "test")
    }


def test_the_workflow_of_accelerators_runs_files_that_exist():
    workflow = yaml.safe_load(read(".github/workflows/accelerator.yml"))
    (job,) = workflow["jobs"].values()
    commands = "\n".join(step.get("run", "") for step in job["steps"])
    paths = re.findall(r"(?:tests|requirements)/[\w./]+", commands)
    assert len(paths) > 5 and all((ROOT / path).exists() for path in paths)
    assert "python -m tools.benchmark --device=" in commands


def test_every_requirement_that_code_needs_has_a_floor():
    # What only checks the tree is pinned.
    for name in ("recipes", "test"):
        for line in read(f"requirements/{name}.txt").splitlines():
            if line and not line.startswith(("#", "-r")):
                assert re.fullmatch(r"[\w.-]+[=>]=[\w.]+", line), line
    for name in ("tensorflow", "jax", "torch", "data", "checkpoints"):
        for line in setup("options.extras_require", name).split():
            assert ">=" in line, line


def test_the_data_of_the_tests_have_less_than_10_mb():
    files = [x for x in (ROOT / "tests").rglob("*") if x.is_file()]
    sizes = [x.stat().st_size for x in files if ".py" not in x.suffix]
    assert sum(sizes) < 10e6


def lines_of(function, source):
    """Return the lines of a function, but for its docstring and comments."""
    first = function.body[0]
    if ast.get_docstring(function, clean=False) is not None:
        documented = range(first.lineno, first.end_lineno + 1)
    else:
        documented = range(0)
    return [
        number
        for number in range(function.lineno, function.end_lineno + 1)
        if number not in documented
        and source[number - 1].strip()
        and not source[number - 1].strip().startswith("#")
    ]


@pytest.mark.parametrize(
    "room", ["keras_vit", "keras_vit_cli", "recipes", "tools"]
)
def test_functions_have_few_lines_and_arguments(room):
    for path in (ROOT / room).rglob("*.py"):
        source = path.read_text()
        for each in ast.walk(ast.parse(source)):
            if isinstance(each, ast.FunctionDef):
                given = [*each.args.posonlyargs, *each.args.args]
                given += each.args.kwonlyargs
                given = [x for x in given if x.arg not in ("self", "cls")]
                place = f"{path.relative_to(ROOT)}:{each.lineno} {each.name}"
                assert len(given) <= 10, place
                assert len(lines_of(each, source.splitlines())) <= 60, place
