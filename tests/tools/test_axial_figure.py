"""The cost side of the paper's axial figure."""

import inspect
import types

import pytest

import keras_vit
from tools import axial_figure
from tools.plan_tpu import compiler, slices

pytestmark = pytest.mark.backend_independent


class FakeInference:
    """Fits 64 images, and is fastest for 8."""

    def __init__(self, tpu, compiler_seconds):
        self.tpu = tpu
        self.compiler_seconds = compiler_seconds

    def compile(self, batch_size):
        each = batch_size // self.tpu.num_devices
        if each > 64:
            raise compiler.DoesNotFit(2, 1)
        seconds = {1: 1e-3, 8: 2e-3, 64: 2e-1}[each]
        return types.SimpleNamespace(
            compiler_seconds=seconds if self.compiler_seconds else 0,
            flops=seconds * self.tpu.flops,
            bytes=0,
            collectives=[],
        )


@pytest.mark.parametrize("source", ["compiler", "roofline"])
def test_the_fastest_batch_that_fits_counts(source):
    tpu = slices.find("v3-8")
    inference = FakeInference(tpu, source == "compiler")
    images, batch, by = axial_figure.fastest(inference, tpu, (1, 8, 64, 512))
    assert (round(images), batch, by) == (4000, 8, source)
    with pytest.raises(ValueError, match="must have one that fits v3-8"):
        axial_figure.fastest(inference, tpu, (512,))


def test_all_six_models_can_be_built():
    for constructor, given in axial_figure.MODELS.values():
        assert constructor in keras_vit.list_models()
        signature = inspect.signature(getattr(keras_vit, constructor))
        assert set(given) <= set(signature.parameters)
