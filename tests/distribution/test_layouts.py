"""Where the parts of variables lie, and that training does not notice."""

import functools
import json
import math
import pathlib

import catalogue
import keras
import numpy as np
import processes
import pytest

from keras_vit.distribution import layouts
from keras_vit.inspection import costs
from tests.distribution import train_on_devices

pytestmark = pytest.mark.backend("jax")
ROOT = pathlib.Path(__file__).parents[2]
CHECKPOINT = ROOT / "tests/goldens/numerics/vit_token.ckpt.npz"
# Names alone: no layout needs the devices themselves.
DEVICES = [f"cpu:{i}" for i in range(8)]
BLOCK, ATTENTION = "encoderblock_0", "MultiHeadDotProductAttention_0"
# Of a model of the catalogue, with hidden_size=16, mlp_dim=32 and 2 heads.
TENSOR = {
    f"{ATTENTION}/qkv/kernel": [None, "model"],
    f"{ATTENTION}/qkv/bias": ["model"],
    f"{ATTENTION}/out/kernel": ["model", None],
    "MlpBlock_0/Dense_0/kernel": [None, "model"],
    "MlpBlock_0/Dense_0/bias": ["model"],
    "MlpBlock_0/Dense_1/kernel": ["model", None],
}


@functools.cache
def made(name):
    """A model of the catalogue, whose variables have no values."""
    with costs.shapes_alone():
        return catalogue.make_model(name)


def axes_of(layout, variables):
    return {v.path: list(layout.get_variable_layout(v).axes) for v in variables}


class TestLayouts:
    @pytest.mark.parametrize(
        "name", [*catalogue.MODELS, *catalogue.OTHER_FAMILIES]
    )
    def test_fsdp_cuts_all_that_divides(self, name):
        model = made(name)
        layout = layouts.distribution("fsdp", DEVICES)
        for variable in model.weights:
            axes = layout.get_variable_layout(variable).axes
            divides = [n % 8 == 0 for n in variable.shape]
            seed = variable.dtype == "uint32"
            assert axes.count("data") == (any(divides) and not seed)
            if "data" in axes:
                assert divides[axes.index("data")]

    @pytest.mark.parametrize("name", catalogue.MODELS)
    def test_tensor_cuts_heads_and_hidden_units(self, name):
        model = made(name)
        layout = layouts.distribution("tensor", DEVICES, 2)
        expected = {
            f"encoderblock_{i}/{path}": axes
            for i in range(2)
            for path, axes in TENSOR.items()
        }
        if name == "relative":
            path = f"{ATTENTION}/relative_embedding"
            for i in range(2):
                cut = ["model", None, None]
                expected[f"encoderblock_{i}/{path}"] = cut
        if name == "map":
            for path, axes in TENSOR.items():
                if path.startswith("MlpBlock_0/"):
                    expected[f"attention_pooling/{path}"] = axes
        found = axes_of(layout, model.weights)
        assert {p: a for p, a in found.items() if any(a)} == expected

    @pytest.mark.parametrize("name", catalogue.ENCODERS)
    def test_tensor_cuts_the_blocks_of_every_encoder(self, name):
        model = made(name)
        layout = layouts.distribution("tensor", DEVICES, 2)
        layouts.check_model(layout, model)
        found = axes_of(layout, model.weights)
        cut = {p.partition("/")[2]: a for p, a in found.items() if any(a)}
        others = {
            f"{ATTENTION}/q_bias": ["model"],
            f"{ATTENTION}/v_bias": ["model"],
            "MlpBlock_0/Gate/kernel": [None, "model"],
            "MlpBlock_0/Gate/bias": ["model"],
        }
        assert cut == {
            path: axes
            for path, axes in (TENSOR | others).items()
            if f"{BLOCK}/{path}" in found
        }

    @pytest.mark.parametrize(
        ("name", "mlps", "first", "second"),
        [
            (
                "mixer",
                [
                    f"MixerBlock_{i}/{mlp}/"
                    for i in range(2)
                    for mlp in ("token_mixing", "channel_mixing")
                ],
                "Dense_0",
                "Dense_1",
            ),
            ("mvit", [f"blocks_{i}/" for i in range(3)], "mlp_fc1", "mlp_fc2"),
        ],
    )
    def test_tensor_cuts_hidden_units(self, name, mlps, first, second):
        model = made(name)
        layout = layouts.distribution("tensor", DEVICES, 2)
        found = axes_of(layout, model.weights)
        assert {p: a for p, a in found.items() if any(a)} == {
            f"{mlp}{path}": axes
            for mlp in mlps
            for path, axes in (
                (f"{first}/kernel", [None, "model"]),
                (f"{first}/bias", ["model"]),
                (f"{second}/kernel", ["model", None]),
            )
        }
        # The first stage of MViT has one head, which nothing divides.
        layouts.check_model(layout, model)

    def test_both_cut_a_kernel_along_both_axes(self):
        model = made("token")
        found = axes_of(
            layouts.distribution("fsdp+tensor", DEVICES, 2), model.weights
        )
        assert found[f"{BLOCK}/{ATTENTION}/qkv/kernel"] == ["data", "model"]
        assert found[f"{BLOCK}/{ATTENTION}/out/kernel"] == ["model", "data"]
        assert found[f"{BLOCK}/MlpBlock_0/Dense_0/bias"] == ["model"]
        assert found[f"{BLOCK}/MlpBlock_0/Dense_1/bias"] == ["data"]
        assert found["class_token/cls"] == [None, None, "data"]

    def test_an_optimizer_keeps_a_slot_where_its_weight_is(self):
        # Of a model built without the distribution: the slots have no layout
        # but what their names show.
        model = catalogue.make_model("relative")
        optimizer = keras.optimizers.Adam(use_ema=True, name="adam")
        optimizer.build(model.trainable_variables)
        layout = layouts.distribution("fsdp+tensor", DEVICES, 2)
        slots = axes_of(layout, optimizer.variables)
        assert len(slots) == 2 + 3 * len(model.trainable_variables)
        weights = axes_of(layout, model.trainable_variables)
        for path, axes in weights.items():
            path = path.replace("/", "_")
            for slot in ("momentum", "velocity", "average"):
                assert slots.pop(f"adam/{path}_{slot}") == axes
        assert not any(map(any, slots.values()))
        assert len(slots) == 2  # the counter of steps, the learning rate

    def test_every_device_has_complete_metrics(self):
        layout = layouts.distribution("fsdp", DEVICES)
        metric = keras.metrics.AUC(num_thresholds=200)
        metric.update_state([0, 1], [0.2, 0.7])
        axes = axes_of(layout, metric.variables).values()
        assert [None] in axes
        assert not any(map(any, axes))

    def test_groups_are_neighbours(self):
        layout = layouts.distribution("tensor", DEVICES, 4)
        found = layout.device_mesh.devices.tolist()
        assert found == [DEVICES[:4], DEVICES[4:]]
        assert layout.num_model_replicas == 2


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("zero", DEVICES), ["`strategy`", "'fsdp+tensor'", "'zero'"]),
        (
            ("tensor", DEVICES, 3),
            ["number of devices, 8", "model_parallel=3", "1, 2, 4, 8"],
        ),
        (("fsdp", DEVICES, 2), ["`model_parallel`", "'fsdp'", "=2"]),
        (("tensor", DEVICES, 0), ["at least 1", "model_parallel=0"]),
        (("data", []), ["`devices`", "devices=[]"]),
    ],
)
def test_what_cannot_be_is_refused(arguments, words):
    with pytest.raises(ValueError) as error:
        layouts.distribution(*arguments)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    "sizes, words",
    [
        (dict(num_heads=6), ["`num_heads`", "=4", "=6", "=1, 2, 3, 6"]),
        (dict(mlp_dim=50), ["`mlp_dim`", "multiple of model_parallel=4", "50"]),
    ],
)
def test_sizes_that_do_not_divide_are_refused(sizes, words):
    def fails(function, *arguments, **kwargs):
        with pytest.raises(ValueError) as error:
            function(*arguments, **kwargs)
        for word in words:
            assert word in str(error.value)

    fails(layouts.distribution, "tensor", DEVICES, 4, **sizes)
    layout = layouts.distribution("tensor", DEVICES, 4)
    arguments = dict(hidden_size=24, num_heads=8) | sizes
    model = catalogue.make_model("token", **arguments)
    fails(layouts.check_model, layout, model)
    if "mlp_dim" in sizes:
        fails(axes_of, layout, model.weights)
    layouts.check_model(layouts.distribution("fsdp", DEVICES), model)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Returns a function from a run to its arrays, and the results."""
    folder = tmp_path_factory.mktemp("trained")
    processes.call(train_on_devices.main, folder, CHECKPOINT)
    results = json.loads((folder / "results.json").read_text())
    assert results["devices"] == 8
    return lambda run: dict(np.load(folder / f"{run}.npz")), results


def sizes_of(collectives, *kinds):
    return [math.prod(dims) for kind, dims in collectives if kind in kinds]


@pytest.mark.slow
class TestTraining:
    # tests/recipes/test_distributed.py trains with "fsdp+tensor", and
    # tests/training/test_accumulation.py with "data".
    def test_eight_devices_train_as_one(self, trained):
        arrays, results = trained
        found, expected = arrays("fsdp"), arrays("one")
        losses = expected.pop("losses")
        assert np.ptp(losses) > 0.1
        # Sums in another order: a few units of the last place in every step.
        np.testing.assert_allclose(found.pop("losses"), losses, rtol=3e-6)
        assert found.keys() == expected.keys()
        for path, weight in expected.items():
            np.testing.assert_allclose(
                found[path], weight, rtol=0, atol=5e-6, err_msg=path
            )
        assert results["fsdp"]["replicated"]  # metrics and seeds

    def test_fsdp_holds_an_eighth_of_weights_and_slots(self, trained):
        assert trained[1]["fsdp"]["largest_share"] <= 1.05 / 8

    def test_fsdp_gathers_weights_and_no_activations(self, trained):
        results = trained[1]["fsdp"]
        found, sizes = results["training"], results["sizes"]
        gathered = sizes_of(found, "all-gather")
        assert set(gathered) <= set(sizes)
        # Some are gathered once more for the backward pass.
        assert sum(sizes) <= sum(gathered) <= 2 * sum(sizes)
        reduced = sizes_of(found, "all-reduce", "reduce-scatter")
        assert sum(sizes) <= sum(reduced) <= 1.05 * sum(sizes)
        assert not sizes_of(found, "all-to-all")

    def test_tensor_parallelism_adds_up_twice_a_block(self, trained):
        found = trained[1]["tensor_4"]["inference"]
        # A device's examples times tokens, and the whole width.
        assert found == [["all-reduce", [8 * 5, 32]]] * 2

    def test_a_checkpoint_fills_cut_variables(self, trained):
        results = trained[1]["loaded"]
        assert results["same"]
        assert results["cut"] == results["divisible"] > 0
