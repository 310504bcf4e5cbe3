"""Opens checkpoints of any family and format, and describes them."""

import contextlib
import dataclasses
import os
import warnings

from keras_vit._arguments import Count, checked
from keras_vit.weights import formats, preprocessing
from keras_vit.weights.formats.guard import Stored
from keras_vit.weights.rules import (
    FAMILIES,
    TEXTS,
    keras_format,
    open_clip,
    table,
    unread,
)

# The formats of directories that may hold two towers.
_OF_TOWERS = ("huggingface", "timm")


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """An open checkpoint, as returned by `open_checkpoint`.

    Attributes:
        name: Its name in error messages.
        family: Name of its family, such as "vit".
        format_name: Name of its format, such as "timm".
        arrays: Name -> array, under the names of the format's table.
        naming_scheme: Maps these names back to those of the file.
        metadata: The properties that it specifies, named like the arguments of
            the constructors; others are absent.
        provenance: Where it was opened from: a name, a URL or a path.
        variant: The constructor of released weights, such as "ViTB16".
        may_have_texts: Whether it is a text tower, or may have one beside it.
    """

    name: str
    family: str
    format_name: str
    arrays: dict[str, Stored] = dataclasses.field(repr=False)
    naming_scheme: object = dataclasses.field(repr=False)
    metadata: dict
    provenance: str | None = None
    variant: str | None = None
    may_have_texts: bool = False

    @property
    def format(self) -> table.Format:
        """The table of its family for its format."""
        return FAMILIES[self.family].FORMATS[self.format_name]

    @property
    def rules(self) -> list[table.Rule]:
        """The rule of each of its variables."""
        return self.format.rules(self.metadata)

    @property
    def has_decoder(self) -> bool:
        """Whether it is a masked autoencoder, or the like, as a whole."""
        return hasattr(FAMILIES[self.family], "ENCODER")


@checked
def open_checkpoint(
    weights, position_grid: tuple[Count, ...] | None = None
) -> Checkpoint:
    """Open a checkpoint and detect its family and format. Reads no weights.

    Args:
        weights: A file (npz, safetensors, a state dict of PyTorch,
            `.weights.h5`, `.keras`), a directory (of transformers, of timm,
            of `keras.saving.save_model`, a preset of keras-hub), or a model
            of keras-hub.
        position_grid: (height, width) of its grid of patches, needed if the
            grid is not square and the file does not specify it.

    Returns:
        The checkpoint.

    Raises:
        ValueError: If it is damaged, its family or format is unknown, or it
            contradicts itself.
    """
    if isinstance(weights, (str, os.PathLike)):
        name = os.fspath(weights)
        arrays, config = formats.read(name)
    else:
        name = f"{type(weights).__name__} {getattr(weights, 'name', '')!r}"
        arrays, config = formats.read_model(weights)
    is_open_clip = "open_clip" in config

    def describe(some):
        family, format_name = _recognise(some, config)
        found = _describe(family, format_name, some, config, position_grid)
        has_tower = is_open_clip or (
            format_name in _OF_TOWERS
            and hasattr(FAMILIES[found.family], "TEXT_TOWER")
        )
        is_folder = os.path.isdir(name)
        if is_open_clip and format_name == "huggingface":
            # Under names of transformers, which resamples otherwise.
            found = with_metadata(found, resampling="antialiased_bicubic")
        return dataclasses.replace(
            found,
            name=name,
            may_have_texts=found.family in TEXTS or (is_folder and has_tower),
        )

    try:
        if is_open_clip:
            arrays, config = open_clip.image_tower(arrays, config["open_clip"])
        return _one_model(arrays, describe)
    except ValueError as error:
        raise _unreadable(name, error) from None


def _one_model(arrays, describe):
    """Describe all arrays or, if that fails, those of the one wrapped model.

    What a training script has beside it is ignored with a warning.
    """
    try:
        return describe(arrays)
    except ValueError:
        found = {}
        for prefix, inner in formats.wrapped(arrays).items():
            with contextlib.suppress(ValueError):
                found[prefix] = describe(inner)
        if len(found) != 1:
            raise
    ((prefix, model),) = found.items()
    others = sorted(n for n in arrays if not n.startswith(prefix))
    warnings.warn(
        f"Of the checkpoint {model.name!r} only `{prefix}*` is read, not the "
        f"{len(others)} arrays beside it, such as {others[:3]}.",
        stacklevel=3,
    )
    return model


def _unreadable(name, error):
    return ValueError(f"The checkpoint {name!r} cannot be read: {error}")


def open_text(source: Checkpoint) -> Checkpoint | None:
    """Open the text tower of a file whose image tower is open.

    Returns:
        The checkpoint of the text tower, with the scale and the bias of the
        similarity; None if the file has none.

    Raises:
        ValueError: If it is damaged, or of a form that is not known.
    """
    if not source.may_have_texts:
        return None
    family = getattr(FAMILIES[source.family], "TEXT_TOWER", None)
    arrays, config = formats.read(source.name)
    if "open_clip" in config:
        try:
            family, arrays, config = open_clip.text_tower(
                arrays, config["open_clip"]
            )
        except ValueError as error:
            raise _unreadable(source.name, error) from None
        return _of_file(source, family, "huggingface", arrays, config)
    if family is None or source.format_name not in FAMILIES[family].FORMATS:
        return None
    if not any("token_embedding." in name for name in arrays):
        return None
    return _of_file(source, family, source.format_name, arrays, config)


def _of_file(source, *of_another):
    """Return another checkpoint of the file of an open one."""
    try:
        found = _describe(*of_another)
    except ValueError as error:
        raise _unreadable(source.name, error) from None
    return dataclasses.replace(found, name=source.name)


def _describe(family, format_name, arrays, config, position_grid=None):
    """Return the checkpoint of arrays and a config of a known format."""
    kind = f"{FAMILIES[family].TITLE} of format {format_name!r}"
    file_format = FAMILIES[family].FORMATS[format_name]
    try:
        specified = file_format.read_config(config)
        if position_grid is not None:
            specified["grid"] = tuple(position_grid)
        arrays, naming_scheme = file_format.flatten(arrays, specified)
        found = file_format.read_arrays(arrays, config, specified)
        _check(specified, found)
        metadata = specified | found
        metadata.setdefault("resampling", file_format.resampling(metadata))
        if hasattr(FAMILIES[family], "family_of"):
            family = FAMILIES[family].family_of(metadata)
    except KeyError as error:
        raise ValueError(
            f"it is not a complete {kind}: expected it to contain "
            f"`{error.args[0]}`. Found: {sorted(arrays)[:6]} ..."
        ) from None
    except ValueError as error:
        raise ValueError(f"it does not read as a {kind}: {error}") from None
    # A config may contain values of any type.
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
    ) as error:
        raise ValueError(
            f"it does not read as a {kind}: its config has a value of another "
            f"kind than expected ({error}). Fetch it again."
        ) from None
    return Checkpoint("", family, format_name, arrays, naming_scheme, metadata)


def _recognise(arrays, config):
    """Return the family and the format that match the names."""
    family = keras_format.family_of(config)
    if family in FAMILIES:
        return family, "keras_vit"
    names = {
        *arrays,
        *(
            f"{name} of {len(array.shape)} axes"
            for name, array in arrays.items()
        ),
        *(
            f"{name} without bias"
            for name in arrays
            if name.endswith(".weight")
            and f"{name.removesuffix('weight')}bias" not in arrays
        ),
        *(f"config.{key}" for key in config),
    }
    unread.refuse(names)
    for family, module in FAMILIES.items():
        if config.get("model_type") in getattr(module, "MODEL_TYPES", ()):
            if table.matching(getattr(module, "HAS", ".*"), arrays):
                return family, "huggingface"
    found = [
        (family, format_name, file_format.refusals(names))
        for family, module in FAMILIES.items()
        if not hasattr(module, "FILES_OF")
        and not hasattr(module, "MODEL_TYPES")
        for format_name, file_format in module.FORMATS.items()
        if file_format.recognises(names)
    ]
    fitting = [row[:2] for row in found if not row[2]]
    if len(fitting) == 1:
        return fitting[0]
    if found and not fitting:
        raise _refused(arrays, found)
    format_names = sorted({d for m in FAMILIES.values() for d in m.FORMATS})
    titles = ", ".join(module.TITLE for module in FAMILIES.values())
    raise ValueError(
        f"it must be a {titles}, of one of the formats "
        f"{tuple(format_names)}; its names are of {fitting or 'none'}. "
        f"Received names: {sorted(arrays)[:6]} ..."
    )


def _refused(arrays, found):
    """Return the error of arrays that no format has a place for.

    Args:
        arrays: Of the checkpoint.
        found: Of the formats that it resembles: the family, the name of the
            format, and the reasons against it, with names.
    """
    family, format_name, refusals = min(
        found, key=lambda row: len({n for _, names in row[2] for n in names})
    )
    required = [
        pattern
        for module in FAMILIES.values()
        for file_format in module.FORMATS.values()
        for pattern in file_format.requires
    ]
    # Not what another family reads, such as LayerScale beside another part.
    own = [
        (reason, names)
        for reason, names in refusals
        if not any(table.matching(pattern, names) for pattern in required)
    ]
    reason, names = (own or refusals)[0]
    names = [name for name in names if name in arrays] or names
    shown = ", ".join(f"`{name}`" for name in names[:3])
    more = "" if len(names) <= 3 else f" and {len(names) - 3} more"
    return ValueError(
        f"{reason} not supported. The closest format, {format_name!r} of "
        f"{FAMILIES[family].TITLE}, has no place for {shown}{more}."
    )


def encoder_of(source: Checkpoint) -> Checkpoint:
    """Return the checkpoint of the encoder alone of one with a decoder.

    Raises:
        ValueError: If its arrays cannot be those of the encoder.
    """
    family = FAMILIES[source.family].ENCODER
    arrays, config = formats.read(source.name)
    encoder = _one_model(
        arrays,
        lambda some: _of_file(source, family, source.format_name, some, config),
    )
    return dataclasses.replace(
        encoder, provenance=source.provenance, variant=source.variant
    )


def complete(source: Checkpoint, given: dict) -> Checkpoint:
    """Check that the caller gives what a checkpoint does not specify.

    Args:
        source: The checkpoint.
        given: Fields of the architecture; None means not given.

    Returns:
        The checkpoint, with the image size if the arrays and these fields
        show it.

    Raises:
        ValueError: If a field is neither specified nor given.
    """
    such_as = source.format.required(source.metadata)
    given = {name: value for name, value in given.items() if value is not None}
    known = source.metadata | given
    absent = [name for name in such_as if known.get(name) is None]
    if absent:
        arguments = ", ".join(f"`{name}`" for name in absent)
        architecture = source.metadata.get("architecture")
        raise ValueError(
            f"{arguments} must be given, since neither the arrays nor a config "
            f"of the checkpoint {source.name!r} specify it, and a guess would "
            "cost accuracy in silence. "
            + (
                f"Its architecture, {architecture!r}, is not known here. "
                if architecture
                else ""
            )
            + "Pass what it was trained with: "
            + "; ".join(f"{name}={such_as[name]}" for name in absent)
            + ". A `.keras` file specifies it, and so does a directory with a "
            "config.json."
        )
    size_of = getattr(FAMILIES[source.family], "trained_image_size", None)
    if size_of is None or "image_size" in source.metadata:
        return source
    return with_metadata(source, image_size=size_of(known))


def with_metadata(source: Checkpoint, **metadata) -> Checkpoint:
    """Return the checkpoint with additional metadata."""
    return dataclasses.replace(source, metadata=source.metadata | metadata)


def _check(specified, found):
    """Refuse a config that contradicts the arrays or has impossible values."""
    if found["classes"] is None:  # a checkpoint without a head
        specified = {
            name: specified[name] for name in specified if name != "classes"
        }
    differences = [
        f"{name}={specified[name]}, but the arrays have {found[name]}"
        for name in specified
        if name in found
        and name != "grid"
        and None not in (specified[name], found[name])
        and specified[name] != found[name]
    ]
    if differences:
        raise ValueError(
            f"its config contradicts its arrays: {'; '.join(differences)}"
        )
    class_names = specified.get("class_names")
    if class_names and found["classes"] not in (None, len(class_names)):
        raise ValueError(
            f"expected a name for each of its {found['classes']} classes; its "
            f"config has {len(class_names)}"
        )
    preprocessing.check(specified.get("pixel_mean"), specified.get("pixel_std"))


def check_names(source: Checkpoint, rules: list) -> None:
    """Check that a checkpoint has exactly the names of a table."""
    wanted = {name for rule in rules for name in rule.sources}
    missing = wanted - set(source.arrays)
    unused = set(source.arrays) - wanted
    if missing or unused:
        raise ValueError(
            f"The checkpoint {source.name!r} is not a complete "
            f"{FAMILIES[source.family].TITLE} of format "
            f"{source.format_name!r}, or more than one:\n"
            + listing("-", "missing in the checkpoint", missing)
            + listing("+", "in the checkpoint, of no known use", unused)
        )


def listing(sign: str, title: str, lines, limit: int = 20) -> str:
    """Return the lines of one side of a comparison, "" without any."""
    if not lines:
        return ""
    shown = "".join(f"  {sign} {line}\n" for line in sorted(lines)[:limit])
    if len(lines) > limit:
        shown += f"  {sign} ... and {len(lines) - limit} more\n"
    return f"{sign} {len(lines)} {title}:\n{shown}"
