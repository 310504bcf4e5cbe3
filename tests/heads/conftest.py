"""Other libraries, which some tests compare with."""

from tests.weights.conftest import (  # noqa: F401
    keras_hub,
    library,
    transformers,
)
