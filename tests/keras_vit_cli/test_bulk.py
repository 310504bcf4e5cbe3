"""All images of a folder, by Apache Beam: each once, whatever happens."""

import json
import os
import signal

import numpy as np
import pytest
from PIL import Image
from small_runs import small_vit

import keras_vit
import keras_vit_cli
from keras_vit import evaluation
from keras_vit_cli import bulk
from tests.text import test_naflex, test_two_towers

pytest.importorskip("apache_beam")
pytestmark = pytest.mark.backend("torch")
# Neither Keras nor `predict` reads a name that is not UTF-8.
COUNT, BROKEN, FAILED = 200, 5, 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Images in three folders, some broken, and files that are none."""
    folder = tmp_path_factory.mktemp("bulk") / "images"
    rng = np.random.default_rng(0)
    names = [f"{'abc'[i % 3]}/{i}.png" for i in range(COUNT - 1)]
    for name in [*names, os.fsdecode(b"a/K\xe4se.png")]:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), "uint8")).save(path)
    for i in range(BROKEN):
        (folder / names[7 * i]).write_bytes(b"no image" * i)
    (folder / "list.txt").write_text("a.png")
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.keras"
    small_vit(input_shape=(8, 8, 3), classes=3).save(path)
    return path


def run(*words):
    return keras_vit_cli.main(["bulk", *map(str, words)])


def lines_of(output):
    lines = []
    for path in sorted(output.glob("*-of-*.jsonl")):
        lines += map(json.loads, path.read_text().splitlines())
    return lines


def test_a_job_that_is_stopped_goes_on_and_answers_for_each_image_once(
    folder, model, tmp_path, monkeypatch, capsys
):
    output, written = tmp_path / "out", []
    write = bulk._write

    def stop(path, content):
        if len(written) == 4:  # the settings and three shards
            raise KeyError("the machine is lost")
        write(path, content)
        written.append(path)

    words = (model, folder, output, "--shards=8", "--batch_size=16")
    with monkeypatch.context() as patch:
        patch.setattr(bulk, "_write", stop)
        with pytest.raises(Exception, match="the machine is lost"):
            run(*words)
    before = {path: os.stat(path).st_mtime_ns for path in written}
    assert len(lines_of(output)) < COUNT
    assert run(*words, "--beam=--runner=FnApiRunner") == 1
    assert before == {path: os.stat(path).st_mtime_ns for path in written}
    summary = json.loads((output / "summary.json").read_text())
    counts = (summary[key] for key in ("images", "shards", "complete"))
    assert tuple(counts) == (COUNT, 8, 3)
    assert summary["failed"] == len(summary["failures"]) == FAILED
    assert not list(output.glob("*.part"))
    printed = capsys.readouterr()
    assert "200 images in 8 shards, of which 3" in printed.out
    assert "Left out" not in printed.err
    # The answers are those of `predict`.
    predict = ["predict", str(model), str(folder), "--format=jsonl"]
    assert keras_vit_cli.main(predict) == 1
    expected = map(json.loads, capsys.readouterr().out.splitlines())
    expected = {line.pop("image"): line for line in expected}
    found = lines_of(output)
    assert sorted(line["image"] for line in found) == sorted(expected)
    for line in found:
        other = expected[line.pop("image")]
        assert line.get("error") == other.get("error")
        pair = (x.get("predictions", []) for x in (line, other))
        for one, two in zip(*pair, strict=True):
            assert one == two | dict(score=pytest.approx(two["score"], 1e-5))
    failed = [path for path, line in expected.items() if "error" in line]
    assert sorted(summary["failures"]) == sorted(failed)
    # A new image is answered for, in a shard that is written again.
    added = folder / "d.png"
    Image.fromarray(np.zeros((8, 8, 3), "uint8")).save(added)
    try:
        assert run(*words) == 1
    finally:
        added.unlink()
    assert len(lines_of(output)) == COUNT + 1
    assert "201 images in 8 shards, of which 7" in capsys.readouterr().out
    assert run(*words, "--top_k=2") == 2
    assert "OUTPUT must be empty, or of the same job" in capsys.readouterr().err
    # Another model of the same name.
    content = model.read_bytes()
    small_vit(input_shape=(8, 8, 3), classes=3, num_layers=2).save(model)
    try:
        assert run(*words) == 2
    finally:
        model.write_bytes(content)
    assert "OUTPUT must be empty, or of the same job" in capsys.readouterr().err


def test_embeddings_are_indices_of_images(folder, tmp_path, capsys):
    towers = test_two_towers.make()
    towers.save(tmp_path / "towers.keras")
    output = tmp_path / "out"
    words = (tmp_path / "towers.keras", folder / "a", folder / "[a-b]/*.png")
    words += (output, "--embed", "--shards=3")
    assert run(*words) == 1  # images that two patterns match count once
    count = len(list(folder.glob("[ab]/*.png")))
    assert f"{count} images in 3 shards, of which 0" in capsys.readouterr().out
    indices = [
        evaluation.ImageIndex.load(path)
        for path in sorted(output.glob("*.npz"))
    ]
    paths = [path for index in indices for path in index.paths]
    skipped = [path for index in indices for path in index.skipped]
    assert len({*paths, *skipped}) == len(paths + skipped) == count
    expected = evaluation.index_images(towers, list(indices[0].paths))
    np.testing.assert_allclose(
        indices[0].embeddings, expected.embeddings, atol=1e-5
    )
    assert run(*words) == 1
    assert "of which 3 were complete" in capsys.readouterr().out
    # By another model of this name the embeddings are not searched.
    test_two_towers.make(logit_scale=1.0).save(tmp_path / "towers.keras")
    search = ["search", str(output / "00000-of-00003.npz"), str(paths[0])]
    assert keras_vit_cli.main(search) == 2
    assert "which has another content" in capsys.readouterr().err


def test_heads_answer_as_predict_does(folder, tmp_path, capsys):
    backbone = small_vit(input_shape=(8, 8, 3), classes=None, include_top=False)
    path, output = tmp_path / "boxes.keras", tmp_path / "out"
    keras_vit.heads.yolos(backbone, classes=3, num_detection_tokens=2).save(
        path
    )
    assert run(path, folder / "a/?.png", output, "--shards=1") == 1
    capsys.readouterr()
    predict = ["predict", str(path), str(folder / "a/?.png")]
    assert keras_vit_cli.main(predict) == 1
    printed = map(json.loads, capsys.readouterr().out.splitlines())
    expected = sorted(printed, key=lambda line: line["image"])
    assert lines_of(output) == expected and len(expected) == 4


def test_features_of_any_model_are_embeddings(folder, model, tmp_path):
    words = (model, folder / "b/*.png", tmp_path / "out", "--embed")
    run(*words, "--shards=1")
    index = evaluation.ImageIndex.load(tmp_path / "out/00000-of-00001.npz")
    np.testing.assert_allclose(
        np.linalg.norm(index.embeddings, axis=1), 1, 1e-5
    )


def test_what_embeddings_would_ignore_is_refused(
    folder, model, tmp_path, capsys
):
    words = (folder / "b/*.png", tmp_path / "out", "--embed")
    assert run(model, *words, "--top_k=2") == 2
    assert "--top_k needs a classifier" in capsys.readouterr().err
    scaled = small_vit(input_shape=(8, 8, 3), include_preprocessing=False)
    scaled.save(tmp_path / "scaled.keras")
    assert run(tmp_path / "scaled.keras", *words) == 2
    assert "must scale pixels itself" in capsys.readouterr().err
    assert run(test_naflex.FOLDER, *words) == 2
    assert "takes any shape (NaFlex)" in capsys.readouterr().err
    of_clips = keras_vit.MViT(
        depths=(1,),
        hidden_sizes=(8,),
        num_heads=(1,),
        cube_stride=(2, 4, 4),
        input_shape=(2, 16, 16, 3),
    )
    of_clips.save(tmp_path / "clips.keras")
    assert run(tmp_path / "clips.keras", *words) == 2
    assert "which takes (None, 2, 16, 16, 3)" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_what_is_there_is_no_pattern(model, tmp_path):
    images = [
        tmp_path / "photos [2024]" / "a?" / "1.png",
        tmp_path / "photos [2024]" / "2.png",
        tmp_path / "3 [of 4].png",
    ]
    for path in images:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8)).save(path)
    words = (tmp_path / "photos [2024]", images[2], tmp_path / "out [1]")
    assert run(model, *words, "--shards=2") == 0
    found = [line["image"] for line in lines_of(tmp_path / "out [1]")]
    assert sorted(found) == sorted(map(str, images))


def test_answers_for_other_images_are_kept(model, tmp_path, capsys):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (8, 8)).save(tmp_path / name / "a.png")
    one, two, out = (tmp_path / name for name in ("one", "two", "out"))
    assert run(model, one, out, "--shards=1") == 0
    assert run(model, two, out, "--shards=1") == 2
    assert "with the same images or more" in capsys.readouterr().err
    assert [x["image"] for x in lines_of(out)] == [str(one / "a.png")]
    assert run(model, two, f"{one}/", out, "--shards=1") == 0
    assert len(lines_of(out)) == 2
    assert run(model, one, out, "--shards=1") == 2


def test_a_folder_that_is_named_twice_is_read_once(
    model, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "few").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "few" / "a.png")
    assert run(model, "./few", "few", tmp_path / "few", "out") == 0
    [line] = lines_of(tmp_path / "out")
    assert line["image"] == "./few/a.png"


def test_an_answer_is_kept_where_its_image_is_gone(tmp_path, model, capsys):
    towers = tmp_path / "towers.keras"
    test_two_towers.make().save(towers)
    images = tmp_path / "images"
    images.mkdir()
    for name in ("a.png", "b.png"):
        Image.new("RGB", (8, 8)).save(images / name)
    (images / "c.png").write_bytes(b"no image")
    jobs = {
        tmp_path / "lines": (model,),
        tmp_path / "embeddings": (towers, "--embed"),
    }
    for output, words in jobs.items():
        assert run(*words, images, output, "--shards=1") == 1
    for name in ("a.png", "c.png"):
        (images / name).unlink()
    Image.new("RGB", (8, 8)).save(images / "d.png")
    for output, words in jobs.items():
        assert run(*words, images, output, "--shards=1") == 0
    expected = [str(images / f"{name}.png") for name in "abcd"]
    lines = lines_of(tmp_path / "lines")
    assert [x["image"] for x in lines] == expected
    assert ["error" in x for x in lines] == [False, False, True, False]
    index = evaluation.ImageIndex.load(
        tmp_path / "embeddings" / "00000-of-00001.npz"
    )
    assert sorted([*index.paths, *index.skipped]) == expected
    np.testing.assert_allclose(index.embeddings[0], index.embeddings[2], 1e-5)


@pytest.mark.parametrize("kept", [0, 1, 60])
def test_damaged_answers_are_written_again(tmp_path, model, kept):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    words = (model, tmp_path, tmp_path / "out", "--shards=1")
    assert run(*words) == 0
    shard = tmp_path / "out" / "00000-of-00001.jsonl"
    content = shard.read_bytes()
    shard.write_bytes(content[:kept])
    assert run(*words) == 0
    assert shard.read_bytes() == content
    (tmp_path / "out" / "job.json").write_bytes(b"")
    assert run(*words) == 2


def test_what_cannot_be_written_or_read_is_named(tmp_path, model, capsys):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    for name, done in (
        ("00000-of-00001.jsonl", "read"),
        ("summary.json", "written"),
    ):
        (tmp_path / done / name).mkdir(parents=True)
        assert run(model, tmp_path, tmp_path / done, "--shards=1") == 2
        message = f"{name}' cannot be {done}"
        assert message in capsys.readouterr().err
        assert not list((tmp_path / done).glob("*.part"))


def test_a_relative_name_is_that_of_its_folder(tmp_path, model, monkeypatch):
    for name, status in (("one", 0), ("two", 2), ("one", 0)):
        (tmp_path / name).mkdir(exist_ok=True)
        Image.new("RGB", (8, 8)).save(tmp_path / name / "a.png")
        monkeypatch.chdir(tmp_path / name)
        assert run(model, ".", tmp_path / "out", "--shards=1") == status


def test_ctrl_c_ends_it_at_once(tmp_path, model, monkeypatch, capfd):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    write, statuses = bulk._write, []

    def interrupted(path, content):
        if path.endswith(".jsonl"):
            os.kill(os.getpid(), signal.SIGINT)
        write(path, content)

    monkeypatch.setattr(bulk, "_write", interrupted)
    monkeypatch.setattr(os, "_exit", statuses.append)
    assert run(model, tmp_path, tmp_path / "out", "--shards=1") == 0
    assert statuses == [130]
    assert "Run the same command again" in capfd.readouterr().err


def test_an_empty_name_is_not_the_whole_machine(tmp_path, model, capsys):
    assert run(model, "", tmp_path / "out") == 2
    assert "FOLDER must be" in capsys.readouterr().err
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    for output in ("", model, tmp_path):
        assert run(model, tmp_path, output) == 2
        assert "OUTPUT must be a folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("images", "options", "message"),
    [
        ("nowhere", (), "FOLDER must be a folder, a file or a pattern"),
        (".", ("--shards=0",), "must be an integer of at least 1"),
    ],
)
def test_bad_input_is_refused(
    model, tmp_path, capsys, images, options, message
):
    (tmp_path / "1.png").write_bytes(b"")
    words = (model, tmp_path / images, tmp_path / "out", *options)
    try:
        assert run(*words) == 2
    except SystemExit as end:
        assert end.code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
