"""Links of the documentation lead somewhere, and its tables are true."""

import re
import types

import pytest

from tests.documented import NOTEBOOKS, PAGES, ROOT, text_of
from tools import model_tables

# Models whose parameters and multiply-accumulates are counted here; with
# --thorough the parameters of the first of each family, too. tests/models
# counts those of others, and the rest is compared as the pages have it.
COUNTED = ("ViTTi16", "RViTTi16")
_CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"")
# Made from README and the like when the site is built: tools/site_pages.py.
GENERATED = {"index.md", "contributing.md", "changelog.md"}


def anchors(path):
    """Returns the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", each.lower()) for each in headings]
    return {each.strip().replace(" ", "-") for each in plain}


@pytest.mark.backend_independent
@pytest.mark.parametrize(
    "path",
    [*PAGES, *NOTEBOOKS],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_links_lead_to_a_file_of_the_checkout(path):
    text = _CODE.sub("", text_of(path))
    for link in (one or other for one, other in _LINK.findall(text)):
        if re.match(r"https?://|mailto:", link):
            continue
        target, _, anchor = link.partition("#")
        file = (path.parent / target).resolve() if target else path
        assert file.exists(), link
        assert not anchor or anchor in anchors(file), link


@pytest.mark.backend_independent
def test_every_page_is_in_the_navigation_of_the_site():
    navigation = (ROOT / "mkdocs.yml").read_text().partition("nav:")[2]
    listed = set(re.findall(r"[\w/]+\.md", navigation))
    pages = {
        str(path.relative_to(ROOT / "docs"))
        for path in PAGES
        if path.parent != ROOT
    }
    notebooks = {f"notebooks/{path.stem}.md" for path in NOTEBOOKS}
    assert listed == pages | GENERATED | notebooks


@pytest.mark.backend("jax")  # which traces fastest
def test_tables_of_models_are_those_of_the_models(monkeypatch, request):
    written = {
        name: (
            int(parameters.replace(",", "")),
            float(macs.replace(",", "")) * 1e9,
        )
        for page in model_tables.PAGES
        for name, parameters, macs in re.findall(
            r"^\| `(\w+)` \| [\dx ]+ \| ([\d,]+) \| ([\d,]+\.\d\d) \|",
            (ROOT / page).read_text(),
            re.MULTILINE,
        )
    }
    assert len(written) == len(model_tables._constructors("all"))
    counted = set(COUNTED)
    if request.config.getoption("--thorough"):
        counted |= {
            next(iter(x.variants)) for x in model_tables._families("all")
        }
    make, count = model_tables.model_of, model_tables.macs_of

    def model_of(name):
        if name in counted:
            return make(name)
        parameters, _ = written[name]
        return types.SimpleNamespace(count_params=lambda: parameters)

    monkeypatch.setattr(model_tables, "model_of", model_of)
    monkeypatch.setattr(
        model_tables,
        "macs_of",
        lambda name: count(name) if name in COUNTED else written[name][1],
    )
    for page in model_tables.PAGES:
        text = (ROOT / page).read_text()
        assert "<!--" in text or page.endswith("index.md")
        assert model_tables.update(text) == text, (
            f"{page}: python -m tools.model_tables --write"
        )


@pytest.mark.backend("jax")
def test_a_table_that_is_out_of_date_is_made_anew():
    text = "before\n<!-- sizes axial_vit -->\n| old |\n<!-- end -->\nafter"
    updated = model_tables.update(text)
    assert "| `AxialViTB32` | 32 |" in updated and "old" not in updated
    assert updated.startswith("before\n<!--")
    assert updated.endswith("<!-- end -->\nafter")
    assert model_tables.update(updated) == updated


@pytest.mark.backend_independent
def test_links_of_the_checkout_become_links_of_the_site():
    site_pages = pytest.importorskip("tools.site_pages", exc_type=ImportError)
    text = (
        "[a](docs/paper.md) [b](CONTRIBUTING.md) [c](https://x.org/docs/a) "
        "[d](docs/notebooks/finetune.ipynb) [e](#models) "
        "[f](docs/tpu.md#the-plan)"
    )
    assert site_pages.site_links(text) == (
        "[a](paper.md) [b](contributing.md) [c](https://x.org/docs/a) "
        "[d](notebooks/finetune.md) [e](#models) [f](tpu.md#the-plan)"
    )


@pytest.mark.backend_independent
def test_docstrings_are_rewritten_for_the_site():
    sections = pytest.importorskip(
        "tools.docstring_sections", exc_type=ImportError
    )
    text = sections.rewrite(
        "Adds.\n\nArgs:\n    height, width: In\n        pixels.\n\n"
        "Input shape: `[B]`\nOutput shape: `[B]`\n\n"
        "Example:\n    x = 1\n    y = 2"
    )
    assert "    height: In\n        pixels.\n    width: In\n" in text
    assert "\n\n**Input shape**: `[B]`\n\n**Output shape**: `[B]`" in text
    assert text.endswith("```python\nx = 1\ny = 2\n```\n")
