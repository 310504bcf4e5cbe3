"""SigLIP 2 for images of any shape (NaFlex), in transformers.

Checked against siglip2 of transformers 5.24. Its image tower is that of SigLIP,
whose patches are projected by a dense layer.
"""

import dataclasses
import math

from keras_vit.weights.rules import configs, siglip, table

TITLE = "SigLIP 2 (NaFlex)"
MODEL_TYPES = ("siglip2", "siglip2_vision_model")
# With images of one shape the model is a SigLIP.
FILES_OF = "siglip"
TEXT_TOWER = "siglip_text"
RESIZES = siglip.RESIZES
grid = siglip.grid
_KERNEL = "embeddings.patch_embedding.weight"
_SIGLIP = siglip.FORMATS["huggingface"]


def _settings(config):
    tower = config.get("vision_config") or config
    kind = str(config.get("model_type")).replace("siglip2", "siglip")
    tower = {k: v for k, v in tower.items() if k != "image_size"}
    side = dict(vision_config=tower) if "vision_config" in config else tower
    found = _SIGLIP.read_config(config | side | dict(model_type=kind))
    found.pop("image_size")  # a default
    number = tower.get("num_patches", 256)
    side = math.isqrt(number)
    if side**2 == number:  # the library takes the table for a square
        found["grid"] = (side, side)
    processor = configs.section(config, "preprocessor")
    most = configs.integer(processor, "max_num_patches")
    return found | configs.known(max_patches=most)


def _flatten(arrays, metadata):
    """Flatten as SigLIP's, with the kernel of a convolution."""
    arrays, prefix = _SIGLIP.flatten(arrays, metadata)
    kernel = arrays[_KERNEL]
    if len(kernel.shape) == 2:
        channels = metadata.get("channels", 3)
        side = math.isqrt(kernel.shape[1] // channels)
        shape = (kernel.shape[0], side, side, channels)
        arrays[_KERNEL] = kernel.map(
            lambda a: a.reshape(shape).transpose(0, 3, 1, 2),
            (shape[0], channels, side, side),
        )
    return arrays, prefix


def _restore(arrays, prefix):
    """Invert `_flatten`."""
    arrays = dict(arrays)
    kernel = arrays[_KERNEL].transpose(0, 2, 3, 1)
    arrays[_KERNEL] = kernel.reshape(len(kernel), -1)
    return _SIGLIP.restore(arrays, prefix)


def _config_of(metadata):
    rows, columns = metadata["grid"]
    config = siglip.config_of(metadata)
    config |= dict(
        architectures=["Siglip2VisionModel"],
        model_type="siglip2_vision_model",
        num_patches=rows * columns,
    )
    del config["image_size"]
    processor = config.get("preprocessor")
    if processor:
        for key in ("size", "do_center_crop", "resample"):
            processor.pop(key, None)
        processor |= dict(
            image_processor_type="Siglip2ImageProcessor",
            patch_size=config["patch_size"],
            max_num_patches=metadata.get("max_patches", rows * columns),
        )
        config["preprocessor"] = processor
    return config


def joined_config(image: dict, text: dict) -> dict:
    """Return the config of both towers, given those of each."""
    text |= dict(model_type="siglip2_text_model")
    text["architectures"] = ["Siglip2TextModel"]
    return siglip.joined_config(image, text) | dict(
        architectures=["Siglip2Model"], model_type="siglip2"
    )


FORMATS: dict[str, table.Format] = {
    "huggingface": dataclasses.replace(
        _SIGLIP,
        requires=(),
        read_config=_settings,
        flatten=_flatten,
        restore=_restore,
        config_of=_config_of,
        resampling=lambda metadata: "antialiased_bilinear",
    )
}
