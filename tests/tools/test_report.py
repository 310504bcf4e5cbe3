"""Finished runs become the paper's tables and a picture."""

import csv
import json

import pytest

from keras_vit.data import vtab
from recipes import paper_tables
from tools import report, runs

pytestmark = pytest.mark.backend_independent

pytest.importorskip("matplotlib")
PNG = b"\x89PNG"


def write_run(folder, accuracies, *, steps=100, **config):
    """Leaves what a run of fine-tuning leaves of itself for a report."""
    folder.mkdir(parents=True)
    defaults = dict(model="ViTB16", weights="imagenet21k", dataset="cifar10")
    defaults |= dict(eval_split="", base_lr=0.01, crop="inception")
    config = defaults | dict(devices="auto", seed=0) | config
    (folder / "config.json").write_text(
        json.dumps({"config": config, "derived": {"total_steps": steps}})
    )
    lines = ["epoch,step,accuracy,val_accuracy,val_loss"]
    for i, accuracy in enumerate(accuracies):
        step = steps * (i + 1) // len(accuracies)
        lines.append(f"{i},{step},0.5,{accuracy},1.0")
    (folder / "metrics.csv").write_text("\n".join(lines) + "\n")
    return folder


def make_report(tmp_path, *folders):
    """Returns the tables by name, as lists of rows by their first cell."""
    out = tmp_path / "report"
    arguments = [*map(str, folders), f"--output={out}"]
    assert report.main(arguments) == 0
    tables = {}
    for path in out.glob("*.csv"):
        with open(path, newline="") as file:
            tables[path.stem] = list(csv.DictReader(file))
    return tables


def row_of(table, name):
    (row,) = (row for row in table if row[""] == name)
    return row


def test_seeds_are_averaged_beside_the_paper(tmp_path, capsys):
    # As recipes.sweep leaves them; of each run the last evaluation counts,
    # though the test images would rather choose one before.
    for seed, last in enumerate((0.97, 0.98, 0.99)):
        write_run(
            tmp_path / "sweep" / f"seed_{seed}",
            [0.5, 0.999, last],
            seed=seed,
            devices="cpu" if seed else "gpu",
            restart=bool(seed),
        )
    write_run(tmp_path / "sweep" / "lr_0.03", [0.1], base_lr=0.03)
    write_run(tmp_path / "imagenet", [0.8], dataset="imagenet2012:5.*.*")
    write_run(tmp_path / "digits", [0.9], dataset="digits", weights="")
    tables = make_report(tmp_path, tmp_path)

    table = tables["table_2"]
    row = row_of(table, "CIFAR-10")
    assert row["ViT-B/16 (I21k)"] == "98.00 ± 1.00"
    assert row["ViT-L/16 (I21k), paper"] == "99.15 ± 0.03"
    assert row["Noisy Student (EfficientNet-L2), paper"] == ""
    row = row_of(table, "ImageNet")
    assert row["ViT-B/16 (I21k)"] == "80.00"
    assert row["ViT-B/16 (from scratch)"] == ""
    assert row_of(table, "digits")["ViT-B/16 (from scratch)"] == "90.00"

    (row,) = (r for r in tables["table_5"] if r["data set"] == "CIFAR-10")
    assert row["pre-trained on"] == "I21k"
    assert row["ViT-B/16"] == "98.00 ± 1.00"
    assert row["ViT-B/16, paper"] == "98.95"

    table = tables["table_6"]
    row = row_of(table, "ViT-B/16 (I21k)")
    assert (row["CIFAR-10"], row["epochs"]) == ("98.00 ± 1.00", "")
    row = next(r for r in table if r[""] == "ViT-H/14 (JFT), paper")
    assert (row["CIFAR-10"], row["exaFLOPs"]) == ("99.50", "4262")
    assert len(table) == 1 + len(paper_tables.TABLE_6)
    assert "table_9" not in tables
    assert (tmp_path / "report" / "curves.png").read_bytes()[:4] == PNG

    printed = capsys.readouterr()
    assert printed.err == ""
    text = (tmp_path / "report" / "report.md").read_text(encoding="utf-8")
    assert text in printed.out
    assert "those of the last evaluation" in text
    assert "99.9" not in text
    assert "| CIFAR-10 | " in text and "| 98.00 ± 1.00 |" in text


def test_a_heading_names_a_run_in_five_words(tmp_path):
    for i, weights in enumerate(("imagenet21k", "jft300m", "", "")):
        for rate in (0.01, 0.03):
            write_run(
                tmp_path / f"{i}_{rate}",
                [rate],
                weights=weights,
                base_lr=rate,
                clip_norm=100 * rate,
                crop=f"crop {rate}",
                dataset="digits" if i == 3 else "cifar10",
            )
    tables = make_report(tmp_path, tmp_path)
    for name in ("table_2", "table_5"):
        headings = [h for h in tables[name][0] if "paper" not in h]
        assert max(len(heading.split()) for heading in headings) <= 5
    row = row_of(tables["table_2"], "CIFAR-10")
    assert row["ViT-B/16 (I21k), run 1"] == "1.00"
    assert row["ViT-B/16 (I21k), run 2"] == "3.00"
    assert row["ViT-B/16 (from scratch), run 2"] == "3.00"
    # One number for the same settings, in Table 5 one column.
    assert [row["ViT-B/16, run 2"] for row in tables["table_5"]] == ["3.00"] * 4
    assert [row[""] for row in tables["runs"]] == [
        "ViT-B/16, run 1",
        "ViT-B/16, run 2",
    ]
    settings = row_of(tables["runs"], "ViT-B/16, run 2")["settings"]
    assert settings == (
        "optim.base_lr=0.03, data.crop=crop 0.03, optim.clip_norm=3.0"
    )
    text = (tmp_path / "report" / "report.md").read_text(encoding="utf-8")
    assert "## Runs: the settings in which they differ" in text


def test_models_pre_trained_for_other_epochs_are_not_one_row(tmp_path):
    for epochs in (7, 14):
        settings = dict(dataset="my data", num_epochs=epochs)
        before = write_run(tmp_path / f"before_{epochs}", [0.4], **settings)
        (before / "best.keras").touch()
        write_run(
            tmp_path / "after" / str(epochs),
            [epochs / 100],
            weights=str(before / "best.keras"),
            dataset="vtab/caltech101",
        )
    table = make_report(tmp_path, tmp_path / "after")["table_9"]
    for epochs in (7, 14):
        row = row_of(table, f"ViT-B/16 (my_data), pretraining_epochs={epochs}")
        assert row["Caltech101"] == f"{epochs}.0"


def test_tasks_of_vtab_are_listed_and_averaged(tmp_path, capsys):
    names = list(vtab.TASKS)
    for seed in (0, 1):
        for i, task in enumerate(names):
            write_run(
                tmp_path / f"seed_{seed}" / task,
                [i / 100 + seed / 10],
                dataset=f"vtab/{task}",
                crop="resize" if vtab.TASKS[task].crop else "none",
                seed=seed,
            )
    tables = make_report(tmp_path, tmp_path)
    row = row_of(tables["table_9"], "ViT-B/16 (I21k)")
    assert list(row)[1:20] == list(paper_tables.VTAB_TASKS.values())
    assert row["Caltech101"] == "5.0"  # 0 and 10 %
    assert row["sNORB-Elev"] == "23.0"
    assert (row["Natural"], row["Specialized"]) == ("8.0", "13.5")
    assert (row["Structured"], row["Mean"]) == ("19.5", "14.0")
    paper = row_of(tables["table_9"], "ViT-H/14 (JFT), paper")
    assert (paper["KITTI-Dist"], paper["Mean"]) == ("84.5", "77.6")
    row = row_of(tables["table_2"], "VTAB (19 tasks)")
    assert row["ViT-B/16 (I21k)"] == "14.00 ± 7.07"
    assert "38 runs" in capsys.readouterr().out
    # One evaluation makes no curve.
    assert not (tmp_path / "report" / "curves.png").exists()


def test_what_is_no_finished_run_is_named_and_left_out(tmp_path, capsys):
    write_run(tmp_path / "good", [0.5])
    unfinished = write_run(tmp_path / "unfinished", [0.5])
    (unfinished / "metrics.csv").write_text("step,val_accuracy\n40,0.5\n")
    foreign = write_run(tmp_path / "foreign", [0.5])
    (foreign / "config.json").write_text("[]")
    other = write_run(tmp_path / "other", [0.5])
    (other / "metrics.csv").write_text("step,val_loss\n100,0.5\n")
    listed = write_run(tmp_path / "listed", [0.5])
    (listed / "config.json").write_text('{"config": [], "derived": {}}')
    text = write_run(tmp_path / "text", [0.5])
    (text / "metrics.csv").write_text("step,val_accuracy\n100,half\n")
    dev = write_run(tmp_path / "dev", [0.5], eval_split="val200")
    # Masked patches too are right or wrong.
    masked = write_run(tmp_path / "masked", [0.5], objective="masked_patch")
    (tmp_path / "empty").mkdir()
    left_out = [
        (unfinished, "is not finished: step 40 of 100"),
        (foreign, "is no run of fine-tuning that can be read (TypeError"),
        (
            other,
            "is no run of fine-tuning that can be read (KeyError: 'val_acc",
        ),
        (listed, "is no run of fine-tuning that can be read (AttributeError"),
        (
            text,
            "is no run of fine-tuning that can be read (ValueError: "
            "metrics.csv, line 2: val_accuracy='half')",
        ),
        (dev, "was evaluated on a development split"),
        (masked, "was trained without labels"),
        (tmp_path / "empty", "holds no run"),
        (tmp_path / "no", "is no folder"),
    ]
    folders = [tmp_path / "good", *(folder for folder, _ in left_out)]
    row = row_of(make_report(tmp_path, *folders)["table_2"], "CIFAR-10")
    assert row["ViT-B/16 (I21k)"] == "50.00"
    printed = capsys.readouterr().err.splitlines()
    for (folder, reason), line in zip(left_out, printed, strict=True):
        assert line.startswith(f"Left out: {folder} {reason}")


def test_the_papers_tables_agree_with_one_another():
    # Table 6 holds the models of Table 5 that saw JFT-300M for 7 epochs.
    rows = {(name, epochs): row for name, epochs, *row in paper_tables.TABLE_6}
    for i, constructor in enumerate(("ViTB16", "ViTB32", None, "ViTL32")):
        if constructor:
            row = rows[runs.paper_name(constructor), 7]
            for dataset, accuracy in zip(
                paper_tables.TABLE_6_DATASETS, row, strict=False
            ):
                assert paper_tables.TABLE_5["JFT", dataset][i] == accuracy
    for name, accuracies in paper_tables.TABLE_9.items():
        mean, _ = paper_tables.TABLE_2[name]["vtab"]
        assert sum(accuracies) / 19 == pytest.approx(mean, abs=0.02)
    assert set(paper_tables.VTAB_TASKS) == set(vtab.TASKS)
