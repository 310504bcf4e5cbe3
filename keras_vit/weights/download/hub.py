"""Checkpoints of the Hugging Face Hub, and their licences."""

import fnmatch
import os
import re
import warnings

from keras_vit.weights.download import servers

FREE = ("Apache-2.0", "MIT")
# Names of repositories, listed or not -> a licence that restricts their use.
RESTRICTED = {
    "facebook/dinov3-*": "DINOv3 License",
    "timm/vit_*_dinov3*.eupe_*": "FAIR Noncommercial Research License",
    "timm/vit_*_dinov3*": "DINOv3 License",
    "facebook/vit-mae-*": "CC-BY-NC-4.0",
    "timm/vit_*.mae": "CC-BY-NC-4.0",
    "facebook/metaclip*": "CC-BY-NC-4.0",
    "timm/vit_*.metaclip*": "CC-BY-NC-4.0",
    "facebook/ijepa_*": "CC-BY-NC-4.0",
    "timm/vit_*_ijepa": "CC-BY-NC-4.0",
    "apple/DFN*": "Apple Sample Code License",
    "apple/*": "Apple ML Research License",
    "timm/vit_*.dfn*": "Apple Sample Code License",
    "timm/vit_*.apple_mclip*": "Apple ML Research License",
    "timm/vit_*_radio_*": "NVIDIA Open Model License",
    "timm/vit_*_sapiens2.*": "Sapiens2 License",
}
_NAME = re.compile(r"hf://([\w-][\w.-]*/[\w-][\w.-]*)(?:@([\w./-]+))?")
_CONFIGS = ["*.json", "merges.txt", "spiece.model"]
_WEIGHTS = ["model*.safetensors", "*.weights.h5"]


def fetch(name: str) -> str:
    """Download the checkpoint of a repository into the Hub's cache.

    A licence that restricts its use is a warning.

    Args:
        name: "hf://owner/name", or "hf://owner/name@revision".

    Returns:
        The directory.

    Raises:
        ValueError: If the name is malformed, the repository does not exist or
            has no checkpoint, or huggingface_hub is not installed.
        ConnectionError: If the network fails, or KERAS_VIT_OFFLINE is set and
            the cache does not have it.
    """
    match = _NAME.fullmatch(name)
    if not match:
        raise ValueError(
            "`weights='hf://...'` must be hf://owner/name or "
            f"hf://owner/name@revision. Received: {name!r}"
        )
    license_name = restriction(match[1])
    if license_name:
        warnings.warn(
            f"The weights of {name!r} are under the {license_name}, which "
            "restricts their use. Read it at "
            f"https://huggingface.co/{match[1]}",
            stacklevel=2,
        )
    huggingface_hub = _library()
    errors = huggingface_hub.errors

    def snapshot(patterns):
        return huggingface_hub.snapshot_download(
            match[1],
            revision=match[2],
            allow_patterns=patterns,
            local_files_only=servers.is_offline(),
        )

    try:
        folder = snapshot(_CONFIGS + _WEIGHTS)
        # Pickled weights only if there are no others.
        if not any(
            file.endswith((".safetensors", ".h5"))
            for file in os.listdir(folder)
        ):
            folder = snapshot(_CONFIGS + ["pytorch_model.bin"])
        if not any(map(_is_weights, os.listdir(folder))):
            folder = snapshot(_CONFIGS + ["open_clip_*model.*"])
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError):
        raise ValueError(
            f"{name!r} is not there, or not public. Look for its name at "
            "huggingface.co, or log in with `hf auth login`."
        ) from None
    # A transfer that breaks off raises an error of the client's own library.
    except (
        errors.LocalEntryNotFoundError,
        getattr(errors, "HTTPError", OSError),
        OSError,
    ) as error:
        raise ConnectionError(
            f"{name!r} could not be fetched: {error}. Without a network, "
            "give the path of a copy instead."
        ) from error
    return folder


def _is_weights(file):
    return file.endswith((".safetensors", ".h5", ".bin"))


def restriction(repository: str) -> str | None:
    """Return the licence that restricts a repository's use, or None."""
    matching = (
        license_name
        for pattern, license_name in RESTRICTED.items()
        if fnmatch.fnmatchcase(repository, pattern)
    )
    return next(matching, None)


def cache_folder(repository: str) -> str:
    """Return the folder of the hub's cache for a repository.

    Raises:
        ValueError: If huggingface_hub is not installed.
    """
    _library()
    from huggingface_hub import constants

    folder = f"models--{repository.replace('/', '--')}"
    return os.path.join(constants.HF_HUB_CACHE, folder)


def _library():
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ImportError:
        raise ValueError(
            "Weights of hf:// need huggingface_hub: "
            "pip install huggingface_hub safetensors"
        ) from None
    return huggingface_hub
