"""Writes the tables of models in README and on the pages of their families.

    python -m tools.model_tables            # print which pages are out of date
    python -m tools.model_tables --write    # and write them

A table stands between the comments `<!-- TABLE FAMILY -->` and `<!-- end -->`,
where TABLE is a function of `TABLES`. Sizes come from the constructors,
parameters and multiply-accumulates from `keras_vit.cost`, weights and their
accuracies from the registry. A row has the costs of the images whose accuracy
it has.
"""

import functools
import inspect
import pathlib
import re
import sys
import textwrap

from keras_vit_cli import command
from tools import counts, markdown

ROOT = pathlib.Path(__file__).parents[1]
_FAMILIES = ROOT / "docs" / "families"
PAGES = (
    *("README.md", "docs/api/constructors.md"),
    *(f"docs/families/{path.name}" for path in sorted(_FAMILIES.glob("*.md"))),
)
# Published accuracies, in percent, that the registry does not have, of images
# of the default size.
# fmt: off
PUBLISHED = {
    "ViTL32": "80.99", "ViTH14": "85.13", "RaftMLPS": "76.1",
    "RaftMLPL": "79.4", "EAMLP14": "78.9", "EAMLP19": "79.4",
    "GMLPTi16": "72.3", "GMLPB16": "81.6", "FFOnlyL32": "71.4",
    "ASMLPT": "81.3", "ASMLPS": "83.1", "ASMLPB": "83.3",
    "S2MLPWide": "80.0", "S2MLPDeep": "80.7", "HireMLPLarge": "83.8",
    "MViTB16x4": "78.4 (Kinetics-400)", "MViTB16": "82.9",
    "MViTB24_32x3": "80.4 (Kinetics-400)",
}
# fmt: on
# Those of 2020 are Table 5's, after fine-tuning on ImageNet at 384 pixels, of
# which patches of 14 pixels cover 378.
PIXELS = {"ViTL32": 384, "ViTH14": 378}
_BLOCK = re.compile(r"(<!-- (\w+) (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


@command.entry
def main(arguments: list[str]) -> int:
    """Print the pages whose tables are out of date, or write them."""
    parser = command.Parser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    flags = parser.parse_args(arguments)
    for page in PAGES:
        text = (ROOT / page).read_text()
        updated = update(text)
        if updated != text:
            print(page)
            if flags.write:
                (ROOT / page).write_text(updated)
    return 0


def update(text: str) -> str:
    """Return a page with its tables made anew."""

    def replace(match):
        begin, table, family, end = match.groups()
        return f"{begin}\n{TABLES[table](family)}\n\n{end}"

    return _BLOCK.sub(replace, text)


def summary(family: str) -> str:
    """Return the table of README: models with weights and an accuracy."""
    rows = []
    for constructor in _constructors(family):
        name, size, _, macs, accuracy, _ = row_of(constructor)
        entries = _entries(constructor)
        if entries and accuracy:
            best = max(entries, key=lambda e: (e.top1 or 0, not e.zero_head))
            parameters = f"{model_of(constructor).count_params() / 1e6:,.1f} M"
            best = f'`"{best.name}"`'
            rows.append((name, size, parameters, macs, accuracy, best))
    header = ("model", "input", "parameters", "GMACs", "top-1 (%)", "`weights`")
    return markdown.table(header, rows)


def models(family: str) -> str:
    """Return the table of a family's models: cost, accuracy and weights."""
    rows = [row_of(constructor) for constructor in _constructors(family)]
    header = ("model", "input", "parameters", "GMACs", "top-1 (%)", "weights")
    return markdown.table(header, rows)


def row_of(constructor: str) -> tuple[str, ...]:
    """Return the cells of a model: cost, accuracy and weights."""
    return (
        f"`{constructor}`",
        input_of(constructor),
        f"{model_of(constructor).count_params():,}",
        f"{macs_of(constructor) / 1e9:,.2f}",
        accuracy_of(constructor),
        ", ".join(f'`"{entry.name}"`' for entry in _entries(constructor)),
    )


def sizes(family: str) -> str:
    """Return the table of what a family's models differ in."""
    variants = _families(family)[0].variants
    names = dict.fromkeys(name for sizes in variants.values() for name in sizes)
    differing = [
        name
        for name in names
        if len({repr(sizes.get(name)) for sizes in variants.values()}) > 1
    ]
    rows = [
        (f"`{name}`", *(_cell(sizes.get(field)) for field in differing))
        for name, sizes in variants.items()
    ]
    return markdown.table(("model", *(f"`{name}`" for name in differing)), rows)


def weights(family: str) -> str:
    """Return the table of a family's released checkpoints."""
    rows = [
        (
            f"`{entry.variant}`",
            f'`"{entry.name}"`',
            str(entry.image_size),
            f"{entry.classes:,}" + (" (zeros)" if entry.zero_head else ""),
            f"{entry.top1:.2f}" if entry.top1 else "",
            f"[{entry.source}](https://arxiv.org/abs/{entry.source})",
            entry.license,
        )
        for constructor in _constructors(family)
        for entry in _entries(constructor)
    ]
    header = (
        *("model", "`weights`", "pixels", "classes of the head"),
        *("top-1 (%)", "paper", "licence"),
    )
    return markdown.table(header, rows)


def repositories(family: str) -> str:
    """Return the table of a family's well-known repositories of the Hub."""
    from keras_vit.weights import released
    from keras_vit.weights.download import hub

    rows = [
        (
            f"`{row.variant}`",
            f"`{row.name}`",
            f"{row.parameters / 1e6:,.1f} M",
            str(row.image_size),
            row.scaling,
            f"{row.classes:,}" if row.classes else "",
            f"[{row.source}](https://arxiv.org/abs/{row.source})",
            row.license + ("" if row.license in hub.FREE else " *"),
        )
        for constructor in _constructors(family)
        for row in released.of_hub()
        if row.variant == constructor
    ]
    header = (
        *("model", "`weights`", "parameters", "pixels", "mean and std"),
        *("outputs of the head", "paper", "licence"),
    )
    return markdown.table(header, rows)


def arguments(family: str) -> str:
    """Return the table of a builder's arguments, of "all" those in common."""
    from keras_vit.models import ModelArguments

    source = _families(family)[0].config if family != "all" else ModelArguments
    meanings = {}
    for each in reversed(source.__mro__):  # a config may extend another
        text = inspect.getdoc(each) or ""
        if re.search(r"^(Args|Attributes):$", text, re.M):
            meanings |= _meanings(f"{text}\n")
    rows = [(f"`{name}`", text) for name, text in meanings.items()]
    return markdown.table(("argument", "meaning and default"), rows)


TABLES = {
    table.__name__: table
    for table in (summary, models, sizes, weights, repositories, arguments)
}


def input_of(constructor: str) -> str:
    """Return the pixels a side of a model's images; of videos also frames.

    They are those of its published accuracy, if it has one.
    """
    return " x ".join(map(str, _shape(constructor)[:-2]))


def macs_of(constructor: str) -> int:
    """Return the multiply-accumulates of the same model."""
    import keras_vit

    return keras_vit.cost(model_of(constructor)).macs


@functools.cache
def model_of(constructor: str):
    """Return a model of shapes alone, of video with Kinetics' classes."""
    shape = _shape(constructor)
    classes = 400 if len(shape) == 4 else 1000
    return counts.outline(constructor, classes=classes, input_shape=shape)


def _shape(constructor):
    """Return the shape of the images of the published accuracy."""
    best = max(_entries(constructor), key=_top1, default=None)
    size = PIXELS.get(constructor)
    if best and best.top1:
        size = best.image_size
    if size:
        return (size, size, 3)
    return family_of(constructor).input_shapes.get(constructor, (224, 224, 3))


def family_of(constructor: str):
    """Return the family of a model, of keras_vit.models.families."""
    from keras_vit.models import families

    return families.of(constructor)


def _families(name):
    """Return the family of a name; of "all" those that there are."""
    from keras_vit.models.families import FAMILIES

    if name != "all":
        return [FAMILIES[name]]
    # As README orders them: the paper's own, its baselines, then the others.
    order = "vit bit mixer raft_mlp res_mlp gmlp ff_only eamlp cycle_mlp mvit"
    return [FAMILIES[x] for x in dict.fromkeys((*order.split(), *FAMILIES))]


def _constructors(family):
    return [name for each in _families(family) for name in each.variants]


def _entries(constructor):
    """Return the released files, without repositories of the Hub."""
    from keras_vit.weights import registry

    return [
        entry
        for entry in registry.CHECKPOINTS
        if entry.variant == constructor and entry.file
    ]


def accuracy_of(constructor: str) -> str:
    """Return the published accuracy in percent, "" if unknown."""
    best = max(map(_top1, _entries(constructor)), default=0)
    return f"{best:.2f}" if best else PUBLISHED.get(constructor, "")


def _top1(entry):
    return entry.top1 or 0


def _meanings(docstring):
    """Return argument -> its text in the section Args, or Attributes."""
    section = re.findall(
        r"^(?:Args|Attributes):\n((?:    .*\n|\n)+)", docstring, re.M
    )[0]
    entries = re.findall(
        r"^(\*{0,2}\w+(?:, \w+)*): (.*(?:\n    .*)*)",
        textwrap.dedent(section),
        re.M,
    )
    return {
        name: " ".join(text.split()).replace("|", "\\|")
        for names, text in entries
        for name in names.split(", ")
    }


def _cell(value):
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "root alone"
    return "" if value is None else str(value)


if __name__ == "__main__":
    sys.exit(main())
