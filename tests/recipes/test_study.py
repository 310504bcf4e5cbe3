"""Studies: variants of a run, their table and their figure."""

import copy
import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
from small_runs import changed

from recipes import cli, experiment, study, study_figures, sweep, uncertainty
from recipes.study import Times, Variant

pytestmark = [
    pytest.mark.backend("torch"),
    pytest.mark.usefixtures("no_pictures"),
]


def config_of(argument, **changes):
    """A study of the config file, its run changed."""
    words = ["", f"--config={study.DEFAULT_CONFIG}:{argument}"]
    config, *_ = cli.parse(words, study.DEFAULT_CONFIG)
    tiny = dict(num_layers=2, hidden_size=8, num_heads=2, mlp_dim=8)
    if config.run.model.name == "BiT":
        tiny = dict(depths=(1,), width_factor=0.5)
    if config.run.model.name in ("ViT", "BiT"):
        config.run.model.architecture = dataclasses.replace(
            config.run.model.architecture, **tiny
        )
    config.run = changed(
        config.run, **dict(batch_size=16, total_steps=4, eval_every=2) | changes
    )
    return config


@pytest.fixture
def folder(tmp_path):
    """12 noisy photographs of each of two classes."""
    rng = np.random.default_rng(0)
    for name in "ab":
        (tmp_path / "images" / name).mkdir(parents=True)
        for i in range(12):
            image = rng.integers(0, 255, (32, 32, 3), "uint8")
            path = tmp_path / "images" / name / f"{i}.png"
            tf.io.write_file(str(path), tf.io.encode_png(image))
    return str(tmp_path / "images")


def test_a_study_trains_all_variants_and_resumes(tmp_path, monkeypatch, capsys):
    config = config_of("figure_8,digits")
    chosen = ("base", "patch_size_x0.5")
    config.variants = tuple(v for v in config.variants if v.name in chosen)
    rows = study.run(config, str(tmp_path))
    stored = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert stored == json.loads(json.dumps(rows))
    assert [row["name"] for row in rows] == list(chosen)
    base, fine = rows
    assert base["x"] == 1 and 2.5 < fine["x"] < 5  # four times the tokens
    assert fine["accuracies"] == [fine["accuracy"]]
    epochs = [point[0] for point in base["curves"][0]]
    assert epochs == pytest.approx([2 * 16 / 1438, 4 * 16 / 1438])
    assert (tmp_path / "figure_8.png").stat().st_size > 10_000
    assert "patch_size_x0.5  " in capsys.readouterr().out

    monkeypatch.setattr(study.fitting, "fit", lambda *_, **__: 1 / 0)
    assert study.run(config, str(tmp_path)) == rows
    assert capsys.readouterr().out.count("is finished") == 2


def test_position_embeddings_of_a_variant_are_drawn(tmp_path):
    config = config_of("figure_10,digits")
    config.variants = config.variants[-1:]
    study.run(config, str(tmp_path))
    assert [path.name for path in tmp_path.glob("*.png")] == [
        "positions_base.png"
    ]


def test_a_model_of_sgd_is_fine_tuned(tmp_path):
    config = config_of("table_7,digits")
    config.variants = config.variants[1:]
    [to] = config.transfers
    to.run.schedule.total_steps, to.run.evaluation.every = 2, 2
    to.base_lrs, to.setups = (0.1,), {"small": {"data.batch_size": 8}}
    [row] = study.run(config, str(tmp_path))
    assert (row["line"], row["x"]) == ("ResNet, SGD", "digits")
    folder = tmp_path / "ResNet_SGD"
    before, after = (
        json.loads((folder / name / "config.json").read_text())["config"]
        for name in ("seed_0", "seed_0-digits/seed_0")
    )
    assert row["chosen"] == [{"setup": "small", "base_lr": 0.1}]
    [[(epochs, accuracy)]] = row["curves"]
    assert epochs == pytest.approx(2 * 8 / 1438)
    assert row["accuracies"] == [accuracy]
    assert before["optim"]["name"] == "sgd"
    assert before["model"]["name"] == "BiT"
    assert after["model"]["weights"] == str(folder / "seed_0" / "last.keras")


def fake_run(accuracy_of):
    """Stands in for training: writes the evaluations of a config."""

    def run(config, workdir):
        path = study.pathlib.Path(workdir)
        path.mkdir(parents=True)
        lines = ["step,val_accuracy,val_loss"]
        for i, accuracy in enumerate(accuracy_of(config)):
            lines.append(f"{10 * (i + 1)},{accuracy},1.0")
        (path / "metrics.csv").write_text("\n".join([*lines, ""]))
        derived = dict(
            train_images=config.data.train_images or 100, eval_images=359
        )
        content = json.dumps(dict(derived=derived))
        (path / "config.json").write_text(content)

    return run


@pytest.mark.parametrize(
    "name",
    ["figure_4", "figure_8", "figure_9", "figure_13", "table_5", "table_8"],
)
def test_every_study_draws_its_figure(tmp_path, monkeypatch, name):
    rng = np.random.default_rng(0)
    monkeypatch.setattr(
        study.finetune, "run", fake_run(lambda _: rng.random(3))
    )
    monkeypatch.setattr(study, "_macs", lambda _: 1 + 8 * rng.random())
    config = config_of(f"{name},digits")
    rows = study.run(config, str(tmp_path))
    assert len(rows) == len(config.variants)
    assert (tmp_path / f"{name}.png").stat().st_size > 10_000


def row_of(line, x, *accuracies, eval_images=359):
    return dict(
        name=line,
        line=line,
        x=x,
        accuracy=float(np.mean(accuracies)),
        accuracies=list(accuracies),
        eval_images=eval_images,
        curves=[[(1, each / 2), (2, each)] for each in accuracies],
    )


@pytest.fixture
def axes_of(monkeypatch, tmp_path):
    """Draws rows; returns the axes."""
    figure = pytest.importorskip("matplotlib.figure")
    drawn = []
    monkeypatch.setattr(
        figure.Figure, "savefig", lambda self, path: drawn.append(self)
    )

    def draw(rows, kind="points"):
        function = getattr(study_figures, f"draw_{kind}")
        function(rows, "title", "x", "y", tmp_path / "a.png")
        return drawn[-1].axes[0]

    return draw


def grey_points(axes):
    bars = axes.containers
    return [bar[0].get_color() == uncertainty.GREY for bar in bars]


def test_what_one_seed_and_few_images_cannot_show_is_grey(axes_of):
    rows = [
        row_of("a", 1, 0.90),
        row_of("b", 1, 0.92),  # one error is 1.5 %
        row_of("c", 1, 0.80),
        row_of("a", 2, 0.80),
        row_of("b", 2, 0.89),  # beside the first line's 80 %
        row_of("c", 2, 0.70),
    ]
    axes = axes_of(rows)
    # By line: a, b and c. What is alike of a line is no slope.
    assert grey_points(axes) == [False, False, True, False, False, False]
    segments = [
        line.get_linestyle() for line in axes.lines if len(line.get_xdata()) > 1
    ]
    assert segments.count(":") == 1
    assert "bars: 95 % interval, of 1 seed and 359 images" in axes.get_title(
        "left"
    )
    # The same with many images is a difference.
    many = [row | {"eval_images": 10_000} for row in rows]
    assert not any(grey_points(axes_of(many)))
    names = [row | {"x": str(row["x"])} for row in rows]
    assert sum(grey_points(axes_of(names))) == 1
    # Where nothing is known of the error, there is no difference.
    axes = axes_of([row | {"eval_images": 0} for row in rows])
    assert sum(grey_points(axes)) == 4
    assert "no difference is shown" in axes.get_title("left")


def test_errors_are_those_of_images_and_of_seeds():
    error = uncertainty.standard_error
    assert error([0.5], 100) == pytest.approx(0.05, rel=0.03)
    assert error([1.0], 359) > 0.003  # not none
    assert np.isnan(error([0.5], 0))
    assert error([0.4, 0.6], 0) == pytest.approx(0.1)
    assert error([0.4, 0.6], 100) == pytest.approx(
        np.hypot(0.1, 0.049), rel=1e-3
    )
    text = uncertainty.describe([[0.1], [0.1, 0.2]], [100, 1_000])
    assert text == "95 % interval, of 1 to 2 seeds and 100 to 1,000 images"
    text = uncertainty.describe([[0.1, 0.2]], [0])
    assert text == "95 % interval, of 2 seeds"


def test_early_stopping_reports_the_best_evaluation(tmp_path, monkeypatch):
    curve = [0.25, 0.75, 0.5]
    monkeypatch.setattr(study.finetune, "run", fake_run(lambda _: curve))
    monkeypatch.setattr(study, "_macs", lambda _: 1)
    for report, accuracy in (("last", 0.5), ("best", 0.75)):
        config = config_of("table_8,digits")
        config.report = report
        rows = study.run(config, str(tmp_path / report))
        assert {row["accuracy"] for row in rows} == {accuracy}


def test_few_shot_accuracy_counts_where_it_is_measured(tmp_path, monkeypatch):
    def run(config, workdir):
        fake_run(lambda _: [0.1, 0.9, 0.2, 0.3])(config, workdir)
        path = study.pathlib.Path(workdir, "metrics.csv")
        header, *lines = path.read_text().splitlines()
        shots = ("nan", "0.5", "nan", "0.75")
        lines = [f"{a},{b}" for a, b in zip(lines, shots, strict=True)]
        text = "\n".join([f"{header},digits/5-shot", *lines, ""])
        path.write_text(text)

    monkeypatch.setattr(study.finetune, "run", run)
    monkeypatch.setattr(study, "_macs", lambda _: 1)
    for report, accuracy in (("last", 0.75), ("best", 0.5)):
        config = config_of("table_8,digits", fewshot_dataset="digits")
        config.report = report
        rows = study.run(config, str(tmp_path / report))
        assert {row["accuracy"] for row in rows} == {accuracy}
        assert len(rows[0]["curves"][0]) == 2
        assert rows[0]["eval_images"] == 359


def test_a_variant_multiplies_what_the_run_has():
    run = changed(
        experiment.Config(),
        architecture=experiment.Architecture(num_layers=3, hidden_size=8),
        base_lr=0.5,
        num_epochs=7,
        batch_size=10,
    )
    variant = Variant(
        name="a",
        changes={
            "model.architecture.num_layers": Times(1 / 2),
            "optim.base_lr": Times(3),
            "model.name": "BiT",
            "data.train_images": Times(0.03),
        },
    )
    before = copy.deepcopy(run)
    found = study.config_of(run, variant, num_images=1000)
    assert found.model.architecture.num_layers == 2  # of 1.5, to the even
    assert found.model.architecture.hidden_size == 8
    assert (found.optim.base_lr, found.model.name) == (1.5, "BiT")
    assert (found.data.train_images, found.schedule.total_steps) == (30, 700)
    assert run == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(variants=()), "`variants` must be one or more"),
        (dict(variants=(Variant(name="a"),) * 2), "of different names"),
        (dict(report="first"), "`report` must be one of"),
        (dict(figure="pie"), "`figure` must be one of"),
        (dict(num_seeds=0), "`num_seeds` must be at least 1"),
        (
            dict(variants=(Variant(name="a", changes={"data.pad": Times(2)}),)),
            "`run.data.pad` must be positive, because variant 'a'",
        ),
        (
            dict(variants=(Variant(name="a", changes={"model.name": "VIT"}),)),
            "`model.name` must be a constructor",
        ),
        (
            dict(variants=(Variant(name="a", changes={"data.padding": 2}),)),
            r"must name fields of `run`. Received: \['data.padding'\] of 'a'",
        ),
        (
            dict(variants=(Variant(name="a", x=1), Variant(name="b", x="2"))),
            "all numbers or all names",
        ),
        (dict(name="a/b"), "`name` must be a name without '/'"),
        (dict(num_seeds=2**32 + 1), "`seed` must be .* below 4294967296"),
        (dict(transfers=(sweep.Config(),) * 2), "data sets of different names"),
        (
            dict(transfers=(sweep.Config(),), report="best"),
            "`report` must be 'last' with `transfers`",
        ),
    ],
)
def test_what_is_no_study_is_refused(tmp_path, changes, message):
    config = config_of("table_8,digits")
    for name, value in changes.items():
        setattr(config, name, value)
    with pytest.raises(ValueError, match=message):
        study.run(config, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "argument", ["figure_7,digits", "figure_8", "figure_8,"]
)
def test_an_unknown_study_is_refused(argument):
    with pytest.raises(ValueError, match="must be STUDY,DATASET"):
        config_of(argument)


def test_a_law_of_models_that_are_trained_otherwise_is_refused():
    with pytest.raises(ValueError, match="scaling takes jft3b"):
        config_of("scaling,jft300m")
