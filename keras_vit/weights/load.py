"""The one loader: a checkpoint of any family into the variables of a model.

Everything in the checkpoint must be used and every variable assigned. Otherwise
an error lists both sides.
"""

import re
import warnings

import numpy as np
from keras import ops

from keras_vit.weights.checkpoint import Checkpoint
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

    def fit(variable, parts, rule):
        """Return a variable's value, resized if its path has a resize."""
        value = rule.transform.join(*parts)
        for pattern, function in family.RESIZES.items():
            if re.fullmatch(pattern, variable.path):
                size = table.Fit(
                    shape=tuple(variable.shape),
                    source_grid=source_grid,
                    grid=grid,
                    method=source.metadata.get("resampling") or "",
                    resize_patches=resize_patches,
                )
                return function(value, size)
        return value

    arrays = source.format.adapt(
        _without_the_top(source, wanted), source.metadata, wanted
    )
    plan, missing, shapes = [], [], []
    for variable, rule in _rules_of(model, source, wanted, arrays):
        if rule is None:
            missing.append(f"{variable.path} (no checkpoint has it)")
            continue
        absent = [name for name in rule.sources if name not in arrays]
        if absent:
            missing.extend(absent)
            continue
        can_fit = any(re.fullmatch(p, variable.path) for p in family.RESIZES)
        differences = _differences(
            variable, rule, arrays, fit if can_fit else None
        )
        shapes.extend(differences)
        plan.append((variable, rule))
    used = {name for _, rule in plan for name in rule.sources}
    unused = [name for name in arrays if name not in used]
    if missing or unused or shapes:
        raise ValueError(
            f"The checkpoint {source.name!r} does not fit the model. Expected "
            "the same names and shapes on both sides. Received:\n"
            + _listing("-", "missing in the checkpoint", missing)
            + _listing("+", "in the checkpoint, unused by the model", unused)
            + _listing("~", "of another shape", shapes)
            + "Is it a checkpoint of this architecture?"
        )
    for variable, rule in plan:
        parts = [arrays[name].read() for name in rule.sources]
        value = fit(variable, parts, rule)
        if not _is_finite_as(value, variable.dtype):
            raise ValueError(
                f"The checkpoint {source.name!r} must hold numbers that "
                f"{variable.dtype} can hold. Received: {list(rule.sources)} "
                f"with values of up to {np.abs(value).max():.3g}. Build the "
                "model with a larger dtype."
            )
        variable.assign(value)


def _is_finite_as(value, dtype):
    import ml_dtypes  # noqa: F401  NumPy's bfloat16; a dependency of Keras

    with np.errstate(over="ignore"):
        return np.isfinite(value.astype(dtype)).all()


def check_names(source: Checkpoint, rules: list) -> None:
    """Check that a checkpoint has exactly the names of a table.

    Raises:
        ValueError: If not, with a list of both sides.
    """
    wanted = {name for rule in rules for name in rule.sources}
    missing = wanted - set(source.arrays)
    unused = set(source.arrays) - wanted
    if missing or unused:
        raise ValueError(
            f"The checkpoint {source.name!r} is no complete "
            f"{FAMILIES[source.family].TITLE} of format "
            f"{source.format_name!r}, or more than one:\n"
            + _listing("-", "missing in the checkpoint", missing)
            + _listing("+", "in the checkpoint, of no known use", unused)
        )


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
    """Yield each variable to fill with its rule, or None."""
    rules = {rule.path: rule for rule in source.format.rules(wanted)}
    for variable in model.weights:
        path = variable.path
        if path.startswith("head/") and wanted.get("classes") is None:
            continue
        rule = rules.get(path)
        if rule is None and path in arrays:  # the names are paths
            rule = table.Rule(path, (path,))
        yield variable, rule


def _differences(variable, rule, arrays, fit):
    """List the arrays whose shape differs from that of their variable."""
    # Arrays without memory: the transforms only need their shapes.
    found = [table.blank(arrays[name].shape) for name in rule.sources]
    variable_shape = table.blank(variable.shape)
    differences = [
        f"{name}: model {wanted.shape}, checkpoint {array.shape}"
        for name, array, wanted in zip(
            rule.sources,
            found,
            rule.transform.split(variable_shape),
            strict=True,
        )
        if array.shape != wanted.shape
    ]
    axes = [len(array.shape) for array in rule.transform.split(variable_shape)]
    same_axes = [len(array.shape) for array in found] == axes
    if differences and fit is not None and same_axes:
        if fit(variable, found, rule).shape == variable_shape.shape:
            return []
    return differences


def _listing(sign, title, lines, limit=20):
    if not lines:
        return ""
    shown = "".join(f"  {sign} {line}\n" for line in sorted(lines)[:limit])
    if len(lines) > limit:
        shown += f"  {sign} ... and {len(lines) - limit} more\n"
    return f"{sign} {len(lines)} {title}:\n{shown}"


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
