"""Training and evaluating on images with several labels."""

import json

import numpy as np
import pytest
import tensorflow as tf

from recipes import evaluate, finetune

pytestmark = pytest.mark.backend("torch")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Bright images are "bright", those with a red corner "red" as well."""
    root = tmp_path_factory.mktemp("labels")
    rng = np.random.default_rng(0)
    for part, count in (("train", 32), ("test", 16)):
        (root / part).mkdir()
        lines = ["image,labels"]
        for i in range(count):
            pixels = rng.integers(0, 60, (8, 8, 3), "uint8")
            bright, red = i % 2, i // 2 % 2
            pixels += np.uint8(150 * bright)
            if red:
                pixels[:4, :4] = (255, 0, 0)
            name = f"{i}.png"
            tf.io.write_file(str(root / part / name), tf.io.encode_png(pixels))
            labels = ["bright"] * bright + ["red"] * red
            lines.append(f"{name},{';'.join(labels)}")
        (root / part / "labels.csv").write_text("\n".join(lines) + "\n")
    return str(root)


def test_a_run_learns_several_labels(
    folder, tmp_path, make_config, capsys, monkeypatch
):
    pytest.importorskip("matplotlib")
    config = make_config(
        dataset=folder,
        image_size=(8,),
        loss="sigmoid",
        crop="none",
        flip=False,
        augment=("MixUp(alpha=0.2)",),
        total_steps=40,
        eval_every=40,
    )
    results = finetune.run(config, str(tmp_path))
    path = tmp_path / "last.keras"
    capsys.readouterr()
    arguments = [str(path), f"--dataset={folder}", "--json"]
    assert evaluate.main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["images"] == 16 and found["classes_with_images"] == 2
    assert found["mean_average_precision"] > 0.8
    # A quarter of the images has no label.
    assert 0.5 < found["precision_at_1"] <= 0.75
    assert found["precision_at_1"] == pytest.approx(results["accuracy"])
    assert evaluate.main(arguments[:2]) == 0
    assert "mAP" in capsys.readouterr().out


def test_softmax_is_refused(folder, tmp_path, make_config):
    config = make_config(dataset=folder, image_size=(8,))
    with pytest.raises(ValueError, match="`loss` must be 'sigmoid'"):
        finetune.run(config, str(tmp_path))
