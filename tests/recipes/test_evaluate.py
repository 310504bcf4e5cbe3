"""Accuracy of a saved model, from the command line."""

import json
import types

import keras
import numpy as np
import pytest
import tensorflow as tf
from small_runs import results_of, small_vit

import keras_vit
from keras_vit import data, evaluation
from recipes import (
    evaluate,
    evaluate_classifier,
    experiment,
    fewshot,
    probes,
)

pytestmark = pytest.mark.backend("torch")


def save_vit(path, classes, input_shape, bias=None, class_names=None):
    """Saves a model of random weights, and returns it."""
    model = small_vit(
        input_shape=input_shape, classes=classes, class_names=class_names
    )
    head = model.get_layer("head")
    if bias is None:
        rng = np.random.default_rng(0)
        head.kernel.assign(rng.normal(size=(8, classes)))
    else:
        head.bias.assign(bias)
    model.save(path)
    return model


@pytest.fixture(scope="module")
def best(tmp_path_factory):
    """The path of a model for digits, which guesses."""
    path = tmp_path_factory.mktemp("model") / "best.keras"
    save_vit(path, 10, (8, 8, 1))
    return path


@pytest.mark.backend("tensorflow", "jax", "torch")
@pytest.mark.thorough("jax")
def test_results_are_those_of_keras(best, capsys):
    found = results_of(capsys, best, "--dataset=digits", "--batch_size=50")
    _, held_out = data.load("digits")
    model = keras.models.load_model(best, compile=False)
    model.compile(
        loss=keras.losses.CategoricalCrossentropy(from_logits=True),
        metrics=["accuracy", keras.metrics.TopKCategoricalAccuracy(5)],
    )
    loss, top_1, top_5 = model.evaluate(
        held_out.images, np.eye(10)[held_out.labels], verbose=0
    )
    assert found["images"] == held_out.num_examples == 359
    assert found["top_1"] == pytest.approx(top_1, abs=1e-6)
    assert found["top_5"] == pytest.approx(top_5, abs=1e-6)
    assert found["loss"] == pytest.approx(loss, rel=1e-4)
    assert 0 < found["top_1"] < found["top_5"] < 1


@pytest.mark.parametrize(
    ("dataset", "classes", "options"),
    [
        ("digits", 10, ["--resize=24"]),
        (
            "moving_digits",
            8,
            ["--resize=24", "--num_frames=2", "--frame_step=1"],
        ),
    ],
)
def test_a_run_states_size_and_frames(
    capsys, tmp_path, dataset, classes, options
):
    path = tmp_path / "last.keras"
    save_vit(path, classes, (16, 16, 1))
    asked = results_of(capsys, path, f"--dataset={dataset}", *options)
    run = dict(eval_resize=24, num_frames=2, frame_step=1, loss="sigmoid")
    config = dict(config=dict(model="ViT", seed=0, **run))
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = results_of(capsys, path, f"--dataset={dataset}")
    note = dict(loss_note="metrics.csv has it with loss=sigmoid")
    assert found == asked | note
    other = results_of(capsys, path, f"--dataset={dataset}", "--resize=0")
    assert other["loss"] != found["loss"]


def test_the_table_is_printed_and_written_to_a_file(best, capsys, tmp_path):
    output = tmp_path / "results.json"
    arguments = [str(best), "--dataset=digits", "--split=train"]
    assert evaluate.main([*arguments, f"--output={output}"]) == 0
    table = capsys.readouterr().out
    found = json.loads(output.read_text())
    assert found["images"] == 1438
    assert "1438 images of digits, classes matched by index, because" in table
    assert f"top-1  {found['top_1']:.2%}" in table
    assert "ReaL" not in table


@pytest.mark.filterwarnings("ignore")  # of TFDS itself
def test_real_labels_stand_beside_the_original(capsys, tmp_path):
    tfds = pytest.importorskip("tensorflow_datasets")
    path = tmp_path / "model.keras"
    with tfds.testing.mock_data(num_examples=6):
        source, labels = evaluation.load_real(data_dir=str(tmp_path))
        arguments = dict(batch_size=6, image_size=(8, 8))
        (batch,) = data.eval_batches(source, **arguments)
        originals = np.argmax(batch["labels"], axis=-1)
        # Whatever it sees, it says a label that some images have.
        answer = next(int(x[0]) for x in labels[1:] if len(x))
        bias = np.zeros(1000)
        bias[[originals[0], answer]] = 1, 2
        save_vit(path, 1000, (8, 8, 3), bias)
        found = results_of(
            capsys,
            path,
            "--dataset=imagenet2012_real",
            f"--data_dir={tmp_path}",
            "--batch_size=4",
        )
    labels = [x for x in labels if len(x)]
    assert found["images"] == 6
    assert found["real_images"] == len(labels)
    assert found["real"] == np.mean([answer in x for x in labels]) > 0
    assert found["top_1"] == np.mean(originals == answer)
    assert found["top_5"] >= 1 / 6  # the second best is right once
    normed = np.log(np.exp(bias).sum()) - bias[originals]
    assert found["loss"] == pytest.approx(normed.mean(), rel=1e-5)


@pytest.mark.filterwarnings("ignore")  # of TFDS itself
def test_a_set_without_a_part_for_training_is_evaluated_on(capsys, tmp_path):
    tfds = pytest.importorskip("tensorflow_datasets")

    class OnlyForTests(tfds.core.GeneratorBasedBuilder):  # as imagenet_v2
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            return self.dataset_info_from_configs(
                features=tfds.features.FeaturesDict(
                    dict(
                        image=tfds.features.Image(shape=(8, 8, 3)),
                        label=tfds.features.ClassLabel(num_classes=3),
                    )
                ),
                supervised_keys=("image", "label"),
            )

        def _split_generators(self, _):
            return dict(test=self._generate_examples())

        def _generate_examples(self):
            for i in range(5):
                yield i, dict(image=np.zeros((8, 8, 3), "uint8"), label=i % 3)

    path = tmp_path / "model.keras"
    save_vit(path, 3, (8, 8, 3), np.array([1, 0, 0]))
    options = ["--dataset=only_for_tests", f"--data_dir={tmp_path}"]
    found = results_of(capsys, path, *options)
    assert found["images"] == 5
    assert found["top_1"] == 2 / 5


def test_any_of_the_classes_of_an_object_is_right(capsys, tmp_path):
    folder = tmp_path / "objectnet-1.0"
    (folder / "mappings").mkdir(parents=True)
    names = dict(chair="Chair", bench="Bench", vase="Vase", hammock="Hammock")
    for name, content in (
        ("folder_to_objectnet_label", names),
        (
            "objectnet_to_imagenet_1k",
            dict(
                Chair="barber chair; folding chair; rocking chair, rocker",
                Bench="park bench",
                Vase="vase",
            ),
        ),
    ):
        path = folder / f"mappings/{name}.json"
        path.write_text(json.dumps(content))
    for i, name in enumerate((*names, "chair")):
        image = np.full((12, 14, 3), (255, 0, 0), "uint8")
        image[2:-2, 2:-2] = 60 + i
        path = folder / f"images/{name}/{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        tf.io.write_file(str(path), tf.io.encode_png(image))
        (path.parent / f"._{i}.png").write_bytes(b"of macOS")

    source, counts_as = evaluation.load_objectnet(folder)
    classes, labels = keras_vit.imagenet_classes(), []
    for encoded, label in source.stream(0, 4).as_numpy_iterator():
        image = tf.io.decode_png(encoded)
        assert image.shape == (8, 10, 3) and np.ptp(image) == 0  # no border
        labels.append(classes[label])
    # Without what ImageNet does not have.
    assert labels == ["park bench", "barber chair", "barber chair", "vase"]
    assert np.sum(counts_as != np.arange(1000)) == 2

    # It always says a rocking chair, and then a vase.
    bias = np.zeros(1000)
    for name, value in (("rocking chair, rocker", 2), ("vase", 1)):
        bias[classes.index(name)] = value
    path = tmp_path / "model.keras"
    save_vit(path, 1000, (8, 8, 3), bias)
    arguments = (path, "--dataset=objectnet", f"--data_dir={folder}")
    found = results_of(capsys, *arguments, "--batch_size=3")
    assert (found["images"], found["top_1"], found["top_5"]) == (4, 0.5, 0.75)

    assert "is no file" in refused(capsys, path, "--dataset=objectnet")
    mapping = folder / "mappings/objectnet_to_imagenet_1k.json"
    mapping.write_text(json.dumps(dict(Chair="chaise")))
    assert "Received also: ['chaise']" in refused(capsys, *arguments)
    mapping.write_text("{}")
    assert "must have PNG images" in refused(capsys, *arguments)


def refused(capsys, *arguments):
    assert evaluate.main([*map(str, arguments)]) == 2
    return capsys.readouterr().err


@pytest.fixture(scope="module")
def animals(tmp_path_factory):
    """A folder that holds out 1 bat, 2 cats and 3 dogs."""
    root = tmp_path_factory.mktemp("animals")
    content = tf.io.encode_png(np.zeros((8, 8, 1), "uint8")).numpy()
    for i, name in enumerate(("bat", "cat", "dog"), 1):
        (root / name).mkdir()
        for j in range(5 * i):
            (root / name / f"{j}.png").write_bytes(content)
    (root / "cat" / "notes.txt").write_text("not an image")
    return root


def always_first(path, labels):
    """Saves a model that answers its first class, whatever it sees."""
    count = len(labels or range(3))
    model = save_vit(path, count, (8, 8, 1), -np.arange(1.0 * count), labels)
    head = model.get_layer("head")
    head.kernel.assign(np.zeros(head.kernel.shape))
    model.save(path)
    return path


@pytest.mark.usefixtures("plain_decoding")
@pytest.mark.parametrize(
    ("labels", "arguments", "top_1", "classes"),
    [
        (("bat", "cat", "dog"), [], 1 / 6, "by name"),
        (("dog", "bat", "cat"), [], 3 / 6, "by name, in another order"),
        (
            ("dog", "bat", "cat"),
            ["--by_index"],
            1 / 6,
            "by index, as requested",
        ),
        (("0", "1", "2"), ["--by_index"], 1 / 6, "by index, as requested"),
        (None, [], 1 / 6, "by index, because the model has no class names"),
        (
            ("ape", "cat", "dog", "bat"),
            ["--split=all"],
            2 / 6,
            "by name, 3 of the model's 4",
        ),
    ],
)
def test_classes_are_matched_by_name(
    animals, capsys, tmp_path, labels, arguments, top_1, classes
):
    path = always_first(tmp_path / "model.keras", labels)
    arguments = [str(path), f"--dataset={animals}", *arguments, "--json"]
    assert evaluate.main(arguments) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    is_whole = "--split=all" in arguments
    assert found["images"] == (30 if is_whole else 6)
    assert ("the 6 of 30 examples" in printed.err) != is_whole
    assert found["top_1"] == pytest.approx(top_1)
    assert found["classes"].startswith(classes)
    shares = np.array([1, 2, 3]) / 6
    if found["classes"] == "by name, in another order":
        shares = shares[[2, 0, 1]]
    if found["classes"] == "by name, 3 of the model's 4":
        shares = shares[[1, 2, 0]]  # the first is of no image
    expected = np.log(np.exp(-np.arange(3.0)).sum()) + shares @ np.arange(3.0)
    assert found["loss"] == pytest.approx(expected, abs=1e-5)
    assert "1 file ignored (unsupported: 1 .txt)" in printed.err


def test_released_weights_match_data_sets_that_name_synsets():
    names = keras_vit.imagenet_classes()
    model = small_vit(classes=1000, class_names=names)
    synsets = keras_vit.imagenet_synsets()
    options = types.SimpleNamespace(by_index=False, model="model")
    for names, how in (
        (synsets, "by name"),
        (synsets[::-1], "by name, in another order"),
        (synsets[::5], "by name, 200 of the model's 1000"),
    ):
        source = types.SimpleNamespace(name="imagenet2012", class_names=names)
        matched, found = evaluate_classifier._match_classes(
            model, source, options
        )
        assert found == how
        assert matched.output_shape == (None, len(names))


@pytest.mark.parametrize(
    "labels",
    [
        ("0", "1", "2"),
        ("bat", "cat", "cow"),
        ("cat", "cat", "dog"),
        ("bat", "cat", "dog", "dog"),
        ("dog", "cat"),
    ],
)
def test_other_class_names_are_refused(animals, capsys, tmp_path, labels):
    path = always_first(tmp_path / "model.keras", labels)
    message = refused(capsys, path, f"--dataset={animals}")
    assert "class names" in message and "--by_index" in message
    different = ("only in the data set: 'bat'", "'cow'", "in the model: 'dog'")
    assert any(names in message for names in different)


def test_a_model_of_scaled_pixels_is_refused(capsys, tmp_path):
    path = tmp_path / "scaled.keras"
    model = small_vit(
        input_shape=(8, 8, 1), classes=10, include_preprocessing=False
    )
    model.save(path)
    error = refused(capsys, path, "--dataset=digits")
    assert "MODEL must scale pixels itself" in error


@pytest.mark.parametrize(
    ("option", "needed"),
    [
        ("--frame_step=4", "a data set of videos"),
        ("--frame_step=0", "a data set of videos"),
        ("--frame_rate=30", "a data set of video files"),
        ("--seed=1", "--shuffle_frames"),
        ("--highest", "several views"),
        ("--zero_is_ignored", "a model with a head"),
    ],
)
def test_options_without_effect_are_refused(best, capsys, option, needed):
    name = option.split("=")[0]
    error = refused(capsys, best, "--dataset=digits", option)
    assert f"{name} needs {needed}" in error


def test_models_and_sets_that_do_not_fit_are_refused(best, capsys, tmp_path):
    np.savez(
        tmp_path / "two.npz",
        x_train=np.zeros((4, 8, 8), "uint8"),
        y_train=[0, 1, 0, 1],
    )
    message = refused(capsys, best, f"--dataset={tmp_path / 'two.npz'}")
    assert "must have the 2 classes" in message and "with 10" in message
    assert "absent.keras" in refused(
        capsys, tmp_path / "absent.keras", "--dataset=digits"
    )
    absent = f"--output={tmp_path / 'absent' / 'results.json'}"
    for option in (absent, f"--output={tmp_path}", "--output="):
        message = refused(capsys, "absent.keras", option)
        assert "in a folder that exists" in message
    model = keras.models.load_model(best)
    tokens = keras.Model(model.input, model.get_layer("encoder_norm").output)
    tokens.save(tmp_path / "tokens.keras")
    backbone = keras.Model(model.input, model.representation)
    boxes = keras.Model(  # as many outputs as a classifier has axes
        model.input,
        {
            "boxes": backbone(model.input),
            "logits": keras.layers.Dense(2, name="head")(backbone.output),
        },
    )
    boxes.save(tmp_path / "boxes.keras")
    for name in ("tokens.keras", "boxes.keras"):
        assert "must be a classifier" in refused(
            capsys, tmp_path / name, "--dataset=digits"
        )
    (tmp_path / "saved_model.pb").touch()
    assert "a SavedModel. Give" in refused(capsys, tmp_path, "--dataset=digits")


@pytest.mark.usefixtures("plain_decoding")
def test_broken_images_are_named(tmp_path, capsys):
    save_vit(tmp_path / "best.keras", 2, (8, 8, 3))
    for name in ("a/0.png", "a/1.png", "b/0.png", "b/1.png"):
        content = tf.io.encode_png(np.zeros((8, 8, 3), "uint8")).numpy()
        (tmp_path / "few" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "few" / name).write_bytes(content[:40])
    model, dataset = tmp_path / "best.keras", tmp_path / "few"
    assert evaluate.main([str(model), f"--dataset={dataset}"]) == 2
    assert "few/a/" in capsys.readouterr().err
    config = fewshot.Config(
        data=fewshot.Data(dataset=str(dataset)), shots=(1,), neighbours=()
    )
    with pytest.raises(
        ValueError, match="2 of 2 image files of .*do not decode"
    ):
        fewshot.run(config, str(tmp_path / "run"))
    few = experiment.Source(dataset=str(dataset))
    few_shot = probes.callback(keras.models.load_model(model), few, ())
    with pytest.raises(ValueError, match="do not decode"):
        few_shot.on_train_begin()
