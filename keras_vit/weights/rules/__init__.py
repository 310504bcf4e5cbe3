"""One table for each family: names in a checkpoint and in a model."""
