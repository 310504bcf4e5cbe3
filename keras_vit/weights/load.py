"""The one loader: arrays of a checkpoint into the variables of a model.

Everything in the file is used and every variable is filled, or it is an error
that shows both sides.
"""

import os
import re
import warnings
import zipfile
import zlib

import numpy as np


def read_npz(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Reads all arrays of an npz file. Nothing is ever unpickled.

    Args:
        path: The file.

    Returns:
        Name -> array.

    Raises:
        ValueError: If the file is missing, no npz, truncated or damaged, or
            holds pickled objects.
    """
    if not os.path.isfile(path):
        raise ValueError(
            "`weights` must be an existing npz file. Received: "
            f"weights={os.fspath(path)!r}, which is "
            f"{'a directory' if os.path.isdir(path) else 'not there'}"
        )
    if not zipfile.is_zipfile(path):
        raise ValueError(
            f"`weights` must be an npz file (a zip archive of arrays). "
            f"Received: {os.fspath(path)!r}, which is no zip archive or is "
            "truncated. Fetch it again."
        )
    name = ""
    try:
        arrays = {}
        with open(path, "rb") as file:
            archive = np.load(file, allow_pickle=False)
            for name in archive.files:
                arrays[name] = archive[name]
    except (
        OSError,
        EOFError,
        KeyError,
        NotImplementedError,
        RuntimeError,
        SyntaxError,
        ValueError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        if "allow_pickle" in str(error):
            raise ValueError(
                f"{os.fspath(path)!r} holds pickled Python objects under "
                f"`{name}`, which could run code; only plain arrays are read."
            ) from None
        raise ValueError(
            f"{os.fspath(path)!r} is damaged at `{name}`: {error}. Fetch it "
            "again."
        ) from error
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
            raise ValueError(
                f"{os.fspath(path)!r} must hold arrays of floats. Received: "
                f"`{name}` of {getattr(array, 'dtype', 'raw bytes')}"
            )
    return arrays


def assign(
    variables: list,
    arrays: dict[str, np.ndarray],
    rules: tuple,
    *,
    source: str,
    skip: tuple[str, ...] = (),
) -> None:
    """Fills a model's variables from the arrays of a checkpoint.

    Args:
        variables: The model's `weights`.
        arrays: Name -> array; each must be used.
        rules: The family's table, such as `rules.vit.rules(num_heads)`.
        source: What to call the checkpoint in an error.
        skip: Prefixes of variable paths that keep their first values.

    Raises:
        ValueError: If a variable finds no array, an array no variable, or
            the shapes differ. Nothing is assigned then.
    """
    missing, shapes, plan, used = [], [], [], set()
    for variable in variables:
        if variable.path.startswith(skip):
            continue
        rule, names = _rule_of(variable.path, rules)
        if rule is None:
            missing.append(f"{variable.path} (no checkpoint has it)")
            continue
        used.update(names)
        absent = [name for name in names if name not in arrays]
        if absent:
            missing.extend(absent)
            continue
        found = [arrays[name] for name in names]
        # A value without memory: only its shape goes through the transform.
        blank = np.broadcast_to(np.float32(0), variable.shape)
        differences = [
            f"{name}: model {expected.shape}, checkpoint {array.shape}"
            for name, array, expected in zip(
                names, found, rule.split(blank), strict=True
            )
            if array.shape != expected.shape
        ]
        if differences:
            shapes.extend(differences)
        else:
            plan.append((variable, rule, found))
    unused = [name for name in arrays if name not in used]
    if missing or unused or shapes:
        raise ValueError(
            f"The checkpoint {os.fspath(source)!r} does not fit the model. "
            "Expected the same names and shapes on both sides. Received:\n"
            + _listing("-", "missing in the checkpoint", missing)
            + _listing("+", "in the checkpoint, unused by the model", unused)
            + _listing("~", "of another shape", shapes)
            + "Is it a checkpoint of this architecture?"
        )
    for variable, rule, found in plan:
        variable.assign(rule.join(*found))


def _rule_of(path, rules):
    for rule in rules:
        match = re.fullmatch(rule.path, path)
        if match:
            return rule, [name.format(*match.groups()) for name in rule.sources]
    return None, []


def _listing(sign, title, lines, limit=20):
    if not lines:
        return ""
    shown = "".join(f"  {sign} {line}\n" for line in sorted(lines)[:limit])
    if len(lines) > limit:
        shown += f"  {sign} ... and {len(lines) - limit} more\n"
    return f"{sign} {len(lines)} {title}:\n{shown}"


def warn_if_zero_head(arrays: dict[str, np.ndarray], source: str) -> None:
    """Warns where a checkpoint's head is all zeros and so knows no classes.

    Args:
        arrays: Name -> array, with `head/kernel` among them.
        source: What to call the checkpoint.
    """
    if not arrays["head/kernel"].any():
        warnings.warn(
            f"The head of {os.fspath(source)!r} is all zeros: its classes all "
            "score alike. The imagenet21k files of 2020 were published so, "
            "for fine-tuning: pass `classes=...` or `include_top=False`. The "
            "weights named 'augreg' have a head that knows the 21k classes.",
            stacklevel=3,
        )
