"""First values of every variable, against the source that the family cites.

Each variable is mapped by the distribution function of its source to [0, 1],
where its values must be uniform: a wrong mean, variance, bound or shape is a
distance between the two distribution functions (Kolmogorov and Smirnov).
"""

import math
import re

import keras
import numpy as np
import pytest
from catalogue import TINY_OF
from keras import ops

import keras_vit
from keras_vit.models import dinov3

pytestmark = pytest.mark.backend("torch")  # the same initialisers of Keras


def erf(x):
    return ops.convert_to_numpy(ops.erf(ops.convert_to_tensor(x)))


def normal(stddev):
    return lambda x: (1 + erf(x / (stddev * 2**0.5))) / 2


def truncated(stddev):
    """Cut at two `stddev`."""
    cut = math.erf(2**0.5)
    return lambda x: (erf(x / (stddev * 2**0.5)) + cut) / (2 * cut)


def uniform(bound):
    return lambda x: (x / bound + 1) / 2


def value(expected):
    """A constant: every value is mapped to 0, and others outside [0, 1]."""
    return lambda x: np.where(np.isclose(x, expected, rtol=1e-6), 0, 2)


# Distributions by the shape of a kernel, [..., inputs, outputs].
def fan_in(shape):
    return math.prod(shape[:-1])


def glorot(shape):
    return uniform((6 / (fan_in(shape) + shape[-1])) ** 0.5)


def glorot_of_parts(shape):
    """Of each of q, k and v, which are the columns of one kernel."""
    return uniform((6 / (2 * shape[0])) ** 0.5)


def lecun(shape):
    # The deviation after the cut is that of the name.
    return truncated(fan_in(shape) ** -0.5 / 0.87962566103423978)


def torch_default(shape):
    return uniform(fan_in(shape) ** -0.5)


def he_fan_out(shape):
    return normal((2 / (math.prod(shape[:-2]) * shape[-1])) ** 0.5)


def small(shape):
    return normal(0.02)


def tiny(shape):
    return normal(1e-6)


def zeros(shape):
    return value(0)


def ones(shape):
    return value(1)


def constant(number):
    return lambda shape: value(number)


# Pattern of a path -> its distribution, by the shape of the variable, or for a
# bias by that of the kernel beside it. The first that matches holds.
NORMS = {r"(gamma|scale|moving_variance)$": ones, r"(beta|moving_mean)$": zeros}
HEAD = {r"^head/": zeros}  # the paper's, of every family here
# vit_jax/models_vit.py and models_resnet.py: Flax' defaults and its own.
VIT = {
    **HEAD,
    r"resnet/.*gn3/gamma": zeros,
    r"^(embedding|pre_logits)/kernel|conv\w*/kernel": lecun,
    r"class_token/cls": zeros,
    r"embedding$": small,  # of positions
    r"qkv/kernel": glorot_of_parts,
    r"out/kernel|Dense_\d/kernel": glorot,
    r"Dense_\d/bias": tiny,
    **NORMS,
    r"bias$": zeros,
}
# vit_jax/models_mixer.py: Flax' defaults.
MIXER = {**HEAD, r"kernel$": lecun, **NORMS, r"bias$": zeros}
# timm/models/mlp_mixer.py, `_init_weights` and `SpatialGatingUnit`.
GMLP = {
    **HEAD,
    r"stem/kernel": lecun,
    r"fc\d/kernel": glorot,
    r"fc\d/bias|gate/kernel": tiny,
    r"gate/bias": ones,
    **NORMS,
    r"bias$": zeros,
}
# `trunc_normal_(std=0.02)` of PyTorch, which cuts at a hundred deviations, and
# no biases; the patches are a convolution of PyTorch.
DEIT = {
    **HEAD,
    r"^(patch_embed|embedding|stage\d_embedding)/": torch_default,
    r"kernel$|pos_embed$|cls_token$|cls_pos_embed$|pos_embedding$": small,
    **NORMS,
    r"bias$": zeros,
}
# deit/resmlp_models.py.
RES_MLP = {r"alpha$": ones, r"gamma_\d$": constant(1e-4), **DEIT}
# lib/models/axialnet.py: `kaiming_normal_(mode="fan_out")`, `reset_parameters`.
AXIAL_BN = {
    **HEAD,
    r"bn2/gamma": zeros,
    r"qkv/kernel": lambda shape: normal(shape[0] ** -0.5),
    r"relative$": lambda shape: normal((shape[0] / 2) ** -0.5),
    r"kernel$": he_fan_out,
    **NORMS,
}
# scenic/projects/baselines/axial_resnet.py.
AXIAL_GN = {
    **HEAD,
    r"gn3/gamma": zeros,
    r"qkv/kernel": lambda shape: normal(1 / shape[0]),
    r"relative$": lambda shape: normal(2 / shape[0]),
    r"kernel$": lecun,
    **NORMS,
}
# slowfast/models/video_model_builder.py, `_init_weights`: also of biases.
MVIT = {
    **HEAD,
    r"patch_embed/bias": torch_default,
    r"kernel$|(pos|token)$": small,
    r"bias$|beta$": constant(0.02),
    **NORMS,
}
# src/convmlp.py, `init_weight`; of convolutions it leaves the biases alone.
CONV_MLP = {
    **HEAD,
    # Depthwise, [3, 3, D, 1]: PyTorch's fan-out is 9 D.
    r"connect/kernel": lambda shape: normal((2 / (9 * shape[2])) ** 0.5),
    r"down\d/bias": torch_default,
    r"(tokenizer|conv_block|down)[^/]*/kernel": he_fan_out,
    r"kernel$": small,
    **NORMS,
    r"bias$": zeros,
}
# `__init__` and `_init_weights` of PyTorch's layers.
TORCH = {**HEAD, r"(kernel|bias)$": torch_default, **NORMS}
# mlp_based/hire_mlp.py: convolutions too; and families without public code.
ALL_SMALL = {**HEAD, r"kernel$": small, **NORMS, r"bias$": zeros}


def timm(tokens, **patterns):
    """timm's vision_transformer.py, or its eva.py and beit.py."""
    return {
        r"cls$|registers$": tokens,
        r"LayerScale_\d/gamma": constant(1e-5),
        **patterns,
        **DEIT,
    }


def rescaled(block):
    return lambda shape: normal(0.02 / (2 * block + 2) ** 0.5)


# Of block l, counted from 1, divided by sqrt(2 l): `fix_init_weight`.
RESCALED = {
    rf"^encoderblock_{block}/.*(out|Dense_1)/kernel": rescaled(block)
    for block in range(2)
}
# layers/attention_pool.py.
PROBE = {r"probe$": lambda shape: truncated(shape[-1] ** -0.5)}

WIDE = dict(hidden_size=64)
TOKENS = dict(WIDE, num_heads=4, mlp_dim=128)
LEVELS = dict(hidden_sizes=(48, 64))
# Constructor and what differs -> arguments besides those of the catalogue, and
# the table of its source.
CASES = {
    "ViT": (dict(TOKENS, representation_size=48), VIT),
    "ViT relative": (dict(TOKENS, position_embedding="relative"), VIT),
    "ViT 2-D": (dict(TOKENS, position_embedding="learned_2d"), VIT),
    "ViT hybrid": (
        dict(
            {**TOKENS, "patch_size": 1},
            resnet_depths=(1, 1),
            resnet_width=0.5,
        ),
        VIT,
    ),
    "AxialViT": (TOKENS, VIT),
    "MLPMixer": (dict(WIDE, tokens_mlp_dim=48, mlp_dim=128), MIXER),
    "GMLP": (dict(WIDE, mlp_dim=128), GMLP),
    "ResMLP": (dict(WIDE, mlp_dim=128), RES_MLP),
    "FFOnly": (WIDE, DEIT),
    "S2MLP": (WIDE, {r"stem/kernel": lecun, **ALL_SMALL}),
    "CycleMLP": (LEVELS, DEIT),
    "HireMLP": (LEVELS, ALL_SMALL),
    "EAMLP": (dict(TOKENS, token_dim=32), DEIT),
    "ASMLP": (LEVELS, TORCH),
    "RaftMLP": (dict(LEVELS, shortcut=True), TORCH),
    "ConvMLP": (dict(LEVELS, stem_size=32), CONV_MLP),
    "MViT": (LEVELS, MVIT),
    "MViT joint": (
        dict(LEVELS, position_embedding="joint", input_shape=(32, 32, 3)),
        MVIT,
    ),
    "BiT": ({}, MIXER),
    "AxialResNet": ({}, AXIAL_BN),
    "AxialResNet GN": (
        dict(width_factor=0.5, normalization="group_norm"),
        AXIAL_GN,
    ),
    "DeiT": (TOKENS, {r"distillation_token": small, **timm(tiny)}),
    "DeiT3": (TOKENS, timm(tiny)),
    "DINOv2": (dict(TOKENS, num_registers=4), timm(tiny)),
    "DINOv2 parallel": (
        dict(TOKENS, parallel=True, norm="rms", query_key_norm=True),
        timm(tiny),
    ),
    "CLIP": (TOKENS, timm(tiny)),
    "SigLIP": (TOKENS, timm(tiny, **PROBE)),
    "VideoMAE": (TOKENS, timm(tiny)),
    "DINOv3": (TOKENS, timm(small, **RESCALED)),
    "EVA02": (dict(TOKENS, pooling="map"), timm(small, **RESCALED, **PROBE)),
    "PerceptionEncoder": (TOKENS, timm(small, **RESCALED, **PROBE)),
    "BEiT": (
        dict(TOKENS, layer_scale=1e-5),
        timm(small, **RESCALED, **{r"relative_bias": zeros}),
    ),
    "BEiT relative MLP": (
        dict(TOKENS, layer_scale=1e-5, relative_dim=512),
        timm(tiny),
    ),
}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    arguments, table = CASES[request.param]
    family = request.param.split()[0]
    keras.utils.set_random_seed(0)
    model = getattr(keras_vit, family)(**{**TINY_OF[family], **arguments})
    found = {w.path: ops.convert_to_numpy(w) for w in model.weights}
    return found, table


def row_of(path, table):
    return next(pattern for pattern in table if re.search(pattern, path))


def test_every_variable_has_the_distribution_of_its_source(case):
    found, table = case
    mapped = {}
    for path, array in found.items():
        row = row_of(path, table)
        shape = array.shape
        if path.endswith("bias") and table[row] is torch_default:
            shape = found[path.removesuffix("bias") + "kernel"].shape
        values = table[row](shape)(array.astype("float64"))
        mapped.setdefault(row, []).append(values.ravel())
    for row, parts in mapped.items():
        values = np.sort(np.concatenate(parts))
        # Keras draws four times for a value within the cut, and gives up.
        assert np.mean((values < 0) | (values > 1)) < 1e-4, row
        if values[-1] > 0:
            count, values = len(values), np.clip(values, 0, 1)
            steps = np.arange(count + 1) / count
            distance = max(
                np.abs(values - steps[1:]).max(),
                np.abs(values - steps[:-1]).max(),
            )
            # Of a right distribution, once in 3,000 draws.
            assert distance < 2 * count**-0.5, (row, distance)


def test_no_two_variables_begin_with_the_same_values(case):
    found, _ = case
    seen = {}
    for path, array in found.items():
        if np.ptp(array) > 0:
            same = seen.setdefault(array.tobytes(), path)
            assert same == path


def test_mixed_frequencies_are_those_of_two_turned_axes():
    # `init_random_2d_freqs` of timm/layers/pos_embed_sincos.py, theta = 10.
    keras.utils.set_random_seed(0)
    layer = dinov3.DINOv3Attention(64, mixed_grid=(2, 2))
    layer.build((None, 4, 512))  # heads of 8 values, 2 frequencies
    first, second = np.split(ops.convert_to_numpy(layer.frequencies), 2, -1)
    sizes = np.linalg.norm(first, axis=0)
    np.testing.assert_allclose(sizes, [[1, 10**-0.5]] * 64, rtol=1e-6)
    np.testing.assert_allclose(
        second, np.stack([-first[1], first[0]]), atol=1e-6
    )
    angles = np.arctan2(first[1, :, 0], first[0, :, 0])
    assert np.abs(np.exp(1j * angles).mean()) < 0.25  # all directions
    np.testing.assert_allclose(
        angles, np.arctan2(first[1, :, 1], first[0, :, 1]), atol=1e-6
    )


def test_every_family_has_its_table():
    assert {name.split()[0] for name in CASES} == {
        family.title for family in keras_vit.models.families.FAMILIES.values()
    }
