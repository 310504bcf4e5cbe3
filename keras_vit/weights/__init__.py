"""Released weights: where they are, what they hold, how they are loaded."""
