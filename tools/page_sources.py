"""Functions of the package in pages of the documentation, by reference.

A line `<!-- source FILE NAME -->`, such as
`<!-- source keras_vit/models/mixer.py MixerBlock._forward -->`, becomes the
code of that function when the site is built.
"""

import ast
import pathlib
import re
import textwrap
import typing

ROOT = pathlib.Path(__file__).parents[1]
_REFERENCE = re.compile(r"^<!-- source (\S+) (\S+) -->$", re.MULTILINE)


def include(markdown: str) -> str:
    """Return a page with the code to which it refers."""
    return _REFERENCE.sub(
        lambda match: f"```python\n{source_of(match[1], match[2])}\n```",
        markdown,
    )


def source_of(file: str, name: str) -> str:
    """Return the code of a function or class, as the file has it.

    The name of a method follows its class and a dot.
    """
    text = (ROOT / file).read_text()
    node: typing.Any = ast.parse(text)
    for part in name.split("."):
        found = [n for n in node.body if getattr(n, "name", None) == part]
        if not found:
            raise ValueError(
                f"`source` must name a function of {file}. Received: {name!r}"
            )
        (node,) = found
    lines = text.splitlines()[node.lineno - 1 : node.end_lineno]
    return textwrap.dedent("\n".join(lines))
