"""A table for each family: names in a checkpoint and in a model."""

from keras_vit.weights.rules import vit

# Name of a family -> its rules; see `table`.
FAMILIES = {"vit": vit}
