"""Distillation: its losses by their formulas, and teachers of every kind."""

import keras
import numpy as np
import pytest
import realistic
from keras import ops

import keras_vit
from keras_vit import export, training
from keras_vit.training import distillation

TINY = dict(
    patch_size=4,
    hidden_size=8,
    num_layers=1,
    num_heads=2,
    mlp_dim=16,
    input_shape=(8, 8, 3),
    classes=4,
)
numpy = ops.convert_to_numpy


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def crossentropy(y, z):
    return -(y * np.log(softmax(z))).sum(-1)


def divergence(t, z, temperature):
    p, q = softmax(t / temperature), softmax(z / temperature)
    return temperature**2 * (p * np.log(p / q)).sum(-1)


def test_the_losses_are_the_papers():
    rng = np.random.default_rng(0)
    z, copy, t = rng.normal(size=(3, 5, 4)).astype("float32") * 2
    y = np.eye(4, dtype="float32")[[0, 1, 2, 3, 0]]
    smooth = y * 0.9 + 0.025
    argmax = np.eye(4)[t.argmax(-1)]
    expected = dict(
        hard=0.5 * crossentropy(smooth, z) + 0.5 * crossentropy(argmax, copy),
        soft=0.9 * crossentropy(smooth, z) + 0.1 * divergence(t, copy, 3.0),
        match=divergence(t, (z + copy) / 2, 2.0),
    )
    outputs = ops.convert_to_tensor(np.stack([z, copy, t], axis=1))
    for method, values in expected.items():
        temperature = 2.0 if method == "match" else None
        loss = training.DistillationLoss(
            method, temperature=temperature, label_smoothing=0.1
        )
        loss = type(loss).from_config(loss.get_config())
        found = numpy(loss(ops.convert_to_tensor(y), outputs))
        np.testing.assert_allclose(found, values.mean(), rtol=3e-6)
    assert training.DistillationLoss("match").temperature == 1
    metric = training.DistilledAccuracy()
    chosen = (z + copy).argmax(-1)
    assert (chosen != z.argmax(-1)).any()
    metric.update_state(ops.convert_to_tensor(np.eye(4)[chosen]), outputs)
    assert float(metric.result()) == 1


@pytest.mark.parametrize("title", ["DeiT", "ViT"])
@pytest.mark.thorough("tensorflow", "jax")
def test_a_student_learns_and_its_teacher_does_not(title):
    keras.utils.set_random_seed(0)
    student = realistic.fill(getattr(keras_vit, title)(**TINY), 1)
    # Of another size, and with the same paths of variables.
    other = dict(input_shape=(12, 12, 3), dropout_rate=0.5)
    teacher = keras_vit.ViT(**TINY | other)
    realistic.fill(teacher, 2)
    images = np.random.default_rng(0).uniform(0, 255, (8, 8, 8, 3))
    images, labels = images.astype("float32"), np.eye(4)[np.arange(8) % 4]
    trained = training.distilled(student, teacher)
    outputs = trained.predict(images, verbose=0)
    resized = numpy(ops.image.resize(images, (12, 12)))
    np.testing.assert_allclose(
        outputs[:, 2], teacher.predict(resized, verbose=0), atol=1e-5
    )
    in_training = numpy(trained(images, training=True))
    np.testing.assert_allclose(in_training[:, 2], outputs[:, 2], atol=1e-5)
    np.testing.assert_allclose(
        outputs[:, :2].mean(1), student.predict(images, verbose=0), atol=1e-5
    )
    before = [numpy(v) for v in teacher.weights]
    trained.compile(
        keras.optimizers.Adam(1e-2),
        training.DistillationLoss("match"),
        weighted_metrics=[training.DistilledAccuracy(name="accuracy")],
    )
    history = trained.fit(
        images, labels, batch_size=8, epochs=15, verbose=0
    ).history
    assert history["loss"][-1] < 0.7 * history["loss"][0]
    for old, variable in zip(before, teacher.weights, strict=True):
        np.testing.assert_array_equal(old, numpy(variable))


@pytest.mark.backend("torch")
def test_gradients_of_a_step_do_not_stay_for_the_next():
    student = realistic.fill(keras_vit.ViT(**TINY), 1)
    # With the same paths of variables.
    teacher = realistic.fill(keras_vit.ViT(**TINY), 2)
    trained = training.distilled(student, teacher)
    # Of a rate of 0, so that both steps have the same gradients.
    trained.compile(keras.optimizers.SGD(0.0), training.DistillationLoss())
    images = np.random.default_rng(0).uniform(0, 255, (4, 8, 8, 3))
    found = []
    for _ in range(2):
        trained.train_on_batch(images.astype("float32"), np.eye(4))
        found.append(
            [numpy(v.value.grad).copy() for v in student.trainable_variables]
        )
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)


@pytest.mark.backend("torch")
def test_pixels_of_a_teacher_do_not_depend_on_global_settings():
    # Of another size, in float32.
    teacher = keras_vit.ViT(**TINY | dict(input_shape=(12, 12, 3)))
    realistic.fill(teacher, 2)
    images = np.random.default_rng(0).uniform(0, 255, (4, 8, 8, 3))
    images = images.astype("float32")
    keras.config.set_dtype_policy("mixed_bfloat16")
    keras.config.set_image_data_format("channels_first")
    try:
        student = keras_vit.ViT(**TINY)
        outputs = training.distilled(student, teacher).predict(images)
    finally:
        keras.config.set_dtype_policy("float32")
        keras.config.set_image_data_format("channels_last")
    resized = numpy(ops.image.resize(images, (12, 12)))
    np.testing.assert_allclose(
        outputs[:, 2], teacher.predict(resized, verbose=0), atol=1e-5
    )


@pytest.fixture(scope="module")
def teacher():
    return realistic.fill(keras_vit.ViT(**TINY), 2)


def predicted(path, images):
    """What a file predicts in the data pipeline."""
    tf = pytest.importorskip("tensorflow")
    batches = tf.data.Dataset.from_tensors({"images": images, "labels": 0})
    found = training.open_teacher(path)
    (batch,) = training.with_predictions(batches, found, 4).as_numpy_iterator()
    np.testing.assert_array_equal(batch["images"]["images"], images)
    return batch["images"]["teacher"]


@pytest.mark.backend("torch")
@pytest.mark.parametrize("channels_first", [False, True])
def test_an_onnx_teacher(channels_first, tmp_path):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(3, 4)).astype("float32")
    # The mean colour of images of 4 pixels a side, times weights.
    shape = ["images", 3, 4, 4] if channels_first else ["images", 4, 4, 3]
    axes = [2, 3] if channels_first else [1, 2]
    make = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node(
                "ReduceMean", ["pixels"], ["mean"], axes=axes, keepdims=0
            ),
            onnx.helper.make_node("MatMul", ["mean", "w"], ["scores"]),
        ],
        "mean",
        [make("pixels", onnx.TensorProto.FLOAT, shape)],
        [make("scores", onnx.TensorProto.FLOAT, ["images", 4])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    opset = [onnx.helper.make_opsetid("", 13)]
    model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=8)
    # As `export_onnx` states them.
    onnx.helper.set_model_props(model, {"class_names": '["a", "b", "c", "d"]'})
    onnx.save(model, tmp_path / "t.onnx")
    opened = training.open_teacher(tmp_path / "t.onnx")
    assert opened.class_names == ["a", "b", "c", "d"]
    # Twice its size.
    images = rng.uniform(0, 255, (6, 4, 4, 3)).astype("float32")
    large = images.repeat(2, 1).repeat(2, 2)
    found = predicted(tmp_path / "t.onnx", large)
    expected = images.mean((1, 2)) @ weights
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.slow
@pytest.mark.backend("tensorflow")
@pytest.mark.usefixtures("plain_serving")
def test_a_savedmodel_is_a_teacher(teacher, tmp_path):
    images = np.random.default_rng(0).uniform(0, 255, (6, 8, 8, 3))
    images = images.astype("float32")
    export.export_savedmodel(teacher, tmp_path / "1")
    found = predicted(tmp_path / "1", images)
    expected = teacher.predict(images, verbose=0)
    np.testing.assert_allclose(found, expected, atol=2e-4)
    assert training.open_teacher(tmp_path / "1").class_names is None
    path = tmp_path / "1" / "assets.extra" / "labels.txt"
    path.write_text("a\nb\nc\nd\n")
    opened = training.open_teacher(tmp_path / "1")
    with pytest.raises(ValueError, match="in the same order"):
        distillation.check_classes(opened, 4, ("b", "a", "c", "d"), 4)


@pytest.mark.backend("tensorflow")
def test_a_savedmodel_of_something_else_is_refused(tmp_path):
    import tensorflow as tf

    tf.saved_model.save(tf.Module(), tmp_path)
    with pytest.raises(ValueError, match="a signature 'serving_default'"):
        training.open_teacher(tmp_path)


@pytest.mark.backend("torch")
def test_a_file_of_keras_is_a_teacher(teacher, tmp_path):
    teacher.save(tmp_path / "t.keras")
    assert not training.is_function_of_files(tmp_path / "t.keras")
    opened = training.open_teacher(tmp_path / "t.keras")
    for a, b in zip(opened.weights, teacher.weights, strict=True):
        np.testing.assert_array_equal(numpy(a), numpy(b))


@pytest.mark.backend("torch")
def test_predictions_of_the_data_are_those_of_a_teacher(teacher):
    student = keras_vit.DeiT(**TINY)
    images = np.random.default_rng(0).uniform(0, 255, (2, 8, 8, 3))
    probabilities = softmax(teacher.predict(images, verbose=0))
    one = training.distilled(student, teacher).predict(images, verbose=0)
    probabilities[0] = [0, 1, 0, 0]  # whose logarithms are not finite
    inputs = {"images": images, "teacher": probabilities}
    two = training.distilled(student, probabilities=True)
    two = two.predict(inputs, verbose=0)
    np.testing.assert_allclose(two[:, :2], one[:, :2], atol=1e-6)
    np.testing.assert_allclose(softmax(two[:, 2]), probabilities, atol=1e-6)
    assert np.isfinite(two[:, 2]).all()


@pytest.mark.backend("torch")
def test_other_classes_are_refused(teacher):
    student = keras_vit.DeiT(**TINY | dict(classes=3))
    with pytest.raises(ValueError, match="must have the classes of the stu"):
        training.distilled(student, teacher)
    with pytest.raises(ValueError, match="`teacher` must be a model"):
        training.distilled(student, "teacher.keras")
    with pytest.raises(ValueError, match="teacher.onnx' must be a file"):
        training.open_teacher("teacher.onnx")
    names = dict(classes=None, class_names=("a", "b", "c", "d"))
    named = keras_vit.ViT(**TINY | names)
    names["class_names"] = ("b", "a", "c", "d")
    with pytest.raises(ValueError, match="in the same order"):
        training.distilled(keras_vit.DeiT(**TINY | names), named)
    for activation, probabilities in (("softmax", False), (None, True)):
        sure = keras_vit.ViT(**TINY, classifier_activation=activation)
        with pytest.raises(ValueError, match="`probabilities` must say"):
            training.distilled(
                keras_vit.DeiT(**TINY), sure, probabilities=probabilities
            )
    headless = keras_vit.DeiT(**TINY | dict(include_top=False))
    with pytest.raises(ValueError, match="must have a head"):
        training.distilled(headless, teacher)
    sure = keras_vit.DeiT(**TINY, classifier_activation="softmax")
    with pytest.raises(ValueError, match="`model` must give logits"):
        training.distilled(sure, teacher)
    scaled = keras_vit.DeiT(**TINY, include_preprocessing=False)
    with pytest.raises(ValueError, match=r"must take pixels in \[0, 255\]"):
        training.distilled(scaled, teacher)
