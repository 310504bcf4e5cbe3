"""Names of the released checkpoints, and the files behind them."""

import difflib
import os

import keras

BASE_URL = "https://storage.googleapis.com/vit_models/"

# Recommended by Steiner et al. 2021 for each model: (pre-trained, learning
# rate of its fine-tuning on ImageNet at 384 pixels).
_AUGREG = {
    "ViTTi16": (
        "Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0",
        0.03,
    ),
    "ViTS32": ("S_32-i21k-300ep-lr_0.001-aug_none-wd_0.1-do_0.0-sd_0.0", 0.01),
    "ViTS16": (
        "S_16-i21k-300ep-lr_0.001-aug_light1-wd_0.03-do_0.0-sd_0.0",
        0.03,
    ),
    "ViTB32": (
        "B_32-i21k-300ep-lr_0.001-aug_light1-wd_0.1-do_0.0-sd_0.0",
        0.01,
    ),
    "ViTB16": (
        "B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0",
        0.03,
    ),
    "ViTL16": (
        "L_16-i21k-300ep-lr_0.001-aug_strong1-wd_0.1-do_0.0-sd_0.0",
        0.01,
    ),
    "RViTTi16": (
        "R_Ti_16-i21k-300ep-lr_0.001-aug_none-wd_0.03-do_0.0-sd_0.0",
        0.03,
    ),
    "R26ViTS32": (
        "R26_S_32-i21k-300ep-lr_0.001-aug_light1-wd_0.1-do_0.0-sd_0.0",
        0.03,
    ),
    "R50ViTL32": (
        "R50_L_32-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.1-sd_0.1",
        0.01,
    ),
}

# Name of the weights -> variant -> file under BASE_URL.
CHECKPOINTS = {
    "imagenet21k": {
        "ViTB16": "imagenet21k/ViT-B_16.npz",
        "ViTB32": "imagenet21k/ViT-B_32.npz",
        "ViTL16": "imagenet21k/ViT-L_16.npz",
        "ViTL32": "imagenet21k/ViT-L_32.npz",
        "ViTH14": "imagenet21k/ViT-H_14.npz",
        "R50ViTB16": "imagenet21k/R50+ViT-B_16.npz",
    },
    "imagenet21k+imagenet2012": {
        "ViTB16": "imagenet21k+imagenet2012/ViT-B_16.npz",
        "ViTB32": "imagenet21k+imagenet2012/ViT-B_32.npz",
        "ViTL16": "imagenet21k+imagenet2012/ViT-L_16.npz",
        "ViTL32": "imagenet21k+imagenet2012/ViT-L_32.npz",
        "R50ViTB16": "imagenet21k+imagenet2012/R50+ViT-B_16.npz",
    },
    "imagenet21k+imagenet2012-224": {
        "ViTB16": "imagenet21k+imagenet2012/ViT-B_16-224.npz",
        "ViTL16": "imagenet21k+imagenet2012/ViT-L_16-224.npz",
    },
    "augreg": {
        variant: f"augreg/{file}.npz" for variant, (file, _) in _AUGREG.items()
    },
    "augreg+imagenet2012": {
        variant: (
            f"augreg/{file}--imagenet2012-steps_20k-lr_{rate}-res_384.npz"
        )
        for variant, (file, rate) in _AUGREG.items()
    },
}


def locate(weights: str | os.PathLike, variant: str | None = None) -> str:
    """Returns the path of a checkpoint, fetching it where it has a name.

    Args:
        weights: A path, or a name of `CHECKPOINTS`.
        variant: The constructor that asks, such as "ViTB16"; None knows no
            names, only paths.

    Returns:
        The path of a file; a fetched one is in Keras' cache directory. The
        environment variable KERAS_VIT_WEIGHTS_URL names another server.

    Raises:
        ValueError: If there is neither such a file nor such weights for the
            variant; the nearest names are given.
    """
    path = os.path.expanduser(os.fspath(weights))
    if os.path.exists(path):
        return path
    names = [name for name, files in CHECKPOINTS.items() if variant in files]
    if weights in names:
        base_url = os.environ.get("KERAS_VIT_WEIGHTS_URL", BASE_URL)
        file = CHECKPOINTS[weights][variant]
        return keras.utils.get_file(
            os.path.basename(file),
            origin=f"{base_url.rstrip('/')}/{file}",
            cache_subdir=os.path.join("keras_vit", os.path.dirname(file)),
        )
    nearest = difflib.get_close_matches(path, names, n=3, cutoff=0.4) or names
    raise ValueError(
        "`weights` must be the path of a checkpoint"
        + (
            f" or a name of {variant}'s weights, such as {nearest}"
            if names
            else ""
        )
        + f". Received: weights={os.fspath(weights)!r}, and no such file exists"
    )
