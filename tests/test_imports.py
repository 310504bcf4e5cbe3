"""The rule for imports, checked on the source."""

import ast
import graphlib
import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]

# Package -> the packages of this project that it may import besides itself.
LIBRARY = {"models", "layers", "ops", "weights", "data"}
UPPER = {"training", "evaluation", "inspection", "distribution", "export"}
MAY_IMPORT = {
    "ops": set(),
    "layers": {"ops"},
    "weights": set(),
    "data": set(),
    "models": {"layers", "ops", "weights", "data"},
    "heads": LIBRARY,
    "text": LIBRARY | {"heads"},
    **{name: LIBRARY | {"heads", "text"} for name in UPPER},
    "keras_vit_cli": LIBRARY | {"heads", "text"} | UPPER,
    "recipes": LIBRARY | {"heads", "text"} | UPPER,
    "tools": LIBRARY | {"heads", "text"} | UPPER,
}
# These packages import only NumPy and Keras,
PURE = {"heads", "layers", "models", "ops", "text", "weights"}
# and, within functions, the libraries of files and servers.
FILES_AND_SERVERS = {
    "fsspec",
    "google_crc32c",
    "h5py",
    "huggingface_hub",
    "ml_dtypes",
    "safetensors",
    "torch",
    "yaml",
}
# Imported in the functions that use them, never at module level.
OPTIONAL = {
    "jax",
    "matplotlib",
    "ml_collections",
    "sklearn",
    "tensorflow",
    "tensorflow_datasets",
    "torch",
}

FILES = [
    path
    for folder in ("keras_vit", "keras_vit_cli", "recipes", "tools")
    for path in sorted((ROOT / folder).rglob("*.py"))
]


def package_of(path):
    parts = path.relative_to(ROOT).parts
    if parts[0] != "keras_vit":
        return parts[0]
    return parts[1] if len(parts) > 2 else "keras_vit"


def imports_of(path):
    """Yields (module, whether at module level) for each import of a file."""
    tree = ast.parse(path.read_text())
    top = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) in top
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            for alias in node.names:
                yield f"{node.module}.{alias.name}", id(node) in top


@pytest.mark.backend_independent
@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_one_way(path):
    package = package_of(path)
    for module, at_top in imports_of(path):
        parts = module.split(".")
        assert parts[:2] != ["keras", "src"]
        if package != "keras_vit" and parts[0] == "keras_vit":
            target = parts[1] if len(parts) > 1 else "keras_vit"
            # These import nothing of the package.
            if target.startswith("_"):
                continue
            if target in MAY_IMPORT:
                allowed = MAY_IMPORT[package] | {package}
                assert target in allowed, f"{path} imports {module}"
            else:
                assert package in ("keras_vit_cli", "recipes", "tools")
        if parts[0] == "keras_vit_cli":
            assert package in ("keras_vit_cli", "recipes", "tools")
        if parts[0] in ("recipes", "tools", "tests"):
            # Tools plan, draw and report what recipes run, not the reverse.
            allowed = {package, "recipes"} if package == "tools" else {package}
            assert parts[0] in allowed, f"{path} imports {module}"
        if package in PURE:
            known = {*sys.stdlib_module_names, "keras", "numpy", "keras_vit"}
            if package == "weights" and not at_top:
                known |= FILES_AND_SERVERS
            if package in ("layers", "ops") and not at_top:
                # What Keras has no function for: JAX' platform, and its
                # barriers, PyTorch's product with a bias, and the shapes that
                # TensorFlow does not know.
                known |= {"jax", "tensorflow", "torch"}
            assert parts[0] in known, f"{path} imports {module}"
        if at_top and path.is_relative_to(ROOT / "keras_vit"):
            assert parts[0] not in OPTIONAL, f"{path} imports {module} on top"


@pytest.mark.backend_independent
def test_no_files_import_one_another_in_a_circle():
    names = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for path in FILES
        if path.name != "__init__.py"  # which hands names on
    }
    imported = {
        # `a.b.c` is the module `a.b.c`, or `c` of the module `a.b`.
        name: {
            known
            for module, _ in imports_of(path)
            for known in (module, module.rpartition(".")[0])
            if known in names and known != name
        }
        for name, path in names.items()
    }
    graphlib.TopologicalSorter(imported).prepare()  # raises a CycleError


@pytest.mark.backend_independent
def test_the_table_of_contributing_shows_the_house():
    imported, lines = {}, {}
    for path in FILES:
        package = package_of(path)
        count = len(path.read_text().splitlines())
        lines[package] = lines.get(package, 0) + count
        found = imported.setdefault(package, set())
        for module, _ in imports_of(path):
            parts = module.split(".")
            found.update(parts[:1] if parts[0] != "keras_vit" else parts[1:2])
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| `(\w+)/` \|.*\| (.*) \| ([\d,]+) \|$", text, re.M)
    assert {room for room, *_ in rows} == set(MAY_IMPORT)
    for room, neighbours, stated in rows:
        known = (imported[room] & set(MAY_IMPORT)) - {room}
        assert set(re.findall(r"\w+", neighbours)) == known, room
        assert int(stated.replace(",", "")) == pytest.approx(
            lines[room], rel=0.1
        ), room
