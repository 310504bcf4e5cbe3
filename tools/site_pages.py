"""Pages of the documentation site that are made from other files.

A hook of MkDocs. README becomes the home page, CONTRIBUTING and CHANGELOG
become pages, and each notebook becomes a page with its stored outputs.
"""

import base64
import json
import pathlib
import re

from mkdocs.structure.files import File

from tools import page_sources

ROOT = pathlib.Path(__file__).parents[1]
# Files of the checkout -> where they are on the site.
MOVED = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "LICENSE": "LICENSE.txt",
}
_LINK = re.compile(r"(\]\(|src=\")(?!\w+:|#)([^)#\"]+)")


def on_files(files, config):
    """Add the pages before MkDocs reads any."""
    for name, page in MOVED.items():
        text = site_links((ROOT / name).read_text())
        if page == "index.md":  # the menu beside it would be empty
            text = f"---\nhide: [navigation]\n---\n{text}"
        files.append(File.generated(config, page, content=text))
    for path in sorted((ROOT / "docs").glob("notebooks/*.ipynb")):
        page = f"notebooks/{path.stem}.md"
        text, pictures = notebook_page(json.loads(path.read_text()), path.name)
        files.append(File.generated(config, page, content=text))
        for name, content in pictures.items():
            name = f"notebooks/{name}"
            files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown, page, config, files):
    """Return a page with the code that it includes, and with links to pages."""
    markdown = page_sources.include(markdown)
    markdown = markdown.replace("(../README.md", "(index.md")
    return re.sub(r"\((notebooks/\w+)\.ipynb\)", r"(\1.md)", markdown)


def site_links(text: str) -> str:
    """Return a page of the checkout's root with links as the site has them."""

    def replace(match):
        target = match[2].removeprefix("docs/")
        if target.endswith(".ipynb"):
            target = target.removesuffix("ipynb") + "md"
        return match[1] + MOVED.get(target, target)

    return _LINK.sub(replace, text)


def notebook_page(notebook: dict, name: str) -> tuple[str, dict[str, bytes]]:
    """Return a notebook as Markdown, and its pictures by name."""
    parts, pictures = [], {}
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            # Of other notebooks, their pages.
            parts.append(re.sub(r"\((\w+)\.ipynb\)", r"(\1.md)", source))
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            if output.get("name") == "stderr":
                continue
            data = output.get("data", {})
            if "image/png" in data:
                picture = f"{pathlib.Path(name).stem}_{len(pictures)}.png"
                pictures[picture] = base64.b64decode(data["image/png"])
                parts.append(f"![Output]({picture})")
            else:
                text = "".join(output.get("text", data.get("text/plain", "")))
                parts.append(f"```text\n{text.rstrip()}\n```")
    title, *rest = parts
    link = f"[Download this notebook]({name})"
    return "\n\n".join([title, link, *rest]) + "\n", pictures
