"""A table for each family: names in a checkpoint and in a model."""

from keras_vit.weights.rules import bit, mixer, vit

# Name of a family -> its rules; see `table`.
FAMILIES = {"vit": vit, "mixer": mixer, "bit": bit}
