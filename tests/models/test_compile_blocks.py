from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.models import compile_blocks

ARGUMENTS = dict(
    input_shape=(16, 16, 3),
    patch_size=8,
    hidden_size=16,
    num_layers=3,
    num_heads=2,
    mlp_dim=32,
    classes=5,
)
RNG = np.random.default_rng(0)
IMAGES = RNG.random((4, 16, 16, 3), "float32")
LABELS = np.arange(4)


def _pair(model_class=keras_vit.ViT, **changes):
    """Return two models with the same weights."""
    keras.utils.set_random_seed(0)
    models = [model_class(**ARGUMENTS | changes) for _ in range(2)]
    models[1].set_weights(models[0].get_weights())
    return models


def _count_programs(monkeypatch):
    """Count programs; they run as recorded, without generated code."""
    import torch

    made, called = [], []

    def fake(module, **options):
        made.append(options)

        def run(*arguments):
            called.append(arguments)
            return module(*arguments)

        return run

    monkeypatch.setattr(torch, "compile", fake)
    return made, called


@pytest.mark.backend("torch")
def test_threads_may_be_the_first_to_predict_together(monkeypatch):
    made, _ = _count_programs(monkeypatch)
    plain, compiled = _pair()
    compile_blocks(compiled)
    expected = plain.predict_on_batch(IMAGES)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(compiled.predict_on_batch, [IMAGES] * 4))
    np.testing.assert_allclose(found, [expected] * 4, atol=1e-6)
    assert len(made) == 1


@pytest.mark.backend("torch")
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_like_blocks_share_a_program_and_train_the_same(monkeypatch, dtype):
    made, called = _count_programs(monkeypatch)
    plain, compiled = _pair(dtype=dtype)
    compile_blocks(compiled, mode="default")
    losses = []
    for model in (plain, compiled):
        model.compile(
            keras.optimizers.AdamW(1e-2),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            jit_compile=False,
        )
        losses.append([model.train_on_batch(IMAGES, LABELS) for _ in range(3)])
    np.testing.assert_allclose(*losses, rtol=1e-6)
    # Some processors round products of bfloat16 by the order of operands.
    atol = 1e-5 if dtype == "float32" else 1e-2
    for images in (IMAGES, IMAGES[:1]):
        np.testing.assert_allclose(
            compiled.predict(images, verbose=0),
            plain.predict(images, verbose=0),
            atol=atol,
        )
    assert made == [{"mode": "default"}]
    compiled.set_weights([w + 0.1 for w in plain.get_weights()])
    plain.set_weights(compiled.get_weights())
    np.testing.assert_allclose(
        *(model.predict(IMAGES, verbose=0) for model in (plain, compiled)),
        atol=atol,
    )
    assert len(called) == 3 * (3 + 2 + 1)  # blocks, by calls


@pytest.mark.backend("torch")
def test_torch_compiles_one_graph():
    import torch

    plain, compiled = _pair(keras_vit.DeiT)
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compile_blocks(compiled, backend=backend)
    with torch.no_grad():
        np.testing.assert_allclose(compiled(IMAGES), plain(IMAGES), atol=1e-6)
    assert len(graphs) == 1


# The graph is that of the test above; the code of it is PyTorch's.
@pytest.mark.thorough
@pytest.mark.backend("torch")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch itself
def test_generated_code_computes_the_same():
    plain, compiled = _pair()
    compile_blocks(compiled)
    outputs = [m.predict(IMAGES, verbose=0) for m in (plain, compiled)]
    np.testing.assert_allclose(*outputs, atol=1e-5)


@pytest.mark.backend("torch")
def test_blocks_compute_themselves_where_a_program_does_not_fit(monkeypatch):
    _, called = _count_programs(monkeypatch)
    plain, compiled = _pair(dropout_rate=0.1, drop_path_rate=0.1)
    compile_blocks(compiled)
    compiled(IMAGES, training=True)
    assert not called
    compiled(IMAGES)
    assert len(called) == 3
    halves = [0.5 * v.value.detach() for v in plain.trainable_variables]
    values = halves, [v.value for v in plain.non_trainable_variables]
    outputs = [m.stateless_call(*values, IMAGES)[0] for m in (plain, compiled)]
    np.testing.assert_array_equal(*map(keras.ops.convert_to_numpy, outputs))
    assert len(called) == 3
    for model in (plain, compiled):
        keras_vit.training.train_low_rank(model, rank=2)
        for weight in model.trainable_variables:
            weight.assign(weight + 0.01)
    np.testing.assert_allclose(
        *(model.predict(IMAGES, verbose=0) for model in (plain, compiled)),
        atol=1e-6,
    )
    assert len(called) == 3


def test_models_without_blocks_are_refused():
    mixer = keras_vit.MLPMixer(
        input_shape=(16, 16, 3),
        patch_size=8,
        hidden_size=8,
        num_layers=1,
        tokens_mlp_dim=8,
        mlp_dim=8,
    )
    with pytest.raises(ValueError, match="TransformerBlock, such as those of"):
        compile_blocks(mixer)


@pytest.mark.backend("tensorflow", "jax")
def test_other_backends_compile_by_themselves():
    plain, compiled = _pair()
    compile_blocks(compiled)
    np.testing.assert_array_equal(compiled(IMAGES), plain(IMAGES))
