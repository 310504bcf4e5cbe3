"""Hundreds of damaged and contradictory weights, none of which is accepted.

Each is refused with a clear message, or read with the values of the file that
it was made from, or, if the format has no checksum, with finite values.
"""

import copy
import itertools
import json
import math
import pathlib
import struct
import warnings
import zipfile

import numpy as np
import pytest
import small_checkpoints as small

import keras_vit
from keras_vit.weights import checkpoint, load, registry
from keras_vit.weights.download import resume

pytest.importorskip("safetensors")
# Files are read in NumPy, whatever the backend.
pytestmark = [
    pytest.mark.backend_independent,
    pytest.mark.filterwarnings("ignore:The head of"),
]
# Places of a config are filled with each of these.
ODD = (
    None, True, "", "x", -1, 0, 1, 3, 0.5, 1e9, 1e-9, math.nan, math.inf,
    10**400, [], [1], [math.nan] * 3, [-1] * 3, {}, {"a": {}}, [[1, 2], [3]],
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The undamaged files."""
    folder = tmp_path_factory.mktemp("seeds")
    np.savez(folder / "a.npz", **small.authors())
    small.write(folder / "timm", *small.timm())
    small.write(folder / "huggingface", *small.huggingface())
    return folder


@pytest.fixture(scope="module")
def models(folder):
    """A model of each format, to fill."""
    names = ("a.npz", "timm", "huggingface")
    return {name: keras_vit.ViT(weights=folder / name) for name in names}


def values_of(model):
    return [np.array(value) for value in model.get_weights()]


def accepted(path, model):
    """Opens a file and fills a model as `ViT` does; False if it is refused."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            source = checkpoint.open_checkpoint(path)
            if source.metadata["num_heads"] not in (None, small.HEADS):
                raise ValueError(f"{path}: for a model of other heads")
            load.fill(model, source, model.metadata)
    except ValueError as error:
        text = str(error)
        assert path.name in text, text
        assert len(text) < 2500 and "Traceback" not in text
        return False
    metadata = source.metadata
    epsilon = metadata.get("layer_norm_epsilon", 1e-6)
    assert type(epsilon) is float and 0 < epsilon <= 0.1
    assert metadata.get("gelu_approximate") in (None, True, False)
    for name, low in (("pixel_mean", -1e5), ("pixel_std", 1e-3)):
        given = np.atleast_1d(metadata.get(name, 1.0))
        assert ((low <= given) & (given <= 1e5)).all(), metadata[name]
    if metadata["num_heads"]:
        assert metadata["hidden_size"] % metadata["num_heads"] == 0
    assert (
        len(metadata.get("class_names") or range(5)) == metadata["classes"] == 5
    )
    assert all(np.isfinite(value).all() for value in values_of(model))
    return True


def damaged(content, seed):
    """Yields a file with a bit flipped, cut, shifted, or with parts moved."""
    rng = np.random.default_rng(seed)
    size = len(content)
    for place in rng.integers(0, size, 40):
        changed = bytearray(content)
        changed[place] ^= 1 << int(rng.integers(8))
        yield bytes(changed)
    # The first and the last bytes say how the others are read.
    for place in itertools.chain(range(0, 60, 4), range(size - 60, size, 4)):
        changed = bytearray(content)
        changed[place] = int(rng.integers(256))
        yield bytes(changed)
    for length in np.linspace(0, size - 1, 15).astype(int):
        yield content[:length]
    for begin, end in np.sort(rng.integers(0, size, (10, 2)), axis=1):
        yield content[:begin] + content[end:]  # a hole
        yield content[:end] + content[begin:]  # a part twice
    yield content + content
    yield b""
    yield b"<!doctype html><title>Log in</title>"
    yield b"\0" * size


def test_bytes_of_an_npz_file(folder, models, tmp_path):
    content = (folder / "a.npz").read_bytes()
    model = models["a.npz"]
    assert accepted(folder / "a.npz", model)
    expected = values_of(model)
    path = tmp_path / "a.npz"
    trials = list(damaged(content, 0))
    refused = 0
    for changed in trials:
        path.write_bytes(changed)
        if not accepted(path, model):
            refused += 1
            continue
        # What is taken has every array's checksum.
        for a, b in zip(expected, values_of(model), strict=True):
            np.testing.assert_array_equal(a, b)
    assert len(trials) > 100 and refused > 0.6 * len(trials)


def test_bytes_of_a_safetensors_file(folder, models, tmp_path):
    content = (folder / "timm/model.safetensors").read_bytes()
    path = small.write(tmp_path / "timm", *small.timm())
    trials = list(damaged(content, 1))
    refused = 0
    for changed in trials:
        (path / "model.safetensors").write_bytes(changed)
        refused += not accepted(path, models["timm"])
    # The format has no checksum: what is of arrays is not found out.
    assert len(trials) > 100 and refused > 0.3 * len(trials)


def npy(header, data=b"", version=b"\1\0"):
    header = header.encode() if isinstance(header, str) else header
    return (
        b"\x93NUMPY"
        + version
        + struct.pack("<H", len(header))
        + header
        + (data)
    )


def odd_npy():
    """Yields contents of a member that is to be an array of (1, 1, 12)."""
    data = b"\0" * 4 * small.WIDTH
    shapes = (
        "(1, 1, 12", "()", "12", "(True, 1, 12)", "(1, -1, -12)", "(1, 0, 12)",
        "(1, 1, 12.0)", "(1, 1, '12')", "(12, 1, 1)", "(1, 12)", "None", "[]",
        "(1,) * 40", f"({10**30}, 0)", f"(1, 1, {2**62})", "(1, 1, 12j)",
        "(((((1)))))", "{}", "(1, 1, float('nan'))", "(1,)" * 900,
    )  # fmt: skip
    for shape in shapes:
        yield npy(
            f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}",
            data,
        )
    descriptions = (
        "'<i4'", "'|O'", "'<U1'", "'<c8'", "'|b1'", "'x'", "None", "'<f99'",
        "'<M8[s]'", "[('a', '<f4')]", "('<f4', (2,))", "'|V4'", "b'<f4'", "4",
    )  # fmt: skip
    for description in descriptions:
        yield npy(
            f"{{'descr': {description}, 'fortran_order': False, "
            "'shape': (1, 1, 12)}",
            data,
        )
    for header in (
        "", "{", "{}", "[]", "None", "__import__('os')", "\0" * 60, "'" * 60,
        "{'descr': '<f4'}", "-" * 9000 + "1", "(" * 9000, "{" * 300,
        b"\xff\xfe" * 30,
    ):  # fmt: skip
        yield npy(header, data)
    good = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 12)}"
    for version in (b"\0\0", b"\2\0", b"\3\0", b"\xff\xff"):
        yield npy(good, data, version)
    yield npy(good, data[:-4])
    yield npy(good, data + data)
    yield npy(good.replace("False", "'no'"), data)
    for value in (math.nan, math.inf):
        yield npy(good, struct.pack("<12f", *[value] * 12))
    yield b""
    yield data


def test_odd_arrays_of_an_npz_file(models, tmp_path):
    values = small.authors()
    rest = tmp_path / "rest.npz"
    np.savez(rest, **{k: v for k, v in values.items() if k != "cls"})
    path = tmp_path / "a.npz"
    contents = list(odd_npy())
    for content in contents:
        path.write_bytes(rest.read_bytes())
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("cls.npy", content)
        assert not accepted(path, models["a.npz"]), content[:200]
    assert len(contents) > 50


def test_exchanged_and_misshapen_arrays(models, tmp_path):
    values = small.authors()
    names = sorted(values)
    path = tmp_path / "a.npz"
    rng = np.random.default_rng(0)
    for name in names:
        other = names[int(rng.integers(len(names)))]
        for changed in (
            {**values, name: values[other], other: values[name]},
            {**values, name: values[name][None]},
            {**values, name: values[name][..., :-1]},
            {**values, name: values[name].ravel()[0]},
            {k: v for k, v in values.items() if k != name},
        ):
            np.savez(path, **changed)
            same = all(
                changed.get(k) is not None and changed[k].shape == v.shape
                for k, v in values.items()
            )
            # Only a digest knows which of two arrays of one shape is which.
            assert accepted(path, models["a.npz"]) == same


def odd_headers(header, size):
    """Yields headers of a safetensors file, as text."""
    name = "norm.weight"
    begin, end = header[name]["data_offsets"]
    for key, value in (
        ("dtype", "I32"), ("dtype", "F99"), ("dtype", 3), ("dtype", None),
        ("shape", [13]), ("shape", [-12]), ("shape", [12.0]), ("shape", 12),
        ("shape", ["12"]), ("shape", [True, 12]), ("shape", [2**62, 2**62]),
        ("shape", [0]), ("shape", []), ("shape", [1] * 70), ("shape", [12, 1]),
        ("data_offsets", [end, begin]), ("data_offsets", [begin, end + 4]),
        ("data_offsets", [begin - 4, end]), ("data_offsets", [0, 2**63]),
        ("data_offsets", [-48, 0]), ("data_offsets", [begin]),
        ("data_offsets", None), ("data_offsets", [size, size + 48]),
    ):  # fmt: skip
        changed = copy.deepcopy(header)
        changed[name][key] = value
        yield json.dumps(changed)
        del changed[name][key]
        yield json.dumps(changed)
    text = json.dumps(header)
    yield from ("", "{}", "[]", "null", text[:-1], text + "}", text * 2)
    yield '{"a":' * 5000
    yield text.replace(name, "norm.bias")
    yield text.replace(name, "\\ud800")
    yield text.replace('"__metadata__"', '"other"')


def test_odd_headers_of_a_safetensors_file(folder, models, tmp_path):
    content = (folder / "timm/model.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header["__metadata__"] = {"format": "pt"}
    data = content[8 + length :]
    path = small.write(tmp_path / "timm", *small.timm())
    trials = list(odd_headers(header, len(data)))
    for text in trials:
        text = text.encode()
        (path / "model.safetensors").write_bytes(
            struct.pack("<Q", len(text)) + text + data
        )
        accepted(path, models["timm"])
    for length in (0, 1, 2**31, 2**63, 2**64 - 1):
        (path / "model.safetensors").write_bytes(
            struct.pack("<Q", length) + content[8:]
        )
        assert not accepted(path, models["timm"])
    assert len(trials) > 50


def places(config, path=()):
    """Yields the place of every value of a config, objects among them."""
    for key, value in config.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from places(value, (*path, key))


def odd_configs(config):
    for place in places(config):
        for value in ODD:
            changed = copy.deepcopy(config)
            part = changed
            for key in place[:-1]:
                part = part[key]
            part[place[-1]] = value
            yield changed


@pytest.mark.parametrize("kind", ["timm", "huggingface", "preprocessor"])
def test_odd_configs(kind, models, tmp_path):
    format = "timm" if kind == "timm" else "huggingface"
    values, *configs = getattr(small, format)()
    path = small.write(tmp_path / format, values, *configs)
    which = 1 if kind == "preprocessor" else 0
    name = ("config.json", "preprocessor_config.json")[which]
    trials = refused = 0
    for changed in odd_configs(configs[which]):
        (path / name).write_text(json.dumps(changed))
        trials += 1
        refused += not accepted(path, models[format])
    for text in ("", "{", "[]", "null", "NaN", "\0", '{"a":' * 5000):
        (path / name).write_text(text)
        assert not accepted(path, models[format])
    assert trials >= 120 and refused > 0.4 * trials


def test_released_weights_with_a_digest_are_never_answered_wrongly(
    folder, tmp_path, monkeypatch
):
    entry = registry.find("imagenet21k", "ViTB16")
    server = tmp_path / "server" / entry.file
    server.parent.mkdir(parents=True)
    good = (folder / "a.npz").read_bytes()
    server.write_bytes(good)
    monkeypatch.setenv("KERAS_VIT_WEIGHTS_URL", (tmp_path / "server").as_uri())
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "cache"))
    path = pathlib.Path(entry.fetch())
    values = small.authors()
    other = tmp_path / "other.npz"
    np.savez(other, **{k: v + 1 for k, v in values.items()})
    for changed in (other.read_bytes(), *list(damaged(good, 2))[::8]):
        path.write_bytes(changed)
        resume._verified.clear()  # as in another process
        assert entry.fetch() == str(path)
        assert path.read_bytes() == good
