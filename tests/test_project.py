"""Facts that several files of the project state are the same in each."""

import configparser
import pathlib
import re
import tomllib

import pytest

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
        r"^ruff==(.*)$", setup("options.extras_require", "test"), re.MULTILINE
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
    workflow = read(".github/workflows/ci.yml")
    assert "\n          .ci/run" in workflow
    backends = re.search(r"backend: \[(.*)\]", workflow)[1].split(", ")
    assert set(backends) == {"tensorflow", "jax", "torch"}
    assert all(f"make {name} " in read(".ci/run") for name in ("lint", "types"))
