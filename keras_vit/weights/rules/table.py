"""The form of the rules of all families, and their common functions.

The rules of a family are the module `rules/<family>.py` (or a package), with

- `TITLE`: the name of the family in error messages;
- `FORMATS`: name of a format ("jax", "timm", "huggingface", ...) -> a `Format`,
- `RESIZES`: pattern of a variable's path -> function that fits its value to
  another image, another patch or other channels (see `Fit`),
- `grid(metadata)`: the (rows, columns) of patches of a model, or None,
- `family_of(metadata)`, if another family has files with the same names, whose
  rules specify it as `FILES_OF`: the family of a checkpoint,
- `MODEL_TYPES`, where only the config shows the kind of a file: those of
  transformers,
- `trained_image_size(metadata)`, where arrays show it only together with fields
  that the caller gives: the (height, width) of the images of the weights,
- `fit_sizes(metadata, config, image_size)`, where another image changes an
  architecture: the fields of `config` that it changes,

and its row in `rules.FAMILIES`. A format's table has a row for each kind of
variable: the variable's path, its name or names in the checkpoint, and, if the
two differ in more than their names, an invertible transform.

`metadata` is a dictionary of the constructors' arguments: the fields of the
architecture, and `classes` (None without a head), `representation_size` (None
without), `channels`, `image_size`, `grid`, `pixel_mean`, `pixel_std`,
`class_names`. Properties that a checkpoint does not specify are absent.
"""

import dataclasses
import re
from collections.abc import Callable

import numpy as np

from keras_vit.weights import resize
from keras_vit.weights.formats import npz
from keras_vit.weights.formats.guard import Stored


@dataclasses.dataclass(frozen=True)
class Transform:
    """Converts arrays of a checkpoint to a variable, and back.

    Attributes:
        join: Source arrays -> the variable's value.
        split: The variable's value -> source arrays; the inverse of `join`.
    """

    join: Callable = lambda array: array
    split: Callable = lambda array: (array,)


SAME = Transform()
# Dense kernels of PyTorch are [out, in].
TRANSPOSED = Transform(np.transpose, lambda array: (array.T,))
# Convolution kernels of PyTorch are [out, in, height, width].
CONVOLUTION = Transform(
    lambda array: array.transpose(2, 3, 1, 0),
    lambda array: (array.transpose(3, 2, 0, 1),),
)
# Part of a layer -> the end of its array's name in PyTorch, in Flax, and in
# files of Keras, with a transform if the arrays differ.
TORCH_DENSE = dict(kernel=(".weight", TRANSPOSED), bias=(".bias",))
TORCH_CONVOLUTION = dict(kernel=(".weight", CONVOLUTION), bias=(".bias",))
TORCH_NORM = dict(gamma=(".weight",), beta=(".bias",))
TORCH_BATCH_NORM = TORCH_NORM | dict(
    moving_mean=(".running_mean",), moving_variance=(".running_var",)
)
FLAX_LAYER = dict(kernel=("/kernel",), bias=("/bias",))
FLAX_NORM = dict(gamma=("/scale",), beta=("/bias",))
KERAS_LAYER = dict(kernel=("/0",), bias=("/1",))
KERAS_NORM = dict(gamma=("/0",), beta=("/1",))


def layer_rows(
    layers: dict[str, str], parts: dict[str, tuple], *only: str
) -> list:
    """Return the rows of layers of one kind; see `expand`.

    Args:
        layers: Path of each layer -> its name in the checkpoint.
        parts: Parts of such layers, such as `TORCH_DENSE`.
        *only: The parts that these layers have; all.
    """
    return [
        (f"{path}/{part}", f"{name}{ending}", *transform)
        for path, name in layers.items()
        for part, (ending, *transform) in parts.items()
        if part in only or not only
    ]


@dataclasses.dataclass(frozen=True)
class Rule:
    """One variable, and its name or names in a checkpoint."""

    path: str
    sources: tuple[str, ...]
    transform: Transform = SAME


def refuse_pre_logits(metadata: dict, format: str = "") -> list[str]:
    """List the hidden layer before the head; a `Format.refused`."""
    return ["pre_logits"] if metadata.get("representation_size") else []


@dataclasses.dataclass(frozen=True, kw_only=True)
class Format:
    """A format of the checkpoints of a family.

    Attributes:
        requires: Patterns, each of which matches a name in every such
            checkpoint. Names are those of arrays, "NAME of N axes" for each
            array, "NAME.weight without bias" for those without "NAME.bias",
            and "config.KEY" for each key of the config.
        forbids: Pattern of a name -> what has such names and why it is not
            supported, such as "a timm CaiT: class attention".
        rules: Returns the expanded table, given metadata.
        read_arrays: Returns the metadata that names and shapes show, given the
            arrays, the config and the metadata that the config specifies.
        read_config: Returns the metadata that the config specifies, and that of
            every checkpoint of the format.
        flatten: Returns the arrays in the table's naming scheme, given the
            arrays and the config's metadata, and the argument with which
            `restore` undoes it.
        restore: The inverse of `flatten`, given its two results.
        required: Returns the fields of the architecture that must be given if a
            checkpoint does not specify them, given metadata, each with example
            values for an error message.
        adapt: Returns the arrays as a checkpoint of the model would have them,
            given the arrays, the metadata of the checkpoint and that of the
            model, if this needs more than `RESIZES`.
        resampling: Returns how the format's library resamples weights to
            another grid of patches, one of `resize.METHODS`, given metadata.
        check: Raises ValueError if the metadata of a checkpoint and of the
            model differ in a way that shapes do not show.
        naming_schemes: Name of a format -> the argument of `restore`, or a
            function of metadata that returns it.
        config_of: Returns the config.json to write beside the arrays, given
            metadata; None writes an npz file.
        refused: Lists the properties that the format cannot store, given
            metadata and the name of the format; a hidden layer before the head.
        differences: Lists what the other library computes differently, given
            metadata.
    """

    requires: tuple[str, ...]
    rules: Callable
    read_arrays: Callable
    read_config: Callable = lambda config: {}
    forbids: dict[str, str] = dataclasses.field(default_factory=dict)
    flatten: Callable = lambda arrays, specified: (arrays, None)
    restore: Callable = lambda arrays, scheme: arrays
    required: Callable = lambda metadata: {}
    adapt: Callable = lambda arrays, found, wanted: arrays
    resampling: Callable = lambda metadata: None
    check: Callable = lambda found, wanted: None
    naming_schemes: dict[str, object] = dataclasses.field(default_factory=dict)
    config_of: Callable | None = None
    refused: Callable = refuse_pre_logits
    differences: Callable = lambda metadata: []

    def recognises(self, names) -> bool:
        """Whether names belong to such a checkpoint, or to a related one."""
        return all(matching(pattern, names) for pattern in self.requires)

    def refusals(self, names) -> list[tuple[str, list[str]]]:
        """Return each reason of `forbids` that holds, with its names."""
        found = (
            (reason, matching(pattern, names))
            for pattern, reason in self.forbids.items()
        )
        return [row for row in found if row[1]]


def without_params(arrays: dict) -> dict:
    """Return the arrays of a file of big_vision without the prefix `params/`.

    Those of a training checkpoint beside them, such as the optimizer's, are
    left out.
    """
    if not any(name.startswith("params/") for name in arrays):
        return arrays
    own = {n: a for n, a in arrays.items() if not n.startswith(npz.BESIDE)}
    return rename(own, lambda name: name.removeprefix("params/"))


def matching(pattern: str, names) -> list[str]:
    """Return the names that a pattern matches, sorted."""
    return sorted(filter(re.compile(pattern).fullmatch, names))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fit:
    """The target of a resize, and its second argument.

    Attributes:
        shape: Shape of the variable.
        source_grid: (rows, columns) of the checkpoint's patches, or None.
        grid: (rows, columns) of the model's patches, or None.
        method: How the checkpoint's own library resamples, one of
            `resize.METHODS`; "" if it does not.
        resize_patches: Whether to resize to another patch size.
    """

    shape: tuple[int, ...]
    source_grid: tuple[int, int] | None
    grid: tuple[int, int] | None
    method: str = ""
    resize_patches: bool = False


def fit_pixels(value: np.ndarray, fit: Fit) -> np.ndarray:
    """Fit a kernel over pixels to other channels, or another patch size."""
    if value.ndim != 4:
        return value
    if fit.resize_patches:
        size = (fit.shape[0], fit.shape[1])
        value = resize.resize_patches(value, size, fit.method)
    # Kernels over features have no channels to fold.
    if min(fit.shape[2], value.shape[2]) <= 4:
        value = resize.fold_channels(value, fit.shape[2])
    return value


def fit_positions(value: np.ndarray, fit: Fit) -> np.ndarray:
    """Resample a table of position embeddings, `[1, T, D]`."""
    source, target = fit.source_grid, fit.grid
    if source is None or target is None or value.ndim != 3:
        return value
    return resize.resample_positions(value, source, target, fit.method)


def fit_distances(value: np.ndarray, fit: Fit) -> np.ndarray:
    """Resample a table of a bias by the distance of two patches, `[R, A]`."""
    source, target = fit.source_grid, fit.grid
    if source is None or target is None:
        return value
    return resize.resample_distances(value, source, target, fit.method)


def expand(
    rows: list,
    *,
    num_layers: int = 0,
    units: tuple[int, ...] | None = None,
    absent: tuple[str, ...] = (),
) -> list[Rule]:
    """Return a rule for each variable of a table.

    Args:
        rows: (path, name or names, optional transform), with `{i}` for the
            index of a block, `{i1}` for the same counted from 1, and for
            units of a ResNet `{b}` and `{u}` counted from 1, `{b0}` and
            `{u0}` from 0.
        num_layers: Number of blocks.
        units: Units in each stage of a ResNet.
        absent: Prefixes of the paths that a model does not have.
    """
    blocks = [dict(i=i, i1=i + 1) for i in range(num_layers)]
    every_unit = [
        dict(b=b + 1, u=u + 1, b0=b, u0=u)
        for b, count in enumerate(units or ())
        for u in range(count)
    ]
    rules = []
    for path, names, *transform in rows:
        if path.startswith(absent):
            continue
        names = (names,) if isinstance(names, str) else names
        places: list[dict[str, int]] = [{}]
        if "{i}" in path:
            places = blocks
        elif "_proj/" in path:
            # The shortcut is projected in the first unit of each stage.
            places = [unit for unit in every_unit if unit["u0"] == 0]
        elif "{b}" in path:
            places = every_unit
        for place in places:
            sources = tuple(name.format(**place) for name in names)
            rules.append(Rule(path.format(**place), sources, *transform))
    return rules


# Field of the metadata -> the layer of so many units.
TOP = dict(classes="head/", representation_size="pre_logits/")


def without_top(metadata: dict) -> tuple[str, ...]:
    """Return which paths of `head` and `pre_logits` a model does not have."""
    return tuple(x for name, x in TOP.items() if not metadata.get(name))


def read_top(arrays: dict, rules: list[Rule]) -> dict:
    """Return `classes` and `representation_size`, None of absent layers.

    Args:
        arrays: Of a checkpoint.
        rules: Of a model of its names, with all layers that it may have.
    """
    shape_of = shapes(arrays, rules)
    there = [x.path for x in rules if x.sources and x.sources[0] in arrays]
    biases = {name: f"{layer}bias" for name, layer in TOP.items()}
    return {
        name: shape_of(bias, 1)[0] if bias in there else None
        for name, bias in biases.items()
    }


def no_grid(metadata: dict) -> None:
    """Return None, as the `grid` of a family without weights of a grid."""
    return None


def listed(has: dict) -> list[str]:
    """Return the descriptions, keys of `has`, whose value is true."""
    return [description for description, value in has.items() if value]


def shapes(
    arrays: dict, rules: list[Rule], of_variable: bool = False
) -> Callable:
    """Return a function from a path and a number of axes to a shape.

    The shape is that of the variable, computed without reading any array; the
    number of axes that of the arrays, or with `of_variable` its own.
    """
    known = {rule.path: rule for rule in rules}

    def shape_of(path, axes):
        rule = known[path]
        blanks = [blank(arrays[name].shape) for name in rule.sources]
        shape = rule.transform.join(*blanks).shape if of_variable else ()
        found = [shape] if of_variable else [array.shape for array in blanks]
        if any(len(shape) != axes for shape in found):
            raise ValueError(
                f"expected `{rule.sources[0]}` of {axes} axes; found shape "
                f"{blanks[0].shape}"
            )
        return shape or rule.transform.join(*blanks).shape

    return shape_of


def blank(shape):
    """Return an array without memory, to compute the shapes of transforms."""
    return np.broadcast_to(np.float32(0), shape)


def pixel_differences(metadata: dict, scale: float | None = None) -> list:
    """List how a library scales pixels differently.

    Args:
        metadata: Of the model.
        scale: The mean and the standard deviation that the library always
            uses; None where its files specify them.
    """
    if metadata.get("pixel_mean") is None:
        return ["nothing specifies how its pixels are scaled"]
    return [
        f"it scales pixels by {name}={scale}"
        for name in ("pixel_mean", "pixel_std")
        if scale is not None
        and any(abs(n - scale) > 1e-3 for n in metadata[name])
    ]


def rename(arrays: dict, function: Callable) -> dict:
    """Rename arrays; names must stay unique.

    Raises:
        ValueError: If two names become one.
    """
    renamed = {}
    for name, array in arrays.items():
        add(renamed, function(name), array)
    return renamed


def add(arrays: dict, name: str, array) -> None:
    """Add an array under a name that must be new.

    Raises:
        ValueError: If it is not.
    """
    if name in arrays:
        raise ValueError(f"expected each array once; found `{name}` twice")
    arrays[name] = array


def cut(arrays: dict, name: str, sizes: dict[str, int]) -> None:
    """Cut an array along its first axis, stored or read.

    Args:
        arrays: Name -> array; of the array, its parts take the place.
        name: Of the array.
        sizes: Name of each part -> its length.
    """
    array, start = arrays.pop(name), 0
    for part, size in sizes.items():
        rows = slice(start, start + size)
        if isinstance(array, Stored):
            shape = (size, *array.shape[1:])
            one = array.map(lambda a, rows=rows: a[rows], shape)
        else:
            one = array[rows]
        add(arrays, part, one)
        start += size


def join(arrays: dict, names: list[str], name: str) -> None:
    """Join arrays along their first axis; inverts `cut`."""
    parts = [arrays.pop(part) for part in names]
    if isinstance(parts[0], Stored):
        shape = (sum(part.shape[0] for part in parts), *parts[0].shape[1:])
        joined = Stored(
            shape, lambda: np.concatenate([part.read() for part in parts])
        )
        add(arrays, name, joined)
    else:
        add(arrays, name, np.concatenate(parts))


def depths(names, pattern) -> tuple[int, ...]:
    """Return the number of blocks in each level.

    Args:
        names: Names of arrays.
        pattern: Matches those of blocks, with groups of the level and of the
            block.
    """
    found: dict[int, set] = {}
    for match in filter(None, map(pattern.match, names)):
        found.setdefault(int(match[1]), set()).add(int(match[2]))
    return tuple(len(found[level]) for level in sorted(found))


def count(names, pattern) -> int:
    """Count the different first groups that a pattern matches in names."""
    return len({match[1] for match in map(pattern.match, names) if match})
