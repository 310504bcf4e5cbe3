"""The documentation and the code use the field's terms."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
pytestmark = pytest.mark.backend_independent

FOLDERS = "docs keras_vit keras_vit_cli recipes tests tools".split()
# Pattern of an odd word or phrase -> what to write.
INSTEAD = {
    r"(?<!\.)tells?\b(?!\()": "specifies, returns, prints",
    r"(?:is|are|was|were|be) told": "is given",
    r"be they|be it": "including",
    r"as ever": "unchanged",
    r"going on after|goes on after": "resuming from, resumes",
    r"furniture": "serving assets",
    r"dialects?": "format",
    r"trunks?": "stem, backbone",
    r"lest": "so that ... not",
    r"thereof|whosoever|wherein": "a plain sentence",
}
# Names of an earlier version, in the list of renamed ones.
ALLOWED = {"CHANGELOG.md": {"dialect"}}

FILES = [
    *sorted(ROOT.glob("*.md")),
    *(
        path
        for folder in FOLDERS
        for ending in ("py", "md")
        for path in sorted((ROOT / folder).rglob(f"*.{ending}"))
        if path != pathlib.Path(__file__)
    ),
]


@pytest.mark.parametrize("pattern", INSTEAD)
def test_no_file_uses_the_odd_word(pattern):
    expression = re.compile(rf"\b(?:{pattern})\b", re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match[0]!r}"
        for path in FILES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        for match in expression.finditer(line)
        if match[0] not in ALLOWED.get(path.name, ())
    ]
    assert not found, f"Write {INSTEAD[pattern]!r} instead:\n" + "\n".join(
        found
    )
