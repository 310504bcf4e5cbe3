"""AVA's lists: persons in boxes at key frames, and the clips around them."""

import numpy as np
import pytest
import videos

from keras_vit import data
from keras_vit.data import action_files

pytest.importorskip("av")

pytestmark = pytest.mark.backend_independent

CLASSES = """item {
  name: "bend/bow (at the waist)"
  id: 1
}
item {
  name: "sit"
  id: 3
}
"""
CLASS_LIST = "ava_action_list_v2.2_for_activitynet_2019.pbtxt"
EXCLUDED = "ava_val_excluded_timestamps_v2.2.csv"
LISTS = {
    "ava_train_v2.2.csv": "film,0902,0.1,0.2,0.5,0.8,1,0\n"
    "film,0902,0.1,0.2,0.5,0.8,3,0\nfilm,0902,0.6,0.0,1.0,1.0,2,1\n",
    "ava_val_v2.2.csv": "whole,0903,0.0,0.0,0.5,1.0,3,7\n"
    "whole,0904,0.0,0.0,0.5,1.0,3,7\nwhole,0905,0.0,0.0,0.5,1.0,3,7\n",
    CLASS_LIST: CLASSES,
    EXCLUDED: "whole,0905\n",
    "ava_val_predicted_boxes.csv": "whole,0903,0.0,0.0,0.4,1.0,,0.95\n"
    "whole,0903,0.5,0.0,0.9,1.0,,0.7\n",
}


def make_folder(root):
    """Videos of which frame t of each second is all 5 t."""
    (root / "annotations").mkdir()
    for name, text in LISTS.items():
        (root / "annotations" / name).write_text(text)
    # Cut from second 900 on: five frames in each of four seconds.
    videos.write(root / "film.mp4", videos.numbered(20), rate=5)
    # The whole film, of which most is one frame.
    times = [0, *range(900_000, 906_000, 200)]
    videos.write(root / "whole.mkv", videos.numbered(31), milliseconds=times)
    return str(root)


def test_persons_have_their_actions_and_a_clip_around_them(tmp_path):
    root = make_folder(tmp_path)
    clip = dict(num_frames=4, frame_step=2, frame_rate=5.0)
    train, evaluation = data.load_actions(root, **clip)
    assert train.class_names == ("bend/bow (at the waist)", "action 2", "sit")
    assert train.unscored_classes == (1,)
    assert (train.num_examples, evaluation.num_examples) == (1, 2)
    found = train.load(0)
    assert found["actions"].tolist() == [[1, 0, 1], [0, 1, 0]]
    np.testing.assert_allclose(found["boxes"][0], [0.3, 0.5, 0.4, 0.6])
    # Second 902 is frame 10 of the cut film: frames 6, 8, 10 and 12.
    shades = found["images"].reshape(32, 48, 4, 3).mean((0, 1, 3)) / 5
    np.testing.assert_allclose(shades, [6, 8, 10, 12], atol=0.7)
    found = evaluation.load(0)
    # Only the box of a high score, whose actions are not known.
    np.testing.assert_allclose(found["boxes"], [[0.2, 0.5, 0.4, 1.0]])
    assert not found["actions"].any()
    # Second 903 of the whole film is frame 16.
    shades = found["images"].reshape(32, 48, 4, 3).mean((0, 1, 3)) / 5
    np.testing.assert_allclose(shades, [12, 14, 16, 18], atol=0.7)
    assert evaluation.targets(0)["actions"].tolist() == [[0, 0, 1]]
    # Nobody is found at second 904.
    assert len(evaluation.load(1)["boxes"]) == 0
    assert (train.most_objects, evaluation.most_objects) == (2, 1)
    assert len(evaluation.targets(1)["boxes"]) == 1


def test_batches_have_clips_and_boxes_that_move_together(tmp_path):
    root = make_folder(tmp_path)
    train, evaluation = data.load_actions(
        root, num_frames=2, frame_step=1, frame_rate=5.0
    )
    options = dict(batch_size=1, image_size=(16, 24), max_objects=3)
    batches = data.task_batches(train, **options, scales=(2.0, 2.0))
    seen = {False: 0, True: 0}
    for batch in batches.take(8).as_numpy_iterator():
        videos_, boxes = batch["images"]["videos"], batch["images"]["boxes"]
        assert videos_.shape == (1, 2, 16, 24, 3)
        assert boxes.shape == (1, 3, 4)
        assert batch["labels"]["actions"].shape == (1, 3, 3)
        counted = batch["labels"]["labels"][0] >= 0
        assert not counted[2]
        for each, kept in zip(boxes[0], counted, strict=True):
            seen[bool(kept)] += 1
            assert not kept or (each[2:] > 0).all()
    assert min(seen.values()) > 0
    (batch,) = data.task_eval_batches(
        evaluation, **(options | dict(batch_size=3))
    ).as_numpy_iterator()
    assert batch["index"].tolist() == [0, 1, -1]
    assert batch["labels"]["labels"].tolist() == [[0, -1, -1]] + 2 * [[-1] * 3]
    assert batch["sizes"][0].tolist() == [32, 48]


def test_frames_of_a_clip_get_the_colours_of_an_image():
    # Greys with as much red: of one hue.
    greys = np.random.default_rng(0).integers(90, 110, (8, 8, 1))
    image = (greys + [40, 0, 0]).astype("uint8")

    def frames(count):
        example = dict(
            images=np.tile(image, (1, 1, count)),
            boxes=[[0.5, 0.5, 1.0, 1.0]],
            labels=[0],
            actions=[[1]],
        )
        source = data.TaskSource(
            name="clip",
            task="actions",
            class_names=("sit",),
            num_examples=1,
            load=lambda index: example,
            num_frames=count,
        )
        options = dict(batch_size=1, image_size=(8, 8), max_objects=1)
        batches = data.task_batches(source, **options, colours=0.4).take(8)
        found = [x["images"]["videos"][0] for x in batches.as_numpy_iterator()]
        return np.stack(found)

    found = frames(1)
    np.testing.assert_allclose(
        frames(2), np.repeat(found, 2, axis=1), atol=1e-2
    )
    low, middle, high = np.moveaxis(np.sort(found), -1, 0)
    turns = (middle - low) / (high - low) / 6
    assert 0.03 < turns.max() <= 0.04 + 1e-5  # a tenth of the strength


def test_without_detected_persons_the_true_boxes_are_taken(tmp_path):
    root = make_folder(tmp_path)
    (tmp_path / "annotations" / "ava_val_predicted_boxes.csv").unlink()
    with pytest.warns(UserWarning, match="in the true boxes"):
        _, evaluation = data.load_actions(root)
    assert len(evaluation.load(1)["boxes"]) == 1


def test_what_is_not_there_is_named(tmp_path):
    root = make_folder(tmp_path)
    (tmp_path / "annotations" / EXCLUDED).unlink()
    with open(tmp_path / "annotations" / "ava_train_v2.2.csv", "a") as file:
        file.write("gone,0902,0.6,0.0,1.0,1.0,2,1\n")
    with (
        pytest.warns(UserWarning, match="leaves out are counted"),
        pytest.warns(UserWarning, match="1 videos .* such as 'gone'"),
    ):
        train, evaluation = data.load_actions(root)
    assert (train.num_examples, evaluation.num_examples) == (1, 3)


def test_a_list_of_all_actions_does_not_say_which_are_scored(tmp_path):
    root = make_folder(tmp_path)
    every = CLASSES + 'item {\n  id: 2\n  name: "crawl"\n}\n'
    (tmp_path / "annotations" / "ava_action_list_v2.2.pbtxt").write_text(every)
    train, _ = data.load_actions(root)
    assert train.class_names[1] == "crawl" and train.unscored_classes == (1,)


def test_a_cut_video_may_be_longer_than_its_first_second(tmp_path, monkeypatch):
    monkeypatch.setattr(action_files, "CUT_AT", 2)
    root = make_folder(tmp_path)
    rows = "film,0003,0,0,1,1,1,0\nfilm,0005,0,0,1,1,1,0\n"
    (tmp_path / "annotations" / "ava_train_v2.2.csv").write_text(rows)
    train, _ = data.load_actions(root, num_frames=1, frame_rate=5.0)
    shades = [train.load(i)["images"].mean() / 5 for i in range(2)]
    np.testing.assert_allclose(shades, [5, 15], atol=2.1)


@pytest.mark.parametrize("end", [2, 950])
def test_a_video_that_was_cut_off_is_refused(tmp_path, end):
    root = make_folder(tmp_path)
    rows = "film,0902,0,0,1,1,1,0\nfilm,1798,0,0,1,1,1,0\n"
    (tmp_path / "annotations" / "ava_train_v2.2.csv").write_text(rows)
    times = [0, end * 1000]
    videos.write(tmp_path / "film.mp4", videos.numbered(2), milliseconds=times)
    train, _ = data.load_actions(root, num_frames=1, frame_rate=5.0)
    with pytest.raises(ValueError, match="film.mp4.*second 1798, nor cut"):
        train.load(0)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("ava_train_v2.2.csv", "film,0902,0.1\n", "Received: line 1, 'film,"),
        ("ava_train_v2.2.csv", "film,0902,0,0,1,1,9,0\n", "must be 1 to 3"),
        ("ava_train_v2.2.csv", "film,0902,0,0,1,1,sit,0\n", "and an action"),
        ("ava_train_v2.2.csv", "gone,0902,0,0,1,1,1,0\n", "such as 'gone'"),
        # Pixels, and corners in another order.
        ("ava_train_v2.2.csv", "film,0902,10,20,90,80,1,0\n", "in shares of"),
        ("ava_train_v2.2.csv", "film,0902,0.9,0,0.1,1,1,0\n", "in shares of"),
        ("ava_val_predicted_boxes.csv", "whole,0903,0,0,1,1,\n", "and a score"),
        (EXCLUDED, "whole,0905,x\n", "a video and a second"),
        (CLASS_LIST, 'item { name: "sit" }', "a `name` and a `label_id`"),
        (CLASS_LIST, 'item { name: "a" id: 0 }', "`label_id` of at least 1"),
        ("ava_train_v2.2.csv", "film,0902.5,0,0,1,1,1,0\n", "a second, the"),
    ],
)
def test_a_wrong_list_is_refused(tmp_path, name, text, message):
    root = make_folder(tmp_path)
    (tmp_path / "annotations" / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        data.load_actions(root)


def test_a_negative_frame_rate_is_refused(tmp_path):
    with pytest.raises(ValueError, match="`frame_rate` must be a number, at"):
        data.load_actions(str(tmp_path), frame_rate=-30.0)
    source, _ = data.load("moving_digits")
    options = dict(batch_size=1, image_size=(16, 16), num_frames=2)
    with pytest.raises(ValueError, match="`frame_rate` must be a number, at"):
        data.eval_batches(source, **options, channels=1, frame_rate=-30.0)


def test_a_folder_without_lists_is_refused(tmp_path):
    with pytest.raises(ValueError, match="must hold ava_train_v2.2.csv"):
        data.load_actions(str(tmp_path))
