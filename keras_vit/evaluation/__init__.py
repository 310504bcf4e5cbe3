"""What a frozen representation is worth."""

from keras_vit.evaluation.least_squares import LeastSquares, few_shot_subset

__all__ = ["LeastSquares", "few_shot_subset"]
