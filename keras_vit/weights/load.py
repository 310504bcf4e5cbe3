"""The one loader: a checkpoint of any family into the variables of a model.

Everything in the checkpoint must be used and every variable assigned. Otherwise
an error lists both sides.
"""

import functools
import re

import numpy as np

from keras_vit.weights.checkpoint import Checkpoint, listing
from keras_vit.weights.rules import FAMILIES, table


def fill(
    model, source: Checkpoint, wanted: dict, *, resize_patches: bool = False
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
    family, file_format = FAMILIES[source.family], source.format
    arrays, metadata = source.arrays, source.metadata
    grid, source_grid = family.grid(wanted), metadata.get("grid")
    if source_grid is None and "image_size" in metadata:
        source_grid = family.grid(metadata)
    size = functools.partial(
        table.Fit,
        source_grid=source_grid,
        grid=grid,
        method=metadata.get("resampling") or "",
        resize_patches=resize_patches,
    )

    def value_of(variable, rule, parts):
        """Return a variable's value, resized if its path has a resize."""
        value = rule.transform.join(*parts)
        resized = _resize_of(family, variable)
        if resized is None:
            return value
        return resized(value, size(shape=tuple(variable.shape)))

    if wanted.get("classes") is None:
        arrays = _without_the_top(arrays, source.rules, wanted)
    try:
        file_format.check(metadata, wanted | dict(grid=grid))
        arrays = file_format.adapt(arrays, metadata, wanted)
        pairs = _rules_of(model, file_format.rules(wanted), wanted, arrays)
        plan = _plan(pairs, family, arrays, value_of)
    except ValueError as error:
        raise ValueError(f"The checkpoint {source.name!r}: {error}") from None
    for variable, rule in plan:
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


def _plan(pairs, family, arrays, value_of):
    """Return each variable to fill with its rule, if all fit."""
    plan, missing, shapes = [], [], []
    for variable, rule in pairs:
        absent = [name for name in rule.sources if name not in arrays]
        missing.extend(absent)
        if not absent:
            found = _differences(variable, rule, arrays)
            if found and _resize_of(family, variable):
                found = _unless_resized(variable, rule, arrays, value_of, found)
            shapes.extend(found)
            plan.append((variable, rule))
    used = {name for _, rule in plan for name in rule.sources}
    unused = [name for name in arrays if name not in used]
    if missing or unused or shapes:
        raise ValueError(
            "it does not fit the model. Expected the same names and shapes on "
            "both sides. Received:\n"
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


def _without_the_top(arrays, rules, wanted):
    """Return the arrays, without a head that the model does not use."""
    dropped = table.without_top(wanted)
    names = {
        name
        for rule in rules
        if dropped and rule.path.startswith(dropped)
        for name in rule.sources
    }
    return {name: arrays[name] for name in arrays if name not in names}


def _rules_of(model, rules, wanted, arrays):
    """Yield each variable to fill with its rule."""
    rules = {rule.path: rule for rule in rules}
    for variable in model.weights:
        path = variable.path
        if path.startswith("head/") and wanted.get("classes") is None:
            continue
        rule = rules.get(path)
        if rule is None:  # the names are paths, or no checkpoint has it
            path = path if path in arrays else f"{path} (no checkpoint has it)"
            rule = table.Rule(variable.path, (path,))
        yield variable, rule


def _resize_of(family, variable):
    """Return the function that resizes a variable's value, or None."""
    for pattern, function in family.RESIZES.items():
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
