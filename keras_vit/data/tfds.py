"""Sets of TensorFlow Datasets."""

from keras_vit.data.lazy import optional, tensorflow


def exists(name: str) -> bool:
    """Returns whether TFDS has a set of that name (config, version allowed)."""
    tfds = optional("tensorflow_datasets")
    return name.split("/")[0].split(":")[0] in tfds.list_builders()


def find(
    name: str,
    train_split: str,
    eval_split: str,
    *,
    data_dir: str,
    manual_dir: str,
    try_gcs: bool,
) -> tuple[dict, dict]:
    """Prepares a set and returns its two splits, images still encoded.

    Args:
        name: TFDS name, such as "oxford_iiit_pet" or "vtab/config:1.0.0".
        train_split, eval_split: Split names, slices allowed; "" the default.
        data_dir, manual_dir, try_gcs: See `sources.load`.

    Returns:
        The fields of a training and an evaluation `Source`.

    Raises:
        ValueError: If the set has no labelled images, no such split, config
            or version.
    """
    tfds = optional("tensorflow_datasets")
    try:
        builder = tfds.builder(name, data_dir=data_dir or None, try_gcs=try_gcs)
    except (AssertionError, ValueError) as error:
        # TFDS asserts that it knows the version.
        raise ValueError(
            "`dataset` must name a config and version that TFDS has. "
            f"Received: dataset={name!r}: {error}"
        ) from error
    builder.download_and_prepare(
        download_config=tfds.download.DownloadConfig(
            manual_dir=manual_dir or None
        )
    )
    keys = builder.info.supervised_keys
    features = builder.info.features
    if not keys or not isinstance(features[keys[0]], tfds.features.Image):
        raise ValueError(
            "`dataset` must be a set of labelled images. Received: "
            f"dataset={name!r} with the supervised keys {keys}"
        )
    if not isinstance(features[keys[1]], tfds.features.ClassLabel):
        raise ValueError(
            f"The label of {name!r} must be a class. Received: "
            f"{features[keys[1]]}"
        )
    splits = builder.info.splits
    if not eval_split:
        eval_split = "validation" if "validation" in splits else "test"
        eval_split = "test" if "test" in splits else eval_split
    parts = []
    for argument, split in (
        ("train_split", train_split or "train"),
        ("eval_split", eval_split),
    ):
        read = _reader(builder, keys)
        try:
            # Some sets, mocked ones among them, do not state their sizes.
            num_examples = (
                splits[split].num_examples
                if splits
                else int(read(split).reduce(0, lambda count, _: count + 1))
            )
        except (KeyError, ValueError) as error:
            raise ValueError(
                f"`{argument}` must be a split of {name!r}: {sorted(splits)}. "
                f"Received: {argument}={split!r}"
            ) from error
        shape = features[keys[0]].shape
        parts.append(
            dict(
                name=f"{name} {split}",
                class_names=tuple(features[keys[1]].names),
                num_examples=num_examples,
                image_shape=shape if None not in shape else None,
                stream=_stream(read, split, splits),
            )
        )
    return tuple(parts)


def _reader(builder, keys):
    """Returns a function from a split to its (encoded image, label)."""
    tfds, tf = optional("tensorflow_datasets"), tensorflow()

    def read(split):
        return builder.as_dataset(
            split=split,
            decoders={keys[0]: tfds.decode.SkipDecoding()},
            read_config=tfds.ReadConfig(
                interleave_cycle_length=1, try_autocache=False
            ),
        ).map(
            lambda example: (
                example[keys[0]],
                tf.cast(example[keys[1]], "int64"),
            )
        )

    return read


def _stream(read, split, splits):
    def stream(start, stop):
        # TFDS cuts only what states its size, and leaves nothing empty.
        if not splits or start == stop:
            return read(split).skip(start).take(stop - start)
        return read(_cut(split, splits, start, stop))

    return stream


def _cut(split, splits, start, stop):
    """Names the examples from `start` up to `stop` of a split.

    The even splits of TFDS would cut each term of "train+test" by itself.
    """
    instruction = optional("tensorflow_datasets").core.ReadInstruction
    terms = []
    for term in instruction.from_spec(split).to_absolute(splits):
        term_start = term.from_ or 0
        term_stop = (
            splits[term.splitname].num_examples if term.to is None else term.to
        )
        low = term_start + max(start, 0)
        high = min(term_start + stop, term_stop)
        if low < high:
            terms.append(f"{term.splitname}[{low}:{high}]")
        start -= term_stop - term_start
        stop -= term_stop - term_start
    return "+".join(terms)
