"""The names that version 0.2 had for arguments, read until version 0.4."""

import warnings
from collections.abc import Mapping
from typing import Any

NAMES = {
    "classifier": "pooling",
    "num_units": "depths",
    "resnet_units": "resnet_depths",
    "heads": "num_heads",
    "channels_mlp_dim": "mlp_dim",
    "channel_expansion_factor": "mlp_ratio",
    "token_expansion_factor": "tokens_mlp_ratio",
    "layer_scale_init": "layer_scale",
}


def rename(given: Mapping[str, Any], stacklevel: int = 3) -> dict[str, Any]:
    """Return arguments under the names of today, and warn of earlier ones."""
    earlier = {old: new for old, new in NAMES.items() if old in given}
    renamed = {earlier.get(name, name): value for name, value in given.items()}
    if renamed.get("pooling") == "levels":
        earlier["pooling='levels'"] = "feature_maps=True"
        del renamed["pooling"]
        renamed["feature_maps"] = True
    if renamed.get("pooling") == "token_gap":
        earlier["pooling='token_gap'"] = "pooling='gap_norm', class_token=True"
        renamed |= dict(pooling="gap_norm", class_token=True)
    if earlier:
        names = ", ".join(f"`{old}` is `{new}`" for old, new in earlier.items())
        warnings.warn(
            f"Names of version 0.2, not read from version 0.4 on: {names}",
            FutureWarning,
            stacklevel=stacklevel,
        )
    return renamed
