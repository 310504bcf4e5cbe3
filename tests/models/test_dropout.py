"""The place of every dropout, by what it changes.

Where a source drops values, they are doubled instead, at one place at a time.
This must equal a model whose variables right before that place are doubled:
before a GELU, on the other side of a bias or of a residual, it would not.
"""

import dataclasses
import re

import keras
import numpy as np
import pytest
from catalogue import TINY_OF
from keras import ops

import keras_vit
from keras_vit.models.families import FAMILIES

pytestmark = pytest.mark.backend("torch")  # the same lines elsewhere

RATES = dict(
    dropout_rate=0.1,
    attention_dropout_rate=0.2,
    drop_path_rate=0.3,
    head_dropout_rate=0.4,
    stem_dropout_rate=0.5,
)


def mlp(dense, path=True):
    """Dropout after the activation and after the last dense layer."""
    places = [("dropout_rate", f"{dense}kernel"), ("dropout_rate", dense)]
    return places + paths(dense) * path


def paths(*branches):
    """Stochastic depth of branches that end with these layers."""
    return [("drop_path_rate", branch) for branch in branches]


def vit(path=True, within=""):
    """`Encoder1DBlock` of vit_jax/models_vit.py; stochastic depth of scenic."""
    out = f"{within}Multi.*/out/"
    return [
        ("attention_dropout_rate", f"{out}kernel"),
        ("dropout_rate", out),
        *paths(out) * path,
        *mlp(f"{within}MlpBlock_0/Dense_1/", path),
    ]


POSITIONS = [("dropout_rate", "^(embedding|class_token|posembed_input)/")]
ENCODER = paths("Multi.*/out/", "MlpBlock_0/Dense_1/")  # timm's `Block`
LAYERS = dict(num_layers=3)
LEVELS = dict(depths=(1, 2))
LINEAR = (0, 0.15, 0.3)  # from 0 in the first block
CONSTANT = (0.3, 0.3, 0.3)
# Constructor and what differs -> arguments, and in the order of the source:
# (argument, variables before the place) ahead of the blocks, in each block, and
# after them; and the rates of stochastic depth.
CASES = {
    "ViT": (LAYERS, POSITIONS, vit(), [], LINEAR),
    # scenic/projects/fast_vit/xvit.py
    "AxialViT": (
        LAYERS,
        POSITIONS,
        vit(False, "row/") + vit(False, "col/"),
        [],
        CONSTANT,
    ),
    # slowfast/models: attention.py, common.py, head_helper.py
    "MViT": (
        LEVELS,
        [("dropout_rate", "^(patch_embed|pos_encoding)/")],
        [
            ("dropout_rate", "attn/proj/"),
            *paths("attn/proj/"),
            *mlp("mlp_fc2/"),
        ],
        [("head_dropout_rate", "^norm/")],
        LINEAR,
    ),
    # raft_mlp.py; the same rate in all blocks
    "RaftMLP": (
        LEVELS,
        [],
        mlp("vertical/Dense_1/")
        + mlp("horizontal/Dense_1/")
        + mlp("channels/Dense_1/"),
        [],
        CONSTANT,
    ),
    # EAMLP/models/token_performer.py and transformer_block.py of EANet
    "EAMLP": (
        LAYERS,
        [
            ("stem_dropout_rate", f"^attention{n}/{layer}")
            for n in (1, 2)
            for layer in ("linear_1/kernel", "proj/")
        ],
        paths("attn/proj/", "mlp/Dense_1/"),
        [],
        LINEAR,
    ),
    "MLPMixer": (
        LAYERS,
        [],
        paths("token_mixing/Dense_1/", "channel_mixing/Dense_1/"),
        [],
        LINEAR,
    ),
    "GMLP": (LAYERS, [], paths("fc2/"), [], CONSTANT),
    "ResMLP": (LAYERS, [], paths("gamma_1", "gamma_2"), [], CONSTANT),
    "FFOnly": (LAYERS, [], paths("mlp1/Dense_1/", "mlp2/Dense_1/"), [], LINEAR),
    "CycleMLP": (LEVELS, [], paths("proj/", "mlp/Dense_1/"), [], LINEAR),
    "HireMLP": (LEVELS, [], paths("proj/", "fc2/"), [], LINEAR),
    "ASMLP": (LEVELS, [], paths("axial_shift_conv3/", "fc2/"), [], LINEAR),
    "S2MLP": (LAYERS, [], paths("spatial_shift_fc2/", "fc2/"), [], LINEAR),
    # src/convmlp.py: from 0 in the first block of each level
    "ConvMLP": (
        LEVELS,
        [],
        paths("channel_mlp1_fc2/", "fc2/"),
        [],
        (0, 0, 0.3),
    ),
    **dict.fromkeys(
        (
            *("DeiT", "DeiT3", "DINOv2", "DINOv3", "EVA02", "CLIP", "SigLIP"),
            *("BEiT", "PerceptionEncoder", "VideoMAE"),
        ),
        (LAYERS, [], ENCODER, [], LINEAR),
    ),
    "DINOv2 parallel": (
        dict(LAYERS, parallel=True),
        [],
        paths("LayerScale_0/"),
        [],
        LINEAR,
    ),
    "EVA02 post": (
        dict(LAYERS, post_norm=True),
        [],
        paths("LayerNorm_0/", "LayerNorm_1/"),
        [],
        LINEAR,
    ),
    "BiT": ({}, [], [], [], []),
    "AxialResNet": ({}, [], [], [], []),
}


class Doubling:
    """Replaces dropout: notes each, and doubles the values of one."""

    def __init__(self, monkeypatch):
        self.calls, self.doubled = [], None

        def call(layer, x, training=None):
            if not training:
                return x
            self.calls.append((layer.rate, layer.noise_shape, tuple(x.shape)))
            return x * 2 if len(self.calls) - 1 == self.doubled else x

        monkeypatch.setattr(keras.layers.Dropout, "call", call)

    def run(self, model, x, doubled=None):
        self.calls.clear()
        self.doubled = doubled
        return ops.convert_to_numpy(model(x, training=True))


def places_of(model, before, within, after, rates):
    """Returns (argument, rate, doubled variables) of each place, in order."""
    for argument, pattern in before:
        yield argument, RATES[argument], pattern
    for block, path_rate in zip(model.blocks, rates, strict=bool(within)):
        for argument, pattern in within:
            rate = RATES[argument]
            if argument == "drop_path_rate":
                rate = path_rate
            if rate:
                yield argument, rate, f"^{block.name}/(.*/)?{pattern}"
    for argument, pattern in after:
        yield argument, RATES[argument], pattern


@pytest.mark.parametrize("case", CASES)
def test_dropout_is_where_the_source_has_it(case, monkeypatch):
    arguments, *places = CASES[case]
    title = case.split()[0]
    config = next(f.config for f in FAMILIES.values() if f.title == title)
    fields = {field.name for field in dataclasses.fields(config)}
    rates = {name: RATES[name] for name in fields if name in RATES}
    assert {n for n in fields if re.search("drop.*rate", n)} == set(rates)
    model = getattr(keras_vit, title)(
        **{**TINY_OF[title], **arguments, **rates}, include_top=False
    )
    rng = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(0.3 * rng.normal(size=weight.shape) + 0.1)
    x = rng.uniform(0, 255, (2, *model.input_shape[1:])).astype("float32")

    dropout = Doubling(monkeypatch)
    y = dropout.run(model, x)
    calls, places = list(dropout.calls), list(places_of(model, *places))
    np.testing.assert_allclose(
        [rate for rate, _, _ in calls], [rate for _, rate, _ in places]
    )
    assert {name for name, _, _ in places} == set(rates)
    for i, (argument, _, pattern) in enumerate(places):
        _, noise, shape = calls[i]
        is_path = argument == "drop_path_rate"
        assert noise == ((None,) + (1,) * (len(shape) - 1) if is_path else None)
        if argument == "attention_dropout_rate":
            heads, queries, keys = shape[-3:]
            assert heads == TINY_OF[title]["num_heads"]
            assert queries == keys
        if any(pattern.startswith(f"^{b.name}/") for b in model.blocks[:-1]):
            continue  # the blocks are alike
        found = dropout.run(model, x, doubled=i)
        effect = np.abs(found - y).max()
        assert effect > 1e-4, pattern
        before = [w for w in model.weights if re.search(pattern, w.path)]
        values = [ops.convert_to_numpy(w).copy() for w in before]
        for weight, value in zip(before, values, strict=True):
            weight.assign(2 * value)
        expected = dropout.run(model, x)
        assert np.abs(found - expected).max() < 0.02 * effect, pattern
        for weight, value in zip(before, values, strict=True):
            weight.assign(value)


def test_every_family_has_its_places():
    assert {name.split()[0] for name in CASES} == {
        family.title for family in FAMILIES.values()
    }
