"""Parts of a source: the first shots of every class, a dev split."""

import dataclasses

import numpy as np

from keras_vit.data.optional_imports import tensorflow
from keras_vit.data.sources import Source, take
from keras_vit.data.split import hold_out


def hold_out_dev(
    source: Source, fraction: float, seed: int
) -> tuple[Source, Source]:
    """Splits a training set into what to train on and what to choose by.

    Of files and arrays the same share of every class is held out, drawn from
    the seed; of a stream its end.

    Args:
        source: The training source of `load`.
        fraction: Share of the examples to hold out, such as the 0.02 of
            CIFAR-10's that the paper chooses learning rates by.
        seed: Seed of the choice.

    Raises:
        ValueError: If `fraction` does not lie between 0 and 1 or leaves one
            of the two without examples.
    """
    if not 0 < fraction < 1:
        raise ValueError(
            "`dev_fraction` must lie between 0 and 1. "
            f"Received: dev_fraction={fraction}"
        )
    if source.stream is None:
        kept, held_out = hold_out(
            source.labels,
            fraction,
            seed,
            name=source.name,
            class_names=source.class_names,
        )
        # Files that are no examples are listed once, with the training part.
        dev = dataclasses.replace(source, skipped={}, ignored={})
        return take(source, kept), take(dev, held_out)
    count = round(fraction * source.num_examples)
    if not 0 < count < source.num_examples:
        raise ValueError(
            "`dev_fraction` must leave examples to train and to evaluate on. "
            f"Received: dev_fraction={fraction} of {source.num_examples}"
        )
    first = source.num_examples - count

    def of_the_end(start, stop, *arguments, **options):
        return source.stream(first + start, first + stop, *arguments, **options)

    return (
        dataclasses.replace(source, num_examples=first),
        dataclasses.replace(source, num_examples=count, stream=of_the_end),
    )


def keep_shots(source: Source, shots: int, seed: int) -> Source:
    """Returns a source of `shots` examples of each class, drawn at random.

    Of a stream all labels are read once, and what is kept stays in memory,
    encoded.

    Args:
        source: The training source of `load`.
        shots: Examples of each class.
        seed: Seed of the choice.

    Raises:
        ValueError: If a class has fewer, or images may have several labels.
    """
    if source.multi_label:
        raise ValueError(
            "`shots` needs one label an image. Received: "
            f"{source.name!r}, whose images may have several"
        )
    if source.stream is None:
        return take(source, _draw(source, source.labels, shots, seed))
    everything = source.stream(0, source.num_examples)
    labels = [label for _, label in everything.as_numpy_iterator()]
    chosen = set(_draw(source, np.array(labels), shots, seed))
    kept = [
        example
        for i, example in enumerate(everything.as_numpy_iterator())
        if i in chosen
    ]
    images, labels = map(list, zip(*kept, strict=True))

    def from_memory(start, stop, seed=None, cache=False):
        if source.is_video:  # which differ in their number of frames
            return tensorflow().data.Dataset.from_generator(
                lambda: iter(kept[start:stop]),
                output_signature=everything.element_spec,
            )
        return tensorflow().data.Dataset.from_tensor_slices(
            (np.array(images)[start:stop], np.array(labels)[start:stop])
        )

    return dataclasses.replace(
        source, num_examples=len(labels), stream=from_memory
    )


def _draw(source, labels, shots, seed):
    """Returns the indices of `shots` examples of each class, ascending."""
    counts = np.bincount(labels, minlength=len(source.class_names))
    if shots < 1 or counts.min() < shots:
        raise ValueError(
            "`shots` must be at least 1 and at most the examples of each "
            f"class, {counts.min()} of {source.name!r}. Received: "
            f"shots={shots}"
        )
    rng = np.random.default_rng(seed)
    of_each_class = [
        rng.permutation(np.flatnonzero(labels == label))[:shots]
        for label in range(len(counts))
    ]
    return np.sort(np.concatenate(of_each_class))
