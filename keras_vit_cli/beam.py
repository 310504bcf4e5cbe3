"""Apache Beam, for the commands that run on one machine or on many."""

import types
from collections.abc import Sequence


def library(purpose: str) -> types.ModuleType:
    """Import Apache Beam.

    Args:
        purpose: What needs it, the beginning of a sentence.
    """
    try:
        import apache_beam
    except ImportError as error:
        raise ImportError(
            f"{purpose} needs `apache_beam`, which is not installed: "
            "pip install apache-beam"
        ) from error
    return apache_beam


def options(words: Sequence[str]):
    """Return `PipelineOptions`; without a runner that of this machine."""
    from apache_beam.options import pipeline_options

    words = list(words)
    if not any(word.startswith("--runner") for word in words):
        # The implementation of DirectRunner may be a download.
        words.append("--runner=FnApiRunner")
    return pipeline_options.PipelineOptions(words)
