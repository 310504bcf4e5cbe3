"""Checks of arguments that depend on one another, and of inputs."""

import keras


def as_pair(size: int | tuple[int, int]) -> tuple[int, int]:
    """Returns a side, or (height, width), as (height, width)."""
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    return int(height), int(width)


def as_triple(size: tuple[int, int, int]) -> tuple[int, int, int]:
    """Returns (frames, height, width) as a tuple of Python's integers."""
    frames, height, width = map(int, size)
    return frames, height, width


def check_heads(config) -> None:
    """Checks that the heads of an architecture divide its width."""
    if config.hidden_size % config.num_heads:
        raise ValueError(
            "`hidden_size` must be a multiple of `num_heads`. Received: "
            f"hidden_size={config.hidden_size}, num_heads={config.num_heads}"
        )


def check_groups(num_kv_heads: int, num_heads: int, qkv_bias: str) -> None:
    """Checks the number of heads of keys and values, 0 for `num_heads`."""
    shared = num_kv_heads not in (0, num_heads)
    if shared and (num_heads % num_kv_heads or qkv_bias == "qv"):
        raise ValueError(
            "`num_kv_heads` must divide `num_heads`, and needs "
            "qkv_bias='qkv' or 'none'. Received: num_kv_heads="
            f"{num_kv_heads}, num_heads={num_heads}, qkv_bias={qkv_bias!r}"
        )


def check_post_norm(post_norm: bool, parallel: bool) -> None:
    """Checks that norms do not follow branches that share one."""
    if post_norm and parallel:
        raise ValueError(
            "`parallel` must be False with post_norm=True. Received: "
            "parallel=True"
        )


def check_class_names(class_names, classes: int | None) -> None:
    """Checks that there is a name for each class."""
    if class_names is None:
        return
    if not class_names or classes not in (None, len(class_names)):
        raise ValueError(
            "`class_names` must name each class. Received: "
            f"{len(class_names)} names for {classes} classes, "
            f"class_names={class_names!r}"
        )


def check_levels(config, *names: str) -> None:
    """Checks that an architecture has a value for each level of a pyramid.

    Args:
        config: The architecture.
        *names: Its fields of a value for each level, beside `depths`.
    """
    for name in names:
        values = getattr(config, name)
        if not values or len(values) != len(config.depths):
            raise ValueError(
                f"`{name}` must have a value for each level, as `depths`. "
                f"Received: {name}={values}, depths={config.depths}"
            )


def pooled_size(size, kernel_size, strides, padding) -> tuple[int, ...]:
    """Returns how many windows fit into each padded axis."""
    axes = zip(size, kernel_size, strides, padding, strict=True)
    return tuple((n + 2 * pad - k) // stride + 1 for n, k, stride, pad in axes)


def check_shape(
    layer, inputs, expected: tuple[int | None, ...], always: bool = False
):
    """Checks that a layer is called on inputs of the shape it was built for.

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
    """Returns the message of `check_shape`."""
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
