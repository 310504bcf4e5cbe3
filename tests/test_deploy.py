"""deploy/: what the files name is there, and fits together."""

import os
import re
import subprocess
import types

import pytest
import yaml

from keras_vit.export import serving_assets
from recipes import demo, demo_models
from tests import tf_serving
from tests.documented import ROOT
from tests.test_commands import SECTIONS

pytestmark = pytest.mark.backend_independent

FOLDER = ROOT / "deploy"
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVING, PAGE = (COMPOSE["services"][name] for name in ("serving", "page"))


def flags(service):
    words = [word.partition("=") for word in service["command"]]
    return {name: value for name, _, value in words if name.startswith("--")}


def test_the_model_is_mounted_read_only_where_its_configs_say(tmp_path):
    (mount,) = SERVING["volumes"]
    assert mount["read_only"] is True
    name = SERVING["environment"]["MODEL_NAME"]
    # The default is what the first lines of the file export to.
    source = re.fullmatch(r"\$\{MODEL_DIR:-\.\./(.*)\}", mount["source"])[1]
    text = (FOLDER / "compose.yaml").read_text()
    assert f"keras-vit export MODEL.keras {source}/1\n" in text
    assert os.path.basename(source) == name
    serving_assets.write_serving_configs(tmp_path, name)
    for flag, value in flags(SERVING).items():
        if flag.endswith("_file"):
            folder, file = os.path.split(value)
            assert folder == mount["target"] and (tmp_path / file).is_file()
    config = (tmp_path / "models.config").read_text()
    assert f'base_path: "{mount["target"]}"' in config


def test_the_page_asks_the_server_by_its_name(monkeypatch):
    asked = []
    page = types.SimpleNamespace(block_thread=lambda: None)

    def build(*found):
        asked.append(found)
        return page

    def launch(page, host, port):
        asked.append((host, port))
        return None, "address", None

    monkeypatch.setattr(demo, "build", build)
    monkeypatch.setattr(demo, "launch", launch)
    assert demo.main(PAGE["command"]) == 0
    ((url,), folder), (host, port) = asked
    server, model, _ = re.fullmatch(demo_models._SERVED, url).groups()
    assert server == "serving:8501" and folder is None
    assert model == SERVING["environment"]["MODEL_NAME"]
    assert list(PAGE["depends_on"]) == ["serving"]
    assert host == "0.0.0.0"
    assert PAGE["ports"] == [f"127.0.0.1:{port}:{port}"]


@pytest.mark.parametrize("name", COMPOSE["services"])
def test_every_service_is_checked_and_limited(name):
    service = COMPOSE["services"][name]
    assert service["healthcheck"]["test"][0] == "CMD"
    limits = service["deploy"]["resources"]["limits"]
    assert float(limits["cpus"]) > 0 and limits["memory"].endswith("G")
    # Nobody else is let in.
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])


@pytest.mark.parametrize(("model", "status"), [("vit", 0), ("other", 1)])
def test_the_health_check_asks_whether_the_model_is_there(model, status):
    _, *words = SERVING["healthcheck"]["test"]
    with tf_serving.rest(tf_serving.Models({model: {}})) as address:
        port = address.partition(":")[2]
        words = [word.replace("8501", port) for word in words]
        done = subprocess.run(words, capture_output=True, timeout=30)
    assert done.returncode == status, done.stderr


def test_the_dockerfile_names_what_is_there():
    build = PAGE["build"]
    context = (FOLDER / build["context"]).resolve()
    assert context == ROOT
    path = context / build["dockerfile"]
    text = path.read_text()
    ignored = path.with_name(path.name + ".dockerignore").read_text().split()
    copied = 0
    for line in re.findall(r"^COPY (.*)$", text, re.M):
        for source in line.split()[:-1]:
            copied += 1
            assert (context / source).exists(), source
            assert f"!{source}" in ignored, source
    assert copied == len([x for x in ignored if x.startswith("!")])
    (extra,) = re.findall(r'pip install [^"]*"\.\[(\w+)\]"', text)
    assert extra in SECTIONS["options.extras_require"]
    (module,) = re.findall(r'ENTRYPOINT \["python", "-m", "(.*)"\]', text)
    assert module == demo.__name__
