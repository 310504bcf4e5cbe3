"""Checkpoints for other libraries: a model's variables under their names."""

import contextlib
import json
import os
import tempfile
import zipfile

import numpy as np
from keras import ops

from keras_vit.weights import checkpoint, load
from keras_vit.weights.checkpoint import Checkpoint
from keras_vit.weights.rules import huggingface, jax, table, timm

DIALECTS = (*jax.FORMS, "timm", "huggingface")
_DIRECTORY = "a directory, or a file that ends in .safetensors"


def save_checkpoint(
    model,
    path: str | os.PathLike,
    dialect: str = "jax",
    allow_differences: bool = False,
) -> None:
    """Saves a model's weights for another library.

    Args:
        model: A model of this package, as built or trained or loaded.
        path: Where to. "jax" and its kin write an npz file; "timm" and
            "huggingface" a directory with model.safetensors and config.json,
            or the weights alone where it ends in `.safetensors` (timm: or
            `.pth`).
        dialect: "jax" (the authors' linen names), "jax_2020", "big_vision",
            "timm" or "huggingface".
        allow_differences: Whether to save though the other library will
            compute other numbers, by its form of GELU or its epsilons; the
            error says which.

    Raises:
        ValueError: If the dialect is unknown, has no place for something the
            model has, or computes other numbers.

    Example:
        keras_vit.save_checkpoint(model, "out.npz", dialect="jax")
    """
    layout, facts = describe_model(model)
    values = {
        variable.path: lambda variable=variable: ops.convert_to_numpy(variable)
        for variable in model.weights
    }
    write(values, layout, facts, path, dialect, allow_differences)


def convert(
    source: Checkpoint,
    path: str | os.PathLike,
    dialect: str,
    allow_differences: bool = False,
) -> None:
    """Saves a checkpoint under another dialect's names, as `save_checkpoint`.

    Args:
        source: The checkpoint.
        path, dialect, allow_differences: See `save_checkpoint`.

    Raises:
        ValueError: As `save_checkpoint` does, and if the checkpoint does not
            tell what its model computes: build the model with
            `keras_vit.ViT`, which takes that as arguments, and save it.
    """
    layout = source.layout
    checkpoint.demand(
        source,
        dict(num_heads=layout.num_heads or None, classifier=layout.classifier),
    )
    rules = source.rules.rules(layout)
    load.check_names(source, rules)
    values = {
        rule.path: lambda rule=rule: rule.transform.join(
            *(source.arrays[name].read() for name in rule.sources)
        )
        for rule in rules
    }
    write(values, layout, source.facts, path, dialect, allow_differences)


def describe_model(model) -> tuple[table.Layout, dict]:
    """Returns layout and facts of a model, as of an opened checkpoint.

    Raises:
        ValueError: If it is no ViT of this package.
    """
    layers = {layer.name: layer for layer in model.layers}
    blocks = [name for name in layers if name.startswith("encoderblock_")]
    absent = {"embedding", "encoder_norm"} - set(layers)
    if absent or not blocks:
        raise ValueError(
            "`model` must be a ViT of keras_vit. Received: "
            f"{getattr(model, 'name', model)!r}, which has no layers "
            f"{sorted(absent) or 'encoderblock_0'}"
        )
    block, embedding = layers["encoderblock_0"], layers["embedding"]
    positions, head = layers.get("posembed_input"), layers.get("head")
    if positions is None or positions.kind != "learned_1d":
        raise ValueError(
            "`model` must have learned 1-D position embeddings in its stem, "
            "as other libraries have. Received one of another kind"
        )
    config = {layer["name"]: layer for layer in model.get_config()["layers"]}
    if len(config["posembed_input"]["inbound_nodes"]) > 1 or any(
        layer["class_name"] == "Reshape" for layer in config.values()
    ):
        raise ValueError(
            "`model` must add its positions once and pool its tokens, as in "
            "other libraries. Received one with position_placement="
            "'every_layer_shared' or classifier='unpooled'"
        )
    trunk, scaling = layers.get("resnet"), layers.get("preprocessing")
    averaged = len(layers["encoder_norm"].input.shape) == 2
    if "class_token" in layers:
        classifier = "token_gap" if averaged else "token"
    else:
        classifier = "gap_norm" if averaged else "gap"
    patch_size = embedding.patch_size
    height, width, channels = model.input_shape[1:]
    layout = table.Layout(
        num_layers=len(blocks),
        num_heads=block.num_heads,
        resnet_units=trunk and trunk.num_units,
        classifier=classifier,
        representation="pre_logits" in layers,
        head=head is not None,
    )
    facts = dict(
        patch_size=(
            (patch_size,) * 2
            if isinstance(patch_size, int)
            else tuple(patch_size)
        ),
        hidden_size=embedding.hidden_size,
        mlp_dim=block.mlp_dim,
        channels=channels,
        image_size=(height, width),
        grid=tuple(positions.grid_size),
        classes=head and head.units,
        labels=head and head.labels,
        gelu_approximate=block.gelu_approximate,
        layer_norm_epsilon=block.layer_norm_epsilon,
        resnet_numerics=trunk and trunk.numerics,
        resnet_width=trunk and trunk.width_factor,
    )
    if scaling is not None:
        scale = np.asarray(scaling.scale, float)
        facts["pixel_mean"] = (-np.asarray(scaling.offset) / scale).tolist()
        facts["pixel_std"] = (1 / scale).tolist()
    return layout, facts


def write(values, layout, facts, path, dialect, allow_differences=False):
    """Writes values under a dialect's names; see `save_checkpoint`."""
    if dialect not in DIALECTS:
        raise ValueError(
            f"`dialect` must be one of {DIALECTS}. Received: {dialect!r}"
        )
    path = os.path.expanduser(os.fspath(path))
    module = {"timm": timm, "huggingface": huggingface}.get(dialect, jax)
    facts = _complete(facts)
    _refuse_what_has_no_place(layout, facts, dialect)
    differences = _differences(layout, facts, module)
    if differences and not allow_differences:
        raise ValueError(
            f"The model would give other numbers in dialect {dialect!r}: "
            + "; ".join(differences)
            + ". Pass allow_differences=True to save it nevertheless."
        )
    rules = module.rules(layout)
    homeless = sorted(set(values) - {rule.path for rule in rules})
    if homeless or not layout.num_heads:
        raise ValueError(
            f"Dialect {dialect!r} has no place for {homeless[:5]}"
            if homeless
            else "The number of heads must be known. Received: num_heads=0"
        )
    _check_path(path, dialect)
    arrays = {}
    for rule in rules:
        value = values[rule.path]()
        if value.dtype.name == "bfloat16":  # which NumPy and torch cannot hold
            value = value.astype("float32")
        parts = rule.transform.split(value)
        arrays.update(zip(rule.sources, parts, strict=True))
    if module is jax:
        arrays = jax.restore(arrays, jax.FORMS[dialect])
        with _atomic(path) as file:
            np.savez(file, **arrays)
            _note(file, grid=list(facts["grid"]))
        return
    arrays = module.restore(arrays, dialect == "huggingface" and layout.head)
    if path.endswith(".safetensors"):
        _write_safetensors(path, arrays)
        return
    if path.endswith(".pth") and dialect == "timm":
        _write_torch(path, arrays)
        return
    os.makedirs(path, exist_ok=True)
    config = module.config_of(facts, layout)
    processor = config.pop("preprocessor", None)
    _write_safetensors(os.path.join(path, "model.safetensors"), arrays)
    _write_json(os.path.join(path, "config.json"), config)
    file = os.path.join(path, "preprocessor_config.json")
    if processor:
        _write_json(file, processor)
    elif os.path.exists(file):  # of another model
        os.remove(file)


def _check_path(path, dialect):
    ending = os.path.splitext(path)[1]
    wrong = ending != ".npz"
    if dialect in ("timm", "huggingface"):
        wrong = ending in (".npz", ".bin", ".keras", ".h5", ".pt") or (
            ending == ".pth" and dialect != "timm"
        )
        wrong |= not ending and os.path.isfile(path)
    if wrong:
        kinds = _DIRECTORY if dialect in ("timm", "huggingface") else ".npz"
        raise ValueError(
            f"`path` must be {kinds} for dialect {dialect!r}. Received: "
            f"{path!r}"
        )


def _note(file, **facts):
    """Adds to an npz file what its arrays do not tell, as a comment."""
    with zipfile.ZipFile(file, "a") as archive:
        archive.comment = json.dumps(facts).encode()


def _complete(facts):
    facts = dict(classes=None, labels=None, resnet_numerics=None) | facts
    if "image_size" not in facts:
        facts["image_size"] = tuple(
            n * s for n, s in zip(facts["grid"], facts["stride"], strict=True)
        )
    for name in ("pixel_mean", "pixel_std"):
        if facts.get(name) is not None:
            facts[name] = np.broadcast_to(
                facts[name], facts["channels"]
            ).tolist()
    return facts


def _refuse_what_has_no_place(layout, facts, dialect):
    has = dict(
        trunk=layout.resnet_units is not None,
        gap=layout.classifier == "gap",
        gap_norm=layout.classifier == "gap_norm",
        token_gap=layout.classifier == "token_gap",
        pre_logits_and_head=layout.representation and layout.head,
        pre_logits=layout.representation,
        patch_of_unequal_sides=len(set(facts["patch_size"])) > 1,
        trunk_of_other_units=layout.resnet_units
        not in (None, *timm.ARCHITECTURES),
        trunk_of_other_width=facts.get("resnet_width") not in (None, 1),
    )
    refused = {
        "timm": (
            "pre_logits",
            "trunk_of_other_units",
            "trunk_of_other_width",
        ),
        "huggingface": (
            "trunk",
            "gap",
            "gap_norm",
            "token_gap",
            "pre_logits_and_head",
            "patch_of_unequal_sides",
        ),
    }.get(dialect, ("gap_norm", "token_gap"))
    found = [name for name in refused if has[name]]
    if found:
        raise ValueError(
            f"`dialect={dialect!r}` has no place for what the model has: "
            f"{found}"
        )


def _differences(layout, facts, module):
    """Says in what a library computes other numbers than the model."""
    found = []
    # Of transformers', a file of its own tells it, which is not written then.
    if facts.get("pixel_mean") is None and module is not huggingface:
        found.append("nothing tells how its pixels are scaled")
    if module is jax:
        if not facts.get("gelu_approximate", True):
            found.append("the authors' code has GELU's tanh form, not erf")
        for name in ("pixel_mean", "pixel_std"):
            values = facts.get(name)
            if any(abs(n - 127.5) > 1e-3 for n in values or ()):
                found.append(f"it scales pixels by {name}=127.5")
    if module is not huggingface:
        if facts.get("layer_norm_epsilon", 1e-6) != 1e-6:
            found.append("it adds 1e-6 in LayerNorm")
        theirs = "timm" if module is timm else "authors"
        if layout.resnet_units is not None and (
            facts["resnet_numerics"] != theirs
        ):
            found.append("it has other epsilons in the trunk")
    return found


@contextlib.contextmanager
def _atomic(path):
    """A file that appears at `path` only when it is complete."""
    folder = os.path.dirname(os.path.abspath(path))
    os.makedirs(folder, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=folder, suffix=".part")
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
        os.chmod(part, 0o644)
        os.replace(part, path)
    except BaseException:
        os.unlink(part)
        raise


def _write_safetensors(path, arrays):
    try:
        from safetensors import numpy
    except ImportError:
        raise ValueError(
            f"Writing {path!r} needs safetensors: pip install safetensors"
        ) from None
    contiguous = {
        name: np.ascontiguousarray(array) for name, array in arrays.items()
    }
    with _atomic(path) as file:
        file.write(numpy.save(contiguous, metadata={"format": "pt"}))


def _write_torch(path, arrays):
    try:
        import torch
    except ImportError:
        raise ValueError(
            f"Writing {path!r} needs torch: pip install torch"
        ) from None
    tensors = {
        name: torch.from_numpy(np.array(array, order="C"))
        for name, array in arrays.items()
    }
    with _atomic(path) as file:
        torch.save(tensors, file)


def _write_json(path, content):
    with _atomic(path) as file:
        file.write((json.dumps(content, indent=2) + "\n").encode())
