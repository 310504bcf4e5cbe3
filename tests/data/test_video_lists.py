"""The published lists of data sets of videos, over folders of small files."""

import json

import numpy as np
import pytest
import videos

from keras_vit import data

pytest.importorskip("av")

pytestmark = pytest.mark.backend_independent

KINETICS = "label,youtube_id,time_start,time_end,split\n"
CHARADES = "id,subject,actions,length\n"
CLASSES = "c000 Holding some clothes\nc001 Putting clothes somewhere\n"
SIZES = dict(batch_size=2, image_size=(16, 16), num_frames=2)


def make_videos(folder, *names, suffix=".mp4"):
    for name in names:
        videos.write(
            folder / f"{name}{suffix}", videos.numbered(8, size=(16, 16))
        )


def names_of(source):
    return [path.rsplit("/")[-1] for path in source.paths]


def test_kinetics_names_videos_by_their_seconds(tmp_path):
    make_videos(tmp_path / "train", "a_000010_000020", "b")
    make_videos(tmp_path / ".waste", "b")
    make_videos(tmp_path / "other" / "val", "c")
    (tmp_path / "train.csv").write_text(
        '"label","youtube_id","time_start","time_end","split"\n'
        "running,a,10,20,train\nswimming,b,0,10,train\n"
        "running,gone,5,15,train\n"
    )
    (tmp_path / "validate.csv").write_text(f"{KINETICS}running,c,0,10,val\n")
    train, evaluation = data.load(str(tmp_path))
    assert train.is_video and train.class_names == ("running", "swimming")
    assert names_of(train) == ["a_000010_000020.mp4", "b.mp4"]
    assert ".waste" not in train.paths[1]
    assert train.labels.tolist() == [0, 1]
    assert names_of(evaluation) == ["c.mp4"]
    assert data.describe_ignored(train) == (
        "1 file ignored (listed, not there: 1 videos)"
    )
    (batch,) = data.eval_batches(evaluation, **SIZES).as_numpy_iterator()
    assert batch["images"].shape == (2, 2, 16, 16, 3)


def test_something_something_takes_the_class_of_a_template(tmp_path):
    make_videos(tmp_path / "far", "7", "12", suffix=".webm")
    (tmp_path / "set" / "labels").mkdir(parents=True)
    prefix = tmp_path / "set" / "labels" / "something-something-v2-"
    (tmp_path / "set" / "videos").symlink_to(tmp_path / "far")
    names = {"Pushing something": "1", "Holding something next to": "0"}
    lists = dict(
        labels=names,
        train=[
            dict(id="7", label="pushing a cup", template="Pushing [something]")
        ],
        validation=[
            dict(id="12", template="Holding [something] next to"),
            dict(id="13", template="Pushing [something]"),
        ],
    )
    for name, content in lists.items():
        with open(f"{prefix}{name}.json", "w") as file:
            json.dump(content, file)
    train, evaluation = data.load(str(tmp_path / "set"))
    assert train.class_names == tuple(reversed(names))
    assert train.labels.tolist() == [1]
    assert evaluation.labels.tolist() == [0]
    assert names_of(evaluation) == ["12.webm"]
    # A frame of each of two segments: those of the middle are 2 and 5.
    batches = data.eval_batches(evaluation, **SIZES, frame_step=0)
    (batch,) = batches.as_numpy_iterator()
    shades = batch["images"][0].mean((1, 2, 3)) / 5
    np.testing.assert_allclose(shades, [2, 5], atol=0.7)


def test_a_labels_json_alone_is_no_list_of_videos(tmp_path):
    make_videos(tmp_path / "run", "a", "b")
    make_videos(tmp_path / "jump", "c", "d")
    (tmp_path / "labels.json").write_text('{"run": "1", "jump": "3"}')
    train, _ = data.load(str(tmp_path))
    assert train.class_names == ("jump", "run")
    (tmp_path / "train.json").write_text("[]")
    (tmp_path / "validation.json").write_text("[]")
    for name, content, message in (
        ("train", "[]", "must number its 2 templates from 0"),
        ("labels", '["run"]', "labels.json' must hold a dict. Received: list"),
        ("labels", '{"run": "0"', "labels.json' must be JSON"),
        ("labels", '{"run": "0"}', "A video of .*train.json' must lie below"),
        ("train", '[{"id": 1}]', "train.json' must have an `id` and a `temp"),
        ("train", '[{"id": 1, "template": "fly"}]', "the 1 that.*'fly'"),
    ):
        (tmp_path / f"{name}.json").write_text(content)
        with pytest.raises(ValueError, match=message):
            data.load(str(tmp_path))


def test_charades_has_several_classes_for_a_video(tmp_path):
    make_videos(tmp_path / "Charades_v1_480", "ONE", "TWO")
    (tmp_path / "annotations").mkdir()
    prefix = tmp_path / "annotations" / "Charades_v1_"
    with open(f"{prefix}classes.txt", "w") as file:
        file.write(CLASSES)
    with open(f"{prefix}train.csv", "w") as file:
        file.write(
            f"{CHARADES}ONE,A,c001 0.0 3.10;c000 1.0 2.0; c001 4.0 5.0; ,30\n"
        )
    with open(f"{prefix}test.csv", "w") as file:
        file.write(f"{CHARADES}TWO,B,,12\n")
    train, evaluation = data.load(str(tmp_path))
    assert train.multi_label and train.is_video
    assert train.class_names[1] == "Putting clothes somewhere"
    assert train.labels.tolist() == [[1, 1]]
    assert evaluation.labels.tolist() == [[0, 0]]
    with open(f"{prefix}train.csv", "w") as file:
        file.write(f"{CHARADES}ONE,A,c157 0.00 3.10,30\n")
    with pytest.raises(ValueError, match="line 2, \\['c157'\\]"):
        data.load(str(tmp_path))
    with open(f"{prefix}classes.txt", "a") as file:
        file.write("c157 Holding some clothes\n")
    with pytest.raises(ValueError, match="must name each class once"):
        data.load(str(tmp_path))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("running,a,x,20,train\n", "must be seconds. Received: line 2"),
        ("running,a,inf,20,train\n", "must be seconds. Received: line 2"),
        (",a,0,10,train\n", "must name a class. Received: line 2"),
        (
            "running,a,0,10,train\nswimming,a,20,30,train\n",
            r"a.mp4' as \['running'\] and \['swimming'\]",
        ),
        ("running,gone,0,10,train\n", "none of 1, such as 'gone_000000_0000"),
    ],
)
def test_a_wrong_list_is_refused(tmp_path, rows, message):
    make_videos(tmp_path, "a")
    (tmp_path / "train.csv").write_text(KINETICS + rows)
    with pytest.raises(ValueError, match="must be val.csv"):
        data.load(str(tmp_path))
    (tmp_path / "val.csv").write_text(f"{KINETICS}running,a,0,10,val\n")
    with pytest.raises(ValueError, match=message):
        data.load(str(tmp_path))


def test_a_list_of_labels_may_be_of_videos(tmp_path):
    make_videos(tmp_path, "a", "b", "c")
    rows = '"video","labels"\na.mp4,run;jump\nb.mp4,\nc.mp4,jump\n'
    (tmp_path / "labels.csv").write_text(rows)
    train, evaluation = data.load(str(tmp_path), broken="skip")
    assert train.is_video and train.multi_label and not train.skipped
    assert train.class_names == ("jump", "run")
    assert train.num_examples + evaluation.num_examples == 3
    batches = data.train_batches(train, **SIZES, crop="none", frame_step=2)
    (batch,) = batches.take(1).as_numpy_iterator()
    assert batch["images"].shape == (2, 2, 16, 16, 3)
