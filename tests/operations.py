"""What a model costs, for tests."""

from tools.macs import count_macs

__all__ = ["count_macs"]
