"""Other tools of Keras' users: its tuner and its own exporters."""

import catalogue
import keras
import numpy as np
import pytest

import keras_vit

BACKEND = keras.backend.backend()
IMAGES = np.random.default_rng(0).uniform(0, 255, (8, 16, 8, 3))
LABELS = np.arange(8) % 3


# Of tools, on importing them and on tracing.
@pytest.mark.backend("torch")  # the fastest; nothing here is the backend's
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_keras_tuner_searches_sizes_and_rates(tmp_path):
    keras_tuner = pytest.importorskip("keras_tuner")

    def build(hp):
        sizes = catalogue.TINY | dict(num_layers=hp.Choice("layers", [1, 2]))
        model = keras_vit.ViT(**sizes)
        model.compile(
            keras.optimizers.SGD(hp.Float("rate", 1e-4, 1e-2)),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )
        return model

    tuner = keras_tuner.RandomSearch(
        build,
        objective=keras_tuner.Objective("loss", "min"),
        max_trials=2,
        seed=0,
        directory=tmp_path,
        project_name="search",
    )
    tuner.search(IMAGES, LABELS, epochs=1, verbose=0)
    (best,) = tuner.get_best_models(1)
    (values,) = tuner.get_best_hyperparameters(1)
    blocks = [layer for layer in best.layers if "encoderblock" in layer.name]
    assert len(blocks) == values["layers"]
    assert np.isfinite(best.predict(IMAGES, verbose=0)).all()


def run_saved_model(path, images):
    tf = pytest.importorskip("tensorflow")
    loaded = tf.saved_model.load(path)
    return loaded.serve(tf.constant(images)).numpy()


def run_onnx(path, images):
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(path)
    return session.run(None, {session.get_inputs()[0].name: images})[0]


def run_litert(path, images):
    runtime = pytest.importorskip("ai_edge_litert.interpreter")
    interpreter = runtime.Interpreter(path)
    (into,) = interpreter.get_input_details()
    interpreter.resize_tensor_input(into["index"], images.shape)
    interpreter.allocate_tensors()
    interpreter.set_tensor(into["index"], images)
    interpreter.invoke()
    (out,) = interpreter.get_output_details()
    return interpreter.get_tensor(out["index"])


def run_torch(path, images):
    import torch

    program = torch.export.load(path).module()
    return program(torch.from_numpy(images)).detach().numpy()


FORMATS = dict(
    tensorflow=[
        ("tf_saved_model", "model", run_saved_model),
        ("onnx", "model.onnx", run_onnx),
        ("litert", "model.tflite", run_litert),
    ],
    # Its ONNX exporter takes no LayerNormalization of Keras.
    torch=[("torch", "model.pt2", run_torch)],
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.backend("tensorflow", "torch")
@pytest.mark.parametrize(
    ("file_format", "name", "run"), FORMATS.get(BACKEND, [])
)
@pytest.mark.thorough("tensorflow")
def test_the_exporters_of_keras_preserve_the_outputs(
    file_format, name, run, tmp_path
):
    if file_format == "onnx":
        pytest.importorskip("onnx")
    model = keras_vit.ViT(**catalogue.TINY)
    kernel = model.get_layer("head").kernel
    kernel.assign(np.random.default_rng(1).normal(size=kernel.shape))
    path, images = str(tmp_path / name), IMAGES[:1].astype("float32")
    expected = model.predict(images, verbose=0)  # first, as Keras asks
    model.export(path, format=file_format, verbose=False)
    np.testing.assert_allclose(
        run(path, images), expected, rtol=1e-3, atol=1e-4
    )
