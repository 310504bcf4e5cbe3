"""The library that some tests compare with."""

from tests.weights.conftest import library, transformers  # noqa: F401
