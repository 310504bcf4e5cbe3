"""Named models have the published parameters and operations."""

import math

import pytest

import keras_vit
from keras_vit.inspection import costs

# With 1000 classes at 224 x 224: parameters that are trained, billions of
# multiply-accumulates. The tables of the documentation, which are tested too,
# have the other variants.
SIZES = {
    "ASMLPT": (28_282_696, 4.350),
    "AxialResNet26S": (5_944_936, 1.812),
    # Twice the blocks of ViT-B.
    "AxialViTB32": (173_244_904, 8.453),
    "ConvMLPS": (9_022_920, 2.385),
    "ConvMLPL": (42_728_440, 9.870),
    "CycleMLPB1": (15_155_400, 2.122),
    "EAMLP7": (6_096_206, 1.465),
    "FFOnlyTi16": (7_676_332, None),
    "GMLPTi16": (5_867_328, 1.329),
    "HireMLPTiny": (18_041_672, 2.144),
    "ResMLPS12": (15_350_872, 3.010),
    "ResMLPB24": (129_138_280, 100.2),
    # Published: 71 M and 14.0, 51 M and 9.7; no known layout has the latter.
    "S2MLPWide": (72_239_848, 13.99),
    "S2MLPDeep": (53_916_520, 10.46),
}
# Of a family whose smaller model is here too.
LARGER = {"ConvMLPL", "ResMLPB24", "S2MLPDeep"}


def macs_of_ff_only(config):
    """Those of both MLPs of each block, since none are published."""
    patches = (224 // config.patch_size) ** 2
    tokens, width = patches + 1, config.hidden_size
    block = 2 * 4 * (tokens * width**2 + width * tokens**2)
    embedding = patches * config.patch_size**2 * 3 * width
    return (embedding + config.num_layers * block + 1000 * width) / 1e9


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
    if macs is None:
        macs = macs_of_ff_only(model.architecture)
    assert keras_vit.cost(model).macs == pytest.approx(macs * 1e9, rel=1e-3)
