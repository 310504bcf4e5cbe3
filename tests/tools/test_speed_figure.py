"""The study of inference speed and the largest batch."""

import inspect
import math

import pytest

import keras_vit
from tools import speed_figure, speed_points
from tools.plan_tpu import compiler
from tools.speed_points import Point

pytestmark = pytest.mark.backend_independent


@pytest.mark.parametrize("most", [1, 7, 64, 100, 16_384, 20_000])
@pytest.mark.parametrize("is_told", [True, False])
def test_the_largest_power_of_two_that_fits_is_found(most, is_told):
    asked = []

    def compile_batch(batch):
        asked.append(batch)
        if batch > most:
            # As compilers do: the state counts, too.
            needs = 10 + batch if is_told else 0
            raise compiler.DoesNotFit(needs, (10 + most) * bool(needs))
        return f"program of {batch}"

    found = speed_figure.largest_batch(compile_batch)
    batch = min(2 ** int(math.log2(most)), speed_figure.MOST)
    assert found == (batch, f"program of {batch}")
    if is_told and most > 10:
        assert len(asked) <= 3


def test_where_nothing_fits_there_is_no_batch():
    def compile_batch(batch):
        raise compiler.DoesNotFit(0, 0)

    assert speed_figure.largest_batch(compile_batch, 4) == (0, None)


def point(model, size, speed, largest):
    return Point(
        model=model,
        image_size=size,
        largest=largest,
        speed=speed,
        batch=1,
        source="compiler",
    )


POINTS = [
    point("ViTL16", 64, 4096, 64),
    point("ViTL16", 224, 4096 / 3.5**2, 32),  # linear in the patches
    point("ViTL16", 384, 100, 16),
    point("ViTL16", 512, 100 * (384 / 512) ** 4, 0),  # bi-quadratic
    point("BiTR50x2", 224, 300, 8),
]


def test_the_papers_statements_are_put_in_numbers():
    small, large, memory = speed_points.statements(POINTS)
    assert "ViT-L/16 2.0 " in small
    assert "ViT-L/16 4.0 " in large
    assert "ViT-L/16 over that of R50x2: 4 at 224 pixels" in memory


def test_points_are_kept_and_drawn(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    with pytest.raises(ValueError, match="--output must be a folder with"):
        speed_figure.main.__wrapped__([f"--output={tmp_path}"])
    for name in ("v3-8", "cpu"):
        for each in POINTS:
            speed_points.append(tmp_path / f"{name}.csv", each)
    found = speed_points.read(tmp_path / "v3-8.csv")
    assert [each.model for each in found] == [each.model for each in POINTS]
    assert found[1].speed == pytest.approx(POINTS[1].speed, rel=1e-3)
    assert speed_figure.main([f"--output={tmp_path}"]) == 0
    picture = tmp_path / "inference_speed.png"
    assert picture.read_bytes()[:4] == b"\x89PNG"
    assert "v3-8: what the paper's text says" in capsys.readouterr().out


def test_all_models_can_be_built():
    for constructor in speed_points.MODELS:
        assert constructor in keras_vit.list_models()
        signature = inspect.signature(getattr(keras_vit, constructor))
        if constructor.startswith("BiT"):
            assert set(speed_figure.RESNET) <= set(signature.parameters)
