"""The comparison of speed with other libraries."""

import dataclasses
import json
import sys
import types

import numpy as np
import pytest

import keras_vit
from tools import benchmark
from tools.benchmark import (
    cases,
    command_line,
    implementations,
    measure,
    run,
    tables,
)


@pytest.mark.backend_independent
def test_calls_are_interleaved_in_alternating_order(monkeypatch):
    monkeypatch.setattr(measure, "MIN_SECONDS", 0.0)
    calls = []
    functions = {name: lambda name=name: calls.append(name) for name in "ab"}
    seconds = measure.rounds(functions, 3)
    assert "".join(calls) == "aabb" + "ab" + "ba" + "ab"
    assert [len(found) for found in seconds.values()] == [3, 3]


@pytest.mark.backend_independent
def test_memory_is_the_peak_above_what_was_in_use():
    size = 64 * 2**20

    def make():
        held = bytearray(size)
        return lambda: (len(held), bytearray(size) and None)

    if measure._memory("VmHWM") is None or not measure._reset_peak():
        pytest.skip("the peak of a process is known on Linux only")
    is_cpu = measure.device() == "cpu"  # starts the backend, which takes memory
    peak = measure.peak_memory(make)
    if is_cpu:
        assert 1.9 * size < peak < 2.5 * size


def tiny_model(case, dtype=None):
    return keras_vit.ViT(
        patch_size=16,
        hidden_size=8,
        num_layers=1,
        num_heads=2,
        mlp_dim=8,
        input_shape=(case.image_size, case.image_size, 3),
        classes=implementations.CLASSES,
        include_preprocessing=False,
        dtype=dtype or case.dtype_policy,
    )


@pytest.mark.backend("torch")
@pytest.mark.parametrize(
    ("task", "precision"),
    [("inference", "bfloat16"), ("training", "float32")],
)
def test_each_library_is_measured(task, precision, tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "MIN_SECONDS", 0.0)
    monkeypatch.setattr(implementations, "CLASSES", 3)
    monkeypatch.setattr(measure, "product_rate", lambda dtype: 1e9)
    monkeypatch.setattr(implementations, "ours", tiny_model)
    case = cases.Case("ViTTi16", 32, 2, task, precision)
    names = ["keras_vit", "keras_hub", "transformers"]
    path = tmp_path / "jax.json"
    run.measure_cases([case], names, 2, path)
    rows = json.loads(path.read_text())["rows"]
    assert rows[0]["implementation"] == "keras_vit"
    assert all(len(row["seconds"]) == 2 for row in rows)
    # Other cases are preserved, and the same one is replaced.
    run.measure_cases([case], ["keras_vit"], 1, path)
    again = json.loads(path.read_text())["rows"]
    assert len(again) == len(rows) and len(again[-1]["seconds"]) == 1
    monkeypatch.setattr(measure, "peak_memory", lambda make: make() and 2**29)
    for name in ("keras_vit", "timm", "keras_vit"):
        run.measure_alone("memory", case, name, 0, path)
    memory = json.loads(path.read_text())["memory"]
    found = [(row["implementation"], row["bytes"]) for row in memory]
    any_batch = dataclasses.replace(case, batch_size=0)
    run.measure_alone("batch", any_batch, "keras_vit", 3, path)
    (row,) = json.loads(path.read_text())["batches"]
    assert row["images"] == 3
    assert ("keras_vit", 2**29) in found and len(set(found)) == len(found)


@pytest.mark.backend("jax")
def test_the_authors_model_is_called_with_the_same_sizes(monkeypatch):
    class Model:
        """Has the methods of flax that are called."""

        def __init__(self, classes, *, width, pool_type, **sizes):
            self.classes = classes
            assert (width, pool_type) == (8, "tok")

        def init(self, key, images):
            return {"params": {"kernel": np.ones((self.classes,), "float32")}}

        def apply(self, variables, images):
            kernel = variables["params"]["kernel"]
            assert kernel.dtype == "bfloat16"
            return images.mean(axis=(1, 2, 3))[:, None] * kernel, {}

    names = ("big_vision", "big_vision.models", "big_vision.models.vit")
    for name in names:
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setattr(sys.modules[names[-1]], "Model", Model, raising=False)
    case = cases.Case("ViTTi16", 32, 2, "inference", "bfloat16")
    run = implementations.make("big_vision", tiny_model(case), case)
    logits = run()
    assert logits.shape == (2, implementations.CLASSES)
    assert logits.dtype == "float32"


@pytest.mark.backend_independent
def test_memory_is_measured_in_a_process_for_each_implementation(
    monkeypatch, tmp_path
):
    calls = []
    monkeypatch.setattr(
        command_line.subprocess,
        "call",
        lambda arguments, env: calls.append((env["KERAS_BACKEND"], arguments)),
    )
    monkeypatch.setattr(
        command_line.importlib.util, "find_spec", lambda name: name != "timm"
    )
    with pytest.raises(ValueError, match="--output"):
        command_line.main.__wrapped__(
            [
                *("--backends=jax", "--tasks=training", "--batch_sizes=2"),
                *("--precisions=float32,bfloat16", f"--output={tmp_path}"),
                "--implementations=keras_vit,timm",
            ]
        )
    assert [backend for backend, _ in calls] == ["jax"] * 3
    speed, first, second = (
        command_line._parser().parse_args(arguments[3:])
        for _, arguments in calls
    )
    assert speed.process == "speed"
    assert speed.precisions == ["float32", "bfloat16"]
    assert [first.precisions, second.precisions] == [["float32"], ["bfloat16"]]
    assert first.process == second.process == "memory"
    assert first.implementations == ["keras_vit"]


@pytest.mark.backend_independent
def test_the_largest_batch_is_found(monkeypatch):
    for room in (0, 1, 7, 100, 600):
        asked = []
        fits = lambda n: asked.append(n) or n <= room  # noqa: B023, E731
        found = measure.largest(fits, 512)
        assert min(room, 512) * 7 // 8 <= found <= min(room, 512)
        assert len(set(asked)) == len(asked) <= 15

    def full():
        raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")

    assert not measure.fits(lambda: full) and measure.fits(lambda: list)
    with pytest.raises(ZeroDivisionError):
        measure.fits(lambda: lambda: 1 // 0)


@pytest.mark.backend_independent
def test_a_device_has_its_cases(tmp_path, monkeypatch, capsys):
    flags = command_line._parsed(["--device=gpu", "--models=ViTL16"])
    assert flags.models == ["ViTL16"] and flags.batch_sizes == [64]
    one = [*command_line._processes(flags)][-1]
    again = command_line._parsed(["--device=gpu", *one])
    assert again.process == "batch" and again.batch_sizes == [0]
    assert command_line._parsed([]).measures == ["speed", "memory"]
    monkeypatch.setattr(measure, "device", lambda: "cpu")
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    arguments = ["--device=gpu", "--process=speed", f"--output={tmp_path}"]
    assert benchmark.main(arguments) == 2
    assert "--device=gpu, where jax has cpu" in capsys.readouterr().err


@pytest.mark.backend_independent
def test_the_report_has_ratios_of_the_same_round(tmp_path, capsys):
    def row(implementation, seconds):
        case = cases.Case("ViTB16", 224, 8, "inference", "float32")
        times = dict(first_seconds=1.5, measured="2026", seconds=seconds)
        names = dict(implementation=implementation, frames=None, macs=10**9)
        return dataclasses.asdict(case) | names | times

    machine = dict(device="cpu", processors=2, machine="x86_64")
    contents = dict(
        environment=dict(backend="jax", versions=dict(jax="0.10")) | machine,
        product_rates=dict(float32=1e10),
        rows=[
            row("timm", [2.0, 3.0, 10.0]),
            row("keras_vit", [1.0, 2.0, 4.0]),
        ],
        memory=[row("timm", []) | dict(bytes=3 * 2**29)],
        batches=[row("timm", []) | dict(batch_size=0, images=9, most=9)],
    )
    (tmp_path / "jax.json").write_text(json.dumps(contents))
    ours, timm = tables.results(dict(jax=contents))
    assert ours.speed == 4 and ours.utilization == pytest.approx(0.4)
    assert timm.ratio == (2.0, 1.5, 2.5)
    assert benchmark.main(["--only_report", f"--output={tmp_path}"]) == 0
    out = capsys.readouterr().out
    assert "| JAX | 4 images/s | 2.00 (1.50 to 2.50) |" in out
    assert "| JAX | 1.50 GiB |" in out
    assert "ViTB16, 224 px | inference | float32 | JAX | 9 images or" in out
    assert (tmp_path / "benchmark.png").stat().st_size > 1000
    docs = tmp_path / "docs"
    (docs / "images").mkdir(parents=True)
    page = docs / "benchmarks.md"
    page.write_text("A\n<!-- memory -->\nold\n<!-- end of memory -->\nB\n")
    tables.write_docs(tmp_path, docs)
    assert "1.50 GiB" in page.read_text() and "old" not in page.read_text()
    assert page.read_text().endswith("<!-- end of memory -->\nB\n")
    assert (docs / "images" / "benchmark.png").is_file()


@pytest.mark.backend_independent
def test_unknown_names_and_empty_directories_are_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        benchmark.main(["--tasks=sleeping"])
    assert "inference, training" in capsys.readouterr().err
    assert benchmark.main(["--only_report", f"--output={tmp_path}"]) == 2
    assert "--output must" in capsys.readouterr().err
