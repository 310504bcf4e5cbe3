"""DeiT III, whose files have the names of DINOv2's."""

from keras_vit.weights.rules import dinov2

TITLE = "DeiT III"
FILES_OF = "dinov2"
FORMATS, RESIZES, grid = dinov2.FORMATS, dinov2.RESIZES, dinov2.grid
