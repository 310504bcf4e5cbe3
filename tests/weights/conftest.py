"""Other libraries, which some tests compare with."""

import warnings

import pytest


@pytest.fixture(scope="module")
def library():
    """Imports a library of models, or skips the test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch = pytest.importorskip("torch")
        try:
            import torchvision  # noqa: F401
        except RuntimeError:
            # A torchvision for CUDA beside a torch without: its operators are
            # missing, and what imports it, though it needs none, fails.
            operators = torch.library.Library("torchvision", "DEF")
            for name in ("nms", "qnms"):
                operators.define(
                    f"{name}(Tensor dets, Tensor scores, float iou_threshold)"
                    " -> Tensor"
                )
        except ImportError:
            pass
        yield pytest.importorskip


@pytest.fixture(scope="module")
def timm(library):
    return library("timm")


@pytest.fixture(scope="module")
def transformers(library):
    return library("transformers")


@pytest.fixture(scope="module")
def keras_hub(library):
    return library("keras_hub")
