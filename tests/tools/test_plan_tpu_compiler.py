"""The TPU planner with the compiler itself, on a small model."""

import json
import pathlib
import sys

import processes
import pytest

from tools.plan_tpu import command_line, compiler

pytest.importorskip("libtpu")
# Each plan is made by a process that is forked after the imports.
pytestmark = [pytest.mark.backend("jax"), pytest.mark.slow]
thorough = pytest.mark.thorough

CONFIG = pathlib.Path(__file__).parents[2] / "recipes/configs/pretrain.py"


def make(words):
    compile_all = compiler.Step.compile

    def compile_few(step, batch_size):
        # The parts that fit; their code would be generated for a minute.
        if step.repeats > 2:
            batch_size = 16 * step.repeats
        return compile_all(step, batch_size)

    compiler.Step.compile = compile_few
    sys.exit(command_line.main(words))


def plan(*words):
    """Returns what the planner prints, progress included."""
    config = f"--config={CONFIG}:ViT,cifar10"
    sizes = dict(num_layers=1, dropout_rate=0)
    sizes = (f"--config.model.architecture.{k}={v}" for k, v in sizes.items())
    return processes.call(make, [*words, config, *sizes])


def plan_of(tpu, file, argument, changes):
    """Returns the plan of a config file, whose program is compiled once."""
    words = [f"--config.{key}={value}" for key, value in changes.items()]
    path = f"--config={CONFIG.with_name(file)}:{argument}"
    printed = processes.call(make, [tpu, "--json", "--no_search", path, *words])
    found = json.loads(printed[printed.index("\n{") :])
    assert found["fits"] and found["program"]["flops"] > 0
    return found


def as_json(printed):
    start = min(i for i in map(printed.find, ("\n{", "\n[")) if i >= 0)
    return json.loads(printed[start:])


def check_gradients_are_summed_once(plan):
    program = plan["program"]
    [sums] = [c for c in program["collectives"] if not c["of_scalars"]]
    assert sums["kind"] == "all-reduce"
    assert sums["group"] == plan["tpu"]["num_devices"]
    assert sums["bytes"] == pytest.approx(4 * program["parameters"], rel=0.05)
    assert sums["values"] == pytest.approx(program["parameters"], rel=0.05)


def test_data_parallel_on_v3_sums_the_gradient_and_gathers_nothing():
    data, sharded = as_json(
        plan("v3-8", "--json", "--sweep=run.strategy=data,fsdp")
    )
    assert data["changes"] == {"run.strategy": "data"}
    found = data["plan"]
    check_gradients_are_summed_once(found)
    assert found["fits"]
    assert 0 < found["hbm"] < found["tpu"]["hbm"]
    assert found["seconds"] >= found["roofline"]["compute"] > 0
    assert found["images_per_second"] == pytest.approx(64 / found["seconds"])
    assert found["total_steps"] == 60 * 50_000 // 64
    assert found["core_days"] == pytest.approx(8 * found["days"])
    program = sharded["plan"]["program"]
    assert "all-gather" in {c["kind"] for c in program["collectives"]}
    assert program["arguments"] < found["program"]["arguments"] / 2


@pytest.mark.thorough("jax")
def test_plain_keras_has_the_layouts_of_the_recipe():
    words = ["v3-8", "--json", "--compare=keras", "--config.data.batch_size=64"]
    ratios = as_json(plan(*words))["ratios"]  # the recipe / plain Keras
    assert 0.98 < ratios["bytes"] < 1.02 and 0.98 < ratios["seconds"] < 1.02


@pytest.mark.thorough()
def test_what_does_not_fit_v5e_is_planned_in_parts_that_do():
    images = 2**19 // 8  # on each device
    found = as_json(
        plan(
            *("v5e-8", "--json", f"--config.data.batch_size={8 * images}"),
            "--config.schedule.total_steps=100",
        )
    )
    check_gradients_are_summed_once(found)
    assert not found["fits"]
    assert found["needs"] > found["available"] > 15 * 2**30
    assert found["micro_batches"] > 1
    assert found["hbm"] < found["tpu"]["hbm"]
    assert images // found["micro_batches"] <= 2 * found["largest"]
    assert found["largest"] < images


@thorough
@pytest.mark.parametrize("file", ["detect", "segment"])
def test_training_of_a_task_compiles_with_its_matching(file):
    """The loops of the matching, random points and masked attention too."""
    changes = {
        "data.image_size": 32,
        "data.batch_size": 8,
        "model.architecture.patch_size": 16,
        "model.architecture.hidden_size": 16,
        "model.architecture.num_layers": 2,
        "model.architecture.num_heads": 2,
        "model.architecture.mlp_dim": 16,
        "task.num_queries": 4,
    }
    if file == "segment":
        changes |= {"task.num_blocks": 1, "task.num_points": 16}
    found = plan_of("v5e-1", f"{file}.py", "ViT,coco/2017", changes)
    assert found["dataset"] == "coco/2017"


@pytest.mark.parametrize(
    "method",
    [
        pytest.param("clip", marks=thorough),
        "siglip",
        pytest.param("lit", marks=thorough),
    ],
)
def test_training_of_two_towers_compiles_for_all_pairs(method):
    changes = {
        "data.image_size": 32,
        "data.batch_size": 64,
        "model.architecture.num_layers": 1,
        "model.architecture.hidden_size": 64,
        "model.architecture.num_heads": 1,
        "model.architecture.mlp_dim": 64,
        "text.vocab_size": 16,
        "text.num_layers": 1,
        "text.hidden_size": 64,
        "text.num_heads": 1,
        "text.mlp_dim": 64,
        "text.embedding_size": 32,
    }
    found = plan_of(
        "v5e-8", "contrastive.py", f"{method},coco_captions", changes
    )
    collectives = found["program"]["collectives"]
    travels = "collective-permute" in {c["kind"] for c in collectives}
    assert travels == (method == "siglip")


@thorough
def test_a_teacher_that_is_an_average_of_its_student_compiles():
    """Crops of two sizes, masked patches and all centres in one step."""
    changes = {
        "data.image_size": 32,
        "data.batch_size": 8,
        "model.architecture.patch_size": 16,
        "model.architecture.hidden_size": 16,
        "model.architecture.num_layers": 1,
        "model.architecture.num_heads": 2,
        "model.architecture.mlp_dim": 16,
        "dino.num_local": 2,
        "dino.patch_weight": 1.0,
        "dino.centring": "sinkhorn",
    }
    found = plan_of("v5e-8", "dino.py", "ViT,imagenet2012", changes)
    assert found["total_steps"] == 22 * 1_281_167 // 8
