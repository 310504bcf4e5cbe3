"""The arguments of each command; nothing here imports Keras."""

import argparse
import pathlib
import re

from keras_vit_cli.command import Parser, count, natural

# A copy of the library's value, compared by a test: importing it takes seconds.
ACTIVATIONS = ("softmax", "sigmoid", "none")
# What is said of a class, which may have an article: "a cat".
TEMPLATE = "a photo of {}."
PRECISIONS = ("float32", "bfloat16", "float16", "int8")

EXPORT = """Exports a model for TF Serving, or as one file for another runtime.

    keras-vit export MODEL.keras serving/name/1
    keras-vit export MODEL.keras model.onnx
    keras-vit export MODEL.keras model.tflite
    keras-vit export MODEL.keras model.xml

The ending selects the format: ONNX, LiteRT, OpenVINO, or without one a
SavedModel. Prints the files written and, given images, the differences that
the precision causes on them. The images are also saved as warm-up requests of
the server."""

PREDICT = """Classifies images or videos, and draws the model's attention.

    keras-vit predict MODEL IMAGE ... [--format csv] [--attention out.png]
    keras-vit predict MODEL IMAGE ... --classes "a cat,a dog"

MODEL is a .keras file, a SavedModel (a version's directory), released weights
as CONSTRUCTOR:NAME (ViTB16:augreg+imagenet2012), or any other checkpoint that
keras_vit.from_pretrained reads. IMAGE is a file, a folder, or a pattern
(photos/*.jpg). For a model of videos it is a video, whose clips are classified
one by one. Of a model for detection, segmentation, depth or pose it prints a
line of JSON for each image, and --drawing shows what the model found. A model
of images and texts, such as CLIP, takes the names of its classes by
--classes."""

INDEX = """Writes the embeddings of images, to search them by words.

    keras-vit index MODEL IMAGE ... photos.npz

MODEL has two towers, of images and of texts: a .keras file, hf://owner/name or
a directory of CLIP or SigLIP. IMAGE is a file, a folder, or a pattern."""

BULK = """Classifies or embeds any number of images, on one machine or on many.

    keras-vit bulk MODEL FOLDER ... OUTPUT
    keras-vit bulk MODEL FOLDER ... OUTPUT --embed

FOLDER may be a pattern (photos/*.jpg), and in a bucket (gs://name/photos), as
OUTPUT may. OUTPUT gets a file for each shard of the images, with a line of JSON
for each image as `predict` prints them, or the embeddings as `index` writes
them, and summary.json, which lists what could not be read. The same command
again resumes where it was stopped. Apache Beam divides the work."""

SEARCH = """Finds images by a text, or by an image.

    keras-vit search photos.npz "a red car" [--drawing found.png]
    keras-vit search photos.npz car.jpg

Prints a line of JSON for each image, the most similar first, with the cosine of
its embedding and that of the text; --drawing makes a contact sheet."""

WEIGHTS = """Lists, fetches and verifies released weights.

    keras-vit weights list [ViTB16]
    keras-vit weights fetch ViTB16 augreg
    keras-vit weights verify [ViTB16 augreg]
    keras-vit weights locate ViTB16 augreg
    keras-vit weights best B_16 [--ds i21k] [--by final_val]

`fetch` downloads into the cache and prints the path; `verify` compares what
the cache has with the hashes of its download; `locate` prints the path of a
file in the cache, without downloading it."""

CONVERT = """Converts a checkpoint from any format to another.

    keras-vit convert SRC DST --format jax

SRC is what `weights` takes: a file, a directory, hf://owner/name, or a name
such as imagenet21k with --model ViTB16. DST is a file or directory of the
format; with `--format keras_vit` a `.keras` file."""

CLASSIFY = """Classifies images with a TF Serving server.

    keras-vit classify --server localhost:8501 image.jpg ...

Uses gRPC on port 8500 and REST on other ports, unless --protocol is given. REST
needs only Python; gRPC needs grpcio and tensorflow-serving-api. Exits with 1 if
an image was not classified, with 2 if the server did not answer."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of `keras-vit` and all its commands."""
    top = Parser(
        prog="keras-vit",
        description="Vision Transformers in Keras 3, from the shell.",
    )
    top.add_argument("--version", action="version", version=_version())
    commands = top.add_subparsers(
        dest="program", metavar="COMMAND", required=True
    )
    for name, description, add in (
        ("predict", PREDICT, _predict),
        ("index", INDEX, _index),
        ("search", SEARCH, _search),
        ("bulk", BULK, _bulk),
        ("export", EXPORT, _export),
        ("classify", CLASSIFY, _classify),
        ("weights", WEIGHTS, _weights),
        ("convert", CONVERT, _convert),
    ):
        command = commands.add_parser(
            name,
            help=description.split("\n")[0],
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.set_defaults(module=f"keras_vit_cli.{name}")
        add(command)
    return top


def _version():
    """Return the version, which is read because importing takes seconds."""
    file = pathlib.Path(__file__).parents[1] / "keras_vit" / "__init__.py"
    text = file.read_text(encoding="utf-8")
    (version,) = re.findall(r'^__version__ = "(.*)"', text, re.MULTILINE)
    return version


def _predict(parser):
    add = parser.add_argument
    add("model", metavar="MODEL")
    add("images", metavar="IMAGE", nargs="+")
    # What some models do not read has no default here: it is refused there.
    add("--top_k", type=count, help="classes to print (5)")
    add("--batch_size", type=count, default=32, help="images at a time (32)")
    step = "frames of a video from one of a clip to the next (those of the run "
    step += "of MODEL); 0 takes the middle of as many segments of the video"
    add("--frame_step", type=natural, help=step)
    rate = "frames per second of --frame_step; 0 for each video's own (that of "
    add("--frame_rate", type=float, help=f"{rate}the run, or 0)")
    kinds = ("table", "csv", "jsonl")
    add("--format", choices=kinds, help="of the output (table)")
    add("--attention", metavar="OUT.png", help="where to draw the attention")
    shown = "where to draw boxes, classes of pixels or depth"
    add("--drawing", metavar="OUT.png", help=shown)
    add("--score", type=float, help="the least one of a box or a keypoint")
    words = "names with commas between, for a model with a text tower"
    add("--classes", metavar="'A CAT,A DOG'", help=words)
    prompts = "prompts: a name of keras_vit.text.TEMPLATES, or one with {}"
    add("--templates", help=f"{prompts} ({TEMPLATE!r})")


def _index(parser):
    add = parser.add_argument
    add("model", metavar="MODEL")
    add("images", metavar="IMAGE", nargs="+")
    add("index", metavar="INDEX.npz")
    add("--batch_size", type=count, default=64, help="images a step (64)")


def _search(parser):
    add = parser.add_argument
    add("index", metavar="INDEX.npz")
    add("query", metavar="QUERY", help="a text, or the file of an image")
    add("--model", help="that of the index, if not given")
    add("--top_k", type=count, default=10, help="images to find (10)")
    add("--drawing", metavar="OUT.png", help="where to draw what was found")


def _bulk(parser):
    add = parser.add_argument
    add("model", metavar="MODEL")
    add("images", metavar="FOLDER", nargs="+")
    add("output", metavar="OUTPUT")
    add("--embed", action="store_true", help="write embeddings, not classes")
    add("--shards", type=count, default=100, help="files to write (100)")
    add("--top_k", type=count, help="classes of an image (5)")
    add("--batch_size", type=count, default=32, help="images at a time (32)")
    words = "options of Beam, as --beam='--runner=...'; none: this process"
    add("--beam", default="", metavar="'OPTIONS'", help=words)


def _export(parser):
    add = parser.add_argument
    add("model", metavar="MODEL.keras")
    other = "or a .onnx, .tflite, .xml, .keras file"
    add("path", metavar="NAME/VERSION", help=other)
    add("--class_names", help="file of class names: one per line, or JSON")
    add("--top_k", type=count, help="classes (5), or boxes (all), in an answer")
    add("--activation", choices=ACTIVATIONS, help="over the outputs")
    add("--precision", choices=PRECISIONS, default="float32")
    compared = "to compare and warm up with; videos for a model of video"
    add("--images", nargs="*", default=[], help=compared)
    add("--max_images", type=count, default=32, help="images a request (32)")
    budget = "seconds of one core for the images of a request (3.3)"
    add("--decoding_budget", type=_seconds, default=3.3, help=budget)
    add("--weights", help="source, for the model card")
    add("--licence", help="for the model card")
    add("--overwrite", action="store_true")


def _classify(parser):
    add = parser.add_argument
    add("images", nargs="+", help="JPEG, PNG, GIF, BMP or WebP")
    place = dict(default="localhost:8501", help="host:port (localhost:8501)")
    add("--server", type=_host_and_port, **place)
    protocols: dict = dict(choices=("auto", "rest", "grpc"), default="auto")
    chosen = "auto: gRPC on port 8500, REST on others"
    add("--protocol", **protocols, help=chosen)
    add("--model", default="vit", help="its name (vit)")
    add("--version", type=natural, help="the newest, if not given")
    most = (
        "classes to print (5), at most as many as the model was exported with"
    )
    add("--top_k", type=count, default=5, help=most)
    add("--batch_size", type=count, default=16, help="images a request (16)")
    add("--timeout", type=_seconds, default=30.0, help="seconds a request (30)")
    add("--json", action="store_true", help="print a JSON object an image")


def _weights(parser):
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("list")
    command.add_argument("model", nargs="?")
    for name in ("fetch", "locate"):
        command = commands.add_parser(name)
        command.add_argument("model")
        command.add_argument("weights")
    command = commands.add_parser("verify")
    command.add_argument("model", nargs="?")
    command.add_argument("weights", nargs="?")
    command = commands.add_parser("best")
    command.add_argument("model")
    command.add_argument("--ds", default="i21k")
    command.add_argument("--by", default="final_val")
    command.add_argument("--adapt_ds")
    command.add_argument("--adapt_resolution", type=count)


def _convert(parser):
    add = parser.add_argument
    add("source", metavar="SRC")
    add("destination", metavar="DST")
    known = "jax, timm, huggingface, ..., or keras_vit (a .keras file); "
    known += "another name lists those of SRC's family"
    add("--format", required=True, help=known)
    add("--model", help="constructor that a name is of")
    add("--num_heads", type=count, help="where SRC is silent")
    add("--position_grid", type=count, nargs=2)
    for name in ("--pixel_mean", "--pixel_std"):
        add(name, type=float, nargs="+", help="where SRC is silent")
    add("--overwrite", action="store_true")
    different = "save though the format's library computes other numbers"
    add("--allow_differences", action="store_true", help=different)


def _seconds(text):
    seconds = float(text)
    if not seconds > 0:
        raise argparse.ArgumentTypeError(
            f"must be positive. Received: {text!r}"
        )
    return seconds


def _host_and_port(text):
    if not re.fullmatch(r"([^/\s:]+|\[[0-9A-Fa-f:.]+\]):\d+", text):
        raise argparse.ArgumentTypeError(
            f"must be host:port, such as localhost:8501. Received: {text!r}"
        )
    return text
