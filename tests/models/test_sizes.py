"""Named models have the published parameters and operations."""

import math

import pytest

import keras_vit
from keras_vit.inspection import costs

# With 1000 classes at 224 x 224: parameters that are trained, billions of
# multiply-accumulates unless a golden of the authors compares the numbers. The
# tables of the documentation, which are tested too, have the other variants.
SIZES = {
    "ASMLPT": (28_282_696, 4.350),
    "AxialResNet26S": (5_944_936, None),
    # Twice the blocks of ViT-B.
    "AxialViTB32": (173_244_904, None),
    "ConvMLPS": (9_022_920, 2.385),
    "ConvMLPL": (42_728_440, 9.870),
    "CycleMLPB1": (15_155_400, None),
    "EAMLP7": (6_096_206, None),
    "FFOnlyTi16": (7_676_332, None),
    "GMLPTi16": (5_867_328, None),
    "HireMLPTiny": (18_041_672, 2.144),
    "ResMLPS12": (15_350_872, None),
    "ResMLPB24": (129_138_280, None),
    # Published: 71 M and 14.0, 51 M and 9.7; no known layout has the latter.
    "S2MLPWide": (72_239_848, 13.99),
    "S2MLPDeep": (53_916_520, 10.46),
}
# Of a family whose smaller model is here too.
LARGER = {"ConvMLPL", "ResMLPB24", "S2MLPDeep"}


@pytest.mark.backend("jax")  # which traces fastest
@pytest.mark.parametrize(
    "variant",
    [
        pytest.param(name, marks=[pytest.mark.thorough] * (name in LARGER))
        for name in SIZES
    ],
)
def test_parameters_and_operations_are_those_published(variant):
    parameters, macs = SIZES[variant]
    with costs.shapes_alone():
        model = getattr(keras_vit, variant)()
    found = sum(math.prod(v.shape) for v in model.trainable_variables)
    assert found == parameters
    if macs is not None:
        found = keras_vit.cost(model).macs
        assert found == pytest.approx(macs * 1e9, rel=1e-3)
