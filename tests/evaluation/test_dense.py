"""Scores of detection, segmentation and depth against direct counts."""

import dataclasses
import types

import numpy as np
import pytest

from keras_vit import data, evaluation

pytestmark = pytest.mark.backend_independent


@pytest.mark.parametrize(
    "other", [evaluation.MeanIoU(4), evaluation.DepthErrors()]
)
def test_only_parts_of_one_score_are_merged(other):
    with pytest.raises(ValueError, match="`other` must be a MeanIoU.*: 5"):
        evaluation.MeanIoU(5).merge(other)


def test_mean_iou_counts_pixels_of_all_images_once():
    rng = np.random.default_rng(0)
    target = rng.integers(0, 4, (4, 6, 5))
    target[0, 0], target[0, 1] = 7, -1  # of no class, as what is ignored
    predicted = rng.integers(-1, 7, (4, 6, 5))
    parts = [evaluation.MeanIoU(5, ignored=3) for _ in range(2)]
    # The second device repeats an image of the first.
    for part, keys in zip(parts, ((0, 1, 2), (2, 3)), strict=True):
        for i in keys:
            part.update(i, target[i], predicted[i])
    parts[0].merge(parts[1])
    kept = (target >= 0) & (target < 3)
    expected = [
        (kept & (target == c) & (predicted == c)).sum()
        / (kept & ((target == c) | (predicted == c))).sum()
        for c in range(5)
    ]
    found = parts[0].result()
    np.testing.assert_allclose(found["IoU"], expected)
    assert found["mIoU"] == pytest.approx(np.mean(expected))
    score = evaluation.MeanIoU(3)
    score.update(0, [[0, 1]], [[0, 0]])
    np.testing.assert_allclose(score.result()["IoU"], [0.5, 0, np.nan])
    assert score.result()["mIoU"] == 0.25


def test_panoptic_quality_of_a_match_a_miss_and_void():
    target = np.zeros((4, 6), int)
    target[:, :3], target[:, 3] = 1, 2  # the rest is of no segment
    predicted = np.zeros((4, 6), int)
    predicted[:, :2], predicted[:, 2], predicted[:, 4:] = 7, 8, 9
    score = evaluation.PanopticQuality(3)
    # Segments without pixels are neither missed nor false.
    found = {7: 0, 8: 0, 9: 2, 10: 2}
    score.update(0, target, {1: 0, 2: 1, 3: 2}, predicted, found)
    found = score.result()
    # Class 0: IoU 2/3, and a false one; class 1 is missed; 9 lies in the void.
    expected = (2 / 3) / 1.5
    np.testing.assert_allclose(found["PQ_by_class"], [expected, 0, np.nan])
    assert found["PQ"] == pytest.approx(expected / 2)
    assert found["SQ"] == pytest.approx(2 / 3 / 2)
    assert found["RQ"] == pytest.approx(1 / 1.5 / 2)
    # Half of the area is not enough to match, nor to be left out.
    score = evaluation.PanopticQuality(1)
    score.update(0, [[1, 1, 2]], {1: 0}, [[3, 5, 5]], {3: 0, 5: 0})
    found = score.result()
    assert score.examples[0].tolist() == [[0, 0, 2, 1]]
    assert found["PQ"] == found["SQ"] == found["RQ"] == 0


def direct_panoptic_quality(images, num_classes):
    """Counts pairs of segments pixel by pixel, as panopticapi describes."""
    sums = np.zeros((num_classes, 4))
    for target, classes, predicted, found, crowd in images:
        void = ~np.isin(target, list(classes))
        matched = set()
        for t, c in classes.items():
            hits = 0
            for p, k in found.items():
                both = ((target == t) & (predicted == p)).sum()
                either = ((target == t) | (predicted == p) & ~void).sum()
                if t not in crowd and c == k and both / either > 0.5:
                    sums[c] += (both / either, 1, 0, 0)
                    matched.add(p)
                    hits += 1
            sums[c, 3] += t not in crowd and not hits
        for p, k in found.items():
            free = void.copy()
            for t in crowd:
                free |= (target == t) & (classes[t] == k)
            own = predicted == p
            sums[k, 2] += (
                p not in matched and (free & own).sum() <= own.sum() / 2
            )
    iou, true, false, missed = sums[sums[:, 1:].any(axis=1)].T
    return (iou / (true + (false + missed) / 2)).mean()


def test_panoptic_quality_is_the_direct_count_with_crowds():
    rng = np.random.default_rng(0)
    score = evaluation.PanopticQuality(3)
    images = []
    for i in range(8):
        target = np.kron(rng.integers(-1, 5, (3, 3)), np.ones((4, 4), int))
        # Moved, so that segments overlap others, crowds and the void.
        predicted = np.roll(target, 1 + i % 2, axis=1) + 12
        predicted = np.where(rng.random(target.shape) < 0.2, 0, predicted)
        classes = {t: t % 3 for t in np.unique(target).tolist() if t >= 0}
        found = {p: p % 3 for p in np.unique(predicted).tolist()}
        crowd = [t for t in classes if t == 4]
        images.append((target, classes, predicted, found, crowd))
        score.update(i, *images[-1][:4], crowd=crowd)
    expected = direct_panoptic_quality(images, 3)
    assert 0 < expected < 1
    assert score.result()["PQ"] == pytest.approx(expected)


def test_depth_errors_and_the_fit_of_relative_depth():
    target = np.array([[1.0, 2.0, 4.0, 0.0, np.nan]])
    score = evaluation.DepthErrors()
    score.update(0, target, np.array([[1.3, 2.4, 0.0, 1.0, 1.0]]))
    score.update(1, target * 0, target)  # nothing valid: not counted
    found = score.result()
    assert found["AbsRel"] == pytest.approx((0.3 + 0.2 + 1) / 3)
    assert found["delta1"] == pytest.approx(1 / 3)
    relative = evaluation.DepthErrors(relative=True)
    inverse = np.array([[1.0, 0.5, 0.25, 0.0, 0.0]])
    relative.update(0, target, 5 * inverse - 2)
    assert relative.result()["AbsRel"] == pytest.approx(0, abs=1e-12)
    relative = evaluation.DepthErrors(relative=True, max_depth=3.0)
    relative.update(0, target, 5 * inverse - 2)
    assert relative.result()["AbsRel"] == pytest.approx((1 / 4) / 3)
    relative = evaluation.DepthErrors(relative=True)
    relative.update(0, np.array([[1.0, 100.0]]), np.array([[1.0, 0.01]]))
    assert relative.result()["AbsRel"] == pytest.approx(0.2 / 2)  # 80 m


def test_scores_refuse_other_sizes_and_no_example():
    with pytest.raises(ValueError, match="size of the target"):
        evaluation.MeanIoU(2).update(0, np.zeros((2, 2)), np.zeros((2, 3)))
    with pytest.raises(ValueError, match="maps of classes, integers"):
        evaluation.MeanIoU(2).update(0, np.zeros((2, 2), int), np.ones((2, 2)))
    with pytest.raises(ValueError, match="at least one example"):
        evaluation.DepthErrors().result()


def test_predictions_that_are_no_numbers_have_no_score():
    score = evaluation.DepthErrors(relative=True)
    score.update(0, np.ones((2, 2)), np.full((2, 2), np.nan))
    assert np.isnan(score.result()["AbsRel"])
    pytest.importorskip("pycocotools")
    box = np.array([[1.0, 1.0, 5.0, 5.0]])
    for found, value in ((box, np.nan), (box * np.nan, 0.5)):
        score = evaluation.CocoAveragePrecision()
        score.update(0, box, [0], found, [0], [value])
        assert np.isnan([*score.result().values()]).all()


@pytest.mark.parametrize(
    ("masks", "wrong", "name"),
    [
        (False, dict(labels=[0, 1]), "labels"),
        (False, dict(target_labels=[0.5]), "target_labels"),
        (False, dict(areas=[1.0, 2.0]), "areas"),
        (False, dict(found=np.ones((4, 5))), "found"),
        (True, dict(found=np.ones((1, 4, 4)) * 0.7), "found"),
        (True, dict(found=np.ones((1, 4, 3), bool)), "targets` and `found"),
    ],
)
def test_objects_that_do_not_fit_are_refused(masks, wrong, name):
    pytest.importorskip("pycocotools")
    some = np.ones((1, 4, 4), bool) if masks else [[1.0, 1.0, 5.0, 5.0]]
    given = dict(targets=some, target_labels=[0], found=some, labels=[0])
    with pytest.raises(ValueError, match=f"`{name}` must"):
        evaluation.CocoAveragePrecision(masks).update(
            0, **given | dict(scores=[0.5]) | wrong
        )


@pytest.mark.parametrize("kind", ["bbox", "segm"])
def test_average_precision_is_that_of_pycocotools(kind, tmp_path):
    import json

    from pycocotools import coco
    from pycocotools import mask as masks_of
    from pycocotools.cocoeval import COCOeval

    rng = np.random.default_rng(0)
    score = evaluation.CocoAveragePrecision(masks=kind == "segm")
    true, results = [], []

    def drawn(boxes):
        masks = np.zeros((len(boxes), 300, 300), bool)
        for mask, (left, top, right, bottom) in zip(
            masks, boxes.astype(int), strict=True
        ):
            mask[max(top, 0) : bottom, max(left, 0) : right] = True
        return masks

    def coded(mask):
        found = masks_of.encode(np.asfortranarray(mask.astype("uint8")))
        return dict(size=found["size"], counts=found["counts"].decode())

    for image in range(6):
        start = rng.uniform(0, 100, (4, 2))
        boxes = np.concatenate([start, start + rng.uniform(5, 150, (4, 2))], 1)
        labels = rng.integers(0, 3, 4)
        found = boxes + rng.normal(scale=4, size=boxes.shape)
        scores = rng.random(4)
        crowd = rng.random(4) < 0.2
        of_image = (boxes, labels, found, labels)
        if kind == "segm":
            of_image = (drawn(boxes), labels, drawn(found), labels)
        score.update(image, *of_image, scores, crowd=crowd)
        for b, f, c, s, k, mask, other in zip(
            *(boxes, found, labels, scores, crowd, drawn(boxes), drawn(found)),
            strict=True,
        ):
            box, area = [*b[:2], *(b[2:] - b[:2])], mask.sum()
            own = dict(image_id=image, category_id=int(c))
            more = dict(bbox=box, area=float(box[2] * box[3]))
            result = dict(bbox=[*f[:2], *(f[2:] - f[:2])])
            if kind == "segm":
                more = dict(segmentation=coded(mask), area=float(area))
                result = dict(segmentation=coded(other))
            more |= dict(id=len(true) + 1, iscrowd=int(k))
            true.append(own | more)
            results.append(own | result | dict(score=s))
    path = tmp_path / "annotations.json"
    images = [{"id": i, "height": 300, "width": 300} for i in range(6)]
    categories = [{"id": i} for i in range(3)]
    content = dict(images=images, annotations=true, categories=categories)
    path.write_text(json.dumps(content | dict(info={})))
    annotations = coco.COCO(str(path))
    direct = COCOeval(annotations, annotations.loadRes(results), kind)
    direct.evaluate()
    direct.accumulate()
    direct.summarize()
    assert list(score.result().values()) == direct.stats[:6].tolist()
    empty = evaluation.CocoAveragePrecision(masks=kind == "segm")
    empty.update(0, [], [], [], [], [])
    assert empty.result()["AP"] == -1


def test_average_precision_where_nothing_is_found():
    score = evaluation.CocoAveragePrecision()
    box = [[0.0, 0.0, 200.0, 200.0]]
    score.update(0, box, [0], [], [], [], crowd=[True])
    assert set(score.result().values()) == {-1}
    score.update(1, box, [0], [], [], [])
    assert list(score.result().values()) == [0, 0, 0, -1, -1, 0]


def test_windows_cover_an_image_and_overlaps_are_averaged():
    image = np.random.default_rng(0).random((5, 7, 2))
    found = evaluation.predict_windows(lambda x: x * 2, image, (4, 4), (3, 3))
    np.testing.assert_allclose(found, image * 2)
    with pytest.raises(ValueError, match="`window` must be at most the image"):
        evaluation.predict_windows(lambda x: x, image, (6, 4), (3, 3))
    with pytest.raises(ValueError, match=r"`predict` must return \[1, 4, 4, K"):
        evaluation.predict_windows(
            lambda x: x[:, :1, :1], image, (4, 4), (3, 3)
        )


@pytest.mark.parametrize("names", [("b", "a"), ("N/A", "a", "b"), "xyz", "BA"])
def test_a_model_of_other_classes_is_not_scored(names):
    """Of COCO's 91 numbers and 80 classes, say."""
    source = data.TaskSource(
        name="pairs",
        task="segmentation",
        class_names=("a", "b"),
        num_examples=0,
        load=lambda index: {},
    )
    model = types.SimpleNamespace(class_names=names, interpret=None)
    score = evaluation.task_scores.__wrapped__  # of no model of Keras
    with pytest.raises(ValueError, match="the classes of the source in its"):
        score(model, source, [])
    # Numbers in place of names are of the same number.
    model.class_names = ("1", "2")
    with pytest.raises(ValueError, match="at least one example"):
        score(model, source, [])
    with pytest.raises(ValueError, match="`batches` must be given for videos"):
        score(model, source, padded=True)
    # Digits of which 0 is the last (SVHN) are not in place of names.
    digits = dataclasses.replace(source, class_names=("1", "2", "0"))
    model.class_names = ("0", "1", "2")
    with pytest.raises(ValueError, match="the classes of the source in its"):
        score(model, digits, [])


def test_relative_depth_is_scored_up_to_scale_and_shift():
    depth = np.array([[1.0, 2.0, 4.0, 5.0]])
    source = data.TaskSource(
        name="lines",
        task="depth",
        class_names=(),
        num_examples=1,
        load=lambda index: dict(depth=depth),
    )
    model = types.SimpleNamespace(
        class_names=(),
        options=dict(kind="relative"),
        predict_on_batch=lambda images: {},
        interpret=lambda outputs, sizes: [dict(depth=3 / depth + 1)],
    )
    batch = dict(images=np.zeros(1), index=[0], sizes=[(1, 4)])
    found = evaluation.task_scores.__wrapped__(model, source, [batch])
    assert found["AbsRel"] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("names", [None, ("N/A", "b", "N/A", "a")])
@pytest.mark.parametrize("task", ["detection", "instances"])
def test_objects_are_scored_in_pixels_with_areas_and_crowds(task, names):
    rng = np.random.default_rng(0)
    size, given = (40, 200), {}
    corners = np.array([[20.0, 10, 60, 30], [80, 0, 160, 40], [0, 0, 10, 40]])
    places = corners / (200, 40, 200, 40)
    boxes = [(places[:, :2] + places[:, 2:]) / 2, places[:, 2:] - places[:, :2]]
    target = dict(boxes=np.concatenate(boxes, 1), labels=np.array([0, 1, 0]))
    # Of another size than its box: an area may be that of a mask.
    target |= dict(areas=[1100.0, 2000.0, 300.0], crowd=[False, False, True])
    # More than are counted, of which the best are the last.
    others = corners[rng.integers(0, 3, 120)] + 5
    found = np.concatenate([others[:60], corners, others[60:]])
    labels = np.insert(rng.integers(0, 2, 120), 60, target["labels"])
    scores = np.linspace(0.1, 0.9, len(labels))

    def masks(boxes):
        rows, columns = np.indices(size)
        left, top, right, bottom = boxes.T[:, :, None, None]
        inside = (left <= columns) & (columns < right)
        return inside & (top <= rows) & (rows < bottom)

    kind = (masks if task == "instances" else np.asarray)(found)
    own = dict(labels=labels, scores=scores, boxes=found, masks=kind)
    if names:  # with the best of a class that is not scored
        own["labels"] = np.array([3, 1])[labels]
        first = dict(labels=[2], scores=[1.0], boxes=found[:1], masks=kind[:1])
        own = {key: np.concatenate([x, first[key]]) for key, x in own.items()}
    source = data.TaskSource(
        name="objects",
        task=task,
        class_names=("a", "b"),
        num_examples=1,
        load=lambda index: target | dict(masks=masks(corners)),
    )

    def interpret(outputs, sizes, **options):
        given.update(options)
        return [own]

    model = types.SimpleNamespace(
        predict_on_batch=lambda images: {},
        interpret=interpret,
        class_names=names,
    )
    batch = dict(images=np.zeros(1), index=[0], sizes=[size])
    result = evaluation.task_scores.__wrapped__(model, source, [batch])
    score = evaluation.CocoAveragePrecision(masks=task == "instances")
    best = slice(-100, None)
    score.update(
        *(0, masks(corners) if task == "instances" else corners),
        *(target["labels"], kind[best], labels[best], scores[best]),
        *(target["areas"], target["crowd"]),
    )
    assert result == score.result()
    assert result["AP_small"] == -1 and 0 < result["AP_medium"] < 1
    expected = dict(threshold=0.0)
    if task == "instances":
        expected |= dict(kind="instance", most=100)
    assert given == expected


def test_classes_that_are_not_there_are_refused():
    score = evaluation.PanopticQuality(3)
    segments = dict(
        target=np.zeros((2, 2), int), predicted=np.zeros((2, 2), int)
    )
    with pytest.raises(ValueError, match="must be 0 to 2. Received: -1"):
        score.update(
            0, **segments, target_classes={0: -1}, predicted_classes={0: 2}
        )
    with pytest.raises(ValueError, match="`crowd` must be numbers of"):
        score.update(
            0, **segments, target_classes={}, predicted_classes={}, crowd=[1]
        )
    segments = {name: x - 1 for name, x in segments.items()}  # -1 is a number
    score.update(
        0, **segments, target_classes={-1: 0}, predicted_classes={-1: 0}
    )
    assert score.result()["PQ"] == 1
