"""What a model has learned and where it looks."""

from keras_vit.inspection.attention import (
    attention_rollout,
    attention_weights,
    has_rollout,
)
from keras_vit.inspection.costs import Cost, LayerCost, cost

__all__ = [
    "Cost",
    "LayerCost",
    "attention_rollout",
    "attention_weights",
    "cost",
    "has_rollout",
]
