"""The comparison with the authors' training step, without compiling it."""

import dataclasses
import json
import sys
import types

import numpy as np
import pytest
from small_runs import changed

from keras_vit.models import vit
from recipes import experiment
from tools.plan_tpu import authors, compare, compiler, slices

pytestmark = pytest.mark.backend_independent


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A function that writes a checkout of one file."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "optax", types.ModuleType("optax"))

    def write(file, text):
        path = tmp_path / file
        path.parent.mkdir(parents=True)
        path.write_text(text)
        return str(tmp_path)

    yield write
    for name in [n for n in sys.modules if n.startswith("vit_jax")]:
        del sys.modules[name]


def settings(**changes):
    sizes = dict(hidden_size=8, num_layers=2, num_heads=2, mlp_dim=16)
    return authors.Settings(
        architecture=vit.ViTConfig(patch_size=4, **sizes | changes),
        representation_size=0,
        num_classes=10,
        image_shape=(8, 8, 3),
        dtype="bfloat16",
        loss=None,
        learning_rate=lambda step: 0.1,
        weight_decay=0.3,
        clip_norm=1.0,
    )


def test_the_repository_is_known_by_its_file(checkout):
    root = checkout("vit_jax/models_vit.py", "VisionTransformer = 3")
    name, module = authors.load(root)
    assert (name, module.VisionTransformer) == ("vision_transformer", 3)


def test_a_missing_package_is_named_with_what_installs_it(checkout):
    root = checkout("vit_jax/models_vit.py", "import no_such_package")
    with pytest.raises(ValueError, match=r"'no_such_package'.*pip install"):
        authors.load(root)


def test_their_model_has_the_same_architecture():
    module = types.SimpleNamespace(Model=lambda classes, **kw: (classes, kw))
    classes, arguments = authors.model("big_vision", module, settings())
    assert classes == 10
    assert arguments == dict(
        patch_size=(4, 4),
        width=8,
        depth=2,
        mlp_dim=16,
        num_heads=2,
        dropout=0.0,
        rep_size=False,
        pool_type="tok",
        dtype_mm="bfloat16",
    )


@pytest.mark.parametrize(
    ("name", "changes", "named"),
    [
        ("big_vision", dict(drop_path_rate=0.1), "drop_path_rate"),
        ("big_vision", dict(pooling="unpooled"), "pooling"),
        ("big_vision", dict(attention_dropout_rate=0.1), "attention_dropout"),
        ("vision_transformer", {}, "dtype_policy=float32"),
    ],
)
def test_what_they_cannot_express_is_refused(name, changes, named):
    with pytest.raises(ValueError, match=named):
        authors.model(name, None, settings(**changes))


def test_a_config_with_another_step_is_refused():
    config = changed(
        experiment.Config(), strategy="fsdp", dtype_policy="float16"
    )
    config.optim.head_weight_decay = 3.0
    tpu = slices.find("v3-8")
    named = r"strategy='fsdp'.*head_weight_decay=3.0.*dtype_policy"
    with pytest.raises(ValueError, match=named):
        compare.make(config, tpu, "nowhere")


def test_their_optimizer_is_keras_adam_with_decay():
    jax = pytest.importorskip("jax")
    optax = pytest.importorskip("optax")
    start = dict(
        kernel=np.full((3, 2), 2, "float32"), bias=np.ones(2, "float32")
    )
    optimizer = authors.adamw(settings())
    state = optimizer.init(start)
    gradients = jax.tree.map(lambda x: np.full_like(x, 5), start)
    updates, _ = optimizer.update(gradients, state, start)
    found = optax.apply_updates(start, updates)
    # Adam's first step is the sign of the gradient, clipped or not.
    np.testing.assert_allclose(found["bias"], 1 - 0.1, rtol=1e-5)
    np.testing.assert_allclose(
        found["kernel"], 2 - 0.1 - 0.1 * 0.3 * 2, rtol=1e-5
    )
    moments = [x for x in jax.tree.leaves(state) if np.shape(x) == (3, 2)]
    assert len(moments) == 2


PROGRAM = compiler.Program(
    arguments=2**30,
    temporaries=2**30,
    code=0,
    flops=13.6e12,
    bytes=75e9,
    compiler_seconds=0.30,
    cycles=4 * 10**8,
    collectives=[],
    parameters=1000,
    compile_seconds=1.0,
)


def program(**changes):
    return dataclasses.replace(PROGRAM, **changes)


def comparison(ours, theirs):
    return compare.Comparison(
        tpu=slices.find("v3-8"),
        model="ViTB16",
        dataset="imagenet2012",
        dtype_policy="mixed_bfloat16",
        batch_size=1024,
        clip_norm=1.0,
        weight_decay=0.3,
        dropout_rate=0.0,
        repository="big_vision",
        ours=ours,
        theirs=theirs,
    )


def test_time_decides_where_the_compiler_estimates_it():
    found = comparison(program(), program(compiler_seconds=0.32, bytes=60e9))
    text = compare.report(found)
    assert "1024 images a step, 128 on each of 8 devices of v3-8" in text
    assert "0.3000 s" in text and "0.938" in text and "1.250" in text
    assert text.endswith("Judged by seconds: 0.938")
    assert json.loads(json.dumps(compare.as_json(found)))["ratios"][
        "bytes"
    ] == pytest.approx(1.25)


def test_a_step_that_does_not_fit_shows_what_it_needs():
    found = comparison(program(), 20 * 2**30)
    assert compare.ratios(found) == {"memory": pytest.approx(0.1)}
    text = compare.report(found)
    assert "20.00 GiB" in text and "does not fit" in text
    assert "Judged" not in text
