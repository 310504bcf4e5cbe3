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

pytestmark = pytest.mark.backend_independent

FOLDER = ROOT / "deploy"
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
KUBERNETES = list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))
POD = next(x for x in KUBERNETES if x["kind"] == "Deployment")["spec"]
POD = POD["template"]["spec"]
(CONTAINER,) = POD["containers"]
SERVING, PAGE = (COMPOSE["services"][name] for name in ("serving", "page"))


def flags(words):
    words = [word.partition("=") for word in words]
    return {name: value for name, _, value in words if name.startswith("--")}


def test_the_model_is_mounted_read_only_where_its_configs_say(tmp_path):
    (mount,) = SERVING["volumes"]
    assert mount["read_only"] is True
    name = SERVING["environment"]["MODEL_NAME"]
    # The default is what the first lines of the file export to.
    source = re.fullmatch(r"\$\{MODEL_DIR:-\.\./(.*)\}", mount["source"])[1]
    text = (FOLDER / "compose.yaml").read_text()
    assert f"keras-vit export MODEL.keras {source}/1 --images" in text
    assert os.path.basename(source) == name
    serving_assets.write_serving_configs(tmp_path, name)
    monitoring = flags(SERVING["command"])["--monitoring_config_file"]
    assert SERVING["configs"] == [dict(source="monitoring", target=monitoring)]
    file = FOLDER / COMPOSE["configs"]["monitoring"]["file"]
    documented = (ROOT / "docs/serving.md").read_text()
    assert file.read_text() in documented
    for flag, value in flags(SERVING["command"]).items():
        if flag.endswith("_file") and value != monitoring:
            folder, file = os.path.split(value)
            assert folder == mount["target"] and (tmp_path / file).is_file()
    config = (tmp_path / "models.config").read_text()
    assert f'base_path: "{mount["target"]}"' in config


def test_the_page_asks_the_server_by_its_name(monkeypatch):
    asked = []
    page = types.SimpleNamespace(block_thread=lambda: None, close=lambda: None)

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


def ready(where):
    """Returns the script that checks the server's health."""
    if where == "compose":
        *command, script = SERVING["healthcheck"]["test"]
        assert command == ["CMD", "bash", "-c"]
        return script.replace("$$", "$")
    (data,) = (x["data"] for x in KUBERNETES if x["kind"] == "ConfigMap")
    return data["ready"]


@pytest.mark.parametrize("where", ["compose", "kubernetes"])
def test_the_highest_version_makes_the_server_healthy(where, tmp_path):
    def status(model, highest):
        for number in (9, highest):  # as text, 9 is above 10
            (tmp_path / str(number)).mkdir(exist_ok=True)
        (tmp_path / "models.config").touch()
        models = tf_serving.Models({model: {}}, version=10)
        with tf_serving.rest(models) as address:
            script = ready(where).replace("8501", address.partition(":")[2])
            script = script.replace("ls /models/vit", f"ls {tmp_path}")
            words = ["bash", "-c", script]
            return subprocess.run(words, timeout=30).returncode

    assert status("vit", 10) == 0
    assert status("other", 10) == 1
    assert status("vit", 11) == 1  # only the version before is there


def test_images_are_pinned_by_version():
    images = [SERVING["image"], CONTAINER["image"]]
    images += re.findall(
        r"^FROM (.*)$", (FOLDER / "Dockerfile").read_text(), re.M
    )
    for image in images:
        assert re.search(r":(\$\{SERVING_TAG:-)?\d+\.\d+\.\d+", image), image


def test_kubernetes_runs_the_server_of_the_compose_file():
    assert CONTAINER["image"].partition(":")[2] in SERVING["image"]
    assert CONTAINER["args"] == SERVING["command"]
    (config,) = (x["data"] for x in KUBERNETES if x["kind"] == "ConfigMap")
    monitoring = (FOLDER / "monitoring.config").read_text()
    assert config["monitoring.config"] == monitoring
    assert ready("kubernetes") == ready("compose")
    mounts = {x["name"]: x["mountPath"] for x in CONTAINER["volumeMounts"]}
    assert mounts["model"] == SERVING["volumes"][0]["target"]
    for flag, value in flags(CONTAINER["args"]).items():
        if flag.endswith("_file"):
            assert os.path.dirname(value) in mounts.values()
    for probe in ("startupProbe", "readinessProbe"):
        command = CONTAINER[probe]["exec"]["command"]
        assert command == ["bash", f"{mounts['config']}/ready"]
    assert CONTAINER["livenessProbe"]["httpGet"]["port"] == "rest"
    limits = CONTAINER["resources"]["limits"]
    assert float(limits["cpu"]) > 0 and limits["memory"].endswith("Gi")


@pytest.mark.parametrize("manifest", KUBERNETES, ids=lambda x: x["kind"])
def test_the_manifest_has_the_schema_of_kubernetes(manifest):
    validate = pytest.importorskip("kubernetes_validate")
    version = validate.latest_version()
    validate.validate(manifest, version, strict=True)
    with pytest.raises(validate.ValidationError):
        validate.validate(manifest | {"unknown": 1}, version, strict=True)


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
    (wanted,) = re.findall(r"pip install .* -r (\S+)", text)
    assert (context / wanted).is_file()
    (module,) = re.findall(r'ENTRYPOINT \["python", "-m", "(.*)"\]', text)
    assert module == demo.__name__
