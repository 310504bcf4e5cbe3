"""Attention, filters, position embeddings and costs of models."""

from keras_vit.inspection.attention import (
    attended_distances,
    attention_by_head,
    attention_maps,
    attention_rollout,
    attention_weights,
    has_rollout,
    rollout_by_layer,
    uniform_distances,
)
from keras_vit.inspection.costs import Cost, LayerCost, cost
from keras_vit.inspection.parameters import (
    filter_components,
    position_similarity,
    token_mixing,
)

__all__ = [
    "Cost",
    "LayerCost",
    "attended_distances",
    "attention_by_head",
    "attention_maps",
    "attention_rollout",
    "attention_weights",
    "cost",
    "filter_components",
    "has_rollout",
    "position_similarity",
    "rollout_by_layer",
    "token_mixing",
    "uniform_distances",
]
