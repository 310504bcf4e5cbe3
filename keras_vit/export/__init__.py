"""Models for other programs: SavedModels for TF Serving, and other formats."""

from keras_vit.export.savedmodel import export_savedmodel

__all__ = ["export_savedmodel"]
