"""Tables of Markdown, and the comments of a page between which they stand."""

import re
from collections.abc import Iterable


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table."""
    header = list(header)
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def rows(table: str) -> list[dict[str, str]]:
    """Return the rows of a table, by the names of its columns."""
    header, _, *lines = (
        [cell.strip() for cell in re.split(r"\|", line.strip()[1:-1])]
        for line in table.splitlines()
    )
    return [dict(zip(header, line, strict=False)) for line in lines]


def between(page: str, name: str) -> str:
    """Return what stands between `<!-- NAME -->` and `<!-- end of NAME -->`."""
    found = re.search(
        rf"<!-- {name} -->\n(.*)<!-- end of {name} -->", page, re.S
    )
    if not found:
        raise ValueError(f"The page must have a table after <!-- {name} -->.")
    return found[1].strip("\n")


def replace(page: str, name: str, text: str) -> str:
    """Return a page with other text between these comments, if it has them."""
    block = rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)"
    return re.sub(block, lambda m: m[1] + text + "\n" + m[2], page, flags=re.S)
