"""The examples and commands of the documentation, read off its files."""

import ast
import dataclasses
import inspect
import json
import pathlib
import re
import textwrap

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("**/*.md")),
]
NOTEBOOKS = sorted((ROOT / "docs").glob("**/*.ipynb"))
SOURCES = [
    path
    for folder in ("keras_vit", "keras_vit_cli", "recipes", "tools")
    for path in sorted((ROOT / folder).rglob("*.py"))
]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# An indented block follows an empty line and is no item of a list.
_INDENTED = re.compile(r"(?:(?<=\n\n)|\A)(?: {4}.*\n|\n(?= {4}))+")
_INLINE = re.compile(r"`([^`]+)`")


@dataclasses.dataclass(frozen=True)
class Block:
    """A piece of code, and where it stands.

    `language` is that of a fence, "" of a fence without one and of an indented
    block, "inline" of code in a sentence, "example" and "docstring" of Python
    files; `scope` is the name of the documented function or class.
    """

    path: str
    line: int
    language: str
    text: str
    scope: str = ""

    def __str__(self):
        return f"{self.path}:{self.scope or self.line}"


def text_of(path):
    """Returns a page's text, of a notebook that between its code."""
    if path.suffix != ".ipynb":
        return path.read_text()
    cells = json.loads(path.read_text())["cells"]
    return "\n\n".join(
        "".join(cell["source"])
        for cell in cells
        if cell["cell_type"] == "markdown"
    )


def blocks_of_page(path):
    """Returns the Blocks of a Markdown file or of a notebook's text."""
    text = text_of(path)
    name = str(path.relative_to(ROOT))
    found = []

    def take(pattern, language=None, group=0):
        nonlocal text
        for match in pattern.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            kind = match[1] if language is None else language
            code = textwrap.dedent(match[2 if language is None else group])
            found.append(Block(name, line, kind, code))
        # Blank what was taken, so that the lines keep their numbers.
        text = pattern.sub(lambda m: re.sub(r"[^\n]", "", m[0]), text)

    take(_FENCE)
    take(_INDENTED, "")
    take(_INLINE, "inline", 1)
    return found


def blocks_of_source(path):
    """Returns the Blocks of a Python file: docstrings and their examples."""
    name = str(path.relative_to(ROOT))
    found = []

    def visit(node, scope):
        docstring = ast.get_docstring(node, clean=True)
        line = getattr(node, "lineno", 1)
        if docstring:
            found.append(Block(name, line, "docstring", docstring, scope))
            for text in _examples(docstring):
                found.append(Block(name, line, "example", text, scope))
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                visit(child, f"{scope}.{child.name}".lstrip("."))

    visit(ast.parse(path.read_text()), "")
    return found


def _examples(docstring):
    """Yields the code of the sections `Example` of a docstring."""
    lines = inspect.cleandoc(docstring).splitlines()
    for i, line in enumerate(lines):
        if re.fullmatch(r"Examples?:{1,2}", line):
            section = []
            for follower in lines[i + 1 :]:
                if follower and not follower.startswith(" "):
                    break
                section.append(follower)
            yield textwrap.dedent("\n".join(section)).strip("\n") + "\n"


BLOCKS = [
    block for path in (*PAGES, *NOTEBOOKS) for block in blocks_of_page(path)
] + [block for path in SOURCES for block in blocks_of_source(path)]
