"""Converts the published archive of ImageNet-21k to TFRecords.

    python -m tools.imagenet21k winter21_whole.tar.gz OUT --shards=1024

ARCHIVE is read once and not unpacked: a tar, gzipped or not, of one tar of
images for each synset (winter21_whole.tar.gz, fall11_whole.tar), or a folder
of such n*.tar files. The folder OUT appears only when it is complete; train on
it with --config.data.dataset=OUT. Images are identified as WNID/FILE.

There is no official split. A share of the images, selected by a hash of their
names, becomes the split "validation". Every image is decoded once, since a
broken one would stop a training run; --broken=skip skips these and lists them
in OUT/dataset.json.
"""

import collections
import concurrent.futures
import contextlib
import functools
import gzip
import hashlib
import os
import pathlib
import re
import shutil
import sys
import tarfile
import typing
import zlib

from keras_vit.data import exclusions, record_files, records, tables
from keras_vit.data.decode import decode_image
from keras_vit.data.optional_imports import tensorflow
from keras_vit_cli import command

WNID = re.compile(r"n\d{8}")
# Images in memory that are decoded while others are read.
WINDOW = 256
TOLD_EVERY = 100_000


@command.entry
def main(arguments: list[str]) -> int:
    """Convert as the command line specifies, and print a summary."""
    parser = command.Parser(description=__doc__)
    add, count = parser.add_argument, command.count
    add("archive", metavar="ARCHIVE")
    add("out", metavar="OUT")
    add("--shards", type=count, default=1024, help="files to train on (1024)")
    share = "share of the images held out (0.004, some 50,000)"
    add("--eval_fraction", type=float, default=0.004, help=share)
    add("--classes", metavar="FILE", help="WordNet ids by index, one a line")
    listed = "images to leave out: the CSV of tools.near_duplicates, or\n"
    add("--exclude", metavar="FILE", help=f"{listed}WNID/FILE on each line")
    add("--broken", choices=("error", "skip"), default="error")
    add("--md5", default="", help="what the archive's MD5 must be")
    flags = parser.parse_args(arguments)
    about = convert(
        flags.archive,
        flags.out,
        shards=flags.shards,
        eval_fraction=flags.eval_fraction,
        class_names=flags.classes and read_classes(flags.classes),
        exclude=flags.exclude and exclusions.read(flags.exclude),
        broken=flags.broken,
        md5=flags.md5,
    )
    print(
        f"wrote {flags.out}: {about['images']:,} images of "
        f"{about['synsets']:,} synsets; left out {len(about['broken']):,} "
        f"broken images, {about['excluded']:,} of --exclude; passed over "
        f"{len(about['other_members']):,} members that are no synset"
    )
    return 0


def convert(
    archive: str,
    out: str,
    *,
    shards: int = 1024,
    eval_fraction: float = 0.004,
    class_names: tuple[str, ...] | None = None,
    exclude: frozenset[str] | None = None,
    broken: str = "error",
    md5: str = "",
) -> dict:
    """Write the images of an archive with `keras_vit.data.records.write`.

    The arguments are those of the command line.

    Args:
        class_names: WordNet ids by index; None takes those that occur, sorted.
        exclude: Images to exclude, as WNID/FILE.

    Returns:
        The description in dataset.json: `archive`, `bytes`, `md5`, `images`,
        `synsets`, `broken`, `excluded`, `other_members`.

    Raises:
        ValueError: If an argument is wrong, or the archive is damaged, differs
            from `md5`, has another synset, or an image that does not decode.
    """
    if not 0 < eval_fraction < 1:
        raise ValueError(
            "`eval_fraction` must lie between 0 and 1. "
            f"Received: eval_fraction={eval_fraction}"
        )
    wrong = [x for x in exclude or () if not WNID.fullmatch(x.split("/")[0])]
    if wrong:
        raise ValueError(
            "`exclude` must hold images as WNID/FILE. Received: "
            f"{sorted(wrong)[:5]}"
        )
    size = _size_of(archive, out)
    about = dict(archive=os.path.basename(os.path.abspath(archive)), bytes=size)
    about |= dict(images=0, synsets=0, broken=[], excluded=0, other_members=[])
    held_shards = max(1, round(shards * eval_fraction))
    num_shards = dict(train=shards, validation=held_shards)
    synsets = set()
    counts = collections.Counter()
    given: dict = dict(class_names=class_names, about=about)
    with records.write(out, num_shards, **given) as add:
        for wnid, name, image, valid in _tried(_read(archive, about)):
            synsets.add(wnid)
            if name in (exclude or ()):
                about["excluded"] += 1
                continue
            if not valid:
                if broken == "error":
                    raise ValueError(
                        f"{name!r} does not decode as JPEG, PNG, GIF, BMP or "
                        "WebP. Leave such images out with --broken=skip."
                    )
                about["broken"].append(name)
                continue
            held_out = record_files.hash_of(name) < eval_fraction * 2**64
            split = "validation" if held_out else "train"
            add(split, name, wnid, image)
            counts[split] += 1
            if counts.total() % TOLD_EVERY == 0:
                print(f"{counts.total():,} images, {wnid}", flush=True)
        about |= dict(images=counts.total(), synsets=len(synsets))
        _check_end(about, counts, md5, eval_fraction)
    return about


def read_classes(path: str) -> tuple[str, ...]:
    """Read different WordNet ids, one per line."""
    names = tables.read_text(path).split()
    wrong = [name for name in names if not WNID.fullmatch(name)]
    twice = [name for name, n in collections.Counter(names).items() if n > 1]
    if wrong or twice or not names:
        raise ValueError(
            f"{path!r} must hold different WordNet ids such as n01440764, one "
            f"a line. Received: {(wrong + twice)[:5] or 'nothing'}"
        )
    return tuple(names)


def _size_of(archive, out):
    """Return the bytes of an archive, which must be there and fit."""
    path = pathlib.Path(archive)
    files = list(path.glob("n*.tar")) if path.is_dir() else [path]
    if not files or not files[0].is_file():
        kind = "a folder without any" if path.is_dir() else "which is not there"
        raise ValueError(
            "`archive` must be an archive or a folder of n*.tar files. "
            f"Received: {archive!r}, {kind}"
        )
    size = sum(file.stat().st_size for file in files)
    there = next(x for x in pathlib.Path(out).absolute().parents if x.exists())
    free = shutil.disk_usage(there).free
    # JPEGs have the same size in a record as in an archive, gzipped or not.
    if free < size:
        raise ValueError(
            f"`out` needs at least the {size / 1e9:,.1f} GB of the archive. "
            f"Received: {str(out)!r}, where {free / 1e9:,.1f} GB are free"
        )
    return size


def _check_end(about, counts, md5, eval_fraction):
    if md5 and about.get("md5") != md5.lower():
        raise ValueError(
            f"`md5` must be that of the archive. Received: {md5!r}, but it is "
            f"{about.get('md5', 'unknown of a folder')!r}"
        )
    if not about["synsets"]:
        raise ValueError(
            "`archive` must hold a tar of images for each synset, such as "
            f"n01440764.tar. Received: {about['archive']!r}, with none, and "
            f"with {about['other_members'][:3]}"
        )
    if not counts["train"] or not counts["validation"]:
        raise ValueError(
            "`eval_fraction` must leave images to train on and to evaluate. "
            f"Received: eval_fraction={eval_fraction}, which makes "
            f"{counts['train']} and {counts['validation']}"
        )


def _tried(images):
    """Yield (wnid, name, image, whether it decodes), decoding in threads."""
    pending = collections.deque()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for example in images:
            pending.append((*example, pool.submit(_decodes, example[-1])))
            if len(pending) == WINDOW:
                *first, valid = pending.popleft()
                yield *first, valid.result()
        for *first, valid in pending:
            yield *first, valid.result()


def _decodes(image):
    try:
        return bool(_has_pixels()(image))
    except tensorflow().errors.OpError:
        return False


@functools.cache
def _has_pixels():
    tf = tensorflow()
    return tf.function(
        lambda image: tf.size(decode_image(image)) > 0,
        input_signature=[tf.TensorSpec((), "string")],
    )


def _read(archive, about):
    """Yield (wnid, name, image), and add the other members to `about`."""
    path = pathlib.Path(archive)
    if path.is_dir():
        for file in sorted(path.glob("n*.tar")):
            with file.open("rb") as opened, _naming(str(file)):
                yield from _read_synset(opened, file.name)
        return
    with path.open("rb") as raw, _naming(str(path)):
        hashed: typing.Any = _Hashed(raw)
        stream = hashed
        if raw.read(2) == b"\x1f\x8b":
            stream = gzip.GzipFile(mode="rb", fileobj=hashed)
        raw.seek(0)
        for member, file in _members(stream):
            if not member.name.endswith(".tar"):
                about["other_members"].append(member.name)
                continue
            with _naming(f"{path}, {member.name}"):
                yield from _read_synset(file, member.name)
        # The checksums follow the end of the last member.
        while stream.read(1 << 20) or hashed.read(1 << 20):
            pass
        about["md5"] = hashed.digest.hexdigest()


def _read_synset(file, name):
    """Yield (wnid, name, image) of the tar of a synset, which has its name."""
    wnid = os.path.basename(name).removesuffix(".tar")
    if not WNID.fullmatch(wnid):
        raise ValueError(
            "Every tar in the archive must have the name of a synset, such as "
            f"n01440764.tar. Received: {name!r}"
        )
    for member, image in _members(file):
        yield wnid, f"{wnid}/{os.path.basename(member.name)}", image.read()


def _members(stream):
    """Yield (member, opened file) of the files in a tar, in one pass."""
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header) as tar:
        for member in tar:
            if member.isfile():
                yield member, tar.extractfile(member)


class _Header(tarfile.TarInfo):
    """A header that must be valid; `tarfile` takes a broken one for the end."""

    @classmethod
    def frombuf(cls, buf, encoding, errors):
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if buf == bytes(tarfile.BLOCKSIZE):
                raise
            raise tarfile.ReadError(
                str(error) if buf else "it ends without a mark of its end"
            ) from error


class _Hashed:
    """A file that hashes its bytes as they are read."""

    def __init__(self, file):
        self.file = file
        self.digest = hashlib.md5(usedforsecurity=False)

    def read(self, size=-1):
        data = self.file.read(size)
        self.digest.update(data)
        return data


@contextlib.contextmanager
def _naming(name):
    """Convert the errors of a damaged archive to a ValueError that names it."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, tarfile.TarError, zlib.error) as error:
        raise ValueError(
            f"The archive {name!r} is truncated or corrupt: {error}"
        ) from error


if __name__ == "__main__":
    sys.exit(main())
