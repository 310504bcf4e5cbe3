"""Training and evaluating on images with several labels."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from small_runs import rows_of

from keras_vit import data, evaluation
from keras_vit_cli import opening
from recipes import evaluate, finetune


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


@pytest.mark.backend("torch")
@pytest.mark.usefixtures("no_pictures", "plain_decoding")
def test_a_run_learns_several_labels(
    folder, tmp_path, make_config, capsys, monkeypatch
):
    config = make_config(
        dataset=folder,
        image_size=(8,),
        loss="sigmoid",
        crop="none",
        flip=False,
        augment=("MixUp(alpha=0.2)",),
        total_steps=30,
        eval_every=15,
    )
    results = finetune.run(config, str(tmp_path))
    path = tmp_path / "last.keras"
    assert "Mean average precision" in capsys.readouterr().out
    logged = [
        float(row["val_mean_average_precision"]) for row in rows_of(tmp_path)
    ]
    assert len(logged) == 2
    assert logged[-1] == results["mean_average_precision"]
    capsys.readouterr()
    arguments = [str(path), f"--dataset={folder}", "--json"]
    assert evaluate.main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["images"] == 16 and found["classes_with_images"] == 2
    assert found["mean_average_precision"] > 0.8
    assert found["mean_average_precision"] == pytest.approx(logged[-1])
    # A quarter of the images has no label.
    assert 0.5 < found["precision_at_1"] <= 0.75
    assert found["precision_at_1"] == pytest.approx(results["accuracy"])
    assert evaluate.main(arguments[:2]) == 0
    assert "mAP" in capsys.readouterr().out
    # The file says that each class is predicted by itself.
    classifier = opening.asked(str(path))
    bright_red = [f"{folder}/test/3.png"]
    ((_, _, scores),) = classifier.predict(bright_red)
    assert scores.min() > 0.5


@pytest.mark.backend("torch")
@pytest.mark.usefixtures("no_pictures")
def test_videos_of_several_labels_train_a_model_of_images(
    tmp_path, make_config
):
    rng = np.random.default_rng(0)
    labels = np.eye(2, dtype="uint8")[[0, 1] * 4]
    path = tmp_path / "clips.npz"
    np.savez(
        path,
        x_train=rng.integers(0, 255, (8, 2, 8, 8, 3), "uint8"),
        y_train=labels,
        x_test=rng.integers(0, 255, (8, 2, 8, 8, 3), "uint8"),
        y_test=labels,
    )
    config = make_config(
        dataset=str(path),
        image_size=(8,),
        num_frames=2,
        loss="sigmoid",
        crop="none",
        flip=False,
        total_steps=1,
    )
    results = finetune.run(config, str(tmp_path / "run"))
    assert 0 < results["mean_average_precision"] <= 1


@pytest.mark.backend("torch")
def test_softmax_is_refused(folder, tmp_path, make_config):
    config = make_config(dataset=folder, image_size=(8,))
    with pytest.raises(ValueError, match="`optim.loss` must be 'sigmoid'"):
        finetune.run(config, str(tmp_path))


@pytest.mark.usefixtures("plain_decoding")
@pytest.mark.thorough("jax", "torch")
def test_precision_of_the_trained_weights_is_logged(folder):
    """On each backend `fit` leaves the weights elsewhere meanwhile."""
    _, test = data.load(folder)
    batches = data.eval_batches(test, batch_size=5, image_size=(8, 8))
    head = keras.layers.Dense(2, kernel_initializer="zeros")
    model = keras.Sequential(
        [keras.Input((8, 8, 3)), keras.layers.Flatten(), head]
    )

    def measured():
        return evaluation.mean_average_precision(
            *evaluation.scores_and_targets(model, batches)
        )[0]

    before = measured()
    model.compile(keras.optimizers.SGD(1e-6), "mse")
    history = model.fit(
        np.random.default_rng(0).uniform(0, 255, (8, 8, 8, 3)),
        np.eye(2)[[0, 1] * 4],
        batch_size=4,
        epochs=2,
        callbacks=[evaluation.MeanAveragePrecision(batches)],
        verbose=0,
    ).history
    logged = history["val_mean_average_precision"][-1]
    assert logged == pytest.approx(measured())
    assert abs(logged - before) > 0.01
