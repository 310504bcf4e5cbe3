"""The one loader: a checkpoint of any family into the variables of a model.

Everything in the checkpoint must be used and every variable assigned. Otherwise
an error lists both sides.
"""

import functools
import re
import warnings

import numpy as np
from keras import ops

from keras_vit.weights.checkpoint import Checkpoint, listing
from keras_vit.weights.rules import FAMILIES, table


def fill(
    model,
    source: Checkpoint,
    wanted: dict,
    *,
    resize_patches: bool = False,
) -> None:
    """Fill a model's variables from a checkpoint.

    The rules of the family fit values to the model's grid of patches, channels
    and patch size. If `wanted` has no head, the head and `pre_logits` are
    ignored on both sides.

    Args:
        model: The model.
        source: The checkpoint.
        wanted: Metadata of the model; without `classes`, the model's head keeps
            its initial values.
        resize_patches: Whether to resize patch kernels to the model's.

    Raises:
        ValueError: If a variable has no array, an array has no variable, or
            shapes differ; then nothing is assigned. Also if an array is found
            to be damaged when it is read, or to exceed the variable's dtype.
    """
    family = FAMILIES[source.family]
    grid, source_grid = family.grid(wanted), source.metadata.get("grid")
    if source_grid is None and "image_size" in source.metadata:
        source_grid = family.grid(source.metadata)
    try:
        source.format.check(source.metadata, wanted | dict(grid=grid))
    except ValueError as error:
        raise ValueError(f"The checkpoint {source.name!r}: {error}") from None
    size = functools.partial(
        table.Fit,
        source_grid=source_grid,
        grid=grid,
        method=source.metadata.get("resampling") or "",
        resize_patches=resize_patches,
    )

    def value_of(variable, rule, parts):
        """Return a variable's value, resized if its path has a resize."""
        value = rule.transform.join(*parts)
        resized = _resize_of(source, variable)
        if resized is None:
            return value
        return resized(value, size(shape=tuple(variable.shape)))

    arrays = source.format.adapt(
        _without_the_top(source, wanted), source.metadata, wanted
    )
    for variable, rule in _plan(model, source, wanted, arrays, value_of):
        parts = [arrays[name].read() for name in rule.sources]
        value = value_of(variable, rule, parts)
        if not _is_finite_as(value, variable.dtype):
            raise ValueError(
                f"The checkpoint {source.name!r} must contain numbers that "
                f"{variable.dtype} can hold. Received: {list(rule.sources)} "
                f"with values of up to {np.abs(value).max():.3g}. Build the "
                "model with a larger dtype."
            )
        variable.assign(value)


def _plan(model, source, wanted, arrays, value_of):
    """Return each variable to fill with its rule, if all fit."""
    plan, missing, shapes = [], [], []
    for variable, rule in _rules_of(model, source, wanted, arrays):
        absent = [name for name in rule.sources if name not in arrays]
        missing.extend(absent)
        if not absent:
            found = _differences(variable, rule, arrays)
            if found and _resize_of(source, variable):
                found = _unless_resized(variable, rule, arrays, value_of, found)
            shapes.extend(found)
            plan.append((variable, rule))
    used = {name for _, rule in plan for name in rule.sources}
    unused = [name for name in arrays if name not in used]
    if missing or unused or shapes:
        raise ValueError(
            f"The checkpoint {source.name!r} does not fit the model. Expected "
            "the same names and shapes on both sides. Received:\n"
            + listing("-", "missing in the checkpoint", missing)
            + listing("+", "in the checkpoint, unused by the model", unused)
            + listing("~", "of another shape", shapes)
            + "Is it a checkpoint of this architecture?"
        )
    return plan


def _is_finite_as(value, dtype):
    import ml_dtypes  # noqa: F401  NumPy's bfloat16; a dependency of Keras

    with np.errstate(over="ignore"):
        return np.isfinite(value.astype(dtype)).all()


def _without_the_top(source, wanted):
    """Return the arrays, without a head that the model does not use."""
    dropped = ()
    if wanted.get("classes") is None:
        dropped = table.without_top(wanted)
    names = {
        name
        for rule in source.rules
        if dropped and rule.path.startswith(dropped)
        for name in rule.sources
    }
    return {
        name: array
        for name, array in source.arrays.items()
        if name not in names
    }


def _rules_of(model, source, wanted, arrays):
    """Yield each variable to fill with its rule."""
    rules = {rule.path: rule for rule in source.format.rules(wanted)}
    for variable in model.weights:
        path = variable.path
        if path.startswith("head/") and wanted.get("classes") is None:
            continue
        rule = rules.get(path)
        if rule is None:  # the names are paths, or no checkpoint has it
            path = path if path in arrays else f"{path} (no checkpoint has it)"
            rule = table.Rule(variable.path, (path,))
        yield variable, rule


def _resize_of(source, variable):
    """Return the function that resizes a variable's value, or None."""
    for pattern, function in FAMILIES[source.family].RESIZES.items():
        if re.fullmatch(pattern, variable.path):
            return function
    return None


def _differences(variable, rule, arrays):
    """List the arrays whose shape differs from that of their variable."""
    # An array without memory: the transforms only need its shape.
    wanted = rule.transform.split(table.blank(variable.shape))
    return [
        f"{name}: model {array.shape}, checkpoint {arrays[name].shape}"
        for name, array in zip(rule.sources, wanted, strict=True)
        if array.shape != arrays[name].shape
    ]


def _unless_resized(variable, rule, arrays, value_of, differences):
    """Return the differences, none if resizing the value removes them."""
    found = [table.blank(arrays[name].shape) for name in rule.sources]
    wanted = rule.transform.split(table.blank(variable.shape))
    if [a.ndim for a in found] != [a.ndim for a in wanted]:
        return differences
    value = value_of(variable, rule, found)
    return [] if value.shape == tuple(variable.shape) else differences


def warn_if_zero_head(model, source: Checkpoint) -> None:
    """Warns if a checkpoint's head is all zeros, and thus useless as it is.

    Args:
        model: The model, with the checkpoint's head.
        source: The checkpoint.
    """
    if not any(
        ops.convert_to_numpy(variable).any()
        for variable in model.get_layer("head").weights
        if variable.name == "kernel"
    ):
        warnings.warn(
            f"The head of {source.name!r} is all zeros: its classes all "
            "score alike. The imagenet21k files of 2020 have such a head, "
            "for fine-tuning: pass `classes=...` or `include_top=False`. The "
            "weights named 'augreg' have a trained head of the 21k classes.",
            stacklevel=4,
        )
