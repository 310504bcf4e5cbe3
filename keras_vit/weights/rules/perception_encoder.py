"""Perception Encoder, whose files have the names of EVA-02's."""

from keras_vit.weights.rules import eva02

TITLE = "Perception Encoder"
FILES_OF = "eva02"
FORMATS, RESIZES, grid = eva02.FORMATS, eva02.RESIZES, eva02.grid
