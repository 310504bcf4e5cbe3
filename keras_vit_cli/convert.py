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
        model = keras_vit.ViT(
            weights=path,
            num_heads=flags.num_heads,
            position_grid=flags.position_grid,
            pixel_mean=flags.pixel_mean,
            pixel_std=flags.pixel_std,
            include_top=source.facts["classes"] is not None,
        )
        model.save(flags.destination)
    else:
        if not source.facts.get("num_heads"):
            raise ValueError(
                f"{path!r} does not tell its number of heads; give it with "
                "--num-heads."
            )
        save.convert(
            source, flags.destination, flags.dialect, flags.allow_differences
        )
    facts = source.facts
    told = dict(
        blocks=facts["num_layers"],
        heads=facts["num_heads"] or "?",
        width=facts["hidden_size"],
        patch="x".join(map(str, facts["patch_size"])),
        grid="x".join(map(str, facts.get("grid", "?"))),
        classes=facts["classes"] or "no head",
        pre_logits=facts["representation_size"] or "none",
        GELU="tanh" if facts.get("gelu_approximate", True) else "exact",
    )
    print(f"read {path}: {source.dialect}, {len(source.arrays)} arrays")
    print("  " + ", ".join(f"{key} {value}" for key, value in told.items()))
    if facts["resnet_units"] is not None:
        print(f"  trunk of {facts['resnet_units']} units")
    if flags.dialect == "keras_vit" and facts["representation_size"]:
        left_out = facts["classes"] is None
        print("  pre_logits left out" if left_out else "  pre_logits kept")
    print(f"wrote {flags.destination}: {flags.dialect}")
    return 0
