"""Well-known repositories of the Hub, and the licences that are said."""

import http.server
import json
import pathlib
import threading
import types

import catalogue
import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.inspection import costs
from keras_vit.models import families
from keras_vit.weights import registry, released
from keras_vit.weights.download import hub

ROWS = released.of_hub()
FIRST = {row.variant: row for row in reversed(ROWS)}
TINY = catalogue.SHRUNK["dinov2"]
SMALL = "hf://facebook/dinov2-small"


@pytest.mark.backend_independent
def test_each_row_is_of_a_constructor_and_once():
    names = [row.repository for row in ROWS]
    assert len(names) == len(set(names))
    assert {row.variant for row in ROWS} <= set(keras_vit.list_models())
    for row in ROWS:
        assert row.scaling in released.SCALINGS
        restricted = hub.restriction(row.repository)
        assert row.license == restricted or row.license in hub.FREE
        assert restricted is None or restricted == row.license


@pytest.mark.backend("jax")  # which traces fastest
@pytest.mark.parametrize("variant", FIRST)
def test_parameters_are_those_of_the_constructor(variant):
    def count(num_layers):
        with costs.shapes_alone():
            return getattr(keras_vit, variant)(
                num_layers=num_layers,
                input_shape=(size, size, 3),
                include_top=row.classes is not None,
                classes=row.classes,
            ).count_params()

    row = FIRST[variant]
    (sizes,) = (
        family.variants[variant]
        for family in families.FAMILIES.values()
        if variant in family.variants
    )
    size = row.image_size // sizes["patch_size"] * sizes["patch_size"]
    one, two = count(1), count(2)
    assert row.parameters == one + (sizes["num_layers"] - 1) * (two - one)


@pytest.mark.backend("torch")
@pytest.mark.filterwarnings("ignore")
def test_rows_of_timm_are_those_of_timm(timm):
    licences = {
        "Apache-2.0": "apache-2.0",
        "MIT": "mit",
        "CC-BY-NC-4.0": "cc-by-nc-4.0",
        "DINOv3 License": "dinov3-license",
        "Apple Sample Code License": "apple-ascl",
    }
    for row in ROWS:
        owner, _, tag = row.repository.partition("/")
        if owner != "timm":
            continue
        known = timm.get_pretrained_cfg(tag, allow_unregistered=False)
        assert known.hf_hub_id == row.repository
        assert known.input_size == (3, row.image_size, row.image_size)
        scaling = released.SCALINGS[row.scaling]
        assert (known.mean, known.std) == scaling
        assert known.num_classes == (row.classes or 0)
        assert known.license == licences[row.license]
    # Of every repository of these families, listed or not.
    for tag in timm.list_models(["vit_*", "eva*"], pretrained=True):
        known = timm.get_pretrained_cfg(tag)
        found = hub.restriction(known.hf_hub_id or f"timm/{tag}")
        free = known.license in ("apache-2.0", "mit", None)
        assert (found is None) == free, tag
        if found in licences:
            assert licences[found] == known.license


class Hub(http.server.BaseHTTPRequestHandler):
    """The Hub's answers about one repository, whose files are `folder`."""

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        name = self.path.partition("?")[0].rpartition("/")[2]
        folder = self.server.folder
        files = [
            dict(
                type="file",
                path=path.name,
                rfilename=path.name,
                size=path.stat().st_size,
                oid="0" * 40,
            )
            for path in folder.iterdir()
        ]
        if "/tree/" in self.path:
            body = json.dumps(files).encode()
        elif self.path.startswith("/api/"):
            model = dict(id="facebook/dinov2-small", sha="0" * 40)
            body = json.dumps(model | dict(siblings=files)).encode()
        else:
            body = (folder / name).read_bytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Repo-Commit", "0" * 40)
        self.send_header("ETag", f'"{name}"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server in place of the Hub, with a tiny DINOv2."""
    pytest.importorskip("huggingface_hub")
    from huggingface_hub import constants

    model = keras_vit.DINOv2S14(
        **TINY, include_top=False, input_shape=(28, 28, 3)
    )
    folder = tmp_path / "repository"
    keras_vit.save_checkpoint(model, folder, format="huggingface")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.folder, server.model = folder, model
    threading.Thread(
        target=server.serve_forever, args=(0.01,), daemon=True
    ).start()
    url = f"http://127.0.0.1:{server.server_port}"
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE
    template = template.replace(constants.ENDPOINT, url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.backend("torch")
def test_a_name_of_the_list_is_fetched_by_the_hubs_client(server):
    (entry,) = (e for e in keras_vit.list_weights() if e.name == SMALL)
    model = keras_vit.DINOv2S14(weights=SMALL, include_top=False, **TINY)
    assert model.input_shape == (None, 28, 28, 3)
    for ours, theirs in zip(model.weights, server.model.weights, strict=True):
        np.testing.assert_array_equal(
            *map(keras.ops.convert_to_numpy, (ours, theirs))
        )
    assert pathlib.Path(entry.path, "snapshots", "0" * 40).is_dir()
    # Any constructor takes only its own.
    with pytest.raises(ValueError, match="must be of DINOv2B14.*DINOv2S14"):
        keras_vit.DINOv2B14(weights=SMALL)


@pytest.mark.backend_independent
@pytest.mark.parametrize("kind", ["HTTPError", "LocalEntryNotFoundError"])
def test_a_broken_transfer_is_a_connection_error(kind, monkeypatch):
    library = pytest.importorskip("huggingface_hub")

    def broken(*args, **kwargs):
        raise getattr(library.errors, kind)("the peer closed the connection")

    monkeypatch.setattr(library, "snapshot_download", broken)
    with pytest.raises(ConnectionError, match="dinov2-small.*peer closed"):
        hub.fetch(SMALL)


@pytest.mark.backend_independent
@pytest.mark.parametrize(
    ("name", "license_name"),
    [
        ("facebook/dinov3-vitb16-pretrain-lvd1689m", "DINOv3 License"),
        ("facebook/vit-mae-base@main", "CC-BY-NC-4.0"),
        ("timm/vit_huge_patch14_clip_quickgelu_224.dfn5b", "Apple Sample"),
    ],
)
def test_a_restrictive_licence_warns(name, license_name, monkeypatch, tmp_path):
    library = types.SimpleNamespace(
        snapshot_download=lambda *args, **kwargs: str(tmp_path),
        errors=types.SimpleNamespace(),
    )
    monkeypatch.setattr(hub, "_library", lambda: library)
    with pytest.warns(UserWarning, match=f"{license_name}.*Read it at"):
        assert registry.resolve(f"hf://{name}") == str(tmp_path)
    assert hub.restriction("facebook/dinov2-base") is None
