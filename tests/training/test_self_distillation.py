"""The losses of DINO and DINOv2 against their formulas, and the teacher."""

import json

import keras
import numpy as np
import processes
import pytest
import realistic
from keras import ops

import keras_vit
from keras_vit import training
from keras_vit.models.families import FAMILIES
from keras_vit.models.other_size import at_size
from keras_vit.training import dino_loss
from keras_vit.training.projection_head import ProjectionHead
from tests.training import distilled, distilled_devices

numpy = ops.convert_to_numpy


class OfTensors:
    """The functions of `dino_loss`, given arrays as tensors."""

    def __getattr__(self, name):
        def call(*arguments):
            return getattr(dino_loss, name)(
                *(
                    ops.convert_to_tensor(x, "float32")
                    if isinstance(x, np.ndarray)
                    else x
                    for x in arguments
                )
            )

        return call


of = OfTensors()


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def crossentropy(q, logits):
    return -(q * np.log(softmax(logits))).sum(-1)


def sinkhorn(z, temperature):
    """DINOv2's, with prototypes as rows."""
    q = np.exp(z.astype("float64") / temperature).T
    q /= q.sum()
    prototypes, images = q.shape
    for _ in range(3):
        q /= q.sum(1, keepdims=True) * prototypes
        q /= q.sum(0, keepdims=True) * images
    return (q * images).T


def koleo(x):
    x = x.astype("float64")
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    cosines = x @ x.T
    np.fill_diagonal(cosines, -1)
    nearest = x[cosines.argmax(1)]
    return -np.log(np.linalg.norm(x - nearest, axis=-1)).mean()


def cosines(rng, *shape):
    return rng.uniform(-1, 1, shape).astype("float32")


def test_the_losses_are_the_papers():
    rng = np.random.default_rng(0)
    b, k = 6, 5
    student, teacher = cosines(rng, b, 4, k), cosines(rng, b, 2, k)
    ones, centre = np.ones(b, "float32"), cosines(rng, k)
    flat = teacher.reshape(-1, k)
    q = softmax((teacher - centre) / 0.05)
    found = of.centred(flat, centre, 0.05)
    np.testing.assert_allclose(numpy(found), q.reshape(-1, k), atol=1e-6)
    # Every pair of a teacher's crop and another of the student's.
    pairs = [(i, j) for i in range(2) for j in range(4) if i != j]
    expected = np.mean(
        [crossentropy(q[:, i], student[:, j] / 0.1).mean() for i, j in pairs]
    )
    found = of.crop_loss(student, q.astype("float32"), 0.1, ones)
    np.testing.assert_allclose(numpy(found), expected, rtol=2e-6)
    # Rows that do not count are as if they were not there.
    counted = np.array([1.0] * 9 + [0.0] * 3, "float32")
    found = of.moved_centre(centre, flat, counted)
    expected = 0.9 * centre + 0.1 * flat[:9].mean(0)
    np.testing.assert_allclose(numpy(found), expected, atol=1e-6)
    found = numpy(of.sinkhorn(flat, 0.05, counted))
    np.testing.assert_allclose(found[:9], sinkhorn(flat[:9], 0.05), atol=2e-6)
    assert not found[9:].any()
    weights = np.array([1.2] * 5 + [0.0], "float32")
    # At random, and with negative cosines alone.
    for scale, mean in ((1.0, 0.0), (0.01, np.eye(5, 7) - 0.2)):
        features = scale * rng.normal(size=(b, 7)).astype("float32")
        features[:5] += mean
        features[5] = features[0] + 0.1  # would be the nearest
        found = of.koleo_loss(features, weights)
        np.testing.assert_allclose(numpy(found), koleo(features[:5]), rtol=1e-5)


def test_a_head_gives_cosines_with_prototypes():
    head = ProjectionHead(5, hidden_size=6, bottleneck_size=4)
    x = np.random.default_rng(0).normal(size=(3, 7)).astype("float32")
    assert not numpy(head(0 * x)).any()  # no direction
    found = numpy(head(x))
    for i, layer in enumerate(head.mlp):
        x = ops.matmul(x, layer.kernel) + layer.bias
        x = keras.activations.gelu(x) if i < 2 else x
    x, prototypes = numpy(x), numpy(head.kernel).T
    for i, j in np.ndindex(found.shape):
        lengths = np.linalg.norm(x[i]) * np.linalg.norm(prototypes[j])
        assert found[i, j] == pytest.approx(x[i] @ prototypes[j] / lengths)


def test_the_loss_of_masked_patches_is_the_papers():
    rng = np.random.default_rng(1)
    images, most, k = 3, 4, 5
    s, t = cosines(rng, images, most, k), cosines(rng, images, most, k)
    count = np.array([1, 4, 2])
    shares = (np.arange(most) < count[:, None]) / count[:, None]
    q = softmax(t / 0.05)
    found = of.patch_loss(s, q, 0.1, shares.astype("float32"), 2)
    # The mean over a crop's masked patches, of two crops of which one has none.
    of_crop = [
        crossentropy(q[i, :n], s[i, :n] / 0.1).mean()
        for i, n in enumerate(count)
    ]
    np.testing.assert_allclose(numpy(found), np.sum(of_crop) / 6, rtol=2e-6)


def test_schedules_and_measures_of_collapse():
    values = [float(of.cosine(n, 10, 0.996, 1)) for n in (0, 5, 10, 12)]
    np.testing.assert_allclose(values, [0.996, 0.998, 1, 1], rtol=1e-6)
    rng = np.random.default_rng(0)
    ones = np.ones(400, "float32")
    features = rng.normal(size=(400, 16)).astype("float32")
    assert float(of.spread(features, ones)) == pytest.approx(1, abs=0.02)
    assert float(of.spread(features[:1] + 0 * features, ones)) < 1e-3
    same = np.eye(4, dtype="float32")[[0] * 400]
    each, mean = map(float, of.entropy(same, ones))
    assert abs(each) < 1e-5 and abs(mean) < 1e-5
    each, mean = of.entropy(
        np.eye(4, dtype="float32")[np.arange(400) % 4], ones
    )
    assert abs(float(each)) < 1e-5
    assert float(mean) == pytest.approx(np.log(4), abs=1e-5)


def expected_loss(model, outputs, x):
    """The loss of a model's outputs before its first step, by the formulas."""
    outputs = {name: numpy(value) for name, value in outputs.items()}
    settings = model.settings
    k = settings.num_prototypes
    logits = outputs["teacher"].reshape(-1, k)
    if settings.centring == "sinkhorn":
        q = sinkhorn(logits, 0.04)
    else:
        q = softmax(logits / 0.04)
    q = q.reshape(-1, 2, k)
    student = outputs["student"] / 0.1
    total, count = 0.0, 0
    for i in range(2):
        for j in range(student.shape[1]):
            if i != j:
                total += crossentropy(q[:, i], student[:, j]).mean()
                count += 1
    loss = total / count
    for i in range(2 if settings.koleo_weight else 0):
        loss += settings.koleo_weight * koleo(outputs["features"][:, i])
    if settings.patch_weight:
        there = x["shares"] > 0
        q = sinkhorn(outputs["teacher_patches"][there], 0.04)
        losses = crossentropy(q, outputs["student_patches"][there] / 0.1)
        loss += (losses * x["shares"][there]).sum() / (2 * len(there))
    return loss


@pytest.mark.parametrize("changes", [{}, distilled.V2], ids=["dino", "dinov2"])
@pytest.mark.thorough("tensorflow", "jax")  # whose four devices are compared
def test_a_step_of_fit(changes):
    frozen_steps = 1
    model = distilled.make(frozen_steps=frozen_steps, **changes)
    x, y = distilled.batch(), np.zeros(distilled.B)
    outputs = model({k: ops.convert_to_tensor(v) for k, v in x.items()})
    assert outputs["student"].shape == (8, 4, distilled.PROTOTYPES)
    if changes:  # patches of the first crop alone are masked
        whole = np.broadcast_to(np.arange(16, dtype="int32"), (8, 16))
        seen = {**x, "sources": whole}
        seen = model({k: ops.convert_to_tensor(v) for k, v in seen.items()})
        moved = numpy(outputs["features"] - seen["features"])
        moved = np.abs(moved).max((0, 2))
        assert moved[0] > 1e-3 and moved[1] < 1e-6
    before = [numpy(v) for v in model.student.trainable_variables]
    prototypes = [numpy(head.kernel) for head in model.student_heads]
    model.compile(keras.optimizers.SGD(0.1))
    options = dict(batch_size=8, shuffle=False, verbose=0)
    history = model.fit(x, y, **options)
    expected = expected_loss(model, outputs, x)
    np.testing.assert_allclose(history.history["loss"], expected, rtol=3e-5)
    teacher = numpy(outputs["teacher"]).reshape(-1, distilled.PROTOTYPES)
    if not changes:
        centre = numpy(model.centres[0])
        np.testing.assert_allclose(centre, 0.1 * teacher.mean(0), atol=1e-6)
    # The teacher follows when the next step begins.
    after = [numpy(v) for v in model.student.trainable_variables]
    for old, variable in zip(before, model.teacher.weights, strict=True):
        np.testing.assert_array_equal(old, numpy(variable))
    for old, head in zip(prototypes, model.student_heads, strict=True):
        np.testing.assert_array_equal(old, numpy(head.kernel))
    model.fit(x, y, **options)
    for old, head in zip(prototypes, model.student_heads, strict=True):
        assert np.abs(old - numpy(head.kernel)).max() > 1e-6
    for old, new, variable in zip(
        before, after, model.teacher.weights, strict=True
    ):
        np.testing.assert_allclose(
            numpy(variable), (old + new) / 2, rtol=1e-5, atol=1e-7
        )
    assert int(model.step) == 2
    # Evaluation changes nothing, and padding does not count.
    states = [numpy(v) for v in model.non_trainable_variables]
    weights = np.array([2.0] * 4 + [0.0] * 4)
    options = dict(return_dict=True, verbose=0)
    padded = model.evaluate(x, y, sample_weight=weights, **options)
    first = {name: value[:4] for name, value in x.items()}
    expected = model.evaluate(first, y[:4], **options)
    assert padded == pytest.approx(expected, rel=1e-4)
    if not changes:  # the last temperature stays
        losses = []
        for step in (4, 9, 2):
            model.step.assign(step)
            losses.append(model.evaluate(x, y, **options)["loss"])
        assert losses[0] == pytest.approx(losses[1], rel=1e-6)
        assert losses[0] != pytest.approx(losses[2], rel=1e-4)
    model.step.assign(2)
    for old, variable in zip(
        states, model.non_trainable_variables, strict=True
    ):
        np.testing.assert_array_equal(old, numpy(variable))


@pytest.mark.thorough("tensorflow", "jax")
def test_between_epochs_the_student_has_the_weights_of_the_teacher():
    model = distilled.make()
    model.compile(keras.optimizers.SGD(0.1))
    seen = []

    class Look(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            student, teacher = model.pairs[0]
            seen.append(np.array_equal(numpy(student), numpy(teacher)))

    model.fit(
        distilled.batch(),
        np.zeros(distilled.B),
        batch_size=4,
        epochs=2,
        callbacks=[training.SwapTeacher(), Look()],
        verbose=0,
    )
    assert seen == [True, True]


@pytest.mark.backend("torch")
def test_a_student_that_trains_again_is_the_one_that_was_left():
    found = []
    for epochs in ((2,), (1, 1)):
        model, swap = distilled.make(), training.SwapTeacher()
        model.compile(keras.optimizers.SGD(0.1))
        for number in epochs:
            model.fit(
                distilled.batch(),
                np.zeros(distilled.B),
                epochs=number,
                callbacks=[swap],
                verbose=0,
            )
        found.append([numpy(student) for student, _ in model.pairs])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.backend("torch")
def test_float16_scales_its_loss():
    losses = []
    for policy in ("float32", "mixed_float16"):
        keras.config.set_dtype_policy(policy)
        try:
            model = distilled.make(**distilled.V2)
            model.compile(keras.optimizers.SGD(0.1))
        finally:
            keras.config.set_dtype_policy("float32")
        losses.append(
            model.train_on_batch(distilled.batch(), np.zeros(distilled.B))
        )
    assert model.optimizer.name == "loss_scale_optimizer"
    assert losses[1] == pytest.approx(losses[0], rel=1e-2)


@pytest.mark.backend("torch")
def test_a_teacher_has_the_layers_that_are_frozen():
    student = keras_vit.ViT(**distilled.TINY)
    student.get_layer("embedding").trainable = False
    settings = training.DINO(**distilled.SETTINGS)
    model = training.SelfDistillation(student, settings, local_size=(4, 4))
    of_path = {v.path: numpy(v) for v in model.teacher.weights}
    for variable in student.weights:
        np.testing.assert_array_equal(of_path[variable.path], numpy(variable))
    model.compile(keras.optimizers.SGD(0.1))
    model.train_on_batch(distilled.batch(), np.zeros(distilled.B))
    changed = [
        v.path
        for v in student.weights
        if (numpy(v) != of_path[v.path]).any() and "embedding/" in v.path
    ]
    assert not changed


@pytest.mark.backend("torch")
def test_the_averages_of_batches_follow_too():
    small = FAMILIES["conv_mlp"].small
    student = keras_vit.ConvMLP(
        **small, input_shape=(32, 32, 3), include_top=False
    )
    settings = training.DINO(
        total_steps=9,
        num_prototypes=4,
        hidden_size=4,
        bottleneck_size=4,
        momentum=0.0,
    )
    model = training.SelfDistillation(student, settings)
    model.compile(keras.optimizers.SGD(0.1))
    crops = np.random.default_rng(0).uniform(0, 255, (4, 2, 32, 32, 3))
    x = {"global_crops": crops.astype("float32")}
    model.train_on_batch(x, np.zeros(4))
    expected = [numpy(v) for v in student.weights if "moving" in v.name]
    model.train_on_batch(x, np.zeros(4))
    found = [numpy(v) for v in model.teacher.weights if "moving" in v.name]
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.mark.backend("torch")
@pytest.mark.parametrize("title", ["ViT", "DINOv2", "BEiT", "EVA02"])
def test_a_model_at_another_size_has_resampled_positions(title, tmp_path):
    changes = dict(num_registers=2) if title == "DINOv2" else {}
    model = getattr(keras_vit, title)(**distilled.TINY, **changes)
    realistic.fill(model)
    rng = np.random.default_rng(0)
    images = rng.uniform(0, 255, (3, 4, 12, 3)).astype("float32")
    small = at_size(model, (4, 12))
    weights = model.get_weights()
    own = keras_vit.models.other_size.rebuild(model, (4, 12, 3))
    for variable in own.trainable_variables:
        same = [v for v in model.trainable_variables if v.path == variable.path]
        value = numpy(same[0])
        if value.shape != tuple(variable.shape):
            fit = keras_vit.weights.rules.table.Fit(
                shape=tuple(variable.shape),
                source_grid=(4, 4),
                grid=(2, 6),
                method="bicubic",
            )
            rules = keras_vit.weights.rules.FAMILIES[model.family].RESIZES
            (resize,) = [
                function
                for pattern, function in rules.items()
                if keras_vit.weights.rules.table.matching(
                    pattern, [variable.path]
                )
            ]
            value = resize(value, fit)
        variable.assign(value)
    np.testing.assert_allclose(
        numpy(small(images)), own.predict(images, verbose=0), atol=2e-5
    )
    for old, new in zip(weights, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    # The gradient arrives in the model's own table.
    loss = ops.sum(small(ops.convert_to_tensor(images)) ** 2)
    loss.backward()
    assert all(v.value.grad is not None for v in model.trainable_variables)


@pytest.mark.backend("torch")
def test_what_cannot_be_is_refused():
    vit = keras_vit.ViT(**distilled.TINY | dict(include_top=True))
    with pytest.raises(ValueError, match="no head"):
        training.SelfDistillation(vit, training.DINO(total_steps=1))
    vit = keras_vit.ViT(**distilled.TINY | dict(include_top=False))
    vit.quantize("int8")
    with pytest.raises(ValueError, match="`model` must be in a float"):
        training.SelfDistillation(vit, training.DINO(total_steps=1))
    for wrong, message in (
        (dict(centring="none"), "`centring` must be"),
        (dict(total_steps=0), "`total_steps` must be"),
        (dict(student_temperature=0.0), "`student_temperature` must be"),
        (dict(teacher_temperatures=(0.04,)), r"_temperatures=\(0.04,\)"),
        (dict(pooling="gap_norm", patch_weight=1.0), "`model` must embed"),
    ):
        arguments = dict(distilled.TINY)
        if "pooling" in wrong:
            arguments["pooling"] = wrong.pop("pooling")
        with pytest.raises(ValueError, match=message):
            training.SelfDistillation(
                keras_vit.ViT(**arguments),
                training.DINO(**dict(total_steps=1) | wrong),
            )
    arguments = dict(distilled.TINY, position_embedding="relative")
    with pytest.raises(ValueError, match="cannot be resampled"):
        at_size(keras_vit.ViT(**arguments), (4, 4))


@pytest.mark.backend("torch")
def test_its_student_is_saved_in_place_of_it(tmp_path):
    vit = keras_vit.ViT(**distilled.TINY)
    model = training.SelfDistillation(vit, training.DINO(total_steps=1))
    for use in (
        keras.models.clone_model,
        lambda m: m.save(tmp_path / "m.keras"),
    ):
        with pytest.raises(NotImplementedError, match="`model.student.save"):
            use(model)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.backend("tensorflow")
@pytest.mark.parametrize(
    "names",
    [
        ("dinov2",),
        pytest.param(
            ("dino", "mae", "masked_patch"), marks=pytest.mark.thorough
        ),
    ],
    ids="-".join,
)
def test_several_devices_train_as_one(names, tmp_path):
    processes.call(distilled_devices.main, tmp_path / "found.json", names)
    found = json.loads((tmp_path / "found.json").read_text())
    for name, runs in found.items():
        one, several = runs["one"], runs["several"]
        np.testing.assert_allclose(several["loss"], one["loss"], rtol=1e-6)
        for a, b in zip(several["weights"], one["weights"], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=name)
