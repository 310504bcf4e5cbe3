"""Archives such as ImageNet-21k's, small, of every layout and damage."""

import gzip
import hashlib
import io
import json
import shutil
import tarfile
import types

import numpy as np
import pytest

from keras_vit import data
from keras_vit.data import records
from tools import imagenet21k

tf = pytest.importorskip("tensorflow")

pytestmark = pytest.mark.backend_independent

SYNSETS = ("n02084071", "n01440764", "n07747607")


def jpeg(index):
    image = np.full((8, 8, 3), 2 * index, "uint8")
    return tf.io.encode_jpeg(image, quality=100).numpy()


IMAGES = {
    wnid: {f"{wnid}_{i}.JPEG": jpeg(40 * k + i) for i in range(40)}
    for k, wnid in enumerate(SYNSETS)
}


def tar_of(files):
    """A tar of files (bytes by name), as GNU tar writes it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def synset_tars(images=IMAGES):
    return {f"{wnid}.tar": tar_of(files) for wnid, files in images.items()}


def whole(images=IMAGES):
    files = synset_tars(images).items()
    return tar_of({f"winter21_whole/{name}": file for name, file in files})


def write_archive(path, content=None):
    content = whole() if content is None else content
    if path.suffix == ".gz":
        content = gzip.compress(content, 1)
    path.write_bytes(content)
    return str(path)


def convert(archive, out, **arguments):
    arguments = {"shards": 4, "eval_fraction": 0.1, **arguments}
    return imagenet21k.convert(str(archive), str(out), **arguments)


def contents(path):
    """(Class, bytes) of each image of a set by its name, of both splits."""
    found = {}
    index = json.loads((path / "dataset.json").read_text())
    for split, counts in index["splits"].items():
        count = sum(counts.values())
        source = data.load(str(path), train_split=split)[0]
        names = [name for name, _ in records.read(str(path), split)(0, count)]
        examples = source.stream(0, count)
        for name, (image, label) in zip(names, examples, strict=True):
            class_name = source.class_names[int(label)]
            found[name.numpy().decode()] = class_name, image.numpy()
    return found


EXPECTED = {
    f"{wnid}/{name}": (wnid, image)
    for wnid, files in IMAGES.items()
    for name, image in files.items()
}


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    path = tmp_path_factory.mktemp("archive") / "winter21_whole.tar.gz"
    return write_archive(path)


def test_every_layout_gives_the_same_files(archive, tmp_path):
    write_archive(tmp_path / "fall11_whole.tar", tar_of(synset_tars()))
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, content in synset_tars().items():
        (folder / name).write_bytes(content)
    outs = [tmp_path / f"out{i}" for i in range(3)]
    for path, out in zip(
        (archive, tmp_path / "fall11_whole.tar", folder), outs, strict=True
    ):
        convert(path, out)
    assert contents(outs[0]) == EXPECTED
    for file in outs[0].glob("*.tfrecord"):
        for out in outs[1:]:
            assert (out / file.name).read_bytes() == file.read_bytes()


def test_the_command_writes_a_set_to_train_on(archive, tmp_path, capsys):
    out = tmp_path / "out"
    status = imagenet21k.main(
        [archive, str(out), "--shards=2", "--eval_fraction=0.2"]
    )
    assert status == 0
    assert "120 images of 3 synsets" in capsys.readouterr().out
    train, validation = data.load(str(out))
    assert train.class_names == tuple(sorted(SYNSETS))
    assert train.num_examples + validation.num_examples == 120
    # Four standard deviations of a fifth of 120.
    assert 6 <= validation.num_examples <= 42
    batch = next(
        iter(data.train_batches(train, batch_size=4, image_size=(8, 8)))
    )
    assert batch["images"].shape == (4, 8, 8, 3)
    about = json.loads((out / "dataset.json").read_text())["about"]
    with open(archive, "rb") as file:
        content = file.read()
    assert about["bytes"] == len(content)
    assert about["md5"] == hashlib.md5(content).hexdigest()


def test_images_are_left_out(archive, tmp_path, capsys):
    names = sorted(EXPECTED)[::7]
    table = "".join(f"{name},other,0.01\r\n" for name in names)
    texts = "\n".join(names), f"pretrain,test,distance\r\n{table}"
    for i, text in enumerate(texts):
        (tmp_path / "list").write_text(text)
        out = tmp_path / f"out{i}"
        arguments = [archive, str(out), "--shards=2", "--eval_fraction=0.1"]
        assert imagenet21k.main([*arguments, f"--exclude={tmp_path}/list"]) == 0
        assert f"{len(names)} of --exclude" in capsys.readouterr().out
        assert set(contents(out)) == set(EXPECTED) - set(names)
    with pytest.raises(ValueError, match="as WNID/FILE. .*'1.JPEG'"):
        convert(archive, tmp_path / "out", exclude={"1.JPEG"})


@pytest.mark.parametrize("compress", [False, True])
def test_a_truncated_archive_is_refused_wherever_it_ends(tmp_path, compress):
    content = whole()
    if compress:
        content = gzip.compress(content, 1)
    ends = [int(share * len(content)) for share in (0.01, 0.3, 0.6, 0.9)]
    # Between two blocks too, where nothing but the end's mark may be missing;
    # and without the checksum of gzip.
    ends += [512, 1024, tarfile.BLOCKSIZE * (len(content) // 1024)]
    ends += [len(content) - 4] * compress
    ends += [content.find(f"winter21_whole/{SYNSETS[-1]}".encode())]
    for end in ends:
        path = tmp_path / "archive.tar"
        path.write_bytes(content[:end])
        with pytest.raises(ValueError, match="archive.tar.*truncated"):
            convert(path, tmp_path / "out")
    assert [file.name for file in tmp_path.iterdir()] == ["archive.tar"]


def test_a_corrupt_header_is_not_taken_for_the_end(tmp_path):
    content = bytearray(whole())
    start = content.index(b"n01440764_20.JPEG")
    content[start : start + 100] = b"\xff" * 100
    path = write_archive(tmp_path / "archive.tar", content)
    with pytest.raises(ValueError, match="n01440764.tar'.* corrupt"):
        convert(path, tmp_path / "out")
    with pytest.raises(ValueError, match="corrupt"):
        convert(write_archive(tmp_path / "a.tar", b"x" * 2048), tmp_path / "o")


def test_broken_images_stop_or_are_listed(tmp_path):
    images = {wnid: dict(files) for wnid, files in IMAGES.items()}
    name = "n01440764_5.JPEG"
    images["n01440764"][name] = images["n01440764"][name][:-100]
    images["n07747607"]["page.JPEG"] = b"<html>gone</html>"
    path = write_archive(tmp_path / "archive.tar", whole(images))
    with pytest.raises(ValueError, match="n01440764/n01440764_5.JPEG"):
        convert(path, tmp_path / "out")
    about = convert(path, tmp_path / "out", broken="skip")
    broken = [f"n01440764/{name}", "n07747607/page.JPEG"]
    assert about["broken"] == broken
    found = set(contents(tmp_path / "out"))
    assert found == set(EXPECTED) - {broken[0]}
    index = json.loads((tmp_path / "out" / "dataset.json").read_text())
    assert index["about"]["broken"] == broken


def test_what_is_no_synset_is_told(tmp_path):
    files = {"README.txt": b"hello", **synset_tars()}
    path = write_archive(tmp_path / "archive.tar", tar_of(files))
    about = convert(path, tmp_path / "out")
    assert about["other_members"] == ["README.txt"]
    assert about["images"] == 120
    files["flowers.tar"] = tar_of({})
    path = write_archive(tmp_path / "archive.tar", tar_of(files))
    with pytest.raises(ValueError, match="flowers.tar"):
        convert(path, tmp_path / "other")


def test_an_archive_of_images_without_tars_is_refused(tmp_path):
    flat = tar_of({"train/n02084071/n02084071_0.JPEG": jpeg(0)})
    archive = write_archive(tmp_path / "flat.tar", flat)
    with pytest.raises(ValueError, match="a tar of images for each synset"):
        convert(archive, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["flat.tar"]


def test_what_cannot_be_converted_is_refused(archive, tmp_path, monkeypatch):
    with monkeypatch.context() as full:
        usage = types.SimpleNamespace(free=1)
        full.setattr(shutil, "disk_usage", lambda path: usage)
        with pytest.raises(ValueError, match="where 0.0 GB are free"):
            convert(archive, tmp_path / "far" / "out")
    assert not any(tmp_path.iterdir())
    for source, share, message in (
        (archive, 1.0, "`eval_fraction` must lie between 0 and 1"),
        (archive, 1e-9, "which makes 120 and 0"),
        (tmp_path, 0.5, "a folder without any"),
    ):
        with pytest.raises(ValueError, match=message):
            convert(source, tmp_path / "out", eval_fraction=share)
    assert not any(tmp_path.iterdir())


def test_an_archive_of_another_digest_is_refused(archive, tmp_path):
    with open(archive, "rb") as file:
        md5 = hashlib.md5(file.read()).hexdigest()
    convert(archive, tmp_path / "out", md5=md5.upper())
    with pytest.raises(ValueError, match=f"`md5`.*{md5}"):
        convert(archive, tmp_path / "other", md5=32 * "0")
    assert [file.name for file in tmp_path.iterdir()] == ["out"]
