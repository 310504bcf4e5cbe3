"""Names of released weights, and how they become files."""

import os
import pathlib
import sys
import types

import numpy as np
import pytest

import keras_vit
import keras_vit_cli
from keras_vit.weights import augreg, registry, released

pytestmark = pytest.mark.backend("torch")

TOKEN = (
    pathlib.Path(__file__).parents[1] / "goldens/numerics/vit_token.ckpt.npz"
)
B16 = "B_16-i21k-300ep-lr_0.001-aug_medium1-wd_0.1-do_0.0-sd_0.0"
TUNED = f"{B16}--imagenet2012-steps_20k-lr_0.03-res_384"
SMALL = dict(hidden_size=48, num_layers=2, num_heads=3, mlp_dim=96)
# The same pre-training with another weight decay, and on ImageNet-1k.
OTHER = B16.replace("wd_0.1", "wd_0.03")
OTHER_TUNED = TUNED.replace("wd_0.1", "wd_0.03")
I1K = B16.replace("i21k", "i1k")
HYBRID = "R26_S_32-i21k-300ep-lr_0.001-aug_light1-wd_0.1-do_0.0-sd_0.0"
INDEX = f"""\
name,ds,final_val,adapt_ds,adapt_resolution,adapt_final_val,filename,\
adapt_filename
B/16,i21k,0.30,imagenet2012,384,0.85,{B16},{TUNED}
B/16,i21k,0.20,imagenet2012,384,0.90,{OTHER},{OTHER_TUNED}
B/16,i1k,0.99,imagenet2012,224,0.70,{I1K},
R26+S/32,i21k,0.25,cifar100,224,0.91,{HYBRID},
"""


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A mirror with a small file under the name of each of two weights."""
    root = tmp_path / "server"
    for file in ("imagenet21k/ViT-B_16.npz", f"augreg/{TUNED}.npz"):
        path = root / file
        path.parent.mkdir(parents=True)
        path.write_bytes(TOKEN.read_bytes())
    (root / "augreg/index.csv").write_text(INDEX)
    monkeypatch.setenv("KERAS_VIT_WEIGHTS_URL", root.as_uri())
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "cache"))
    return root


def test_a_name_is_fetched_once_and_built(server):
    model = keras_vit.ViTB16(weights="imagenet21k", **SMALL)
    assert model.input_shape == (None, 64, 64, 3)
    assert model.output_shape == (None, 7)
    (server / "imagenet21k/ViT-B_16.npz").unlink()
    keras_vit.ViTB16(weights="imagenet21k", **SMALL)


def test_any_augreg_file_is_found_by_its_name(server):
    model = keras_vit.ViTB16(weights=f"augreg:{TUNED}", **SMALL)
    assert model.output_shape == (None, 7)
    with pytest.raises(ValueError, match="must be of ViTL16.*is of ViTB16"):
        keras_vit.ViTL16(weights=f"augreg:{TUNED}")


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "B_16", f"{B16}/../x", f"{B16}--../../a-res_3"]
)
def test_no_augreg_name_leaves_the_cache(name):
    with pytest.raises(ValueError, match="must be a file name of augreg"):
        registry.find(f"augreg:{name}", None)


def test_what_an_augreg_name_specifies():
    entry = registry.find(f"augreg:{TUNED}.npz", None)
    assert (entry.classes, entry.image_size) == (1000, 384)
    for name, classes in ((B16, 21_843), (B16.replace("i21k", "i1k"), 1000)):
        assert registry.find(f"augreg:{name}", None).classes == classes


def test_unknown_names_give_the_nearest():
    with pytest.raises(ValueError) as error:
        keras_vit.ViTB16(weights="imagenet-21k")
    assert "imagenet21k" in str(error.value)
    assert "ViTB16" in str(error.value)
    with pytest.raises(ValueError, match="no such file exists"):
        keras_vit.ViTB8(weights="imagenet21k")


def test_every_entry_is_of_a_constructor_and_once():
    keys = [(entry.name, entry.variant) for entry in registry.CHECKPOINTS]
    assert len(keys) == len(set(keys))
    assert {variant for _, variant in keys} <= set(keras_vit.list_models())
    for entry in registry.CHECKPOINTS:
        if entry.name.startswith("hf://"):
            continue  # of test_repositories.py
        assert entry.url.startswith(released.SERVERS[entry.server])
        known = {"Apache-2.0", "BSD-3-Clause", "MIT"}
        if entry.server == "ff_only":
            known = {"none, not to be redistributed"}
        assert entry.license in known
        assert entry.source and entry.classes == released.CLASSES[entry.data]
        if entry.name.startswith("augreg"):
            name = os.path.basename(entry.file)
            again = registry.find(f"augreg:{name}", None)
            assert again.variant == entry.variant
            assert again.classes == entry.classes
            assert again.image_size == entry.image_size
            assert again.file == entry.file


@pytest.mark.parametrize(
    ("weights", "variant", "url", "classes"),
    [
        ("imagenet1k", "MixerL16", "mixer_models/imagenet1k/Mixer-L_16", 1000),
        ("imagenet21k", "BiTR152x4", "bit_models/BiT-M-R152x4", 21_843),
        (
            "imagenet21k+imagenet2012",
            "BiTR50x1",
            "bit_models/BiT-M-R50x1-ILSVRC2012",
            1000,
        ),
        (
            "bit:BiT-M-R50x1-run2-diabetic_retinopathy",
            "BiTR50x1",
            "bit_models/vtab/BiT-M-R50x1-run2-diabetic_retinopathy",
            None,
        ),
    ],
)
def test_names_of_mixer_and_bit_are_files_of_the_release(
    weights, variant, url, classes
):
    entry = registry.find(weights, variant)
    assert entry.url == f"https://storage.googleapis.com/{url}.npz"
    assert (entry.variant, entry.classes) == (variant, classes)


@pytest.mark.parametrize(
    "file", ["BiT-L-R50x1", "BiT-M-R50x2", "../BiT-M-R50x1"]
)
def test_other_names_are_no_files_of_bit(file):
    with pytest.raises(ValueError, match="must be a file name of BiT's"):
        registry.find(f"bit:{file}", None)


class TestIndex:
    def test_the_best_by_a_score(self, server):
        assert augreg.best("B_16").name == f"augreg:{B16}"
        tuned = augreg.best("B/16", by="adapt_final_val")
        assert tuned.name == f"augreg:{OTHER_TUNED}"
        found = augreg.best("R26_S_32", ds="i21k")
        assert found.variant == "R26ViTS32"

    def test_filters(self, server):
        best = augreg.best("B_16", ds="i1k", adapt_resolution=224)
        assert best.classes == 1000
        with pytest.raises(ValueError, match="No checkpoint of augreg fits"):
            augreg.best("B_16", adapt_ds="cifar10")
        with pytest.raises(ValueError, match="`by` must be a column"):
            augreg.best("B_16", by="accuracy")


def test_urls_are_cached_by_their_file_name(server):
    url = (server / "imagenet21k/ViT-B_16.npz").as_uri()
    path = registry.resolve(url)
    assert path.endswith("ViT-B_16.npz")
    assert pathlib.Path(path).read_bytes() == TOKEN.read_bytes()
    keras_vit.ViT(weights=url)
    with pytest.raises(ValueError, match="must end in a file's name"):
        registry.resolve("https://example.com/..")


def test_a_token_in_the_url_of_a_server_stays_a_query(monkeypatch):
    entry = registry.find("imagenet21k+imagenet2012", "R50ViTB16")
    monkeypatch.setenv(
        "KERAS_VIT_WEIGHTS_URL", "https://a.example/vit/?token=b/c&user=d"
    )
    assert entry.url == (
        "https://a.example/vit/imagenet21k+imagenet2012/R50+ViT-B_16.npz"
        "?token=b/c&user=d"
    )


def test_a_token_of_a_url_is_not_in_the_model(monkeypatch):
    monkeypatch.setattr(registry.download, "fetch", lambda *a, **b: str(TOKEN))
    model = keras_vit.ViT(weights="https://a.example/b.npz?token=secret")
    assert model.provenance == "https://a.example/b.npz"


class TestDamage:
    """No released name is ever answered with another file."""

    def test_a_login_page_is_refused_and_deleted(self, server):
        page = b"<!doctype html><title>Log in</title>"
        file = server / "imagenet21k/ViT-B_16.npz"
        file.write_bytes(page)
        for _ in range(2):
            with pytest.raises(ValueError, match="is not the file expected"):
                keras_vit.ViTB16(weights="imagenet21k", **SMALL)
        file.write_bytes(TOKEN.read_bytes())
        registry.find("imagenet21k", "ViTB16").fetch()

    def test_a_file_that_changed_is_fetched_again(self, server):
        entry = registry.find("imagenet21k", "ViTB16")
        path = pathlib.Path(entry.fetch())
        # Arrays of one shape exchanged: a good checkpoint of another model.
        arrays = dict(np.load(TOKEN))
        names = [
            f"Transformer/encoderblock_{i}/LayerNorm_0/scale" for i in (0, 1)
        ]
        arrays |= {names[0]: arrays[names[1]], names[1]: arrays[names[0]]}
        np.savez(path, **arrays)
        assert entry.fetch() == str(path)
        assert path.read_bytes() == TOKEN.read_bytes()

    def test_a_url_is_opened_by_its_file_name(self, server):
        file = server / "a.safetensors"
        file.write_bytes(b"<!doctype html>")
        with pytest.raises(ValueError, match="is not the file expected"):
            registry.resolve(file.as_uri())

    def test_the_index_is_a_table(self, server):
        (server / "augreg/index.csv").write_text("<html>Log in</html>")
        with pytest.raises(ValueError, match="must be augreg's index.csv"):
            augreg.best("B_16")


class TestHub:
    @pytest.fixture
    def hub(self, monkeypatch, tmp_path):
        """A huggingface_hub that serves one directory."""
        asked = []
        errors = types.ModuleType("huggingface_hub.errors")
        for name in (
            "RepositoryNotFoundError",
            "RevisionNotFoundError",
            "LocalEntryNotFoundError",
        ):
            setattr(errors, name, type(name, (Exception,), {}))

        def snapshot_download(name, revision, allow_patterns, **kwargs):
            asked.append((name, revision, allow_patterns, kwargs))
            if name == "nobody/nothing":
                raise errors.RepositoryNotFoundError
            if kwargs["local_files_only"]:
                raise errors.LocalEntryNotFoundError("not in the cache")
            return str(tmp_path)

        module = types.ModuleType("huggingface_hub")
        module.snapshot_download, module.errors = snapshot_download, errors
        monkeypatch.setitem(sys.modules, "huggingface_hub", module)
        monkeypatch.setitem(sys.modules, "huggingface_hub.errors", errors)
        return asked

    def test_a_name_and_its_revision(self, hub, tmp_path):
        (tmp_path / "model.safetensors").touch()
        assert registry.resolve("hf://google/vit@main") == str(tmp_path)
        ((name, revision, patterns, _),) = hub
        assert (name, revision) == ("google/vit", "main")
        assert "pytorch_model.bin" not in patterns

    def test_pickles_only_where_there_is_nothing_else(self, hub, tmp_path):
        registry.resolve("hf://google/vit")
        assert "pytorch_model.bin" in hub[1][2]

    def test_errors_are_sentences(self, hub, monkeypatch):
        with pytest.raises(ValueError, match="'hf://nobody/nothing' is not"):
            registry.resolve("hf://nobody/nothing")
        with pytest.raises(ValueError, match="must be hf://owner/name"):
            registry.resolve("hf://../../etc")
        monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
        with pytest.raises(ConnectionError, match="could not be fetched"):
            registry.resolve("hf://google/vit")

    def test_without_the_library(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "huggingface_hub", None)
        with pytest.raises(ValueError, match="pip install huggingface_hub"):
            registry.resolve("hf://google/vit")


def command(*words):
    return keras_vit_cli.main(["weights", *words])


class TestCommand:
    def test_fetch_locate_verify(self, server, capsys):
        assert command("locate", "ViTB16", "imagenet21k") == 0
        assert "not here yet" in capsys.readouterr().out
        assert command("fetch", "ViTB16", "imagenet21k") == 0
        path = pathlib.Path(capsys.readouterr().out.strip().split("\n")[-1])
        assert path.read_bytes() == TOKEN.read_bytes()
        assert command("verify") == 0
        assert "as it was downloaded" in capsys.readouterr().out
        damaged = bytearray(path.read_bytes())
        damaged[1000] ^= 1
        path.write_bytes(damaged)
        assert command("verify", "ViTB16", "imagenet21k") == 1
        assert path.name in capsys.readouterr().err

    def test_list_and_best(self, server, capsys):
        assert command("list", "ViTB16") == 0
        assert "gsam" in capsys.readouterr().out
        assert command("best", "B_16") == 0
        assert f"ViTB16 augreg:{B16}\n" in capsys.readouterr().out
