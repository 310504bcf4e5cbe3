"""SavedModels: the same numbers, from bytes, whatever the bytes are."""

import os
import pathlib
import subprocess
import sys
import textwrap

import catalogue
import keras
import numpy as np
import pytest
import realistic

import keras_vit
import keras_vit_cli
from keras_vit import data, inspection
from keras_vit.export import graph, savedmodel, signatures
from keras_vit.export.scores import activation_of, class_names_of
from tests import with_keras

sys.path.insert(0, os.path.dirname(__file__))
import images  # noqa: E402

tf = pytest.importorskip("tensorflow")
from keras_vit_cli import savedmodel_client  # noqa: E402

pytestmark = [
    pytest.mark.backend("tensorflow"),
    # jax2tf, through which Keras exports from JAX, is called deprecated.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

LABELS = ("ant", "bee", "cat", "dog", "elk", "fox")


def make_model(**changes):
    arguments = dict(hidden_size=32, num_layers=2, num_heads=2, mlp_dim=64)
    arguments |= dict(patch_size=4, input_shape=(16, 16, 3), class_names=LABELS)
    return realistic.fill(keras_vit.ViT(**arguments | changes))


# What reads images is TensorFlow's whatever the backend.
ON_JAX = pytest.mark.backend("tensorflow", "jax")


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A model and where it was exported to; on JAX, where what reads images is
    not tested, with a plain decoder."""
    is_jax = keras.backend.backend() == "jax"
    model = make_model(num_layers=1 if is_jax else 2)
    path = tmp_path_factory.mktemp("serving") / "plain" / "1"
    with pytest.MonkeyPatch.context() as patch:
        if is_jax:
            with_keras.needs_export()
            with_keras.serve_plainly(patch)
        keras_vit.export_savedmodel(model, path, top_k=3)
    return model, path


@pytest.fixture(scope="module")
def served(exported):
    return tf.saved_model.load(str(exported[1])).signatures


def read(model, encoded, tmp_path):
    """What evaluation makes of a file."""
    file = tmp_path / "image"
    file.write_bytes(encoded)
    size, channels = model.input_shape[1:3], model.input_shape[3]
    return data.read_image(file, size, channels)


def test_features_are_what_the_head_of_an_inner_model_reads():
    inner = make_model()
    model = keras.Sequential([keras.Input(inner.input_shape[1:]), inner])
    x = np.random.default_rng(0).uniform(0, 255, (2, 16, 16, 3))
    both = keras.Model(inner.input, [inner.representation, inner.output])
    expected = both.predict(x, verbose=0)
    for found, each in zip(
        graph._with_features(model)(x), expected, strict=True
    ):
        np.testing.assert_allclose(found, each, rtol=1e-4, atol=1e-5)


@ON_JAX
@pytest.mark.parametrize("number", [1, 17])
def test_logits_are_those_of_the_model(number, exported, served):
    model, _ = exported
    rng = np.random.default_rng(number)
    x = rng.uniform(0, 255, (number, *model.input_shape[1:])).astype("float32")
    expected = model.predict(x, verbose=0)
    found = served["logits"](images=tf.constant(x))["logits"].numpy()
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.backend("jax")
def test_programs_of_jax_that_tensorflow_does_not_run_are_refused(
    tmp_path, monkeypatch
):
    from jax.experimental import jax2tf

    def fails(x):
        tf.debugging.assert_less(x, 0.0)
        return x

    monkeypatch.setattr(jax2tf, "convert", lambda *_, **options: fails)
    with pytest.raises(ValueError, match="with KERAS_BACKEND=tensorflow"):
        keras_vit.export_savedmodel(make_model(), tmp_path / "plain" / "1")


def test_the_budget_and_the_number_of_images_are_arguments():
    answers = signatures.Answers(
        lambda x, number: (x[:, 0, 0], x[:, 0, 0]), LABELS[:3], 3, "none", 4
    )
    served = signatures.signatures(answers, (16, 16), 3, budget=0.001)
    served = served["predict"].get_concrete_function()
    large, small = (
        tf.io.encode_png(np.zeros((side, side, 1), "uint8")).numpy()
        for side in (600, 450)
    )
    found = served(image_bytes=tf.constant([large, small, small, b""]))
    reasons = [b"too large", b"", b"over the request's budget", b"undecodable"]
    assert found["reason"].numpy().tolist() == reasons
    assert found["valid"].numpy().tolist() == [False, True, False, False]
    grey = np.zeros((900, 900, 3), "uint8")
    jpeg = images.encode(grey, "JPEG", progressive=True)
    assert served(image_bytes=tf.constant([jpeg]))["reason"] == b"too large"
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="at most 4 images"
    ):
        served(image_bytes=tf.constant([small] * 5))


@pytest.mark.usefixtures("plain_serving")
@pytest.mark.parametrize(
    "name", [pytest.param("mixer", marks=pytest.mark.thorough), "siglip"]
)
def test_other_families_are_served_with_their_numbers(name, tmp_path):
    model = catalogue.make_model(name, class_names=LABELS[:5])
    realistic.fill(model)
    keras_vit.export_savedmodel(model, tmp_path / "1", top_k=3)
    served = tf.saved_model.load(str(tmp_path / "1")).signatures
    assert ("attention" in served) == inspection.has_rollout(model)
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 255, (2, *model.input_shape[1:])).astype("float32")
    both = keras.Model(model.input, [model.representation, model.output])
    found = served["logits"](images=tf.constant(x))
    for name, expected in zip(
        ("features", "logits"), both.predict(x, verbose=0), strict=True
    ):
        difference = np.abs(found[name].numpy() - expected).max()
        assert difference <= 1e-5 * np.abs(expected).max()
    encoded = tf.io.encode_png(x[0].astype("uint8")).numpy()
    pixels = read(model, encoded, tmp_path)[None]
    found = served["features"](image_bytes=tf.constant([encoded]))["features"]
    expected = both.predict(pixels, verbose=0)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)


def test_a_model_of_video_is_served_with_frames(tmp_path, capsys):
    model = catalogue.make_model(
        "mvit",
        class_names=LABELS[:5],
        depths=(1,),
        hidden_sizes=(8,),
        num_heads=(2,),
        query_stride=((1, 1, 1),),
        key_value_stride=((1, 2, 2),),
    )
    realistic.fill(model)
    model.save(tmp_path / "model.keras")
    path = tmp_path / "clips" / "1"
    words = ["export", str(tmp_path / "model.keras"), str(path), "--top_k", "3"]
    assert keras_vit_cli.main(words) == 0
    assert "classify" not in capsys.readouterr().out  # which sends files
    served = tf.saved_model.load(path).signatures
    rng = np.random.default_rng(0)
    videos = rng.integers(0, 256, (3, *model.input_shape[1:]), "uint8")
    expected = model.predict(videos.astype("float32"), verbose=0)
    found = served["logits"](videos=tf.constant(videos, "float32"))
    difference = np.abs(found["logits"].numpy() - expected).max()
    assert difference <= 1e-5 * np.abs(expected).max()
    order = np.argsort(-expected, axis=1)[:, :3]
    for name in ("serving_default", "video"):
        found = served[name](video=tf.constant(videos))
        np.testing.assert_array_equal(found["indices"], order)
        assert found["classes"].numpy()[0, 0].decode() == LABELS[order[0, 0]]
        assert found["valid"].numpy().all()
    # Half the frames, of double the channels.
    other = tf.reshape(videos, (3, 2, *videos.shape[2:4], 6))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Shape of tensor"):
        served["video"](video=other)
    # Frames of another size, some of which are not finite.
    large = videos.repeat(2, axis=2).repeat(2, axis=3).astype("float32")
    large[1, 2, 3] = np.nan
    found = served["video_float"](video=tf.constant(large))
    np.testing.assert_array_equal(found["valid"], [True, False, True])
    features = served["features"](video=tf.constant(videos))["features"]
    assert features.shape == (3, 8)
    rollout, heads = inspection.attention_maps(model, videos)
    found = served["attention"](video=tf.constant(videos))
    np.testing.assert_allclose(found["rollout"], rollout, atol=1e-5)
    for i, expected in enumerate(heads, 1):
        np.testing.assert_allclose(found[f"layer_{i}"], expected, atol=1e-5)
    card = (path / "assets.extra" / "model_card.md").read_text()
    assert "classifier of video" in card and "frames: 4; height: 16" in card
    with pytest.raises(ValueError, match="must take images. Received"):
        savedmodel_client.load(path)
    for changes, message in (
        (dict(warmup_images=[b"image"]), "`warmup_images` must be empty"),
        (dict(warmup_videos=[videos[0, 1:]]), r"must be uint8 arrays \[4, H"),
        (dict(warmup_videos=[*videos[:1], large[0]]), "of one size"),
    ):
        with pytest.raises(ValueError, match=message):
            keras_vit.export_savedmodel(model, tmp_path / "2", **changes)


@pytest.mark.thorough()
def test_a_model_of_video_is_warmed_up_with_clips(tmp_path):
    pytest.importorskip("tensorflow_serving")
    from tensorflow_serving.apis import prediction_log_pb2

    pytest.importorskip("av")
    model = catalogue.make_model("mvit")
    model.save(tmp_path / "model.keras")
    num_frames, *_, channels = model.input_shape[1:]
    clips = [tmp_path / f"{i}.mkv" for i in range(2)]
    for i, clip in enumerate(clips):
        frames = np.full((9, 20, 30, channels), 40 * i, "uint8")
        data.video_files.write_video(str(clip), frames)
    path = tmp_path / "clips" / "1"
    words = ["export", tmp_path / "model.keras", path, "--images", *clips]
    assert keras_vit_cli.main([*map(str, words)]) == 0
    served = tf.saved_model.load(path).signatures["serving_default"]
    file = path / "assets.extra" / "tf_serving_warmup_requests"
    counts = []
    for record in tf.data.TFRecordDataset(str(file)).as_numpy_iterator():
        log = prediction_log_pb2.PredictionLog.FromString(record)
        assert list(log.predict_log.request.inputs) == ["video"]
        video = tf.make_ndarray(log.predict_log.request.inputs["video"])
        assert video.shape[1:] == (num_frames, *model.input_shape[2:])
        assert served(video=tf.constant(video))["valid"].numpy().all()
        counts.append(len(video))
    assert counts == [1, 1, 2]
    assert keras_vit_cli.main([*map(str, words[:4]), str(file)]) == 2


def test_the_preprocessing_is_evaluations_bit_for_bit(tmp_path):
    # Served with a model that does nothing but show what it gets.
    expected, model = [], make_model()
    for encoded in images.valid().values():
        expected.append(read(model, encoded, tmp_path))
    answers = signatures.Answers(
        lambda x, number: (tf.reshape(x, (-1, 768)), x[:, 0, :, 0]),
        LABELS, 3, "none", 100,
    )  # fmt: skip
    functions = signatures.signatures(answers, (16, 16), 3)
    encoded = tf.constant(list(images.valid().values()))
    found = functions["features"](encoded)["features"]
    np.testing.assert_array_equal(
        found, np.reshape(expected, (len(expected), -1))
    )


def test_images_of_all_sizes_and_kinds_in_one_request(exported, served):
    encoded = list(images.valid().values())
    together = served["predict"](image_bytes=tf.constant(encoded))
    assert together["valid"].numpy().all()
    best = served["serving_default"](image_bytes=tf.constant(encoded))
    order = np.argsort(-together["probabilities"].numpy(), axis=1)[:, :3]
    np.testing.assert_array_equal(best["indices"], order)
    names = [[LABELS[i].encode() for i in row] for row in order]
    assert best["classes"].numpy().tolist() == names
    np.testing.assert_allclose(
        best["scores"],
        np.take_along_axis(together["probabilities"].numpy(), order, 1),
        rtol=1e-4,
    )
    alone = [
        served["predict"](image_bytes=tf.constant([e]))["probabilities"]
        for e in encoded
    ]
    np.testing.assert_allclose(
        together["probabilities"], tf.concat(alone, 0), rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(
        together["probabilities"].numpy().sum(axis=-1), 1, rtol=1e-5
    )


def test_pixels_of_any_size(exported, served):
    model, _ = exported
    x = np.stack([images.pixels(40, 50, seed) for seed in range(2)])
    size = model.input_shape[1:3]
    logits = model.predict(tf.image.resize(x, size).numpy(), verbose=0)
    expected = np.sort(tf.nn.softmax(logits).numpy(), axis=-1)[:, ::-1][:, :3]
    for name, dtype in (("pixels", "uint8"), ("pixels_float", "float32")):
        found = served[name](pixels=tf.constant(x.astype(dtype)))
        np.testing.assert_allclose(
            found["scores"], expected, rtol=1e-4, atol=1e-6
        )


def test_pixels_that_are_no_numbers_are_not_valid(served):
    x = np.full((2, 8, 8, 3), 100.0, "float32")
    x[1, 0, 0, 0] = np.nan
    found = served["pixels_float"](pixels=tf.constant(x))
    assert found["valid"].numpy().tolist() == [True, False]
    assert found["reason"].numpy().tolist() == [b"", b"not finite"]
    assert found["classes"].numpy()[1].tolist() == [b""] * 3
    assert found["scores"].numpy()[1].tolist() == [0] * 3


def test_the_outputs_of_pixels_that_are_no_numbers_are_zeros(exported, served):
    x = np.full((2, *exported[0].input_shape[1:]), 100, "float32")
    x[0, 1, 2, 0] = np.inf
    found = served["logits"](images=tf.constant(x))
    assert found["valid"].numpy().tolist() == [False, True]
    for name in ("features", "logits"):
        assert not found[name][0].numpy().any()
        assert found[name][1].numpy().any()


def test_attention_is_that_of_the_model(exported, served, tmp_path):
    model, _ = exported
    valid = images.valid()
    encoded = [valid["png"], b"no image", valid["jpeg"]]
    x = [read(model, each, tmp_path) for each in encoded[::2]]
    rollout, heads = inspection.attention_maps(model, np.stack(x))
    found = served["attention"](image_bytes=tf.constant(encoded))
    found = {name: value.numpy() for name, value in found.items()}
    assert found["valid"].tolist() == [True, False, True]
    assert found["reason"].tolist() == [b"", b"undecodable", b""]
    assert len(found) == 3 + len(heads)
    for name, expected in [
        ("rollout", rollout),
        *((f"layer_{i}", each) for i, each in enumerate(heads, 1)),
    ]:
        np.testing.assert_allclose(
            found[name][::2], expected, rtol=1e-3, atol=1e-5
        )
        assert not found[name][1].any()


class TestHostileInput:
    def test_300_inputs_give_no_confident_answer(self, exported, served):
        content = images.broken(300)
        encoded, valid = list(content.values()), []
        for i in range(0, len(encoded), 30):
            part = tf.constant(encoded[i : i + 30])
            found = served["serving_default"](image_bytes=part)
            valid += found["valid"].numpy().tolist()
        assert [n for n, v in zip(content, valid, strict=True) if v] == []

    @pytest.mark.parametrize("name", ["serving_default", "features", "predict"])
    def test_a_refused_image_is_answered_with_zeros(self, name, served):
        encoded = tf.constant([b"no image", images.valid()["png"]])
        found = served[name](image_bytes=encoded)
        found = {k: v.numpy().tolist() for k, v in found.items()}
        assert found.pop("valid") == [False, True]
        assert found.pop("reason") == [b"undecodable", b""]
        empty = dict(classes=b"", indices=-1)
        for key, (refused, answered) in found.items():
            assert refused == [empty.get(key, 0)] * len(answered)
            assert refused != answered

    def test_a_request_of_too_many_images_is_refused(self, served):
        encoded = tf.constant([b""] * 33)
        message = "A request may hold at most 32 images. Received.*33"
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            served["predict"](image_bytes=encoded)
        assert (
            not served["predict"](image_bytes=encoded[1:])["valid"]
            .numpy()
            .any()
        )


class TestWithoutKeras:
    def test_tensorflow_alone_gives_the_same(self, exported, tmp_path):
        model, path = exported
        rng = np.random.default_rng(0)
        shape = (17, *model.input_shape[1:])
        x = rng.uniform(0, 255, shape).astype("float32")
        encoded = images.valid()["jpeg"]
        x[0] = read(model, encoded, tmp_path)
        np.save(tmp_path / "x.npy", x)
        program = textwrap.dedent(
            """
            import sys
            # As on a machine where they are not installed.
            sys.modules["keras"] = sys.modules["keras_vit"] = None
            import numpy as np
            import tensorflow as tf
            signatures = tf.saved_model.load(sys.argv[1]).signatures
            x = np.load("x.npy")
            found = {
                str(n): signatures["logits"](images=x[:n])["logits"].numpy()
                for n in (1, 2, 17)
            }
            encoded = tf.io.read_file("image")
            answer = signatures["predict"](image_bytes=encoded[None])
            np.savez("found.npz", jpeg=answer["probabilities"], **found)
            """
        )
        done = subprocess.run(
            [sys.executable, "-c", program, path],
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr
        expected = model.predict(x, batch_size=17, verbose=0)
        with np.load(tmp_path / "found.npz") as found:
            for n in (1, 2, 17):
                difference = np.abs(found[str(n)] - expected[:n]).max()
                assert difference <= 1e-5 * np.abs(expected[:n]).max()
            np.testing.assert_allclose(
                found["jpeg"], tf.nn.softmax(expected[:1]), rtol=1e-4, atol=1e-6
            )


def test_a_warm_up_image_that_does_not_decode_is_named(exported):
    with pytest.raises(ValueError, match=r"images\[0\] of 3 bytes, which is u"):
        savedmodel._try(exported[1], [b"GIF"])


def test_no_weight_is_saved_twice(exported):
    model, path = exported
    weights = sum(4 * int(np.prod(w.shape)) for w in model.weights)
    folder = path / "variables"
    saved = sum(file.stat().st_size for file in folder.iterdir())
    # The index and the object graph take some kilobytes.
    assert saved < weights + 16_000


def test_no_path_of_this_machine_is_exported(exported):
    paths = [os.getcwd(), sys.prefix, os.path.expanduser("~"), "site-packages"]
    for file in exported[1].rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert [p for p in paths if p.encode() in content] == [], file


@pytest.mark.backend("tensorflow")  # of files, whatever is in them
class TestVersions:
    def test_an_existing_version_is_kept(self, exported):
        model, path = exported
        before = (path / "saved_model.pb").stat().st_mtime_ns
        with pytest.raises(ValueError, match="must be a new version"):
            keras_vit.export_savedmodel(model, path)
        assert (path / "saved_model.pb").stat().st_mtime_ns == before

    @pytest.fixture(autouse=True)
    def written(self, monkeypatch):
        """Arguments of the graph, in its place."""

        def write(model, directory, decoding_budget, top_k, **others):
            path = pathlib.Path(directory) / "saved_model.pb"
            path.write_text(f"{top_k} {others['max_images']} {decoding_budget}")

        monkeypatch.setattr(savedmodel.graph, "write", write)

    def test_a_version_can_be_replaced(self, tmp_path):
        model = make_model()
        path = tmp_path / "vit" / "7"
        keras_vit.export_savedmodel(model, path, top_k=2)
        options = dict(top_k=3, max_images=4, decoding_budget=0.5)
        with pytest.warns(UserWarning, match="batching.config"):
            keras_vit.export_savedmodel(model, path, **options, overwrite=True)
        assert (path / "saved_model.pb").read_text() == "3 4 0.5"
        numbers = [p.name for p in (tmp_path / "vit").iterdir() if p.is_dir()]
        assert numbers == ["7"]

    def test_a_version_that_appears_meanwhile_is_kept(
        self, tmp_path, monkeypatch
    ):
        path = tmp_path / "vit" / "1"
        write = savedmodel.graph.write

        def slow(*arguments, **others):
            write(*arguments, **others)
            path.mkdir()
            (path / "saved_model.pb").write_text("of another process")

        monkeypatch.setattr(savedmodel.graph, "write", slow)
        with pytest.raises(ValueError, match="has appeared meanwhile"):
            keras_vit.export_savedmodel(make_model(), path)
        assert (path / "saved_model.pb").read_text() == "of another process"
        assert [p.name for p in path.parent.iterdir()] == ["1"]

    @pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
    def test_a_version_stays_where_its_successor_does_not_come(
        self, tmp_path, monkeypatch, error
    ):
        path = tmp_path / "vit" / "1"
        keras_vit.export_savedmodel(make_model(), path)
        rename = os.rename

        def fail(source, target):
            if "incomplete" in os.fspath(source):
                raise error
            rename(source, target)

        monkeypatch.setattr(os, "rename", fail)
        with pytest.raises(error):
            keras_vit.export_savedmodel(make_model(), path, overwrite=True)
        assert (path / "saved_model.pb").exists()
        assert [p.name for p in path.parent.iterdir() if p.is_dir()] == ["1"]

    def test_what_is_no_version_is_not_overwritten(self, tmp_path):
        path = tmp_path / "photographs" / "2024"
        path.mkdir(parents=True)
        (path / "one.raw").write_text("dear")
        with pytest.raises(ValueError, match="holds no saved_model.pb"):
            keras_vit.export_savedmodel(make_model(), path, overwrite=True)
        assert (path / "one.raw").exists()

    def test_a_failure_leaves_nothing(self, tmp_path, monkeypatch):
        def fail(*arguments):
            raise RuntimeError("no")

        monkeypatch.setattr(savedmodel.serving_assets, "write_model_card", fail)
        with pytest.raises(RuntimeError):
            keras_vit.export_savedmodel(make_model(), tmp_path / "vit" / "1")
        assert list((tmp_path / "vit").iterdir()) == []


class TestArguments:
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (dict(path="vit/latest"), "must end in the number of a version"),
            (dict(class_names=("a", "b")), "must be a name for each of the 6"),
            (dict(class_names="abcdef"), "`class_names` must be a tuple"),
            (dict(path="vit/01"), "must end in the number of a version"),
            (dict(class_names=(*LABELS[:5], "f\n")), r"class_names\[5\]='f"),
            (dict(interpret={}), "`interpret` must be left out for a classif"),
            (
                dict(warmup_videos=(np.zeros((2, 16, 16, 3), "uint8"),)),
                "`warmup_videos` must be empty for a model of images",
            ),
            (dict(top_k=0), "`top_k` must be an integer, at least 1"),
            (dict(max_images=0), "`max_images` must be an integer, at"),
            (dict(decoding_budget=0.0), "`decoding_budget` must be a positive"),
            (dict(activation="relu"), "`activation` must be one of"),
        ],
    )
    def test_wrong_ones_are_refused(self, arguments, words, tmp_path):
        arguments = dict(path="vit/1") | arguments
        path = tmp_path / arguments.pop("path")
        with pytest.raises(ValueError, match=words):
            keras_vit.export_savedmodel(make_model(), path, **arguments)
        assert not path.exists()

    def test_a_model_without_a_head_is_refused(self, tmp_path):
        model = keras_vit.ViT(
            patch_size=4, hidden_size=8, num_layers=1, num_heads=2, mlp_dim=8,
            input_shape=(8, 8, 3), include_top=False,
        )  # fmt: skip
        with pytest.raises(ValueError, match="must be a classifier"):
            keras_vit.export_savedmodel(model, tmp_path / "1")

    def test_a_model_that_does_not_scale_pixels_is_refused(self, tmp_path):
        model = make_model(include_preprocessing=False)
        with pytest.raises(ValueError, match="must scale its pixels itself"):
            keras_vit.export_savedmodel(model, tmp_path / "vit" / "1")
        model = make_model(input_shape=(16, 16, 4))
        with pytest.raises(ValueError, match="must take 1 or 3 channels"):
            keras_vit.export_savedmodel(model, tmp_path / "vit" / "1")

    @pytest.mark.filterwarnings("ignore:.*takes probabilities")
    def test_the_loss_chooses_what_makes_probabilities(self):
        model = make_model()
        assert activation_of(model) == "softmax"
        model.compile("sgd", keras.losses.BinaryCrossentropy(from_logits=True))
        assert activation_of(model) == "sigmoid"
        for loss in (
            "binary_crossentropy",
            keras.losses.binary_crossentropy,
            ["binary_crossentropy"],
            {"head": "binary_crossentropy"},
        ):
            model.compile("sgd", loss)
            assert activation_of(model) == "sigmoid"
        for own, expected in (("sigmoid", "none"), ("tanh", "softmax")):
            model = make_model(classifier_activation=own)
            assert activation_of(model) == expected

    def test_a_single_score_is_no_softmax(self):
        """It would be 1 for every image."""
        model = make_model(classes=1, class_names=None)
        assert activation_of(model) == "sigmoid"
        model.compile("sgd", keras.losses.BinaryCrossentropy(from_logits=True))
        assert activation_of(model) == "sigmoid"
        model.compile("sgd", "mean_squared_error")
        assert activation_of(model) == "none"


@pytest.mark.backend("torch")
def test_torch_is_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match="KERAS_BACKEND=tensorflow"):
        keras_vit.export_savedmodel(make_model(), tmp_path / "1")


@pytest.mark.backend("tensorflow")
def test_names_are_those_of_the_last_layer():
    model = make_model(class_names=("a", "b"), classes=2)
    images = keras.Input(model.input_shape[1:])
    other = keras.layers.Dense(2)(model(images))
    for outputs in (other, keras.layers.Softmax()(other)):
        names = class_names_of(keras.Model(images, outputs))
        assert names is None
    for outputs in (model(images), keras.layers.Softmax()(model(images))):
        names = class_names_of(keras.Model(images, outputs))
        assert names == ("a", "b")


@pytest.mark.backend("tensorflow")
def test_probabilities_are_not_made_of_probabilities():
    classifier = make_model(classifier_activation="softmax")
    endings = (keras.layers.Softmax(), keras.layers.Activation("softmax"))
    images = keras.Input(classifier.input_shape[1:])
    unbuilt = keras.Sequential()
    for layer in (
        keras.layers.RandomFlip(),
        keras.layers.Dense(2, activation="softmax"),
        keras.layers.Dropout(0.1),
    ):
        unbuilt.add(layer)
    for model in (
        classifier,
        keras.Sequential([keras.layers.RandomFlip(), classifier]),
        *(keras.Sequential([make_model(), ending]) for ending in endings),
        keras.Model(images, keras.layers.Dropout(0.1)(classifier(images))),
        keras.Model(images, keras.ops.softmax(make_model()(images))),
        unbuilt,
    ):
        assert activation_of(model) == "none"
    assert activation_of(make_model()) == "softmax"
