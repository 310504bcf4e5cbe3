"""Subsets of a source: a number of examples or of shots, a dev split."""

import dataclasses
from typing import Any

import numpy as np

from keras_vit._arguments import Count, Natural, Share, checked
from keras_vit.data.optional_imports import tensorflow
from keras_vit.data.shards import cut_ranges
from keras_vit.data.sources import Source, take
from keras_vit.data.split import hold_out


@checked
def hold_out_dev(
    source: Source, fraction: Share, seed: Natural
) -> tuple[Source, Source]:
    """Split a training set into a training part and a development part.

    From files and arrays the same share of every class is drawn at random.
    From a stream the last examples are held out.

    Args:
        source: The training source of `load`.
        fraction: Share of the examples to hold out, such as the 0.02 of
            CIFAR-10 on which the paper selects learning rates.
        seed: Seed of the random draw.

    Raises:
        ValueError: If an argument is out of range, or one of the two parts
            would have no examples.
    """
    if source.labels is not None:
        kept, held_out = hold_out(
            source.labels,
            fraction,
            seed,
            name=source.name,
            class_names=source.class_names,
        )
        # The training part alone lists the files that are not examples.
        dev = dataclasses.replace(source, skipped={}, ignored={})
        return take(source, kept), take(dev, held_out)
    count = round(fraction * source.num_examples)
    if not 0 < count < source.num_examples:
        raise ValueError(
            "`fraction` (`data.dev_fraction` of a recipe) must leave examples "
            "to train and to evaluate on. "
            f"Received: fraction={fraction} of {source.num_examples}"
        )
    first = source.num_examples - count
    stream: Any = source.stream

    def of_the_end(start, stop, *arguments, **options):
        return stream(first + start, first + stop, *arguments, **options)

    return (
        dataclasses.replace(source, num_examples=first),
        dataclasses.replace(
            source,
            num_examples=count,
            stream=of_the_end,
            ranges=cut_ranges(source.ranges, first, source.num_examples),
        ),
    )


@checked
def keep_shots(source: Source, shots: Count, seed: Natural) -> Source:
    """Return a source of `shots` examples of each class, drawn at random.

    All labels of a stream are read once, and the chosen examples are kept in
    memory, encoded.

    Raises:
        ValueError: If a class has fewer examples, or if images may have
            several labels.
    """
    if source.multi_label:
        raise ValueError(
            "`shots` needs one label per image. Received: "
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
        if source.is_video:  # videos differ in their number of frames
            return tensorflow().data.Dataset.from_generator(
                lambda: iter(kept[start:stop]),
                output_signature=everything.element_spec,
            )
        return tensorflow().data.Dataset.from_tensor_slices(
            # NumPy would cut zeros off the end of bytes.
            (tensorflow().constant(images[start:stop]), labels[start:stop])
        )

    return dataclasses.replace(
        source,
        num_examples=len(labels),
        stream=from_memory,
        ranges=sum(
            (cut_ranges(source.ranges, i, i + 1) for i in sorted(chosen)),
            start=(),
        ),
    )


@checked
def keep_images(source: Source, count: Count, seed: Natural) -> Source:
    """Return a source of `count` examples, for studies of data set size.

    Subsets of the same seed are nested: a smaller one is contained in each
    larger one. From files and arrays they are drawn at random, with the same
    share of each class; with several labels per image they are drawn from all
    images. From a stream they are the first examples in its order, which is
    random if `records.write` or TFDS wrote the files.

    Raises:
        ValueError: If the source has fewer examples.
    """
    if count > source.num_examples:
        raise ValueError(
            "`count` (`data.train_images` of a recipe) must be at most the "
            f"training images of {source.name!r}, {source.num_examples}. "
            f"Received: count={count}"
        )
    if source.labels is None:
        return dataclasses.replace(source, num_examples=count)
    rng = np.random.default_rng(seed)
    position = rng.random(source.num_examples)
    if not source.multi_label:
        # The members of a class are evenly spaced from 0 to 1, so that any
        # prefix of the order contains the same share of each class.
        for label in np.unique(source.labels):
            members = rng.permutation(np.flatnonzero(source.labels == label))
            offsets = np.arange(len(members)) + rng.random()
            position[members] = offsets / len(members)
    return take(source, np.sort(np.argsort(position)[:count]))


def _draw(source, labels, shots, seed):
    """Return the indices of `shots` examples of each class, ascending."""
    counts = np.bincount(labels, minlength=len(source.class_names))
    if counts.min() < shots:
        raise ValueError(
            "`shots` must be at most the examples of each class, "
            f"{counts.min()} of {source.name!r}. Received: shots={shots}"
        )
    rng = np.random.default_rng(seed)
    of_each_class = [
        rng.permutation(np.flatnonzero(labels == label))[:shots]
        for label in range(len(counts))
    ]
    return np.sort(np.concatenate(of_each_class))
