"""The TPU planner: its tables, its reading, and the compiler itself."""

import contextlib
import dataclasses
import importlib.util
import json
import multiprocessing
import os
import pathlib
import threading
import types
from unittest import mock

import pytest

from recipes import experiment
from tools.plan_tpu import (
    command_line,
    compiler,
    hlo,
    largest_batch,
    planner,
    report,
    slices,
)

# What compiles is a process of JAX, whatever the backend of the tests.
pytestmark = pytest.mark.backend_independent

HLO = """\
HloModule jit_train_step, is_scheduled=true

%add (a: f32[], b: f32[]) -> f32[] {
  ROOT %sum = f32[] add(%a, %b)
}

%condition (p: (s32[], f32[8])) -> pred[] {
  %limit = s32[]{:T(128)} constant(4)
  ROOT %less = pred[]{:T(512)} compare(%i, %limit), direction=LT
}

%body (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %all-to-all.1 = bf16[16,4]{1,0:T(8,128)} all-to-all(%x), channel_id=7, \
replica_groups=[2,4]<=[8], dimensions={0}
}

%all-reduce-scatter.1 (p: f32[128,64]) -> f32[16,64] {
  %all-reduce.9 = f32[128,64]{1,0} all-reduce(%p), channel_id=8, \
replica_groups={{0,1,2,3},{4,5,6,7}}, to_apply=%add
}

%async_collective_fusion.1 (p: bf16[16]) -> bf16[128] {
  %all-gather.2 = bf16[128]{0} all-gather(%p), channel_id=9, \
replica_groups=mesh['axis_0'=2,'axis_1'=4] {'axis_0','axis_1'}, dimensions={0}
}

%fused_computation.2 (p: bf16[16]) -> bf16[128] {
  %all-gather.3 = bf16[128]{0} all-gather(%p), channel_id=9, \
replica_groups=mesh['axis_0'=2,'axis_1'=4] {'axis_0','axis_1'}, dimensions={0}
}

%never (p: f32[9]) -> f32[9] {
  %all-reduce.7 = f32[9]{0} all-reduce(%p), channel_id=10, to_apply=%add
}

ENTRY %main (p: f32[8]) -> f32[8] {
  %all-reduce.1 = (f32[10,3]{1,0:T(8,128)}, bf16[5]{0}, /*index=2*/f32[]) \
all-reduce(%a, %b, %c), channel_id=1, \
replica_groups=mesh['axis_0'=2,'axis_1'=4] {'axis_1'}, to_apply=%add
  %all-reduce.2 = f32[]{:T(128)} all-reduce(%c), channel_id=2, to_apply=%add
  %f.1 = f32[16,64] fusion(%p), kind=kCustom, calls=%all-reduce-scatter.1
  %f.2 = bf16[128] fusion(%p), kind=kOutput, calls=%async_collective_fusion.1
  %f.3 = bf16[128] fusion(%p), kind=kCustom, calls=%fused_computation.2
  %ag = (bf16[4]{0}, bf16[32]{0}) all-gather-start(%p), channel_id=3, \
dimensions={0}
  %agd = bf16[32]{0} all-gather-done(%ag)
  %w = (s32[], f32[8]) while(%t), condition=%condition, body=%body
}
"""


@pytest.mark.parametrize(
    ("name", "topology", "chips", "cores", "devices", "gib"),
    [
        ("v2-8", "2x2", 4, 8, 8, 8),
        ("v3-2048", "32x32", 1024, 2048, 2048, 16),
        ("v4-8", "2x2x1", 4, 8, 4, 32),
        ("v5litepod-256", "16x16", 256, 256, 256, 16),
        ("tpu7x-8", "2x2x1", 4, 8, 8, 96),
    ],
)
def test_a_slice_is_named_by_cores_or_by_chips(
    name, topology, chips, cores, devices, gib
):
    tpu = slices.find(name)
    assert tpu.topology == topology
    assert (tpu.num_chips, tpu.num_cores) == (chips, cores)
    assert (tpu.num_devices, tpu.hbm) == (devices, gib * 2**30)
    chip = slices.CHIPS[tpu.generation]
    assert tpu.flops == chip.flops * chips / devices


@pytest.mark.parametrize(
    ("name", "near"),
    [("v3-10", "v3-8"), ("v5e-300", "v5e-256"), ("v9-8", "v5p"), ("x", "v3-8")],
)
def test_an_unknown_slice_is_refused_with_near_ones(name, near):
    with pytest.raises(ValueError, match=near):
        slices.find(name)


def test_without_libtpu_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        ValueError, match="pip install -r requirements/tpu-plan.txt"
    ):
        slices.prepare("v3-8")


def test_collectives_are_read_with_their_groups_and_loops():
    found = {
        (c.kind, c.group, c.of_scalars): (c.count, c.values, c.bytes)
        for c in hlo.collectives(HLO, num_devices=8)
    }
    assert found == {
        ("all-reduce", 4, False): (1, 36, 34 * 4 - 3 * 4 + 10),
        ("all-reduce", 8, True): (1, 1, 4),
        ("reduce-scatter", 4, False): (1, 128 * 64, 128 * 64 * 4),
        ("all-gather", 8, False): (2, 128 + 32, 2 * (128 + 32)),
        ("all-to-all", 4, False): (4, 4 * 64, 4 * 64 * 2),
    }


def test_loops_are_counted():
    assert hlo.trip_counts(HLO) == [4]
    known = HLO.replace(
        "body=%body",
        'body=%body, backend_config={"known_trip_count":{"n":"9"}}',
    )
    assert hlo.trip_counts(known) == [9]


def test_cycles_are_those_of_each_iteration():
    cycles = 'backend_config={"estimated_cycles":"%d"}'
    text = HLO.replace(
        "dimensions={0}\n}\n\n%all-r", f"{cycles % 5}\n}}\n\n%all-r"
    )
    text = text.replace("to_apply=%add\n  %f.1", f"{cycles % 7}\n  %f.1")
    assert hlo.cycles(text) == 4 * 5 + 7
    assert hlo.cycles(HLO) == 0


@pytest.mark.parametrize(
    ("message", "needs", "available"),
    [
        (
            "RESOURCE_EXHAUSTED: E1000: Ran out of memory on HBM, the total "
            "memory required for HLO temporaries (32.00G) exceeds available "
            "HBM (512.00M). HLO module: jit_train_step.",
            32 * 2**30,
            2**29,
        ),
        (
            "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of "
            "memory in memory space hbm. Used 20.50G of 15.50G hbm.",
            41 * 2**29,
            31 * 2**29,
        ),
        ("RESOURCE_EXHAUSTED: no more hbm", 0, 0),
    ],
)
def test_a_refusal_for_memory_is_understood(message, needs, available):
    with pytest.raises(compiler.DoesNotFit) as refusal:
        compiler._raise_if_memory(message)
    assert (refusal.value.needs, refusal.value.available) == (needs, available)


def test_another_refusal_is_not_taken_for_one_of_memory():
    for message in ("INTERNAL: hbm", "RESOURCE_EXHAUSTED: out of vmem"):
        assert compiler._raise_if_memory(message) is None


@pytest.mark.parametrize("limit", [0, 1, 7, 33, 100, 608, 9000])
@pytest.mark.parametrize("saving", [0.8, 1.0, 1.2])
def test_the_largest_batch_is_found_with_few_questions(limit, saving):
    asked = []

    def ask(size):
        asked.append(size)
        return largest_batch.Answer(
            fits=size <= limit,
            needs=10**9 + 10**7 * size,
            available=int(10**9 + 10**7 * limit * saving),
        )

    found = largest_batch.largest(ask, start=3000, fixed=10**9)
    sizes = largest_batch.sizes(20_000)
    assert found == max([0, *(size for size in sizes if size <= limit)])
    assert len(asked) <= 12
    assert len(set(asked)) == len(asked)


def test_a_compiler_that_ends_says_why(monkeypatch):
    def start(asker):
        asker._ask, theirs = multiprocessing.Pipe()
        asker._log, log = multiprocessing.Pipe(duplex=False)
        asker._process = mock.Mock()

        def end():  # with the question unread
            theirs.poll(10)
            os.write(log.fileno(), b"no TPU here")
            theirs.close()
            log.close()

        threading.Thread(target=end).start()

    monkeypatch.setattr(largest_batch.CompilerProcess, "_start", start)
    with pytest.raises(RuntimeError, match="has ended:\nno TPU here"):
        largest_batch.CompilerProcess(None)(8)


SUMS = hlo.Collective("all-reduce", 8, 3, values=10**6, bytes=41 * 10**9)
PROGRAM = compiler.Program(
    arguments=2 * 2**30,
    temporaries=2**29,
    code=2**28,
    flops=61.5e12,
    bytes=900e9,
    compiler_seconds=0.0,
    cycles=0,
    collectives=[SUMS],
    parameters=10**6,
    compile_seconds=1.0,
)


def program(**changes):
    return dataclasses.replace(PROGRAM, **changes)


def a_plan(**changes):
    plan = report.Plan(
        tpu=slices.find("v3-8"),
        model="ViTL16",
        dataset="imagenet21k",
        strategy="data",
        remat=False,
        batch_size=4096,
        model_parallel=1,
        micro_batches=1,
        num_replicas=8,
        total_steps=311_948,
        largest=96,
        paper_core_days=230,
    )
    return dataclasses.replace(plan, **changes)


def test_the_compilers_estimate_comes_before_the_peaks():
    by_peaks = planner._with_program(a_plan(), program())
    assert by_peaks.seconds_from == "roofline"
    assert by_peaks.seconds == pytest.approx(2.4375)
    by_compiler = planner._with_program(
        a_plan(), program(compiler_seconds=2.288)
    )
    assert by_compiler.seconds_from == "compiler"
    assert by_compiler.core_days == pytest.approx(66.087, abs=1e-3)
    assert by_compiler.images_per_second == pytest.approx(4096 / 2.288)


def test_a_report_has_the_papers_figure_beside_ours():
    plan = planner._with_program(a_plan(), program(compiler_seconds=2.288))
    numbers = report.as_json(plan)
    assert json.loads(json.dumps(numbers)) == numbers
    text = report.report(plan)
    assert "4 chips (2x2), 8 TensorCores, 8 JAX devices" in text
    assert "2.75 GiB of 16.00 GiB" in text
    assert "96 images at once on each device, 768 on all" in text
    assert report._images(1) == "1 image"
    assert "100.0% as many values as parameters" in text
    assert "311,948 steps: 8.26 days, 66.1 TPU-core-days" in text
    assert "the paper's Table 2: 230 of TPUv3" in text
    assert "not fit" not in text


def test_a_report_says_what_does_not_fit():
    plan = a_plan(fits=False, needs=47 * 2**30, available=31 * 2**29)
    assert "need 47.00 GiB of 15.50 GiB" in report.report(plan)
    assert "needs 47.0" in report.row(["4096"], plan)
    parts = planner._with_program(
        dataclasses.replace(plan, micro_batches=4), program()
    )
    assert "--config.run.micro_batches=4, 128 images" in report.report(parts)


@pytest.mark.parametrize(
    ("name", "images"),
    [
        ("detect.py:ViT,coco/2017", 118_287),
        ("segment.py:ViT,coco/2017_panoptic", 118_287),
        ("segment.py:ViT,scene_parse150", 20_210),
        ("contrastive.py:clip,coco_captions", 82_783),
        ("dino.py:ViT,imagenet2012", 1_281_167),
        ("finetune.py:ViTB16,oxford_flowers102", 1_020),
    ],
)
def test_published_sets_are_planned_without_their_files(name, images):
    file, argument = name.split(":")
    path = pathlib.Path(command_line.DEFAULT_CONFIG.split(":")[0])
    config = command_line._config(
        [f"--config={path.with_name(file)}:{argument}"]
    )
    assert planner.dataset_info(config).train_images == images


def test_a_sweep_is_all_combinations():
    config = experiment.Config()
    found = command_line.settings(
        "data.batch_size=64,128; model.remat=0,True;run.strategy=data", config
    )
    assert found[1] == {
        "data.batch_size": 64,
        "model.remat": True,
        "run.strategy": "data",
    }
    assert len(found) == 4


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ("seed", "--sweep must be fields"),
        ("colour=1", "--sweep must be fields"),
        ("data.batch_size=many", "--sweep must give values"),
        ("data.batch_size=1.5", "--sweep must give values"),
        ("data.batch_size=[1]", "--sweep must give values"),
        ("model.remat=2", "--sweep must give values"),
        ("model=1", "model is now model.name"),
        ("batch_size=8", "batch_size is now data.batch_size"),
    ],
)
def test_an_invalid_sweep_is_refused(sweep, message):
    with pytest.raises(ValueError, match=message):
        command_line.settings(sweep, experiment.Config())


@pytest.mark.parametrize(
    ("name", "options"),
    [("v5e-8", {"xla_tpu_scoped_vmem_limit_kib": "49152"}), ("v3-8", {})],
)
def test_a_step_is_compiled_with_the_options_of_its_chip(
    monkeypatch, name, options
):
    found = []
    monkeypatch.setattr(
        compiler,
        "compile_lowered",
        lambda lowered, options: found.append(options),
    )
    step = types.SimpleNamespace(
        tpu=slices.find(name),
        model=types.SimpleNamespace(train_step=lambda state, x: (x, state)),
        distribution=types.SimpleNamespace(scope=contextlib.nullcontext),
        _state=tuple,
        _batch=float,
        _read=lambda compiled, seconds: None,
    )
    compiler.Step.compile(step, 8)
    assert found == [options]
