"""Checkpoints of the Hugging Face Hub."""

import os
import re

from keras_vit.weights import transport

_CONFIGS = ["*.json"]
_WEIGHTS = ["model*.safetensors", "*.weights.h5"]


def fetch(name: str) -> str:
    """Download the checkpoint of a repository into the hub's cache.

    Args:
        name: "owner/name", or "owner/name@revision".

    Returns:
        The directory.

    Raises:
        ValueError: If the name is malformed, the repository does not exist or
            has no checkpoint, or huggingface_hub is not installed.
        ConnectionError: If the network fails, or KERAS_VIT_OFFLINE is set and
            the cache does not have it.
    """
    match = re.fullmatch(r"([\w-][\w.-]*/[\w-][\w.-]*)(?:@([\w./-]+))?", name)
    if not match:
        raise ValueError(
            "`weights='hf://...'` must be hf://owner/name or "
            f"hf://owner/name@revision. Received: 'hf://{name}'"
        )
    huggingface_hub = _library(name)
    errors = huggingface_hub.errors

    def snapshot(patterns):
        return huggingface_hub.snapshot_download(
            match[1],
            revision=match[2],
            allow_patterns=patterns,
            local_files_only=transport.is_offline(),
        )

    try:
        folder = snapshot(_CONFIGS + _WEIGHTS)
        # Pickled weights only if there are no others.
        if not any(
            file.endswith((".safetensors", ".h5"))
            for file in os.listdir(folder)
        ):
            folder = snapshot(_CONFIGS + ["pytorch_model.bin"])
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError):
        raise ValueError(
            f"'hf://{name}' is not there, or not public. Look for its name at "
            "huggingface.co, or log in with `hf auth login`."
        ) from None
    except (errors.LocalEntryNotFoundError, OSError) as error:
        raise ConnectionError(
            f"'hf://{name}' could not be fetched: {error}. Without a network, "
            "give the path of a copy instead."
        ) from error
    return folder


def cache_folder(repository: str) -> str:
    """Return the folder of the hub's cache for a repository.

    Args:
        repository: "owner/name".

    Raises:
        ValueError: If huggingface_hub is not installed.
    """
    _library(repository)
    from huggingface_hub import constants

    folder = f"models--{repository.replace('/', '--')}"
    return os.path.join(constants.HF_HUB_CACHE, folder)


def _library(name):
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ImportError:
        raise ValueError(
            f"Fetching 'hf://{name}' needs huggingface_hub: "
            "pip install huggingface_hub safetensors"
        ) from None
    return huggingface_hub
