"""Translates a checkpoint from any dialect to another."""

import os

import keras_vit
from keras_vit.weights import checkpoint, registry, save


def run(flags) -> int:
    """Converts, and prints what it did; returns 0."""
    if os.path.exists(flags.destination) and not flags.overwrite:
        raise ValueError(
            f"DST exists: {flags.destination!r}. Pass --overwrite to replace "
            "it."
        )
    path = registry.locate(flags.source, flags.model)
    source = checkpoint.open_checkpoint(path, flags.position_grid)
    for name in ("pixel_mean", "pixel_std"):
        if getattr(flags, name):
            source.facts[name] = getattr(flags, name)
    if flags.num_heads:
        source = checkpoint.with_facts(source, num_heads=flags.num_heads)
    if flags.dialect == "keras_vit":
        if not flags.destination.endswith(".keras"):
            raise ValueError(
                "DST must end in .keras for --dialect keras_vit. Received: "
                f"{flags.destination!r}"
            )
        given = dict(
            num_heads=flags.num_heads,
            position_grid=flags.position_grid,
            pixel_mean=flags.pixel_mean,
            pixel_std=flags.pixel_std,
        )
        model = keras_vit.from_pretrained(
            path,
            include_top=source.facts["classes"] is not None,
            **{key: value for key, value in given.items() if value},
        )
        model.save(flags.destination)
    else:
        if "num_heads" in source.facts and not source.facts["num_heads"]:
            raise ValueError(
                f"{path!r} does not tell its number of heads; give it with "
                "--num-heads."
            )
        save.convert(
            source, flags.destination, flags.dialect, flags.allow_differences
        )
    facts = source.facts
    told = dict(
        blocks=facts.get("num_layers"),
        heads=facts.get("num_heads"),
        width=facts.get("hidden_size"),
        patch=_by(facts.get("patch_size")),
        grid=_by(facts.get("grid")),
        classes=facts["classes"] or "no head",
        pre_logits=facts["representation_size"] or "none",
    )
    if "gelu_approximate" in facts:
        told["GELU"] = "tanh" if facts["gelu_approximate"] else "exact"
    told = {key: value for key, value in told.items() if value is not None}
    print(f"read {path}: {source.dialect}, {len(source.arrays)} arrays")
    print("  " + ", ".join(f"{key} {value}" for key, value in told.items()))
    if facts.get("resnet_units") is not None:
        print(f"  ResNet stem of {facts['resnet_units']} units")
    if flags.dialect == "keras_vit" and facts["representation_size"]:
        left_out = facts["classes"] is None
        print("  pre_logits left out" if left_out else "  pre_logits kept")
    print(f"wrote {flags.destination}: {flags.dialect}")
    return 0


def _by(pair):
    """Returns 8x4 of (8, 4), and None of None."""
    pair = (pair, pair) if isinstance(pair, int) else pair
    return pair and "x".join(map(str, pair))
