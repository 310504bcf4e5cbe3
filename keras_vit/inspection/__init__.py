"""What a model has learned and where it looks."""

from keras_vit.inspection.attention import (
    attention_rollout,
    attention_weights,
    has_rollout,
)

__all__ = ["attention_rollout", "attention_weights", "has_rollout"]
