"""Converts a checkpoint from any format to another."""

import os

import keras_vit
from keras_vit._paths import save_whole
from keras_vit.weights import checkpoint, registry, save


def run(flags) -> int:
    """Convert, and print the result; return 0."""
    if os.path.exists(flags.destination) and not flags.overwrite:
        raise ValueError(
            f"DST exists: {flags.destination!r}. Pass --overwrite to replace "
            "it."
        )
    source = registry.open_weights(
        flags.source, flags.model, flags.position_grid
    )
    if flags.model and registry.find(flags.source, flags.model) is None:
        raise ValueError(
            "--model is the constructor of released weights, for their name. "
            f"Received: --model={flags.model} for SRC {flags.source!r}, which "
            "is none"
        )
    path = source.name
    for name in ("pixel_mean", "pixel_std"):
        if getattr(flags, name):
            source.metadata[name] = getattr(flags, name)
    if flags.num_heads:
        _check_heads(source.metadata, flags.num_heads)
        if source.metadata.get("num_heads"):
            flags.num_heads = None  # which models with a head do not take
    if flags.num_heads:
        source = checkpoint.with_metadata(source, num_heads=flags.num_heads)
    has_texts = checkpoint.open_text(source) is not None
    if flags.format == "keras_vit" or (
        has_texts and flags.format == "huggingface"
    ):
        _save_model(_opened_by(flags, path), flags)
    elif source.metadata.get("num_heads", 1):
        save.convert(
            source, flags.destination, flags.format, flags.allow_differences
        )
    else:
        raise ValueError(
            f"{path!r} does not specify its number of heads; give it with "
            "--num_heads."
        )
    _print(path, source, flags)
    if has_texts and flags.format not in ("keras_vit", "huggingface"):
        print("  the text tower left out")
    return 0


def _check_heads(metadata, heads):
    """Refuse heads that the checkpoint contradicts, or that do not fit it."""
    known, width = metadata.get("num_heads"), metadata.get("hidden_size")
    if known not in (None, heads) or (isinstance(width, int) and width % heads):
        raise ValueError(
            "--num_heads must be that of SRC, and divide its width. Received: "
            f"--num_heads={heads}, but SRC has {known or 'unknown'} heads and "
            f"a width of {width}"
        )


def _opened_by(flags, path):
    """Return what opens the checkpoint with all that is known of it.

    Of a released file that is its name: the file states neither the names of
    its classes nor, of some families, the size of its images.
    """
    entry = registry.find(flags.source, flags.model)
    if entry is None or entry.repository:
        return path
    return f"{entry.variant}/{entry.name}"


def _save_model(name, flags):
    """Write all of a checkpoint: also its head, decoder or text tower."""
    is_keras = flags.format == "keras_vit"
    if is_keras and not flags.destination.endswith(".keras"):
        raise ValueError(
            "DST must end in .keras for --format keras_vit. Received: "
            f"{flags.destination!r}"
        )
    names = ("num_heads", "position_grid", "pixel_mean", "pixel_std")
    given = {each: getattr(flags, each) for each in names}
    model = keras_vit.from_pretrained(
        name, **{key: value for key, value in given.items() if value}
    )
    if is_keras:
        save_whole(model, flags.destination)
    else:
        keras_vit.save_checkpoint(
            model, flags.destination, flags.format, flags.allow_differences
        )


def _print(path, source, flags):
    metadata = source.metadata
    summary = dict(
        blocks=metadata.get("num_layers"),
        heads=metadata.get("num_heads"),
        width=metadata.get("hidden_size"),
        patch=_by(metadata.get("patch_size")),
        grid=_by(metadata.get("grid")),
        classes=metadata.get("classes") or "no head",
        pre_logits=metadata.get("representation_size") or "none",
    )
    if "gelu_approximate" in metadata:
        summary["GELU"] = "tanh" if metadata["gelu_approximate"] else "exact"
    words = [f"{key} {x}" for key, x in summary.items() if x is not None]
    print(f"read {path}: {source.format_name}, {len(source.arrays)} arrays")
    print(f"  {', '.join(words)}")
    if metadata.get("resnet_depths") is not None:
        print(f"  ResNet stem of {metadata['resnet_depths']} units")
    if flags.format == "keras_vit" and metadata.get("representation_size"):
        left_out = metadata.get("classes") is None
        print("  pre_logits left out" if left_out else "  pre_logits kept")
    print(f"wrote {flags.destination}: {flags.format}")


def _by(pair):
    """Return "8x4" for (8, 4), and None for None."""
    pair = (pair, pair) if isinstance(pair, int) else pair
    return pair and "x".join(map(str, pair))
