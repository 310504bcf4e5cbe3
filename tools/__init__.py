"""Programs beside the library: each parses, calls and prints."""

# Hides what TensorFlow logs, before any module of a tool imports it.
import recipes  # noqa: F401
