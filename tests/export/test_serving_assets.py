"""Warm-up, labels, model card and configs, as TF Serving reads them."""

import json
import re
import sys

import numpy as np
import pytest

from keras_vit.export import serving_assets

pytestmark = pytest.mark.backend_independent


def extra(directory, name):
    return directory / "assets.extra" / name


def warmup_requests(directory):
    pytest.importorskip("tensorflow_serving")
    import tensorflow as tf
    from tensorflow_serving.apis import prediction_log_pb2

    path = str(extra(directory, "tf_serving_warmup_requests"))
    for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
        log = prediction_log_pb2.PredictionLog.FromString(record)
        assert log.WhichOneof("log_type") == "predict_log"
        yield log.predict_log.request


def test_warmup_asks_for_each_image_and_for_all(tmp_path):
    pytest.importorskip("tensorflow_serving")
    import tensorflow as tf

    images = [b"\xff\xd8one", b"two", b"three\x00"]
    serving_assets.write_warmup(tmp_path, images, "vit")
    found = []
    for request in warmup_requests(tmp_path):
        assert request.model_spec.name == "vit"
        assert request.model_spec.signature_name == "serving_default"
        assert list(request.inputs) == ["image_bytes"]
        tensor = tf.make_ndarray(request.inputs["image_bytes"])
        assert request.inputs["image_bytes"].dtype == tf.string
        found.append(tensor.tolist())
    assert found == [[image] for image in images] + [images]


def test_no_request_of_the_warmup_is_larger_than_the_server_takes(tmp_path):
    pytest.importorskip("tensorflow_serving")
    serving_assets.write_warmup(tmp_path, [b"x"] * 40, "vit")
    sizes = [
        request.inputs["image_bytes"].tensor_shape.dim[0].size
        for request in warmup_requests(tmp_path)
    ]
    assert sizes == [1] * 40 + [32, 8]


def test_warmup_of_nothing_or_too_much_is_refused(tmp_path):
    for requests in ([], ["text"]):
        with pytest.raises(ValueError, match="`requests` must be a list"):
            serving_assets.write_warmup(tmp_path, requests, "vit")
    with pytest.raises(ValueError, match="at most 1000 records.* 970 req"):
        serving_assets.write_warmup(tmp_path, [b"x"] * 970, "vit")
    assert not extra(tmp_path, "").exists()


def test_warmup_without_the_package_says_how_to_install_it(
    tmp_path, monkeypatch
):
    pytest.importorskip("tensorflow")
    monkeypatch.setitem(sys.modules, "tensorflow_serving", None)
    monkeypatch.setitem(sys.modules, "tensorflow_serving.apis", None)
    with pytest.raises(ValueError, match="pip install tensorflow-serving-api"):
        serving_assets.write_warmup(tmp_path, [b"x"], "vit")
    assert not extra(tmp_path, "").exists()


def test_labels_are_lines(tmp_path):
    serving_assets.write_class_names(
        tmp_path, ("tench, Tinca tinca", "Käse", "a|b")
    )
    text = extra(tmp_path, "labels.txt").read_bytes().decode()
    assert text == "tench, Tinca tinca\nKäse\na|b\n"


@pytest.mark.parametrize("label", ["a\nb", "a\r", "\u2028", 3])
def test_labels_that_are_no_line_are_refused(tmp_path, label):
    with pytest.raises(ValueError, match=r"`class_names` .*class_names\[1\]="):
        serving_assets.write_class_names(tmp_path, ["fine", label])


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("a.txt", "\ufeffK\xe4se\n".encode(), ("K\xe4se",)),
        ("a.json", b'["a, b"]', ("a, b",)),
        ("a.txt", b"K\xe4se", "a.txt' must be text in UTF-8"),
        ("a.json", b'["a"', "a.json' must hold a JSON list"),
        ("a.json", b'[["n1", "a"]]', "a.json' must hold a JSON list of names"),
    ],
)
def test_class_names_are_read_or_the_file_is_named(
    tmp_path, name, content, found
):
    (tmp_path / name).write_bytes(content)
    if isinstance(found, tuple):
        assert serving_assets.read_class_names(tmp_path / name) == found
    else:
        with pytest.raises(ValueError, match=found):
            serving_assets.read_class_names(tmp_path / name)


def test_card_has_the_metadata(tmp_path):
    serving_assets.write_model_card(
        tmp_path,
        dict(
            name="flowers",
            architecture="ViT-B/16",
            weights="imagenet21k",
            classes=37,
            class_names=("rose", "a|b"),
            input=dict(height=224, width=160, channels=3, scaling="in it"),
            metrics={"accuracy": np.float32(0.5), "loss": float("nan")},
            precision="float16",
            comparison=dict(largest_difference=1.5e-4, same_first=0.99),
            num_parameters=np.int64(85798656),
            exported_at="2025-01-02T03:04:05+00:00",
            trained_on="a\ntable",
        ),
    )
    metadata = json.loads(extra(tmp_path, "model_card.json").read_text())
    assert metadata["metrics"] == {"accuracy": 0.5, "loss": None}
    assert metadata["class_names"] == ["rose", "a|b"]
    assert metadata["num_parameters"] == 85798656
    assert metadata["licence"] is None and metadata["commit"] is None
    text = extra(tmp_path, "model_card.md").read_text()
    assert text.startswith("# flowers\n")
    for row in (
        "| weights from | imagenet21k |",
        "| licence | not stated |",
        "| parameters | 85,798,656 |",
        "| classes | 37 |",
        r"| class names | rose, a\|b, ... (37 in labels.txt) |",
        "| input | height: 224; width: 160; channels: 3; scaling: in",
        "| largest_difference: 0.00015; same_first: 0.99 |",
        "| accuracy | 0.5 |",
        "| loss | not stated |",
        "| exported at | 2025-01-02T03:04:05+00:00 |",
        "| trained_on | a table |",
    ):
        assert row in text


def test_models_config_parses_and_names_the_model(tmp_path):
    pytest.importorskip("tensorflow_serving")
    from google.protobuf import text_format
    from tensorflow_serving.config import model_server_config_pb2

    serving_assets.write_serving_configs(tmp_path, "vit-b_16.2")
    config = text_format.Parse(
        (tmp_path / "models.config").read_text(),
        model_server_config_pb2.ModelServerConfig(),
    )
    (model,) = config.model_config_list.config
    assert model.name == "vit-b_16.2"
    assert model.base_path == "/models/vit-b_16.2"
    assert model.model_platform == "tensorflow"


def test_batching_config_holds_together(tmp_path):
    serving_assets.write_serving_configs(tmp_path, "vit")
    text = (tmp_path / "batching.config").read_text()
    lines = [x for x in text.splitlines() if x and not x.startswith("#")]
    field = re.compile(r"(\w+)(?:: (\w+)| { value: (\d+) })")
    found = [field.fullmatch(line).groups() for line in lines]
    sizes = [int(x) for name, x, _ in found if name == "allowed_batch_sizes"]
    assert sizes == sorted(set(sizes)) and sizes[-1] == 32
    values = {name: x or y for name, x, y in found}
    assert values == dict(
        max_batch_size="32",
        batch_timeout_micros="5000",
        num_batch_threads="4",
        allowed_batch_sizes="32",
        pad_variable_length_inputs="false",
    )


def test_configs_that_somebody_edited_stay(tmp_path):
    (tmp_path / "models.config").write_text("mine")
    serving_assets.write_serving_configs(tmp_path, "vit")
    assert (tmp_path / "models.config").read_text() == "mine"
    assert "max_batch_size" in (tmp_path / "batching.config").read_text()


def test_a_config_of_larger_batches_than_a_version_takes_is_told(tmp_path):
    serving_assets.write_serving_configs(tmp_path, "vit", 8)
    before = (tmp_path / "batching.config").read_text()
    for most in (8, 64):
        serving_assets.write_serving_configs(tmp_path, "vit", most)
    with pytest.warns(UserWarning, match="up to 8 images.*max_images=4"):
        serving_assets.write_serving_configs(tmp_path, "vit", 4)
    assert (tmp_path / "batching.config").read_text() == before


@pytest.mark.parametrize("name", ["", "a b", "a/b", 'a"', ".", "a:b", "-a"])
def test_a_name_that_no_url_has_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match="`model_name` must be letters"):
        serving_assets.write_serving_configs(tmp_path, name)
    assert not list(tmp_path.iterdir())
