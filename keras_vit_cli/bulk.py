"""Classifies or embeds any number of images, on one machine or on many."""

import contextlib
import dataclasses
import functools
import json
import os
import shlex
import tempfile
import threading
import types
import uuid
import zlib
from collections.abc import Iterable, Iterator

import numpy as np

from keras_vit import distribution, evaluation
from keras_vit._paths import digest
from keras_vit.data.decode import EXTENSIONS
from keras_vit.text import TwoTowers
from keras_vit_cli import beam, files, index, opening, predict_tasks
from keras_vit_cli.rows import as_objects, best

# Threads of a worker share the model.
_LOCK = threading.Lock()


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """What is asked of all images, and where the answers go.

    Attributes:
        model: MODEL of the command line.
        output: The folder to write.
        shards: The number of files of answers.
        embed: Whether these are embeddings, not classes.
        top_k: Classes of each image.
        batch_size: Images at a time.
    """

    model: str
    output: str
    shards: int
    embed: bool
    top_k: int
    batch_size: int

    def file(self, name: str) -> str:
        """Return the path of a file of the output."""
        return f"{self.output.rstrip('/')}/{name}"

    def shard(self, number: int) -> str:
        """Return the path of the answers of a shard."""
        kind = "npz" if self.embed else "jsonl"
        return self.file(f"{number:05}-of-{self.shards:05}.{kind}")


def run(options) -> int:
    """Do what is left of the job; return 1 if an image could not be read.

    Raises:
        ValueError: If an argument is invalid, or the output is that of another
            job.
        ImportError: If Apache Beam is not installed.
    """
    library = beam.library("`keras-vit bulk`")
    fields = [field.name for field in dataclasses.fields(Job)]
    given = {name: getattr(options, name) for name in fields}
    job = Job(**given | dict(top_k=options.top_k or 5))
    names = _distinct(options.images)
    places = [_place(name) for name in names]
    _check_there(names, places)
    answerer = _answerer(job.model, job.embed)  # a wrong model is noticed here
    if options.top_k and (job.embed or hasattr(answerer, "find")):
        raise ValueError(
            "--top_k needs a classifier, without --embed. Received: "
            f"--top_k={options.top_k} for {job.model!r}"
        )
    _start(job, names)
    with (
        distribution.end_at_ctrl_c(
            "Interrupted. Run the same command again to resume."
        ),
        library.Pipeline(
            options=beam.options(shlex.split(options.beam))
        ) as pipeline,
    ):
        _ = (
            pipeline
            | "places" >> library.Create(places)
            | "list" >> library.FlatMap(_listed, job.shards)
            | "shards" >> library.GroupByKey()
            | "answer" >> library.Map(answer, job)
            | "all" >> library.combiners.ToList()
            | "summary" >> library.Map(_summarise, job)
        )
    summary = json.loads(_read(job.file("summary.json")))
    print(
        "{images:,} images in {shards:,} shards, of which {complete:,} were "
        "complete; {failed:,} failed: ".format(**summary)
        + job.file("summary.json")
    )
    return 1 if summary["failed"] else 0


def answer(
    shard: tuple[int, Iterable[bytes]], job: Job
) -> tuple[int, bool, str]:
    """Write the answers of a shard, unless its file has them already.

    Args:
        shard: Its number and the paths of its images.
        job: The job.

    Returns:
        The number of images, whether the file was complete, and JSON of image
        -> why there is no answer.
    """
    number, paths = shard
    images = sorted({os.fsdecode(path) for path in paths})
    file = job.shard(number)
    answers = _written(file)
    missing = [image for image in images if image not in answers]
    if missing:
        # Of images that are gone, answers are kept.
        answers |= (_embed if job.embed else _classify)(missing, job)
        _write(file, _content(answers, job))
    failures = {x: answers[x]["error"] for x in images if "error" in answers[x]}
    # As JSON, since Beam takes no name that is not UTF-8.
    return len(images), not missing, json.dumps(failures)


def _classify(images, job):
    """Return image -> fields of JSON as `keras-vit predict` prints."""
    classifier = _answerer(job.model, job.embed)
    failures: dict[str, str] = {}
    lines = {}
    for local in _batches(images, job.batch_size, failures):
        with _LOCK:
            found = list(_answers(classifier, list(local), job.top_k))
        for path, content in found:
            image = local[path]
            if isinstance(content, str):
                failures[image] = content.replace(path, image)
            else:
                lines[image] = content
    return lines | _errors(failures)


def _answers(model, paths, top_k):
    """Yield (path, fields of JSON or what is wrong)."""
    if hasattr(model, "find"):  # a model with a head
        for path in paths:
            try:
                _, found = model.find(path)
                yield path, predict_tasks.summary(found, model.class_names)
            except ValueError as error:
                yield path, str(error)
        return
    for path, _, scores in model.predict(paths):
        if not isinstance(scores, str):
            rows = best(model.names, scores, top_k)
            scores = dict(predictions=as_objects(rows))
        yield path, scores


def _embed(images, job):
    """Return image -> its embedding, or why there is none."""
    model = _answerer(job.model, job.embed)
    failures: dict[str, str] = {}
    found: dict[str, dict] = {}
    for local in _batches(images, job.batch_size, failures):
        with _LOCK:
            batch = evaluation.index_images(
                model, list(local), batch_size=job.batch_size, allow_none=True
            )
        found |= _of_index(batch, local)
        for path, why in batch.skipped.items():
            failures[local[path]] = why.replace(path, local[path])
    return found | _errors(failures)


def _of_index(embedded, names=None):
    """Return image -> its embedding; `names` are those of the files."""
    pairs = zip(embedded.paths, embedded.embeddings, strict=True)
    return {(names or {}).get(x, x): dict(embedding=row) for x, row in pairs}


def _errors(failures):
    return {image: dict(error=why) for image, why in failures.items()}


def _content(answers, job):
    """Return the bytes of the file with these answers."""
    if not job.embed:
        lines = (
            json.dumps(dict(image=image, **answers[image])) + "\n"
            for image in sorted(answers)
        )
        return "".join(lines).encode()
    images = [x for x in sorted(answers) if "error" not in answers[x]]
    width = _answerer(job.model, True).image_tower.output_shape[-1]
    embeddings = [answers[image]["embedding"] for image in images]
    settings = json.loads(_read(job.file("job.json")))
    embedded = evaluation.ImageIndex(
        paths=tuple(images),
        embeddings=np.array(embeddings, "float32").reshape(-1, width),
        model=job.model,
        skipped={
            image: answers[image]["error"]
            for image in sorted(answers)
            if "error" in answers[image]
        },
        model_sha256=settings["model_sha256"] or "",
    )
    with tempfile.TemporaryDirectory() as folder:
        embedded.save(os.path.join(folder, "index.npz"))
        with open(os.path.join(folder, "index.npz"), "rb") as file:
            return file.read()


@functools.cache
def _opened(model, embed):
    with contextlib.ExitStack() as stack:
        if "://" in model and model.endswith(".keras"):
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            local = os.path.join(folder, "model.keras")
            with open(local, "wb") as file:
                file.write(_read(model))
            model = local
        if not embed:
            classifier = opening.asked(model)
            if getattr(classifier, "takes_video", False):
                raise ValueError(
                    "MODEL must take images. Received: a model of videos, "
                    f"{model!r}"
                )
            return classifier
        opened = opening.load(model)
        index.check_embeds(model, opened)
        if isinstance(opened, TwoTowers):
            return opened
        tower = evaluation.representation(opened)
        tower.image_shape = opened.input_shape[1:]
        return types.SimpleNamespace(image_tower=tower)


def _answerer(model, embed):
    """Return the model, which is opened once in each process."""
    with _LOCK:
        return _opened(model, embed)


def _batches(images, size, failures) -> Iterator[dict[str, str]]:
    """Yield {file of this machine: image}; what cannot be read has failed."""
    for i in range(0, len(images), size):
        batch = images[i : i + size]
        with tempfile.TemporaryDirectory() as folder:
            local = {}
            for j, image in enumerate(batch):
                path = image
                if "://" in image:
                    path = os.path.join(folder, str(j))
                    try:
                        content = _read(image)
                    except OSError as error:
                        failures[image] = str(error)
                        continue
                    with open(path, "wb") as file:
                        file.write(content)
                local[path] = image
            if local:
                yield local


def _distinct(names):
    """Return the names without others of the same folder, as few of ./few."""
    found = {}
    for name in names:
        is_path = name and "://" not in name
        found.setdefault(os.path.abspath(name) if is_path else name, name)
    return list(found.values())


def _place(name):
    """Return (path or pattern, "file", "folder", "pattern" or "remote")."""
    # What is there is no pattern, whatever its name. Beam cannot quote one.
    if os.path.isfile(name):
        return name, "file"
    if os.path.isdir(name):
        return name, "folder"
    if any(x in name for x in "*?["):
        return name, "pattern"
    return f"{name.rstrip('/')}/**", "remote"


def _files():
    """Return Beam's file systems: this machine's, gs:// and others."""
    from apache_beam.io.filesystems import FileSystems

    return FileSystems


def _check_there(names, places):
    for name, place in zip(names, places, strict=True):
        # "" is no folder, and "/**" would be all files of the machine.
        if not name or not any(True for _ in _found(place, limit=1)):
            raise ValueError(
                "FOLDER must be a folder, a file or a pattern. Received: "
                f"{name!r}, where nothing is"
            )


def _found(place, limit=None):
    """Yield the paths at a place, of all kinds of files."""
    path, kind = place
    if kind == "file":
        yield path
    elif kind == "folder":
        yield from files.files_below(path, ("",))
    else:
        [found] = _files().match([path], limits=[limit])
        yield from (each.path for each in found.metadata_list)


def _listed(place, shards):
    """Yield (shard, path) of the images at a place."""
    for each in _found(place):
        if place[1] in ("file", "pattern") or (
            each.lower().endswith(EXTENSIONS)
        ):
            # Not every name of a file is UTF-8.
            path = os.fsencode(each)
            yield zlib.crc32(path) % shards, path


def _start(job, images):
    """Make the folder, or check that its job is the same."""
    asked = dataclasses.asdict(job)
    del asked["output"], asked["batch_size"]
    # Where the model is a file of this machine; it may have been replaced.
    asked["model_sha256"] = digest(job.model)
    asked["images"] = sorted({name.rstrip("/") or name for name in images})
    # Elsewhere, a relative name is another folder with the same names.
    asked["places"] = [
        name if "://" in name else os.path.abspath(name)
        for name in asked["images"]
    ]
    before = None
    file = job.file("job.json")
    if _files().exists(file):
        try:
            before = dict(json.loads(_read(file)))
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{file!r} must be what an earlier start wrote. Received: "
                f"{error}. Delete it to go on with the same images"
            ) from error
        _check_same(before, asked, job.output)
    elif os.path.isfile(job.output) or not job.output:
        raise ValueError(f"OUTPUT must be a folder. Received: {job.output!r}")
    elif os.path.isdir(job.output) and any(
        True for _ in files.files_below(job.output, EXTENSIONS)
    ):
        raise ValueError(
            "OUTPUT must be a folder without images, the last of the names. "
            f"Received: {job.output!r}"
        )
    elif not _files().exists(job.output):
        with _naming(job.output, "written"):
            _files().mkdirs(job.output)
    if before != asked:
        _write(file, json.dumps(asked).encode())


def _check_same(before, asked, output):
    """Refuse another job than that of an output.

    Images may be added. Without those of before, shards would be written again
    that have answers for them.
    """
    # Earlier versions wrote neither a digest nor the images.
    known = {name: before.get(name, asked[name]) for name in asked}
    more = {name: known[name] for name in ("images", "places")}
    has_all = all(set(more[name]) <= set(asked[name]) for name in more)
    if not has_all or known != asked | more:
        raise ValueError(
            "OUTPUT must be empty, or of the same job, with the same images or "
            f"more. Received: {output!r}, which has answers of {before}; asked "
            f"for is {asked}"
        )


def _read(path):
    with _naming(path, "read"), _files().open(path) as file:
        return file.read()


def _write(path, content):
    """Write a file that is there entirely or not at all."""
    part = f"{path}.{uuid.uuid4().hex}.part"
    with _naming(path, "written"):
        try:
            with _files().create(part) as file:
                file.write(content)
            _files().rename([part], [path])
        except BaseException:
            with contextlib.suppress(OSError):
                _files().delete([part])
            raise


@contextlib.contextmanager
def _naming(path, done):
    """Name the file in errors, which Beam repeats if they have one argument."""
    try:
        yield
    except OSError as error:
        raise OSError(f"{path!r} cannot be {done}: {error}") from error


def _written(path):
    """Return the answers of a file; one that is damaged has none."""
    if not _files().exists(path):
        return {}
    content = _read(path)
    try:
        if path.endswith(".npz"):
            with tempfile.NamedTemporaryFile() as file:
                file.write(content)
                file.flush()
                there = evaluation.ImageIndex.load(file.name)
            return _of_index(there) | _errors(there.skipped)
        lines = [json.loads(line) for line in content.splitlines()]
        return {line.pop("image"): line for line in lines}
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}


def _summarise(results, job):
    """Write how many images there are, and which have no answer and why."""
    failures: dict[str, str] = {}
    for *_, found in results:
        failures |= json.loads(found)
    summary = dict(
        images=sum(count for count, *_ in results),
        shards=len(results),
        complete=sum(complete for _, complete, _ in results),
        failed=len(failures),
        failures=dict(sorted(failures.items())),
    )
    text = json.dumps(summary, indent=1) + "\n"
    _write(job.file("summary.json"), text.encode())
