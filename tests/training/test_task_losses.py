"""Matching and the losses of detection, segmentation and depth."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_vit import data, training
from keras_vit.ops import sampling
from keras_vit.training import matching

BACKEND = keras.backend.backend()


def compiled(function):
    if BACKEND == "jax":
        import jax

        return jax.jit(function)
    if BACKEND == "tensorflow":
        import tensorflow as tf

        return tf.function(function, jit_compile=True)
    return function


def numpy_of(x):
    return ops.convert_to_numpy(x)


@pytest.mark.parametrize("solve", ["_shortest_paths", "linear_assignment"])
def test_the_compiled_matching_is_the_optimum(solve):
    scipy = pytest.importorskip("scipy.optimize")
    rng = np.random.default_rng(0)
    cost = rng.normal(size=(12, 5, 7))
    cost[4:8] = rng.integers(0, 3, (4, 5, 7))  # ties
    cost = cost.astype("float32")
    valid = rng.random((12, 5)) < 0.7
    valid[0], valid[1] = False, True  # no object at all; no padding
    found = compiled(getattr(matching, solve))(
        ops.convert_to_tensor(cost), ops.convert_to_tensor(valid)
    )
    for costs, kept, columns in zip(cost, valid, numpy_of(found), strict=True):
        assert (columns[~kept] == -1).all()
        columns = columns[kept]
        assert len(set(columns)) == len(columns)
        best = scipy.linear_sum_assignment(costs[kept])
        total = costs[kept][np.arange(len(columns)), columns].sum()
        np.testing.assert_allclose(total, costs[kept][best].sum(), atol=1e-5)


@pytest.mark.backend("torch")
def test_matching_refuses_more_targets_and_survives_nan():
    with pytest.raises(ValueError, match="3 targets for 2 predictions"):
        training.linear_assignment(np.zeros((1, 3, 2)), np.ones((1, 3)))
    cost = np.array([[[np.nan, 1.0, 2.0], [np.inf, 0.0, np.nan]]], "float32")
    found = training.linear_assignment(cost, np.ones((1, 2), bool))
    assert numpy_of(found).tolist() == [[2, 1]]


def detection_case():
    """Boxes apart and over one another, of which each cost matches some."""
    rng = np.random.default_rng(2)

    def boxes(count):
        centres = rng.uniform(0.1, 0.9, (3, count, 2))
        sizes = rng.uniform(0.05, 0.5, (3, count, 2))
        return np.concatenate([centres, sizes], -1).astype("float32")

    targets = {
        "boxes": boxes(6),
        "labels": np.array(
            [[2, 0, -1, -1, 1, 1], [1, 1, 2, 0, 2, 0], [-1] * 6]
        ),
    }
    targets["boxes"][0, 3] = np.nan  # padding may be anything
    outputs = {
        "logits": rng.normal(0, 4, (3, 12, 4)).astype("float32"),
        "pred_boxes": boxes(12),
    }
    return targets, outputs


def segmentation_case():
    rng = np.random.default_rng(2)
    targets = {
        "masks": rng.random((2, 5, 16, 12)) < rng.random((2, 5, 1, 1)),
        "labels": np.array([[2, -1, 0, 1, 1], [1, 0, 2, 2, 0]]),
    }
    outputs = {
        "class_queries_logits": rng.normal(0, 4, (2, 9, 4)).astype("float32"),
        "masks_queries_logits": rng.normal(size=(2, 8, 6, 9)).astype("float32"),
    }
    return targets, outputs


@pytest.fixture
def without_torchvision(monkeypatch):
    """The losses of transformers do not need it, but their modules import it.

    It cannot be imported beside PyTorch of another build.
    """
    utils = pytest.importorskip("transformers.utils")
    monkeypatch.setattr(utils, "is_torchvision_available", lambda: False)


def with_gradients(loss, targets, outputs):
    """Returns the loss and its gradients by name, on PyTorch."""
    import torch

    outputs = {
        name: torch.tensor(value, requires_grad=True)
        for name, value in outputs.items()
    }
    value = loss(targets, outputs)
    value.backward()
    return float(value.detach()), {
        k: x.grad.numpy() for k, x in outputs.items()
    }


@pytest.mark.backend("torch")
@pytest.mark.filterwarnings("ignore")
def test_detection_equals_the_loss_of_transformers(without_torchvision):
    torch = pytest.importorskip("torch")
    theirs = pytest.importorskip("transformers.loss.loss_for_object_detection")
    targets, outputs = detection_case()
    found, gradients = with_gradients(
        training.SetDetectionLoss(), targets, outputs
    )
    criterion = theirs.ImageLoss(
        theirs.HungarianMatcher(1, 5, 2), 3, 0.1, ["labels", "boxes"]
    )

    def reference(targets, outputs):
        split = [
            {
                "class_labels": torch.tensor(labels[labels >= 0]),
                "boxes": torch.tensor(boxes[labels >= 0]),
            }
            for labels, boxes in zip(
                targets["labels"], targets["boxes"], strict=True
            )
        ]
        terms = criterion(outputs, split)
        return (
            terms["loss_ce"] + 5 * terms["loss_bbox"] + 2 * terms["loss_giou"]
        )

    expected, wanted = with_gradients(reference, targets, outputs)
    assert found == pytest.approx(expected, rel=1e-6)
    for name, gradient in wanted.items():
        np.testing.assert_allclose(gradients[name], gradient, atol=1e-6)


@pytest.mark.backend("torch")
@pytest.mark.filterwarnings("ignore")
def test_segmentation_equals_the_loss_of_transformers(
    monkeypatch, without_torchvision
):
    torch = pytest.importorskip("torch")
    eomt = pytest.importorskip("transformers.models.eomt")
    from transformers.models.eomt import modeling_eomt as theirs

    points = np.random.default_rng(3).random((120, 2)).astype("float32")
    monkeypatch.setattr(
        training.SetSegmentationLoss,
        "_random_points",
        lambda self, count: ops.convert_to_tensor(points[:count]),
    )
    monkeypatch.setattr(
        torch,
        "rand",
        lambda n, count, two, **_: torch.tensor(points[:count]).repeat(n, 1, 1),
    )
    targets, outputs = segmentation_case()
    loss = training.SetSegmentationLoss(num_points=40)
    found, gradients = with_gradients(loss, targets, outputs)
    config = eomt.EomtConfig(num_labels=3, train_num_points=40)
    config.num_labels = 3
    usual = eomt.EomtConfig().train_num_points
    assert training.SetSegmentationLoss().num_points == usual
    criterion = theirs.EomtLoss(
        config, {"loss_cross_entropy": 2, "loss_mask": 5, "loss_dice": 5}
    )

    def reference(targets, outputs):
        masks, labels = [], []
        for mask, label in zip(
            targets["masks"], targets["labels"], strict=True
        ):
            masks.append(torch.tensor(mask[label >= 0], dtype=torch.float32))
            labels.append(torch.tensor(label[label >= 0]))
        terms = criterion(
            outputs["masks_queries_logits"].permute(0, 3, 1, 2),
            outputs["class_queries_logits"],
            masks,
            labels,
        )
        return sum(criterion.weight_dict[k] * v for k, v in terms.items())

    expected, wanted = with_gradients(reference, targets, outputs)
    assert found == pytest.approx(expected, rel=1e-6)
    for name, gradient in wanted.items():
        np.testing.assert_allclose(gradients[name], gradient, atol=1e-6)
    # The costs too, of which the loss only shows what they choose.
    tensors = [
        torch.tensor(x, dtype=torch.float32)
        for x in (
            targets["masks"],
            outputs["class_queries_logits"],
            outputs["masks_queries_logits"].transpose(0, 3, 1, 2),
        )
    ]
    cost = loss.cost(torch.tensor(targets["labels"]), *tensors)[1]
    true, logits, masks = (x[1] for x in tensors)
    at = torch.tensor(points[None, :40])
    true, masks = (
        theirs.sample_point(x[:, None], at.repeat(len(x), 1, 1))[:, 0]
        for x in (true, masks)
    )
    wanted = (
        5 * theirs.pair_wise_sigmoid_cross_entropy_loss(masks, true)
        + 5 * theirs.pair_wise_dice_loss(masks, true)
        - 2 * logits.softmax(-1)[:, targets["labels"][1]]
    )
    np.testing.assert_allclose(cost, wanted.T, rtol=1e-5)


def test_losses_train_a_model_whose_checkpoint_has_the_random_state():
    """On every backend, compiled, with auxiliary outputs and no object."""
    targets, outputs = segmentation_case()
    inputs = keras.Input((3,))
    flat = {
        name: keras.layers.Reshape(value.shape[1:])(
            keras.layers.Dense(value[0].size)(inputs)
        )
        for name, value in outputs.items()
    }
    flat |= {f"{name}_4": value for name, value in flat.items()}
    model = keras.Model(inputs, flat)
    training.set_loss(model, training.SetSegmentationLoss(num_points=16))
    model.compile("adam")
    x = np.ones((2, 3), "float32")
    before = [numpy_of(v) for v in model.non_trainable_variables]
    first = model.train_on_batch(x, targets)
    after = [numpy_of(v) for v in model.non_trainable_variables]
    assert any((a != b).any() for a, b in zip(before, after, strict=True))
    for _ in range(20):
        last = model.train_on_batch(x, targets)
    assert last < first
    empty = {**targets, "labels": np.full((2, 5), -1)}
    assert np.isfinite(model.train_on_batch(x, empty))


@pytest.mark.thorough("jax")
def test_auxiliary_outputs_count_like_the_last():
    targets, outputs = detection_case()
    loss = training.SetDetectionLoss()
    both = outputs | {f"{k}_4": v for k, v in outputs.items()}
    once = float(loss(targets, outputs))
    assert float(loss(targets, both)) == pytest.approx(2 * once, rel=1e-6)


@pytest.mark.thorough("jax")
def test_patches_in_the_middle_of_a_box_have_its_class():
    targets, outputs = detection_case()
    targets["labels"] = np.array([[2, 0, -1], [-1] * 3, [1, -1, -1]])
    targets["boxes"] = np.full((3, 3, 4), np.nan, "float32")
    targets["boxes"][0, :2] = [0.5, 0.5, 1.0, 1.0], [0.5, 0.25, 0.5, 0.6]
    targets["boxes"][2, 0] = 0.2, 0.9, 0.1, 0.1  # between the patches' centres
    logits = np.random.default_rng(2).normal(size=(3, 2, 4, 4))
    outputs["patch_logits"] = logits.astype("float32")
    terms = training.SetDetectionLoss().terms(targets, outputs)
    classes = np.full((3, 2, 4), 3)
    classes[0] = [[3, 0, 0, 3], [3, 2, 2, 3]]
    weights = np.where(classes < 3, 1, 0.2)
    log = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    losses = -np.take_along_axis(log, classes[..., None], -1)[..., 0]
    expected = 2 * (weights * losses).sum() / weights.sum()
    np.testing.assert_allclose(numpy_of(terms["patches"]), expected, rtol=1e-5)


@pytest.mark.backend("torch")
def test_targets_and_outputs_that_are_missing_are_named():
    targets, outputs = detection_case()
    loss = training.SetDetectionLoss()
    with pytest.raises(ValueError, match="dictionary with 'labels'"):
        loss({"boxes": targets["boxes"]}, outputs)
    with pytest.raises(ValueError, match="the output 'logits'"):
        loss(targets, {"pred_boxes": outputs["pred_boxes"]})
    with pytest.raises(ValueError, match="the output 'pred_boxes'"):
        loss(targets, {"logits": outputs["logits"]})


@pytest.mark.parametrize(
    ("name", "cut"),
    [
        ("labels", np.s_[0]),
        ("boxes", np.s_[:, :1]),
        ("boxes", np.s_[:1]),
        ("logits", np.s_[:1]),
        ("pred_boxes", np.s_[:, :1]),
        ("weights", np.s_[:, None]),
    ],
)
@pytest.mark.backend("torch")
def test_another_shape_is_not_broadcast(name, cut):
    targets, outputs = detection_case()
    targets["weights"] = np.ones(3)
    for values in (targets, outputs):
        if name in values:
            values[name] = values[name][cut]
    with pytest.raises(ValueError, match=f"'{name}' must have the shape"):
        training.SetDetectionLoss()(targets, outputs)


@pytest.mark.backend("torch")
def test_other_losses_do_not_broadcast():
    depth = keras.ops.ones((2, 4, 4))
    for loss, targets, outputs in (
        (training.MetricDepthLoss(), depth[:1], depth),
        (training.RelativeDepthLoss(), depth, depth[..., None][..., [0, 0]]),
    ):
        with pytest.raises(ValueError, match="'predicted_depth' must have"):
            loss(dict(depth=targets), dict(predicted_depth=outputs))
    for actions, labels, name in (
        ((2, 1, 3), (2, 4), "actions"),
        ((2, 4, 3), (2, 1), "labels"),
    ):
        targets = dict(actions=np.ones(actions), labels=np.zeros(labels))
        with pytest.raises(ValueError, match=f"'{name}' must have the shape"):
            training.ActionLoss()(targets, dict(logits=np.ones((2, 4, 3))))
    with pytest.raises(ValueError, match="`classes` must have the shape"):
        training.masks_of_classes(np.zeros((2, 2)), 2)
    with pytest.raises(ValueError, match="`cost` must be .* and `valid`"):
        training.linear_assignment(np.zeros((1, 2, 3)), [[True]])
    boxes = np.array([[0.5, 0.5, 1.0, 1.0]])
    found = training.generalized_iou(boxes, boxes)
    np.testing.assert_array_equal(numpy_of(found), [1.0])
    with pytest.raises(ValueError, match="`one` and `other` must be boxes"):
        training.generalized_iou(boxes[:, :3], boxes)


@pytest.mark.thorough("jax")
def test_a_batch_in_which_nothing_counts_has_no_loss():
    targets, outputs = detection_case()
    outputs["patch_logits"] = np.zeros((3, 2, 4, 4), "float32")
    targets |= dict(weights=np.zeros(3), labels=np.full((3, 6), -1))
    assert float(training.SetDetectionLoss()(targets, outputs)) == 0


def weighted_cases():
    """Loss -> targets and outputs of two examples."""
    rng = np.random.default_rng(0)
    maps = rng.uniform(1, 2, (2, 4, 4)).astype("float32")
    logits = rng.normal(size=(2, 4, 4, 3)).astype("float32")
    boxes = rng.uniform(0.3, 0.5, (2, 3, 4)).astype("float32")
    return {
        "SetDetectionLoss": (
            dict(boxes=boxes[:, :2], labels=np.array([[0, 1], [1, 1]])),
            dict(logits=logits[:, 0, :3], pred_boxes=boxes[::-1]),
        ),
        "SetSegmentationLoss": (
            dict(masks=maps[:, None] > 1.5, labels=np.array([[0], [1]])),
            dict(
                class_queries_logits=logits[:, 0, :3],
                masks_queries_logits=logits,
            ),
        ),
        "PixelCrossentropy": (
            dict(classes=(maps * 2).astype("uint8") - 2),
            dict(logits=logits),
        ),
        "RelativeDepthLoss": (
            dict(depth=maps),
            dict(predicted_depth=logits[..., 0]),
        ),
        "MetricDepthLoss": (
            dict(depth=maps),
            dict(predicted_depth=maps[::-1] + 1),
        ),
        "ActionLoss": (
            dict(actions=logits[:, 0] > 0, labels=np.zeros((2, 4), "int32")),
            dict(logits=logits[:, 1]),
        ),
    }


@pytest.mark.parametrize("name", weighted_cases())
@pytest.mark.thorough("jax")
def test_examples_without_weight_do_not_count(name):
    targets, outputs = weighted_cases()[name]
    found = []
    for number, weights in ((1, [1.0]), (2, [1.0, 0.0])):
        loss = getattr(training, name)()  # each draws the same points
        x, y = (
            {k: v[:number] for k, v in each.items()}
            for each in (targets, outputs)
        )
        found.append(float(loss(x | dict(weights=np.float32(weights)), y)))
    assert found[1] == pytest.approx(found[0], rel=1e-5)


@pytest.mark.parametrize(
    ("name", "classes"),
    [
        ("SetDetectionLoss", 2),
        ("SetSegmentationLoss", 2),
        ("PixelCrossentropy", 3),
    ],
)
@pytest.mark.thorough("jax")
def test_the_loss_of_a_class_that_the_model_lacks_is_nan(name, classes):
    targets, outputs = weighted_cases()[name]
    (key,) = targets.keys() & {"labels", "classes"}
    found = {}
    for label in (classes - 1, classes, classes + 1, 254):
        labels = np.array(targets[key])
        labels[0, 0] = label
        loss = getattr(training, name)()(targets | {key: labels}, outputs)
        found[label] = np.isnan(float(loss))
    assert list(found.values()) == [False, True, True, True]


@pytest.mark.backend("torch")
def test_weights_of_examples_are_refused():
    x = keras.Input((2, 2, 3))
    model = keras.Model(x, dict(logits=x))
    training.set_loss(model, training.PixelCrossentropy())
    model.compile()
    images = np.zeros((1, 2, 2, 3), "float32")
    targets = dict(labels=np.zeros((1, 2, 2), "int32"))
    with pytest.raises(ValueError, match="take no `sample_weight`"):
        model.evaluate(images, targets, sample_weight=np.ones(1), verbose=0)


def test_points_are_read_between_pixels_with_zeros_around():
    maps = np.arange(6, dtype="float32").reshape(1, 1, 2, 3)
    points = [[[[0.5, 0.5], [0.5 / 3, 0.25], [0, 0], [1, 1]]]]
    for function in (sampling.sample, sampling.plain):
        found = function(
            ops.convert_to_tensor(maps),
            ops.convert_to_tensor(points, "float32"),
        )
        expected = [2.5, 0, 0, 1.25]
        np.testing.assert_allclose(numpy_of(found)[0, 0], expected, atol=1e-6)


@pytest.mark.backend("torch")
@pytest.mark.parametrize("shape", [(1, 1), (2, 3)])
def test_pytorch_samples_the_same_values_and_gradients(shape):
    rng = np.random.default_rng(0)
    points = ops.convert_to_tensor(rng.uniform(-0.1, 1.1, (*shape, 9, 2)))
    found = []
    for function in (sampling.sample, sampling.plain):
        maps = keras.Variable(rng.normal(size=(2, 3, 4, 5)), dtype="float64")
        maps.assign(np.arange(120.0).reshape(2, 3, 4, 5) ** 0.5)
        values = function(maps.value, ops.cast(points, "float64"))
        ops.sum(values**2).backward()
        found.append((numpy_of(values), numpy_of(maps.value.grad)))
    for ours, expected in zip(*found, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.backend("torch")
def test_masks_of_a_map_of_classes():
    found = training.masks_of_classes(np.array([[[0, 2], [2, 255]]]), 3)
    assert numpy_of(found["labels"]).tolist() == [[0, -1, 2]]
    assert numpy_of(found["masks"]).astype(int)[0].tolist() == [
        [[1, 0], [0, 0]],
        [[0, 0], [0, 0]],
        [[0, 1], [1, 0]],
    ]


def test_ignored_pixels_have_no_loss():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(1, 2, 2, 3)).astype("float32")
    classes = np.array([[[0, 255], [2, -1]]])
    shifted = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    expected = -(shifted[0, 0, 0, 0] + shifted[0, 1, 0, 2]) / 2
    loss = training.PixelCrossentropy()
    found = float(loss({"classes": classes}, {"logits": logits}))
    assert found == pytest.approx(expected, rel=1e-5)
    nothing = loss({"classes": classes * 0 + 255}, {"logits": logits})
    assert float(nothing) == 0
    # Of half the size: between two pixels are a quarter of one and the other.
    low = np.array([[[[0.0, 4.0]], [[0.0, 0.0]]]], "float32")  # [1, 2, 1, 2]
    rows = np.array([4.0, 3.0, 1.0, 0.0])
    expected = np.log1p(np.exp(rows)).mean()
    found = loss({"classes": np.zeros((1, 4, 2))}, {"logits": low})
    assert float(found) == pytest.approx(expected, rel=1e-5)


def depth_case():
    rng = np.random.default_rng(0)
    depth = rng.uniform(1, 5, (2, 9, 7)).astype("float32")
    depth[0, 2:4], depth[0, 4, 0] = 0, 0  # which leaves an even number
    depth[1, 5, 4:6] = np.nan, np.inf
    predicted = rng.uniform(1, 5, (2, 9, 7)).astype("float32")
    predicted[0, 0, 0] = 0  # as a ReLU gives
    return depth, np.isfinite(depth) & (depth > 0), predicted


def test_relative_depth_is_that_of_the_paper():
    depth, valid, predicted = depth_case()

    def normalized(x, kept):
        median = np.sort(x[kept])[(kept.sum() - 1) // 2]
        return (x - median) / np.abs(x[kept] - median).mean()

    differences = [
        np.where(kept, normalized(p, kept) - normalized(d, kept), 0)
        for d, p, kept in zip(
            np.where(valid, depth, 0), predicted, valid, strict=True
        )
    ]
    d = np.stack(differences)
    expected = np.abs(d).sum() / valid.sum()
    for step in (1, 2, 4, 8):
        e, kept = d[:, ::step, ::step], valid[:, ::step, ::step]
        across = np.abs(np.diff(e, axis=2)) * kept[:, :, 1:] * kept[:, :, :-1]
        down = np.abs(np.diff(e, axis=1)) * kept[:, 1:] * kept[:, :-1]
        expected += 0.5 * (across.sum() + down.sum()) / kept.sum()
    loss = training.RelativeDepthLoss()
    targets = {"depth": depth}
    for scaled in (predicted, 3 * predicted + 1):  # scale and shift are free
        found = float(loss(targets, {"predicted_depth": scaled}))
        assert found == pytest.approx(expected, rel=1e-5)
    inverse = {"depth": np.where(valid, 1 / np.where(valid, depth, 1), 0)}
    of_depth = training.RelativeDepthLoss(inverse=True)
    found = float(of_depth(inverse, {"predicted_depth": predicted}))
    assert found == pytest.approx(expected, rel=1e-4)
    no_depth = {"depth": np.zeros_like(depth)}
    assert float(loss(no_depth, {"predicted_depth": predicted})) == 0


def test_metric_depth_is_that_of_the_paper():
    depth, valid, predicted = depth_case()
    expected = []
    for d, p, kept in zip(depth, predicted, valid, strict=True):
        g = np.log(d[kept]) - np.log(np.maximum(p[kept], 1e-6))
        expected.append(np.sqrt((g**2).mean() - 0.5 * g.mean() ** 2))
    loss = training.MetricDepthLoss()
    found = loss({"depth": depth}, {"predicted_depth": predicted[..., None]})
    assert float(found) == pytest.approx(np.mean(expected), rel=1e-5)
    targets = {"depth": np.stack([depth[0], 0 * predicted[1]])}  # none
    found = loss(targets, {"predicted_depth": predicted})
    assert float(found) == pytest.approx(expected[0], rel=1e-5)
    if BACKEND == "torch":  # the square root has no gradient at 0
        _, gradients = with_gradients(
            loss, {"depth": depth}, {"predicted_depth": np.nan_to_num(depth)}
        )
        assert np.isfinite(gradients["predicted_depth"]).all()


class _Logits(keras.layers.Layer):
    """Raw outputs of all tasks, of the pixels alone."""

    def call(self, images):
        means = ops.mean(images, axis=(1, 2)) / 255  # [B, 3]
        queries = means[:, None] * ops.reshape(ops.arange(1.0, 5.0), (1, 4, 1))
        patches = ops.reshape(images[:, ::4, ::4] / 255, (-1, 2, 2, 3))
        boxes = ops.sigmoid(ops.concatenate([queries, queries[..., :1]], -1))
        return {
            "logits": queries,
            "pred_boxes": boxes,
            "patch_logits": patches,
            "logits_1": queries * 2,
            "pred_boxes_1": boxes,
        }


@pytest.mark.parametrize("task", ["detection", "segmentation", "depth"])
@pytest.mark.thorough("jax")
def test_padding_of_evaluation_does_not_change_the_loss(task):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (5, 8, 8, 3), "uint8")
    # As many in each image, by which the losses of a batch are divided.
    boxes = np.tile(np.float32([0.5, 0.4, 0.6, 0.5]), (5, 1, 1))

    def load(i):
        return dict(
            images=images[i],
            boxes=boxes[i],
            labels=np.array([i % 2]),
            classes=images[i, :, :, 0] % 3,
            depth=images[i, :, :, 1] + np.float32(1),
        )

    names = () if task == "depth" else ("a", "b", "c")
    source = data.TaskSource(
        name="few", task=task, class_names=names, num_examples=5, load=load
    )
    inputs = keras.Input((8, 8, 3))
    outputs = _Logits()(inputs)
    loss = training.SetDetectionLoss()
    if task == "segmentation":
        outputs = {"logits": inputs / 50}
        loss = training.PixelCrossentropy()
    if task == "depth":
        outputs = {"predicted_depth": inputs[..., :1] + 1}
        loss = training.MetricDepthLoss()
    model = keras.Model(inputs, outputs)
    training.set_loss(model, loss)
    model.compile()
    one, several = (
        model.evaluate(
            data.as_pairs(
                data.task_eval_batches(
                    source, batch_size=size, image_size=(8, 8), max_objects=2
                )
            ),
            verbose=0,
        )
        for size in (5, 4)
    )
    assert several == pytest.approx(one, rel=1e-5)
