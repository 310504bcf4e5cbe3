"""The pipelines that are measured are those that train, cut short."""

import numpy as np
import pytest

from keras_vit import data
from tools import benchmark_data

pytestmark = pytest.mark.backend_independent

NAMES = ["reading", "decoding", "resizing", "augmentation", "batching"]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("noise"))
    benchmark_data.write_noise(folder, 6)
    return data.load(folder, eval_fraction=0.01)[0]


def test_the_last_stage_is_the_pipeline_itself(source):
    stages = benchmark_data.stages(
        source, ("MixUp",), image_size=(8, 8), batch_size=4
    )
    assert list(stages) == NAMES
    expected = data.train_batches(
        source, batch_size=4, image_size=(8, 8), augment=("MixUp",)
    )
    found, expected = (
        next(x.as_numpy_iterator()) for x in (stages["batching"], expected)
    )
    np.testing.assert_array_equal(found["images"], expected["images"])


def test_the_bare_loop_has_the_same_crops(source, monkeypatch):
    arguments = dict(image_size=(8, 8), batch_size=source.num_examples)
    monkeypatch.setattr(benchmark_data, "_MIN_CROPS", 6)
    bare = benchmark_data.bare_loop(source, **arguments)
    ours = data.train_batches(source, **arguments, flip=False)
    bare = next(bare.as_numpy_iterator())
    ours = next(ours.as_numpy_iterator())["images"]
    for image in ours:
        assert np.abs(bare - image).max((1, 2, 3)).min() < 1e-3


def test_the_bottleneck_adds_the_most():
    report = benchmark_data.summarise(
        {"reading": [1000, 900], "decoding": [200, 90], "resizing": [70, 100]}
        | {"batching": [99, 98], "ours": [80, 90, 9], "bare": [100, 100, 90]},
        processors=2,
        accelerator=1000,
    )
    assert report["per_core"] == 49.5 and report["cores"] == 21
    assert report["bottleneck"] == "resizing"
    np.testing.assert_allclose(report["milliseconds"]["decoding"], 4)
    np.testing.assert_allclose(report["ratio"], 0.8)


@pytest.mark.thorough()
def test_the_program_prints_a_table(capsys, monkeypatch):
    monkeypatch.setattr(benchmark_data, "_MIN_CROPS", 4)
    arguments = ["--images", "4", "--image_size", "8", "--batch_size", "2"]
    arguments += ["--seconds", "0", "--rounds", "1", "--compare"]
    arguments += ["--augment", "RandomInvert", "--accelerator", "1e9"]
    assert benchmark_data.main(arguments) == 0
    out = capsys.readouterr().out
    assert "Bottleneck: " in out and "The accelerator needs " in out
