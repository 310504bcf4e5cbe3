"""Shows the docstrings of this package's style on the documentation site.

An extension of Griffe, which mkdocstrings reads the sources with. Griffe knows
the sections Args, Returns and Raises. This makes code blocks of the sections
Example and Usage, lists of the lines "Input shape" and "Output shape", and a
row for each argument of "height, width: ...".
"""

import re
import textwrap

import griffe

# A section and its indented lines.
_CODE = re.compile(r"^(Example|Usage)s?:\n((?:    .*\n?|\n)+)", re.MULTILINE)
_CALL = re.compile(r"^Call arguments:\n((?:    .*\n?|\n)+)", re.MULTILINE)
_SHAPE = re.compile(r"^(Input shape|Output shape|Reference):", re.MULTILINE)
_SEVERAL = re.compile(
    r"^    (\*{0,2}\w+(?:,\s+\*{0,2}\w+)+): (.*(?:\n     .*)*)", re.MULTILINE
)


class Sections(griffe.Extension):
    """Rewrites each docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **kwargs) -> None:
        """Rewrite the docstring of a module, class or function."""
        if obj.docstring:
            obj.docstring.value = rewrite(obj.docstring.value)


def rewrite(text: str) -> str:
    """Return a docstring in the terms of Griffe and Markdown."""
    text = _CODE.sub(_code, text)
    text = _SHAPE.sub(r"\n**\1**:", text)
    text = _CALL.sub(_list, text)
    return _SEVERAL.sub(_split, text)


def _code(match):
    language = "python" if match[1] == "Example" else "text"
    lines = match[2].strip("\n").split("\n")
    code = "\n".join(line.removeprefix("    ") for line in lines)
    return f"**{match[1]}**:\n\n```{language}\n{code}\n```\n"


def _list(match):
    entries = textwrap.dedent(match[1].strip("\n"))
    entries = re.sub(r"^(\w+):", r"- `\1`:", entries, flags=re.MULTILINE)
    return f"**Call arguments**:\n\n{entries}\n\n"


def _split(match):
    names = re.split(r",\s+", match[1])
    return "\n".join(f"    {name}: {match[2]}" for name in names)
