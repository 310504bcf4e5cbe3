"""The losses of DINO, iBOT and KoLeo, and what centres a teacher's outputs.

All are of the global batch: of TensorFlow's replicas each returns its part of a
sum, so that several devices end as one does. (The authors of DINO and DINOv2
centre over all devices too, but compute KoLeo on each.)
"""

import math

from keras import ops

from keras_vit._arguments import Count, checked
from keras_vit.ops.replicas import (
    gather_over_replicas,
    places_among_replicas,
    sum_over_replicas,
)


@checked
def cosine(step, total_steps: Count, start: float, end: float):
    """Return a value of a cosine schedule.

        end + (start - end) (1 + cos(pi step / total)) / 2

    Args:
        step: Number of steps done, a scalar.
        total_steps: Step at which the value is `end`, as after it.
        start, end: The first and the last value.
    """
    share = ops.minimum(ops.cast(step, "float32") / total_steps, 1.0)
    return end + (start - end) * (1.0 + ops.cos(math.pi * share)) / 2.0


def centred(logits, centre, temperature):
    """Return a teacher's probabilities: softmax((z - c) / t).

    Args:
        logits: z, `[..., K]`.
        centre: c, `[K]`.
        temperature: t, a scalar.

    Reference:
        Caron et al. 2021 (2104.14294), section 3.1.
    """
    return ops.softmax((logits - centre) / temperature)


def moved_centre(centre, logits, weights, momentum: float = 0.9):
    """Return m c + (1 - m) mean(z), the mean over the batch of all devices.

    Args:
        centre: c, `[K]`.
        logits: z, `[N, K]`.
        weights: Which of them count, `[N]`.
        momentum: m.

    Reference:
        Caron et al. 2021, equation 4.
    """
    total = sum_over_replicas(ops.einsum("nk,n->k", logits, weights))
    count = sum_over_replicas(ops.sum(weights))
    mean = total / ops.maximum(count, 1.0)
    return momentum * centre + (1.0 - momentum) * mean


def sinkhorn(logits, temperature, weights, rounds: int = 3):
    """Return a teacher's probabilities, of which each prototype has as many.

    From exp(z / t), rounds of division by the sums over the batch of all
    devices, and by the sums over the prototypes, the last of which are 1.

    Args:
        logits: z, `[N, K]`, at most 1, as cosines are.
        temperature: t, a scalar.
        weights: 1 for those that count and 0 for others, `[N]`.
        rounds: Number of rounds.

    Returns:
        `[N, K]`; zeros where weights are.

    Reference:
        Caron et al. 2020 (SwAV, 2006.09882), section 3; Oquab et al. 2023
        (DINOv2, 2304.07193), section 4.
    """
    # Any constant cancels; with this one nothing overflows.
    q = ops.exp((logits - 1.0) / temperature) * weights[:, None]
    for _ in range(rounds):
        q = q / ops.maximum(sum_over_replicas(ops.sum(q, axis=0)), 1e-30)
        q = q / ops.maximum(ops.sum(q, axis=1, keepdims=True), 1e-30)
    return q


def crop_loss(student, teacher, temperature: float, weights):
    """Return this replica's part of DINO's loss, a scalar.

        l = 1/BP sum_b sum_(i, j) H(q_bi, softmax(s_bj / t)),

    over the P pairs of a teacher's crop i and another crop j of the student.

    Args:
        student: Logits s of V crops, `[B, V, K]`, first those of the teacher.
        teacher: Probabilities q, `[B, G, K]`.
        temperature: t.
        weights: Weight of each image, `[B]`; they are 1 on average.

    Reference:
        Caron et al. 2021, equation 3.
    """
    losses = _crossentropies(student, teacher, temperature)  # [B, G, V]
    given, seen = teacher.shape[1], student.shape[1]
    others = 1.0 - ops.eye(given, seen, dtype=losses.dtype)
    losses = ops.sum(losses * others, axis=(1, 2)) / (given * (seen - 1))
    return ops.sum(losses * weights) / _count(weights)


def _crossentropies(student, teacher, temperature):
    """Return the cross-entropy of each pair, `[B, G, V]`."""
    logits = student / temperature
    # The probabilities of the teacher add up to 1.
    agreement = ops.einsum("bik,bjk->bij", teacher, logits)
    return ops.logsumexp(logits, axis=-1)[:, None, :] - agreement


def patch_loss(student, teacher, temperature: float, shares, num_crops: int):
    """Return this replica's part of iBOT's loss of masked patches, a scalar.

        l = 1/C sum_c sum_m w_cm H(q_cm, softmax(s_cm / t))

    Args:
        student: Logits s of patches that the student does not see,
            `[C, M, K]`.
        teacher: Probabilities q of the same patches, `[C, M, K]`.
        temperature: t.
        shares: w, `[C, M]`: 1 / (masked patches of the crop), 0 for padding.
        num_crops: Crops of an image, masked or not, over which to average.

    Reference:
        Zhou et al. 2022 (iBOT, 2111.07832), equation 2; with these weights
        Oquab et al. 2023, checked against dinov2/loss/ibot_patch_loss.py.
    """
    logits = student / temperature
    losses = ops.logsumexp(logits, axis=-1) - ops.sum(teacher * logits, axis=-1)
    return ops.sum(losses * shares) / (num_crops * _count(shares[:, 0]))


def koleo_loss(features, weights):
    """Return this replica's part of the loss that spreads features.

        l = -1/B sum_i log |x_i - x_nearest(i) + e|,   e = 1e-8,

    of features of norm 1; the nearest is one of the batch of all devices.

    Args:
        features: `[B, D]`; they are divided by their norms.
        weights: Weight of each, `[B]`; those of weight 0 are no neighbours.

    Reference:
        Sablayrolles et al. 2019 (1806.03198), equation 2; checked against
        dinov2/loss/koleo_loss.py.
    """
    epsilon = 1e-8
    features = ops.cast(features, "float32")
    norms = ops.sqrt(ops.sum(features**2, axis=-1, keepdims=True) + 1e-16)
    own = features / norms
    everyone = gather_over_replicas(own)
    absent = gather_over_replicas(ops.cast(weights <= 0, "float32"))
    # Cosines are at least -1.
    everyones = ops.arange(ops.shape(everyone)[0], dtype="int32")
    itself = ops.equal(places_among_replicas(own)[:, None], everyones)
    cosines = ops.matmul(own, ops.transpose(everyone))
    left_out = ops.cast(itself, "float32") + absent
    cosines = ops.stop_gradient(cosines) - 4.0 * left_out
    # As a product, since TensorFlow does not gather the gradients of `take`.
    chosen = ops.argmax(cosines, axis=-1)[:, None]
    chosen = ops.equal(ops.cast(chosen, "int32"), everyones)
    nearest = ops.matmul(ops.cast(chosen, "float32"), everyone)
    squares = ops.sum((own - nearest + epsilon) ** 2, axis=-1)
    losses = -ops.log(ops.sqrt(squares) + epsilon)
    return ops.sum(losses * weights) / _count(weights)


def entropy(probabilities, weights):
    """Return the mean entropy of a teacher's outputs, and that of their mean.

    Collapsed to one output, both are 0; to the same for all prototypes, both
    are log K.

    Args:
        probabilities: `[N, K]`.
        weights: Which of them count, `[N]`.

    Returns:
        Scalars, in nats, over the batch of all devices.
    """
    weights = ops.cast(weights > 0, "float32")
    count = ops.maximum(sum_over_replicas(ops.sum(weights)), 1.0)

    def of(p):
        return -ops.sum(p * ops.log(p + 1e-30), axis=-1)

    each = sum_over_replicas(ops.sum(of(probabilities) * weights)) / count
    mean = ops.einsum("nk,n->k", probabilities, weights)
    return each, of(sum_over_replicas(mean) / count)


def spread(features, weights):
    """Return sqrt(D) times the mean standard deviation of features of norm 1.

    It is 1 where features point in all directions alike, and 0 where they are
    the same for all images.

    Args:
        features: `[N, D]`; they are divided by their norms.
        weights: Which of them count, `[N]`.
    """
    weights = ops.cast(weights > 0, "float32")[:, None]
    features = ops.cast(features, "float32")
    norms = ops.sqrt(ops.sum(features**2, axis=-1, keepdims=True) + 1e-16)
    x = features / norms
    count = ops.maximum(sum_over_replicas(ops.sum(weights)), 1.0)
    mean = sum_over_replicas(ops.sum(x * weights, axis=0)) / count
    squares = ops.sum((x - mean) ** 2 * weights, axis=0)
    deviations = ops.sqrt(sum_over_replicas(squares) / count)
    return math.sqrt(features.shape[-1]) * ops.mean(deviations)


def _count(weights):
    """Return the number of examples of all devices, padding included."""
    return sum_over_replicas(ops.sum(ops.ones_like(weights)))
