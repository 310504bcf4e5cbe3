"""Names of ImageNet's classes, against lists of other people."""

import importlib.util
import pathlib
import warnings

import keras
import numpy as np
import pytest

import keras_vit
import keras_vit_cli
from keras_vit.models import vit
from keras_vit.weights import class_names, registry

TOKEN = (
    pathlib.Path(__file__).parents[1] / "goldens/numerics/vit_token.ckpt.npz"
)
# Nothing here differs between backends.
pytestmark = pytest.mark.backend_independent
NUMBERS = {"imagenet2012": 1_000, "imagenet21k": 21_843}


@pytest.mark.parametrize("dataset", NUMBERS)
class TestLists:
    def test_every_class_has_a_different_name(self, dataset):
        names = keras_vit.imagenet_classes(dataset)
        assert len(names) == len(set(names)) == NUMBERS[dataset]
        assert all(name and name == name.strip() for name in names)

    def test_classes_are_in_the_order_of_their_synsets(self, dataset):
        synsets = keras_vit.imagenet_synsets(dataset)
        assert len(synsets) == NUMBERS[dataset]
        assert list(synsets) == sorted(set(synsets))
        assert all(len(synset) == 9 for synset in synsets)

    def test_they_are_those_of_timm(self, dataset):
        spec = importlib.util.find_spec("timm")
        if spec is None:
            pytest.skip("timm is not installed")
        folder = pathlib.Path(spec.origin).parent / "data/_info"
        file = {
            "imagenet2012": "imagenet_synsets.txt",
            # Of timm's copies of the augreg checkpoints.
            "imagenet21k": "imagenet21k_goog_synsets.txt",
        }[dataset]
        synsets = keras_vit.imagenet_synsets(dataset)
        assert (folder / file).read_text().split() == list(synsets)
        lines = (folder / "imagenet_synset_to_lemma.txt").read_text()
        lemmas = dict(line.split("\t") for line in lines.splitlines())
        for synset, name in zip(
            synsets, keras_vit.imagenet_classes(dataset), strict=True
        ):
            assert name in (lemmas[synset], f"{lemmas[synset]} ({synset})")


def test_the_two_classes_without_images_are_where_others_found_them():
    synsets = keras_vit.imagenet_synsets("imagenet21k")
    assert {"n03931044", "n09859684"} < set(synsets)
    # All of the 1,000 but one, which the fall 2011 release had not.
    absent = set(keras_vit.imagenet_synsets()) - set(synsets)
    assert absent == {"n04399382"}


def test_the_files_are_small_and_have_their_licence():
    folder = pathlib.Path(class_names.__file__).parent
    assert sum(file.stat().st_size for file in folder.glob("*.gz")) < 500_000
    assert "Princeton University" in (folder / "LICENSE.txt").read_text()
    config = (folder.parents[2] / "setup.cfg").read_text()
    assert "keras_vit.weights.class_names" in config


@pytest.mark.parametrize("dataset", NUMBERS)
def test_names_are_matched_with_the_ids_of_data_sets(dataset):
    names = keras_vit.imagenet_classes(dataset)
    synsets = keras_vit.imagenet_synsets(dataset)
    # transformers' names of the same classes are lemmas alone.
    lemmas = [name.split(" (n")[0] for name in names]
    for given in (names, lemmas, synsets):
        assert class_names.as_synsets(given) == synsets
    assert class_names.as_synsets(("b", "a")) == ("b", "a")


class TestDecodePredictions:
    def test_the_best_come_first_with_id_name_and_score(self):
        scores = np.zeros((2, 1000))
        scores[0, [207, 285]] = 0.7, 0.2
        scores[1, 954] = 0.9
        found = keras_vit.decode_predictions(scores, top=2)
        assert found[0] == [
            ("n02099601", "golden retriever", 0.7),
            ("n02124075", "Egyptian cat", 0.2),
        ]
        assert found[1][0] == ("n07753592", "banana", 0.9)
        assert [len(image) for image in found] == [2, 2]
        tensor = keras.ops.convert_to_tensor(scores)
        assert keras_vit.decode_predictions(tensor, top=1)[1][0][0] == (
            "n07753592"
        )

    def test_names_of_a_model_or_as_given(self):
        scores = np.array([[0.1, 0.7, 0.2]])
        expected = [[("1", "b", 0.7), ("2", "c", 0.2)]]
        model = keras_vit.ViT(
            patch_size=2, hidden_size=4, num_layers=1, num_heads=1, mlp_dim=4,
            input_shape=(4, 4, 3), class_names=("a", "b", "c"),
        )  # fmt: skip
        for names in (("a", "b", "c"), model):
            found = keras_vit.decode_predictions(
                scores, top=2, class_names=names
            )
            assert found == expected
        levels = np.array([[0, 200, 100]], "uint8")
        (found,) = keras_vit.decode_predictions(levels, 3, ("a", "b", "c"))
        assert [name for _, name, _ in found] == ["b", "c", "a"]

    @pytest.mark.parametrize(
        ("arguments", "match"),
        [
            (dict(predictions=np.zeros(1000)), "must be a batch of scores"),
            (dict(predictions=np.zeros((1, 7))), "must be given for 7 classes"),
            (dict(predictions=np.zeros((1, 1000)), top=0), "`top`"),
            (dict(predictions=[["a", "b"]], class_names=("a", "b")), "batch"),
            (dict(predictions=np.zeros((1, 2)), class_names="ab"), "in the or"),
            (
                dict(predictions=np.zeros((1, 3)), class_names=("a", "b")),
                "each of the 3 classes",
            ),
        ],
    )
    def test_mistakes_are_sentences(self, arguments, match):
        with pytest.raises(ValueError, match=match):
            keras_vit.decode_predictions(**arguments)

    def test_an_unknown_dataset_is_named(self):
        with pytest.raises(ValueError, match="`dataset` must be one of"):
            keras_vit.imagenet_classes("imagenet")


def released(monkeypatch, tmp_path, classes):
    """A mirror of small files with heads of so many classes."""
    arrays = dict(np.load(TOKEN))
    rng = np.random.default_rng(0)
    arrays["head/kernel"] = rng.normal(size=(48, classes)).astype("float32")
    arrays["head/bias"] = np.zeros(classes, "float32")
    for name in ("augreg", "augreg+imagenet2012"):
        file = tmp_path / "mirror" / registry.find(name, "ViTB16").file
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez(file, **arrays)
    monkeypatch.setenv("KERAS_VIT_WEIGHTS_URL", (tmp_path / "mirror").as_uri())
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "cache"))


SMALL = dict(hidden_size=48, num_layers=2, num_heads=3, mlp_dim=96)


def test_released_weights_know_their_class_names(monkeypatch, tmp_path):
    released(monkeypatch, tmp_path, 1000)
    model = keras_vit.ViTB16(weights="augreg+imagenet2012", **SMALL)
    names = keras_vit.imagenet_classes()
    assert model.get_layer("head").class_names == names
    # A new head has classes of its own, and given names come first.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other = keras_vit.ViTB16(
            weights="augreg+imagenet2012", classes=3, **SMALL
        )
    assert other.get_layer("head").class_names is None
    # A file with another number of classes is not ImageNet's.
    model = keras_vit.ViTB16(weights="augreg", **SMALL)
    assert model.get_layer("head").class_names is None


def test_the_21k_names_are_attached_and_saved(monkeypatch, tmp_path):
    released(monkeypatch, tmp_path, 21_843)
    model = keras_vit.ViTB16(weights="augreg", **SMALL)
    model.save(tmp_path / "model.keras")
    again = keras_vit.ViT(weights=tmp_path / "model.keras")
    names = again.get_layer("head").class_names
    assert names == keras_vit.imagenet_classes("imagenet21k")


def test_a_conversion_keeps_the_class_names_of_a_release(monkeypatch, tmp_path):
    pytest.importorskip("safetensors")
    released(monkeypatch, tmp_path, 1000)
    # The sizes are those of the small file.
    monkeypatch.setitem(vit.VARIANTS, "ViTB16", {})
    arguments = ["convert", "augreg+imagenet2012", "--model=ViTB16"]
    arguments.append("--allow_differences")
    for name, form in (("a.keras", "keras_vit"), ("b", "huggingface")):
        path = str(tmp_path / name)
        assert keras_vit_cli.main([*arguments, path, f"--format={form}"]) == 0
        model = keras_vit.from_pretrained(path)
        assert model.class_names == keras_vit.imagenet_classes()
