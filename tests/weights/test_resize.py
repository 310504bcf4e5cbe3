"""Position grids and patch kernels of other sizes."""

import pathlib
import typing

import numpy as np
import pytest

from keras_vit.layers import keras_layers
from keras_vit.weights import resize

pytestmark = pytest.mark.backend_independent

GOLDENS = pathlib.Path(__file__).parents[1] / "goldens" / "numerics"


@pytest.mark.parametrize(
    "path", sorted(GOLDENS.glob("*.posemb_*")), ids=lambda path: path.stem
)
def test_resampled_positions_are_the_authors(path):
    with np.load(path) as archive:
        data = dict(archive)
    source, target = map(int, path.stem.split("_")[-1].split("to"))
    found = resize.resample_positions(
        data["before"], (source, source), (target, target)
    )
    assert found.dtype == np.float32
    assert np.abs(found - data["after"]).max() <= 1e-6


def test_a_model_can_record_each_method():
    assert set(typing.get_args(keras_layers.Resampling)) == set(resize.METHODS)


# Reader in positions.npz -> how it resamples.
READERS = {
    "timm_bicubic_antialias_cls": "antialiased_bicubic",
    "timm_bicubic_antialias_no_prefix": "antialiased_bicubic",
    "hf_dinov2_bicubic": "bicubic",
    "hf_dinov2_registers_bicubic_antialias": "antialiased_bicubic",
    "hf_clip_bicubic": "bicubic",
    "hf_siglip_bicubic": "bicubic",
    "timm_beit_relative_position_bias_table": "geometric",
}


@pytest.mark.parametrize("reader", READERS)
def test_positions_are_resampled_as_each_library_does(reader):
    function = resize.resample_positions
    if "relative" in reader:
        function = resize.resample_distances
    with np.load(GOLDENS.parent / "modern" / "positions.npz") as tables:
        cases = {k.split("/")[1] for k in tables if k.startswith(reader)}
        assert len(cases) == 2
        for case in cases:
            grids = [map(int, grid.split("_")) for grid in case.split("_to_")]
            found = function(
                tables[f"{reader}/{case}/before"],
                *map(tuple, grids),
                READERS[reader],
            )
            after = tables[f"{reader}/{case}/after"]
            np.testing.assert_allclose(found, after, atol=3e-6)


def test_each_axis_is_resampled_alone():
    # A plane stays a plane under linear interpolation of each axis.
    i, j = np.meshgrid(
        np.linspace(0, 1, 4), np.linspace(0, 1, 5), indexing="ij"
    )
    plane = (2 * i + 3 * j).reshape(1, 20, 1)
    i, j = np.meshgrid(
        np.linspace(0, 1, 7), np.linspace(0, 1, 3), indexing="ij"
    )
    expected = (2 * i + 3 * j).reshape(1, 21, 1)
    found = resize.resample_positions(plane, (4, 5), (7, 3))
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5, 7])
def test_folding_keeps_the_response_to_grey(channels):
    kernel = np.random.default_rng(0).normal(size=(2, 2, 3, 4))
    folded = resize.fold_channels(kernel, channels)
    assert folded.shape == (2, 2, channels, 4)
    np.testing.assert_allclose(folded.sum(axis=2), kernel.sum(axis=2))
