"""The TPU of a machine is recognised, and what a user sets remains."""

import os

import pytest

from keras_vit import distribution
from keras_vit.distribution import tpu_compiler

FLAG = "--xla_tpu_scoped_vmem_limit_kib"
pytestmark = pytest.mark.backend_independent


@pytest.fixture
def pci(tmp_path, monkeypatch):
    def machine(*devices, arguments=None):
        for i, (vendor, device) in enumerate(devices):
            folder = tmp_path / f"0000:00:0{i}.0"
            folder.mkdir()
            (folder / "vendor").write_text(f"{vendor}\n")
            (folder / "device").write_text(f"{device}\n")
        (tmp_path / "without_files").mkdir()
        if arguments is None:
            monkeypatch.delenv("LIBTPU_INIT_ARGS", raising=False)
        else:
            monkeypatch.setenv("LIBTPU_INIT_ARGS", arguments)
        tpu_compiler.set_options(str(tmp_path))
        return os.environ.get("LIBTPU_INIT_ARGS")

    monkeypatch.setenv("LIBTPU_INIT_ARGS", "")  # restored after the test
    return machine


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (None, f"{FLAG}=49152"),
        ("--a=1", f"--a=1 {FLAG}=49152"),
        (f"{FLAG}=16384", f"{FLAG}=16384"),  # what the user sets remains
    ],
)
def test_v5e_gets_the_option(pci, arguments, expected):
    devices = ("0x8086", "0x1237"), ("0x1ae0", "0x0063")
    assert pci(*devices, arguments=arguments) == expected


@pytest.mark.parametrize(
    "devices",
    [
        (),
        [("0x1ae0", "0x006f")],  # v6e
        [("0x1ae0", "0x0027")],  # v2, v3
        [("0x10de", "0x0063")],  # another vendor
    ],
)
def test_other_machines_are_left_alone(pci, devices):
    assert pci(*devices) is None


def test_the_setup_passes_the_options(monkeypatch):
    called = []
    monkeypatch.setattr(
        tpu_compiler, "set_options", lambda: called.append("set")
    )
    distribution.setup("cpu")
    assert called == ["set"]
