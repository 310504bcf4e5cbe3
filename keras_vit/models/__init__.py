"""Model families, one file each."""

from keras_vit.models import constructors as _constructors
from keras_vit.models.arguments import ModelArguments as ModelArguments
from keras_vit.models.compile_blocks import compile_blocks as compile_blocks
from keras_vit.models.construct import from_pretrained as from_pretrained
from keras_vit.models.construct import show_arguments as _show_arguments
from keras_vit.models.constructors import *
from keras_vit.models.families import FAMILIES as _FAMILIES
from keras_vit.models.image_model import ImageModel as ImageModel
from keras_vit.models.maps import feature_maps as feature_maps


def list_models(family: str | None = None) -> list[str]:
    """Return the names of all constructors of a fixed size.

    Args:
        family: Name of a family, such as "vit"; None lists all.

    Raises:
        ValueError: If there is no such family.
    """
    if family is not None and family not in _FAMILIES:
        raise ValueError(
            f"`family` must be one of {tuple(_FAMILIES)}. Received: "
            f"family={family!r}"
        )
    return [
        name
        for row in _FAMILIES.values()
        if family in (None, row.name)
        for name in row.variants
    ]


for _family in _FAMILIES.values():
    for _name in (_family.title, *_family.variants):
        _show_arguments(getattr(_constructors, _name), _family)
