"""The one loader: a checkpoint of any dialect into the variables of a model.

Everything in the checkpoint is used and every variable is filled, or it is an
error that shows both sides.
"""

import math
import warnings

from keras import ops

from keras_vit.weights import resize
from keras_vit.weights.checkpoint import POSITIONS, Checkpoint, blank
from keras_vit.weights.rules import table


def fill(
    model,
    source: Checkpoint,
    layout: table.Layout,
    *,
    grid_size: tuple[int, int],
    resize_patches: bool = False,
) -> None:
    """Fills a model's variables from a checkpoint.

    Position embeddings are resampled to the model's grid and patch kernels
    folded to its channels. A head that the layout lacks, and `pre_logits`
    with it, is left out on both sides.

    Args:
        model: The model.
        source: The checkpoint.
        layout: What the model has of the checkpoint's; without `head`, the
            model's head keeps its first values.
        grid_size: (height, width) of the model's grid of patches.
        resize_patches: Whether to resize patch kernels to the model's.

    Raises:
        ValueError: If a variable finds no array, an array no variable, or
            the shapes differ; nothing is assigned then. If an array turns
            out damaged when it is read.
    """
    own_heads = source.layout.num_heads
    if own_heads not in (0, layout.num_heads) and source.dialect != "jax":
        raise ValueError(
            f"`num_heads` must be that of the checkpoint {source.name!r}, "
            f"{own_heads}. Received: num_heads={layout.num_heads}"
        )

    grid = source.facts.get("grid")
    told = "position_embedding" in source.facts or source.dialect != "keras_vit"
    if (
        not told
        and grid != tuple(grid_size)
        and (math.prod(grid or ()) == math.prod(grid_size))
    ):
        raise ValueError(
            f"`position_grid` must be given, since the checkpoint "
            f"{source.name!r} does not tell whether its positions are a grid "
            f"of {grid} or {tuple(grid_size)}"
        )

    def fit(path, value, shape):
        return _fit(
            path, value, shape, source.facts.get("grid"), grid_size,
            resize_patches,
        )  # fmt: skip

    arrays = _without_the_top(source, layout)
    plan, missing, shapes = [], [], []
    for variable, rule in _rules_of(model, source, layout, arrays):
        if rule is None:
            missing.append(f"{variable.path} (no checkpoint has it)")
            continue
        absent = [name for name in rule.sources if name not in arrays]
        if absent:
            missing.extend(absent)
            continue
        differences = _differences(variable, rule, arrays, fit)
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
        value = rule.transform.join(
            *(arrays[name].read() for name in rule.sources)
        )
        variable.assign(fit(variable.path, value, tuple(variable.shape)))


def check_names(source: Checkpoint, rules: list) -> None:
    """Checks that a checkpoint has what a table names, and nothing else.

    Raises:
        ValueError: With a list of both sides.
    """
    wanted = {name for rule in rules for name in rule.sources}
    missing = wanted - set(source.arrays)
    unused = set(source.arrays) - wanted
    if missing or unused:
        raise ValueError(
            f"The checkpoint {source.name!r} is no complete ViT of dialect "
            f"{source.dialect!r}, or more than one:\n"
            + _listing("-", "missing in the checkpoint", missing)
            + _listing("+", "in the checkpoint, of no known use", unused)
        )


def _without_the_top(source, layout):
    """Returns the arrays but for a head that the model does not take over."""
    dropped = ()
    if not layout.head:
        dropped = ("head/",)
        if not layout.representation:
            dropped += ("pre_logits/",)
    names = {
        name
        for rule in source.rules.rules(source.layout)
        if dropped and rule.path.startswith(dropped)
        for name in rule.sources
    }
    return {
        name: array
        for name, array in source.arrays.items()
        if name not in names
    }


def _rules_of(model, source, layout, arrays):
    """Yields each variable to fill with its rule, or None."""
    rules = {rule.path: rule for rule in source.rules.rules(layout)}
    for variable in model.weights:
        path = variable.path
        if path.startswith("head/") and not layout.head:
            continue
        rule = rules.get(path)
        if rule is None and path in arrays:  # our own files have our paths
            rule = table.Rule(path, (path,))
        yield variable, rule


def _differences(variable, rule, arrays, fit):
    """Lists the arrays that do not have the shape a variable wants."""
    # Arrays without memory: only their shapes go through the transforms.
    found = [blank(arrays[name].shape) for name in rule.sources]
    differences = [
        f"{name}: model {wanted.shape}, checkpoint {array.shape}"
        for name, array, wanted in zip(
            rule.sources,
            found,
            rule.transform.split(blank(variable.shape)),
            strict=True,
        )
        if array.shape != wanted.shape
    ]
    if differences and variable.path in (POSITIONS, *_KERNELS):
        shape = tuple(variable.shape)
        value = fit(variable.path, rule.transform.join(*found), shape)
        if value.shape == shape:
            return []
    return differences


_KERNELS = ("resnet/conv_root/kernel", "embedding/kernel")


def _fit(path, value, shape, source_grid, grid_size, resize_patches):
    """Adapts a value to another grid, other channels, another patch."""
    if path == POSITIONS and source_grid is not None and value.ndim == 3:
        return resize.resample_positions(value, source_grid, grid_size)
    if path in _KERNELS and value.ndim == 4:
        if path == "embedding/kernel" and resize_patches:
            value = resize.resize_patches(value, shape[:2])
        # A hybrid's patches are of features, which nobody folds.
        if min(shape[2], value.shape[2]) <= 4:
            value = resize.fold_channels(value, shape[2])
    return value


def _listing(sign, title, lines, limit=20):
    if not lines:
        return ""
    shown = "".join(f"  {sign} {line}\n" for line in sorted(lines)[:limit])
    if len(lines) > limit:
        shown += f"  {sign} ... and {len(lines) - limit} more\n"
    return f"{sign} {len(lines)} {title}:\n{shown}"


def warn_if_zero_head(model, source: Checkpoint) -> None:
    """Warns where a checkpoint's head is all zeros and so knows no classes.

    Args:
        model: The model, with the checkpoint's head.
        source: The checkpoint.
    """
    if not ops.convert_to_numpy(model.get_layer("head").kernel).any():
        warnings.warn(
            f"The head of {source.name!r} is all zeros: its classes all "
            "score alike. The imagenet21k files of 2020 were published so, "
            "for fine-tuning: pass `classes=...` or `include_top=False`. The "
            "weights named 'augreg' have a head that knows the 21k classes.",
            stacklevel=4,
        )
