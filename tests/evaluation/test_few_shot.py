"""Few-shot accuracy over draws, and k-NN, on features made by hand."""

import tracemalloc

import numpy as np
import pytest

from keras_vit import evaluation

pytestmark = pytest.mark.backend_independent


def clusters(count, seed, spread=1.0, width=6):
    """Features around one centre for each of 3 classes."""
    rng = np.random.default_rng(seed)
    centres = 3 * np.random.default_rng(9).normal(size=(3, width))
    labels = rng.integers(0, 3, count)
    noise = spread * rng.normal(size=(count, width))
    return (centres[labels] + noise).astype("float32"), labels


def test_more_shots_are_better_and_vary_less():
    train, test = clusters(300, 1, spread=3), clusters(400, 2, spread=3)
    few, many = evaluation.few_shot(
        train, test, num_classes=3, shots=(1, 25), num_draws=4
    )
    assert (few.shots, many.shots) == (1, 25)
    assert len(few.accuracies) == len(many.accuracies) == 4
    assert many.mean == pytest.approx(np.mean(many.accuracies))
    assert many.deviation == pytest.approx(np.std(many.accuracies, ddof=1))
    assert 1 / 3 < few.mean < many.mean
    assert many.deviation < few.deviation


def test_draws_follow_the_seed_alone():
    train, test = clusters(60, 1, spread=3), clusters(60, 2, spread=3)

    def accuracies(seed):
        (result,) = evaluation.few_shot(
            train, test, num_classes=3, shots=(2,), num_draws=3, seed=seed
        )
        return result.accuracies

    assert accuracies(0) == accuracies(0)
    assert len(set(accuracies(0))) > 1
    assert accuracies(0) != accuracies(50)


def test_the_penalty_is_chosen_on_training_images():
    # With its labels shifted the test part would have the other chosen.
    train = clusters(90, 1, spread=4, width=40)
    features, labels = clusters(200, 2, spread=4, width=40)
    arguments = dict(num_classes=3, shots=(5,), num_draws=3)
    choices = (1e-6, 1e7)

    def single(l2, test):
        (result,) = evaluation.few_shot(train, test, l2=(l2,), **arguments)
        return result.mean

    shifted = features, (labels + 1) % 3
    honest, wrong = (
        [single(l2, test) for l2 in choices]
        for test in ((features, labels), shifted)
    )
    print(honest, wrong)
    best = choices[int(np.argmax(honest))]
    assert choices[int(np.argmax(wrong))] != best
    for test in ((features, labels), shifted):
        (chosen,) = evaluation.few_shot(train, test, l2=choices, **arguments)
        assert chosen.l2 == best


def test_the_penalty_is_not_chosen_on_drawn_images():
    train = clusters(30, 1)
    labels = np.repeat([0, 1, 2], 4)
    train = train[0][:12], labels
    arguments = dict(num_classes=3, shots=(4,))
    with pytest.raises(ValueError, match="shots=4 uses all 12"):
        evaluation.few_shot(train, train, **arguments)
    (result,) = evaluation.few_shot(train, train, l2=(1.0,), **arguments)
    assert result.l2 == 1.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shots": ()}, "`shots` must be one or more"),
        ({"shots": (0,)}, "`shots` must be one or more"),
        ({"shots": (99,)}, "`shots` must be at most"),
        ({"l2": (0.0, 1.0)}, "`l2` must be one or more"),
    ],
)
def test_what_cannot_be_drawn_is_refused(changes, message):
    train = clusters(60, 1)
    with pytest.raises(ValueError, match=message):
        evaluation.few_shot(train, train, num_classes=3, **changes)


def test_features_and_labels_must_fit():
    x, y = clusters(60, 1)
    for wrong, name in (
        (dict(train=(x, y[:-1])), "train"),
        (dict(train=(x, np.eye(3)[y])), "train"),
        (dict(test=(x[:, 1:], y)), "test"),
        (dict(test=(x[:0], y[:0])), "test"),
    ):
        with pytest.raises(ValueError, match=f"`{name}` must be repr"):
            given = dict(train=(x, y), test=(x, y)) | wrong
            evaluation.few_shot(**given, num_classes=3)
    with pytest.raises(ValueError, match="`train` must be representations"):
        evaluation.nearest_neighbours((x, np.eye(3)[y]), x)
    with pytest.raises(ValueError, match="`features` must be finite numbers"):
        evaluation.nearest_neighbours((x, y), x[:, 1:])
    assert evaluation.nearest_neighbours((x, y), x[:0]).shape == (0,)


def test_a_class_that_is_only_measured_is_refused():
    features, labels = clusters(60, 1)
    train = features[labels != 1], labels[labels != 1]
    with pytest.raises(ValueError, match=r"none of the classes \[1\]"):
        evaluation.few_shot(
            train, (features, labels), num_classes=3, shots=(1,)
        )


@pytest.mark.parametrize("temperature", [None, 0.07])
@pytest.mark.parametrize("k", [1, 7])
def test_neighbours_vote_as_the_formula_says(k, temperature):
    train, (features, _) = clusters(50, 1, spread=4), clusters(30, 2, spread=4)
    options = {} if temperature else dict(temperature=None)
    found = evaluation.nearest_neighbours(train, features, k=k, **options)
    a, b = (x.astype("float64") for x in (features, train[0]))
    a /= np.linalg.norm(a, axis=1, keepdims=True)
    b /= np.linalg.norm(b, axis=1, keepdims=True)
    for row, guess in zip(a @ b.T, found, strict=True):
        nearest = np.argsort(-row)[:k]
        strength = np.exp(row[nearest] / temperature) if temperature else None
        votes = np.bincount(train[1][nearest], strength, minlength=3)
        assert guess == votes.argmax()


def test_weights_break_a_majority():
    train = np.array([[1, 0], [0.3, 1], [0.3, 1.1]]), np.array([0, 1, 1])
    asked = np.array([[1, 0.1]])
    plain, weighted = (
        evaluation.nearest_neighbours(train, asked, k=3, temperature=t)
        for t in (None, 0.07)
    )
    assert (plain[0], weighted[0]) == (1, 0)


def test_far_neighbours_vote_at_a_low_temperature():
    train = np.array([[-1, 0.1], [-1, 0]], "float32"), np.array([0, 1])
    asked = np.array([[1, 0.1]], "float32")
    guesses = evaluation.nearest_neighbours(
        train, asked, k=2, temperature=0.001
    )
    assert guesses.tolist() == [0]


def test_similarities_of_all_to_all_are_never_there():
    train, (features, labels) = clusters(4000, 1), clusters(12_000, 2)
    tracemalloc.start()
    try:
        found = evaluation.nearest_neighbours(train, features)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert np.mean(found == labels) > 0.9
    # All would take 192 MB in float32.
    assert peak < 120e6


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": 21}, "`k` must be at most 20"),
        ({"temperature": 0.0}, "`temperature` must be a positive number"),
    ],
)
def test_votes_that_cannot_be_are_refused(changes, message):
    train = clusters(20, 1)
    with pytest.raises(ValueError, match=message):
        evaluation.nearest_neighbours(train, train[0], **changes)
