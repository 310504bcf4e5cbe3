"""Checks of what a constructor is given."""

import difflib

from keras_vit.layers import arguments

CLASSIFIERS = ("token", "token_gap", "gap", "gap_norm", "unpooled")
POSITION_EMBEDDINGS = ("learned_1d", "learned_2d", "relative", "none")
POSITION_PLACEMENTS = ("stem", "every_layer", "every_layer_shared")


def refuse_unknown(constructor: str, unknown, known) -> None:
    """Refuses keywords that a constructor does not have.

    Args:
        constructor: Its name.
        unknown: The keywords that it was called with, by name or not.
        known: The keywords that it has.

    Raises:
        ValueError: If one of them asks for channels-first images.
        TypeError: If there are any others.
    """
    for keyword in unknown:
        if keyword == "data_format":
            raise ValueError(
                f"`data_format` is no argument of {constructor}: images are "
                "always channels-last, [B, H, W, C]. Transpose channels-first "
                "images with keras.ops.transpose(images, (0, 2, 3, 1))."
            )
        nearest = difflib.get_close_matches(keyword, known, n=1)
        raise TypeError(
            f"{constructor}() has no argument {keyword!r}."
            + (f" Did you mean {nearest[0]!r}?" if nearest else "")
        )


def check_sizes(**sizes) -> None:
    """Checks the numbers that a ViT cannot be built without."""
    for argument, size in sizes.items():
        if size is None:
            raise ValueError(
                f"`{argument}` must be given, since no weights tell it. "
                f"Received: {argument}=None"
            )
        if argument == "patch_size":
            arguments.as_pair(size, argument)
        else:
            arguments.check_count(size, argument)
    if sizes["hidden_size"] % sizes["num_heads"]:
        raise ValueError(
            "`hidden_size` must be a multiple of `num_heads`. Received: "
            f"hidden_size={sizes['hidden_size']}, "
            f"num_heads={sizes['num_heads']}"
        )


def check_flags(**flags) -> None:
    """Checks that each argument is True or False."""
    for argument, value in flags.items():
        arguments.check_flag(value, argument)


def check_rates(**rates) -> None:
    """Checks the rates of dropout and stochastic depth."""
    for argument, rate in rates.items():
        arguments.check_rate(rate, argument)


def check_positions(position_embedding, position_placement) -> None:
    """Checks that positions can be added where they should."""
    arguments.check_choice(
        position_embedding, "position_embedding", POSITION_EMBEDDINGS
    )
    arguments.check_choice(
        position_placement, "position_placement", POSITION_PLACEMENTS
    )
    if position_embedding in ("relative", "none") and (
        position_placement != "stem"
    ):
        raise ValueError(
            "`position_placement` says where embeddings are added to tokens; "
            f"with position_embedding={position_embedding!r} none is added, "
            "so leave it at 'stem' (Table 8 has no such case). Received: "
            f"position_placement={position_placement!r}"
        )


def check_stem(resnet_units, resnet_width) -> None:
    """Checks the arguments of a hybrid's stem."""
    if not isinstance(resnet_units, (list, tuple)):
        raise ValueError(
            "`resnet_units` must be a tuple with the units of each stage, such "
            "as (3, 4, 9), or None for no stem. Received: "
            f"resnet_units={resnet_units!r}"
        )
    for units in resnet_units:
        arguments.check_count(units, "resnet_units")
    if not arguments.is_number(resnet_width) or resnet_width <= 0:
        raise ValueError(
            "`resnet_width` must be a positive number. Received: "
            f"resnet_width={resnet_width!r}"
        )


def check_head(classes, representation_size, head_bias_init, labels) -> None:
    """Checks what describes the layers after the encoder."""
    if classes is not None:
        arguments.check_count(classes, "classes")
    if representation_size is not None:
        arguments.check_count(representation_size, "representation_size", 0)
    if not arguments.is_number(head_bias_init):
        raise ValueError(
            "`head_bias_init` must be a finite number. Received: "
            f"head_bias_init={head_bias_init!r}"
        )
    if labels is None:
        return
    if (
        isinstance(labels, str)
        or not labels
        or not all(isinstance(name, str) for name in labels)
    ):
        raise ValueError(
            "`labels` must be a list or tuple of names, one for each class. "
            f"Received: labels={labels!r}"
        )
    if classes is not None and len(labels) != classes:
        raise ValueError(
            f"`labels` must name each of the `classes`, {classes}. "
            f"Received: {len(labels)} names"
        )


def check_input_shape(input_shape) -> None:
    """Checks that a shape is (height, width, channels)."""
    shape = input_shape
    if isinstance(shape, (list, tuple)) and len(shape) == 3:
        for length, argument in zip(shape, ("height", "width"), strict=False):
            if length is not None:  # which the patch embedding refuses
                arguments.check_count(length, f"{argument} of input_shape")
        arguments.check_count(shape[2], "channels of input_shape")
        return
    raise ValueError(
        "`input_shape` must be (height, width, channels), such as "
        f"(224, 224, 3). Received: input_shape={shape!r}"
    )
