"""Recipes on videos: the same programs, by the data set alone."""

import json
import shutil

import keras
import numpy as np
import pytest
import videos
from small_runs import changed, results_of, small_vit

import keras_vit
import keras_vit_cli
from keras_vit import data, evaluation
from keras_vit_cli import opening
from recipes import (
    evaluate,
    experiment,
    fewshot,
    finetune,
    inputs,
    probes,
)
from recipes.configs import video as configs

SMALL = dict(
    depths=(1, 1),
    hidden_sizes=(8, 16),
    num_heads=1,
    cube_stride=(2, 8, 8),
    key_value_stride=(1, 2, 2),
)


def small_config(**changes):
    return changed(
        experiment.Config(),
        **dict(
            model="MViT",
            architecture=experiment.Architecture(**SMALL),
            dataset="moving_digits",
            crop="none",
            batch_size=20,
            total_steps=2,
            eval_every=2,
            warmup_steps=0,
            optimizer="adam",
        )
        | changes,
    )


# Compiling a model of videos takes a quarter of a minute.
pytestmark = pytest.mark.backend("torch")


@pytest.fixture(scope="module", autouse=True)
def few_clips():
    """Makes a tenth of the clips to evaluate."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data.moving_digits, "EVAL_CLIPS", 80)
        yield


@pytest.fixture(scope="module")
def video_run(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("video")
    return workdir, finetune.run(small_config(), str(workdir))


def test_a_run_on_videos_leaves_what_a_run_on_images_leaves(video_run):
    workdir, results = video_run
    assert 0 <= results["accuracy"] <= 1
    model = keras.models.load_model(workdir / "last.keras")
    assert model.input_shape == (None, 8, 16, 16, 1)
    assert model.class_names[0] == "east"
    for name in ("predictions.png", "curves.png", "config.json"):
        assert (workdir / name).stat().st_size > 0
    content = json.loads((workdir / "config.json").read_text())
    assert content["derived"]["num_frames"] == 8


def test_evaluation_shuffles_frames_and_averages_views(
    video_run, capsys, monkeypatch
):
    workdir, results = video_run
    path = workdir / "last.keras"
    arguments = (path, "--dataset=moving_digits", "--batch_size=100")
    found = results_of(capsys, *arguments, "--shuffle_frames")
    assert found["top_1"] == pytest.approx(results["accuracy"], abs=1e-6)
    assert 0 <= found["shuffled_top_1"] <= 1
    # Five clips of a video that is as long as one are one clip.
    of_views = results_of(capsys, *arguments, "--clips=2")
    assert of_views["top_1"] == pytest.approx(found["top_1"])
    assert of_views["loss"] == pytest.approx(found["loss"], rel=1e-4)
    assert evaluate.main([str(path), "--dataset=digits"]) == 2
    assert "takes videos" in capsys.readouterr().err


def test_videos_are_classified_over_time(
    video_run, capsys, tmp_path, monkeypatch
):
    pytest.importorskip("av")
    workdir, _ = video_run
    model, picture = str(workdir / "last.keras"), tmp_path / "attention.png"
    example = str(min((workdir / "examples").glob("*.mkv")))
    broken = tmp_path / "broken.mp4"
    broken.write_text("no video")
    # Three clips of eight frames, one after the other, and the last eight.
    frames = np.zeros((27, 16, 16, 1), "uint8")
    data.video_files.write_video(str(tmp_path / "long.mkv"), frames, rate=10)
    videos = [example, str(tmp_path / "long.mkv"), str(broken)]
    arguments = [model, *videos, "--format=jsonl", f"--attention={picture}"]
    assert keras_vit_cli.main(["predict", *arguments]) == 1
    printed = capsys.readouterr()
    short, long, refused = map(json.loads, printed.out.splitlines())
    assert short["video"] == example and len(short["clips"]) == 1
    starts = [clip["start"] for clip in long["clips"]]
    assert starts == [0, 0.8, 1.6, 1.9] and long["clips"][3]["end"] == 2.7
    scores = [each["score"] for each in short["predictions"]]
    assert len(scores) == 5 and scores == sorted(scores, reverse=True)
    assert "does not decode as a video" in refused["error"]
    assert str(broken) in printed.err and picture.stat().st_size > 0
    again = ["predict", model, videos[1], "--top_k=1"]
    assert keras_vit_cli.main([*again, "--frame_rate=-1"]) == 2
    assert "--frame_rate must be at least 0" in capsys.readouterr().err
    assert keras_vit_cli.main(again) == 0
    table = capsys.readouterr().out.splitlines()
    assert len(table) == 6 and " 0.80 to 1.60 s" in table[3]
    # Two of the four clips are in memory at a time.
    held = []

    def spy(classifier, clips, scores=opening.KerasClassifier.scores):
        held.append(len(clips))
        assert len(read) == sum(held)
        return scores(classifier, clips)

    read, to_pixels = [], data.video_files.to_pixels
    monkeypatch.setattr(opening.KerasClassifier, "scores", spy)
    monkeypatch.setattr(
        data.video_files,
        "to_pixels",
        lambda *args: read.append(args) or to_pixels(*args),
    )
    assert keras_vit_cli.main([*again, "--batch_size=2"]) == 0
    assert held == [2, 2] and capsys.readouterr().out.splitlines() == table


def test_frames_are_those_of_the_run_or_asked_for(video_run, capsys, tmp_path):
    pytest.importorskip("av")
    workdir, _ = video_run
    (tmp_path / "run").mkdir()
    model = str(shutil.copy(workdir / "last.keras", tmp_path / "run"))
    frames = np.zeros((36, 16, 16, 1), "uint8")
    data.video_files.write_video(str(tmp_path / "a.mkv"), frames, rate=10)

    def starts(*options):
        words = ["predict", model, str(tmp_path / "a.mkv"), "--format=jsonl"]
        assert keras_vit_cli.main([*words, *options]) == 0
        clips = json.loads(capsys.readouterr().out)["clips"]
        return [(clip["start"], clip["end"]) for clip in clips]

    assert starts("--frame_step=2") == [(0, 1.5), (1.5, 3), (2.1, 3.6)]
    assert starts("--frame_step=0") == [(0, 3.6)]
    words = ["predict", model, str(tmp_path / "a.mkv")]
    assert keras_vit_cli.main(words) == 2
    assert "--frame_step must be given for a model" in capsys.readouterr().err
    config = json.loads((workdir / "config.json").read_text())
    config["config"]["data"] |= dict(frame_step=2, frame_rate=5.0)
    assert evaluate.main([model, "--dataset=moving_digits"]) == 2
    assert "--frame_step must be given for a model" in capsys.readouterr().err
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    assert starts() == [(0, 3), (0.6, 3.6)]
    assert starts("--frame_rate=10") == [(0, 1.5), (1.5, 3), (2.1, 3.6)]


@pytest.mark.parametrize(
    ("asked", "used"),
    [({}, (3, 5.0)), (dict(frame_step=0, frame_rate=0.0), (0, 0.0))],
)
def test_few_shot_takes_the_clips_of_the_run_or_as_asked(
    video_run, tmp_path, monkeypatch, asked, used
):
    workdir, _ = video_run
    model = str(shutil.copy(workdir / "last.keras", tmp_path))
    config = fewshot.Config(
        model=fewshot.Model(name="MViT", weights=model),
        data=fewshot.Data(dataset="moving_digits", **asked),
    )
    if not asked:
        with pytest.raises(ValueError, match="`data.frame_step` must be given"):
            fewshot.run(config, str(tmp_path / "fewshot"))
    of_run = json.loads((workdir / "config.json").read_text())
    of_run["config"]["data"] |= dict(frame_step=3, frame_rate=5.0)
    (tmp_path / "config.json").write_text(json.dumps(of_run))

    def spy(*_, frame_step, frame_rate, **__):
        raise OSError(f"{frame_step}, {frame_rate}")

    monkeypatch.setattr(data, "eval_batches", spy)
    with pytest.raises(OSError, match="{}, {}".format(*used)):
        fewshot.run(config, str(tmp_path / "fewshot"))


def test_features_of_clips_are_measured(video_run, tmp_path, capsys):
    workdir, _ = video_run
    config = fewshot.Config(
        model=fewshot.Model(name="MViT", weights=str(workdir / "last.keras")),
        data=fewshot.Data(
            dataset="moving_digits", max_train_images=80, batch_size=200
        ),
        shots=(2,),
        num_draws=1,
        neighbours=(3,),
    )
    found = fewshot.run(config, str(tmp_path))
    assert "80 videos of 8 classes" in capsys.readouterr().out
    assert (found["train_images"], found["test_images"]) == (80, 80)
    assert found["feature_size"] == 16
    model = keras.models.load_model(workdir / "last.keras")
    train, test = data.load("moving_digits")
    train, test = (
        evaluation.features(
            model,
            data.eval_batches(
                part,
                batch_size=200,
                image_size=(16, 16),
                channels=1,
                num_frames=8,
            ),
        )
        for part in (probes.at_most(train, 80), test)
    )
    guesses = evaluation.nearest_neighbours(
        train, test[0], k=3, temperature=None
    )
    accuracy = (guesses == test[1]).mean()
    assert found["neighbours"][0]["accuracy"] == pytest.approx(accuracy)
    config.data.dataset = "digits"
    with pytest.raises(ValueError, match="takes videos, which 'digits'"):
        fewshot.run(config, str(tmp_path))


def test_features_of_frames_are_averaged_and_watched_in_training(tmp_path):
    model = small_vit(patch_size=8, input_shape=(16, 16, 1), classes=8)
    source = experiment.Source(dataset="moving_digits", num_frames=3)
    few_shot = probes.callback(model, source, (1,))
    batch = next(iter(few_shot.test))
    clips = np.asarray(batch["images"])[:80]  # the rest is padding
    assert clips.shape == (80, 3, 16, 16, 1)
    found, _ = evaluation.features(few_shot.measured, [batch])
    of_frames = evaluation.representation(model)
    expected = np.mean(
        [of_frames.predict(clips[:, t], verbose=0) for t in range(3)], axis=0
    )
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    # On a copy, with the model that is trained.
    model.compile("sgd", "mse")
    history = model.fit(
        np.zeros((2, 16, 16, 1)),
        np.zeros((2, 8)),
        callbacks=[few_shot],
        verbose=0,
    ).history
    assert 0 <= history["moving_digits/1-shot"][0] < 1


def test_frames_of_a_clip_are_the_data_set_s_or_the_model_s_or_as_asked():
    train, _ = data.load("moving_digits")

    def frames(source=train, **changes):
        config = small_config(**changes)
        return inputs.dataset_info(config, source).num_frames

    assert frames() == 8
    assert frames(num_frames=5) == 5
    of_files = data.Source(
        name="files",
        class_names=("a", "b"),
        num_examples=4,
        paths=["a.mp4"] * 4,
        labels=np.zeros(4, int),
        is_video=True,
    )
    assert frames(of_files) == 16
    assert frames(of_files, model="MViTB32x3") == 32
    digits, _ = data.load("digits")
    assert frames(digits) == 0
    with pytest.raises(ValueError, match="must be 0 for images"):
        frames(digits, num_frames=4)


def small_published(*arguments):
    """A published config with the architecture and the size of these tests."""
    config = configs.get_config(",".join(arguments))
    return changed(
        config,
        model="MViT",
        architecture=experiment.Architecture(**SMALL),
        weights="",
        dtype_policy="float32",
        num_frames=4,
        frame_step=min(config.data.frame_step, 1),
        frame_rate=0.0,
        image_size=(16,),
        eval_resize=0,
        batch_size=2,
        total_steps=2,
        eval_every=2,
        checkpoint_every=0,
        base_lr=0.01,
    )


def test_charades_is_scored_by_the_highest_of_its_views(
    tmp_path, capsys, monkeypatch
):
    pytest.importorskip("av")
    root = tmp_path / "charades"
    for name in ("ONE", "TWO"):
        path = root / "videos" / f"{name}.mp4"
        videos.write(path, videos.numbered(12, size=(16, 24)))
    (root / "Charades_v1_classes.txt").write_text("c000 Sit\nc001 Stand up\n")
    header = "id,actions\n"
    for part, row in (
        ("train", "ONE,c000 0 1;c001 1 2"),
        ("test", "TWO,c001 0 1"),
    ):
        (root / f"Charades_v1_{part}.csv").write_text(f"{header}{row}\n")
    config = small_published("MViTB16x4", str(root), "charades")
    config.data.repeats = 2  # of one video
    config.data.frame_step = 3
    results = finetune.run(config, str(tmp_path / "run"))
    capsys.readouterr()
    path = tmp_path / "run" / "last.keras"
    arguments = (path, f"--dataset={root}")
    asked, eval_batches = [], data.eval_batches

    def spy(*args, **kwargs):
        asked.append(kwargs["frame_step"])
        return eval_batches(*args, **kwargs)

    monkeypatch.setattr(data, "eval_batches", spy)
    found = results_of(capsys, *arguments)
    assert results_of(capsys, *arguments, "--frame_step=1")["images"] == 1
    assert asked == [3, 1]  # that of the run, or as asked
    assert found["kind"] == "videos" and found["classes_with_images"] == 1
    assert found["mean_average_precision"] == results["mean_average_precision"]
    views = ("--clips=2", "--crops=3", "--highest", "--resize=16")
    assert results_of(capsys, *arguments, *views)["images"] == 1
    shuffled = [*map(str, arguments), "--shuffle_frames"]
    assert evaluate.main(shuffled) == 2
    assert "of one class each" in capsys.readouterr().err


def test_actions_of_persons_are_trained_and_scored(tmp_path, capsys):
    pytest.importorskip("av")
    pytest.importorskip("matplotlib")
    root = tmp_path / "ava"
    videos.write(root / "film.mp4", videos.numbered(20), rate=5)
    rows = "film,0902,0.1,0.2,0.5,0.8,1,0\nfilm,0903,0.6,0.0,1.0,1.0,2,1\n"
    for part in ("train", "val"):
        (root / f"ava_{part}_v2.2.csv").write_text(rows)
    (root / "ava_val_predicted_boxes.csv").write_text(
        "film,0902,0.1,0.2,0.5,0.7,,0.9\nfilm,0903,0.0,0.0,0.1,0.1,,0.9\n"
    )
    (root / "ava_val_excluded_timestamps_v2.2.csv").touch()
    (root / "ava_action_list_v2.2_for_activitynet_2019.pbtxt").write_text(
        'item { name: "sit" id: 1 }\nitem { name: "stand" id: 2 }\n'
    )
    config = small_published("MViTB16x4", str(root), "ava")
    config.task.max_objects = 2
    results = finetune.run(config, str(tmp_path / "run"))
    # One of two persons is found. What it does is the first or the second of
    # the two boxes with a score for that.
    assert results["mAP"] in (0.25, 0.5)
    model = keras.models.load_model(tmp_path / "run" / "last.keras")
    assert model.task == "actions" and model.class_names == ("sit", "stand")
    assert (tmp_path / "run" / "predictions.png").stat().st_size > 0
    assert "shows what the model finds" in capsys.readouterr().out
    path = str(tmp_path / "run" / "last.keras")
    assert keras_vit_cli.main(["predict", path, str(root / "film.mp4")]) == 2
    assert "takes ['boxes', 'videos']" in capsys.readouterr().err
    onnx = str(tmp_path / "model.onnx")
    with pytest.raises(ValueError, match="must take images alone"):
        keras_vit.export.export_onnx(model, onnx)
    again = finetune.run(config, str(tmp_path / "run"))
    assert again == results
    config.data.broken = "skip"
    with pytest.raises(ValueError, match="`data.broken` has no effect"):
        finetune.run(config, str(tmp_path / "other"))
    config.data.crop = "none"
    with pytest.raises(ValueError, match="`data.crop` has no effect"):
        finetune.run(config, str(tmp_path / "other"))
