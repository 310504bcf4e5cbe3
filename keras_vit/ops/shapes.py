"""A check of the shape of a layer's input."""

import keras


def check_shape(
    layer, inputs, expected: tuple[int | None, ...], always: bool = False
):
    """Check that a layer is called on inputs of the shape it was built for.

    Not every backend checks this: a reshape would move the excess pixels of an
    image into the batch.

    Args:
        layer: The layer.
        inputs: Its input, a tensor.
        expected: Its shape without the batch; None where any size is allowed.
        always: Whether a program of TensorFlow checks the shape when it runs
            even if it was traced with this shape.

    Returns:
        The inputs. A program of TensorFlow checks the sizes that were unknown
        when it was traced, and raises `tf.errors.InvalidArgumentError`.

    Raises:
        ValueError: If the shape is another one.
    """
    is_partial = getattr(inputs.shape, "rank", 0) is None
    if not is_partial:
        found = tuple(inputs.shape)
        pairs = list(zip(found[1:], expected, strict=False))
        if len(found) != len(expected) + 1 or any(
            None not in pair and pair[0] != pair[1] for pair in pairs
        ):
            raise ValueError(_other_shape(layer, found, expected))
        is_partial = any(size is None is not own for size, own in pairs)
    if (
        (always or is_partial)
        and keras.backend.backend() == "tensorflow"
        and keras.ops.is_tensor(inputs)
    ):
        import tensorflow as tf

        return tf.ensure_shape(inputs, (None, *expected))
    return inputs


def _other_shape(layer, found, expected):
    """Return the message of `check_shape`."""
    expected_text = ", ".join("any" if n is None else str(n) for n in expected)
    remedy = ""
    if len(found) == 4 and len(expected) == 3:
        remedy = " Resize the images, or build the model with another "
        remedy += "`input_shape`."
        if found[1] == expected[2] != found[3]:
            remedy = " These seem to be channels-first: transpose them to "
            remedy += "[B, H, W, C]."
    return (
        f"{type(layer).__name__} `{layer.name}` was built for inputs of shape "
        f"[B, {expected_text}]. Received: shape {found}.{remedy}"
    )
