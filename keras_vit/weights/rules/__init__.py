"""A table for each family: names in a checkpoint and in a model."""

from keras_vit.weights.rules import (
    axial_resnet,
    axial_vit,
    bit,
    mixer,
    mvit,
    raft_mlp,
    vit,
)

# Name of a family -> its rules; see `table`.
FAMILIES = {
    "vit": vit,
    "mixer": mixer,
    "bit": bit,
    "raft_mlp": raft_mlp,
    "mvit": mvit,
    "axial_vit": axial_vit,
    "axial_resnet": axial_resnet,
}
