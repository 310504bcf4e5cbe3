"""Tables and curves of finished runs, beside the paper's numbers.

    python -m tools.report runs/cifar10 runs/vtab-ViTL16
    python -m tools.report runs --output=report

WORKDIR is that of recipes.finetune, recipes.sweep or recipes.vtab, or a folder
of such workdirs. The accuracy of a run is that of its last evaluation, since
the best one is selected on the evaluation images. Runs evaluated on a
development split are excluded. Runs that differ only in their seed are
averaged. The folder --output receives report.md, a CSV file for each table,
shaped as Tables 2, 5, 6 and 9 of the ViT paper, and curves.png, of the runs
evaluated more than once. A heading names a run in at most five words: settings
that make it longer are numbered, as "run 2", and listed in a table.
"""

import collections
import csv
import math
import pathlib
import statistics
import sys
import typing

from keras_vit.data import vtab
from keras_vit.evaluation import vtab_scores
from keras_vit_cli import command
from recipes import paper_tables
from tools import markdown, pictures, runs

SCRATCH = "from scratch"
MEASURED = (
    "Accuracies of our runs are those of the last evaluation, mean ± standard "
    "deviation if there are several seeds."
)
# The longest heading of a run, in words and in characters.
LONGEST = 5, 50


class Table(typing.NamedTuple):
    """Rows of text; `name` is that of its file."""

    name: str
    title: str
    header: list[str]
    rows: list[list[str]]


class Line(typing.NamedTuple):
    """The common properties of runs on several data sets.

    `settings` are those in which it differs from another line of the same
    model and pre-training on the same data set; `differs` names them in a
    heading, or is their number.
    """

    model: str
    pretraining: str
    epochs: int | None
    differs: str
    settings: str = ""

    @property
    def label(self):
        pretraining = "_".join(self.pretraining.split()) or SCRATCH
        return f"{self.model} ({pretraining}){self.differs}"


@command.entry
def main(arguments: list[str]) -> int:
    """Write the report of the runs found."""
    parser = command.Parser(description=__doc__)
    parser.add_argument("workdir", nargs="+", type=pathlib.Path)
    parser.add_argument("--output", default="report", type=pathlib.Path)
    flags = parser.parse_args(arguments)
    found = runs.find(*flags.workdir)
    if not found:
        raise ValueError("There is no finished run to report.")
    lines = by_line(found)
    tables = [
        table
        for make in (table_2, table_5, table_6, table_9, table_of_runs)
        if (table := make(lines))
    ]
    flags.output.mkdir(parents=True, exist_ok=True)
    for table in tables:
        with open(flags.output / f"{table.name}.csv", "w", newline="") as file:
            csv.writer(file).writerows([table.header, *table.rows])
    text = f"{MEASURED}\n\n" + "\n".join(
        f"## {table.title}\n\n{markdown.table(table.header, table.rows)}\n"
        for table in tables
    )
    (flags.output / "report.md").write_text(text, encoding="utf-8")
    print(text)
    print(f"{len(found)} runs: {flags.output / 'report.md'}")
    if curves := curves_of(lines):
        pictures.save(curves, flags.output / "curves.png")
    else:
        print("no curves: each was evaluated once")
    return 0


def by_line(found: list[runs.Run]) -> dict[Line, dict[str, list[runs.Run]]]:
    """Return the runs by line and data set; runs of a cell are repetitions."""
    groups = collections.defaultdict(list)
    epochs_of = collections.defaultdict(set)
    for run in found:
        key = (run.model, run.pretraining, run.epochs, run.dataset)
        groups[key].append(run)
        epochs_of[run.model, run.pretraining].add(run.epochs)
    lines: dict = collections.defaultdict(lambda: collections.defaultdict(list))
    for (model, pretraining, epochs, dataset), members in sorted(
        groups.items(), key=str
    ):
        names = dict.fromkeys(name for run in members for name in run.setting)
        values = {
            name: {str(run.setting.get(name)) for run in members}
            for name in names
        }
        varying = [name for name in names if len(values[name]) > 1]
        for run in members:
            setting = {name: run.setting.get(name) for name in varying}
            if len(epochs_of[model, pretraining]) > 1:
                setting = dict(pretraining_epochs=epochs) | setting
            text = "".join(f", {k}={v}" for k, v in setting.items())
            line = Line(model, pretraining, epochs, text, text)
            lines[line][dataset].append(run)
    return _numbered(lines)


def _numbered(lines):
    """Return the lines with a number for settings that make a name long.

    Equal settings of a model have one number, whatever its pre-training.
    """
    words, characters = LONGEST
    numbers: dict = collections.defaultdict(dict)
    for line in lines:
        if len(line.label) > characters or len(line.label.split()) > words:
            own = numbers[line.model]
            own.setdefault(line.settings, f", run {len(own) + 1}")

    def numbered(line):
        differs = numbers[line.model].get(line.settings, line.differs)
        return line._replace(differs=differs)

    return {numbered(line): datasets for line, datasets in lines.items()}


def table_of_runs(lines: dict) -> Table | None:
    """Return the settings of the runs that have numbers."""
    settings = {
        line.model + line.differs: line.settings.removeprefix(", ")
        for line in lines
        if line.differs != line.settings
    }
    rows = [[name, text] for name, text in settings.items()]
    title = "Runs: the settings in which they differ"
    return Table("runs", title, ["", "settings"], rows) if rows else None


def table_2(lines: dict) -> Table:
    """Return data sets by line: mean and deviation of fine-tuned accuracies."""
    own = {}
    for line, datasets in lines.items():
        cells = {
            dataset: _text([run.accuracy for run in members])
            for dataset, members in datasets.items()
            if not dataset.startswith(vtab.PREFIX)
        }
        own[line] = cells | {"vtab": _text(_vtab_means(datasets))}
    others = dict.fromkeys(name for row in own.values() for name in row)
    names = dict.fromkeys([*paper_tables.DATASETS, *others])
    rows = []
    for name in names:
        row = [paper_tables.DATASETS.get(name, name)]
        row += [cells.get(name, "") for cells in own.values()]
        for column in paper_tables.TABLE_2.values():
            row.append(_paper(*column.get(name, (None, None))))
        rows.append(row)
    paper = [f"{name}, paper" for name in paper_tables.TABLE_2]
    header = ["", *(line.label for line in own), *paper]
    title = "Table 2: fine-tuned top-1 accuracy in %"
    return Table("table_2", title, header, rows)


def table_5(lines: dict) -> Table | None:
    """Return pre-training and data set by model."""
    cells, models = collections.defaultdict(dict), {}
    for line, datasets in lines.items():
        for dataset, members in datasets.items():
            if not dataset.startswith(vtab.PREFIX):
                models.setdefault(line.model, []).append(line.differs)
                column = line.model + line.differs
                cells[line.pretraining, dataset].setdefault(column, []).extend(
                    run.accuracy for run in members
                )
    paper = {
        runs.paper_name(name): i
        for i, name in enumerate(paper_tables.TABLE_5_MODELS)
    }
    columns: list[tuple[str, int | None]] = []
    for model, differs in models.items():
        columns += [(model + each, None) for each in dict.fromkeys(differs)]
        if model in paper:
            columns.append((f"{model}, paper", paper[model]))
    rows = []
    for (pretraining, dataset), own in cells.items():
        beside = paper_tables.TABLE_5.get((pretraining, dataset))
        name = paper_tables.DATASETS.get(dataset, dataset)
        row = [pretraining or SCRATCH, name]
        for column, i in columns:
            published = None if i is None or not beside else beside[i]
            row.append(_text(own.get(column, [])) or _paper(published))
        rows.append(row)
    header = ["pre-trained on", "data set", *(name for name, _ in columns)]
    title = "Table 5: top-1 accuracy in % by pre-training"
    return Table("table_5", title, header, rows) if rows else None


def table_6(lines: dict) -> Table | None:
    """Return line by data set, with what is known of the pre-training."""
    own = []
    for line, datasets in lines.items():
        accuracies = [
            _text([run.accuracy for run in datasets.get(name, [])])
            for name in paper_tables.TABLE_6_DATASETS
        ]
        if any(accuracies):
            epochs = "" if line.epochs is None else str(line.epochs)
            own.append([line.label, epochs, *accuracies, ""])
    paper = [
        [f"{name} (JFT), paper", str(epochs), *map(_paper, row), str(cost)]
        for name, epochs, *row, cost in paper_tables.TABLE_6
    ]
    names = [paper_tables.DATASETS[n] for n in paper_tables.TABLE_6_DATASETS]
    header = ["", "epochs", *names, "exaFLOPs"]
    title = "Table 6: model scaling, top-1 accuracy in %"
    return Table("table_6", title, header, own + paper) if own else None


def table_9(lines: dict) -> Table | None:
    """Return line by task of VTAB, and the means of Figure 2."""
    own = {}
    for line, datasets in lines.items():
        tasks = {
            dataset.removeprefix(vtab.PREFIX): statistics.fmean(
                run.accuracy for run in members
            )
            for dataset, members in datasets.items()
            if dataset.startswith(vtab.PREFIX)
        }
        if tasks:
            own[line.label] = tasks
    paper = {
        f"{name}, paper": dict(zip(vtab.TASKS, accuracies, strict=True))
        for name, accuracies in paper_tables.TABLE_9.items()
    }
    means = ("mean", *vtab.GROUPS)
    rows = []
    for label, tasks in (own | paper).items():
        values = tasks | vtab_scores(tasks)
        cells = (values.get(name) for name in (*vtab.TASKS, *means))
        rows.append([label, *("" if v is None else f"{v:.1f}" for v in cells)])
    names = [paper_tables.VTAB_TASKS[task] for task in vtab.TASKS]
    header = ["", *names, *(name.capitalize() for name in means)]
    title = "Table 9: VTAB-1k, accuracy in %, and its means by group (Figure 2)"
    return Table("table_9", title, header, rows) if own else None


def curves_of(lines: dict):
    """Draw the evaluation accuracy of all runs, a panel for each data set.

    None if no run was evaluated more than once.
    """
    from matplotlib import colormaps

    from keras_vit.inspection import figures

    repeated = (
        dataset
        for cells in lines.values()
        for dataset, members in cells.items()
        if any(len(run.steps) > 1 for run in members)
    )
    datasets = sorted(set(repeated))
    if not datasets:
        return None
    per_row = min(4, len(datasets))
    num_rows = math.ceil(len(datasets) / per_row)
    width, height = max(4.2 * per_row, 6), 3 * num_rows + 0.2 * len(lines)
    figure = figures.new_figure(width, height + 0.4)
    colors = colormaps["tab10" if len(lines) <= 10 else "tab20"]
    shown = {}
    for i, dataset in enumerate(datasets):
        axes = figure.add_subplot(num_rows, per_row, i + 1)
        for j, (line, cells) in enumerate(lines.items()):
            for run in cells.get(dataset, []):
                (shown[line.label],) = axes.plot(
                    run.steps,
                    run.curve,
                    color=colors(j % colors.N),
                    linewidth=1.4,
                    marker="o" if len(run.steps) == 1 else None,
                )
        name = paper_tables.DATASETS.get(dataset, dataset)
        axes.set_title(name, loc="left", fontsize=11)
        axes.set_xlabel("step")
        if i % per_row == 0:
            axes.set_ylabel("evaluation accuracy, %")
        pictures.plain(axes)
    place = dict(loc="outside lower left", frameon=False)
    figure.legend(shown.values(), shown, **place)
    return figure


def _vtab_means(datasets):
    """Return the VTAB scores of the seeds that have all tasks."""
    by_seed = collections.defaultdict(dict)
    for dataset, members in datasets.items():
        if dataset.startswith(vtab.PREFIX):
            for run in members:
                task = dataset.removeprefix(vtab.PREFIX)
                by_seed[run.seed][task] = run.accuracy
    scores = (vtab_scores(tasks) for tasks in by_seed.values())
    return [each["mean"] for each in scores if "mean" in each]


def _text(accuracies):
    """Return the mean and, if there are several, the standard deviation."""
    if not accuracies:
        return ""
    deviation = statistics.stdev(accuracies) if len(accuracies) > 1 else None
    return _paper(statistics.fmean(accuracies), deviation)


def _paper(mean, deviation=None):
    """Return a number of the paper as text; "" if it has none."""
    if mean is None:
        return ""
    return f"{mean:.2f}" + ("" if deviation is None else f" ± {deviation:.2f}")


if __name__ == "__main__":
    sys.exit(main())
