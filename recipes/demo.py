"""Serves a web page that classifies images and shows attention, or boxes.

python -m recipes.demo MODEL [MODEL ...] [--images=FOLDER]

MODEL is a .keras file, a SavedModel (a version's directory), released weights
as CONSTRUCTOR:NAME (ViTB16:augreg+imagenet2012), any other checkpoint that
keras_vit reads, or a model on a TF Serving server, such as
http://localhost:8501/v1/models/vit. Several models are shown side by side. Of a
model for detection, segmentation, depth or pose, which is a file and not on a
server, the page draws what it finds, with a slider for the score. For a model
with a text tower, such as CLIP or OWLv2, the page has a field for the classes.

--images is a folder of images, such as the training images. The page shows
those whose representations are nearest to that of the uploaded image.

The page needs `pip install -e . -r requirements/demo.txt` and works offline.
Two photographs of scikit-learn are its examples.
"""

from recipes import start

if __name__ == "__main__":  # before the imports, which take seconds
    start.main("recipes.demo")

import atexit
import functools
import os
import shutil
import signal
import sys
import tempfile

from keras_vit.data import decode
from keras_vit.data.optional_imports import optional
from keras_vit_cli import command, files
from recipes import demo_drawing, demo_models, demo_tasks
from recipes.demo_images import read_shown, thumbnail

MAX_FILE_SIZE = 50 * 2**20
# Time after which the images and attention of a visitor who left are deleted.
SECONDS_KEPT = 3600
VISITORS_KEPT = 200
# Of boxes, segments and keypoints, before the slider is moved.
FIRST_SCORE = 0.5
MOST_LETTERS = 1000  # of the names of classes
# Images that wait for an answer; others are refused with a message.
MAX_WAITING = 32
STOPPING = tuple(
    getattr(signal, name)
    for name in ("SIGTERM", "SIGHUP")
    if hasattr(signal, name)  # Windows has no SIGHUP
)
# The page is self-contained: the browser must not load anything else.
HEAD = (
    '<meta http-equiv="Content-Security-Policy" content="default-src '
    "'self' 'unsafe-inline' 'unsafe-eval' data: blob:\">"
)
EXAMPLES = "Examples, photographs by danielbuechele and vultilion, CC BY 2.0:"
INTRODUCTION = """# Where does the model look?
Drop, paste or photograph an image. It is read by the computer that serves this
page, which deletes it within two hours.
"""


@command.entry
def main(arguments: list[str]) -> int:
    """Serve the page until it is interrupted; return 0."""
    parser = command.Parser(description=__doc__)
    add = parser.add_argument
    add("models", metavar="MODEL", nargs="+")
    add("--images", help="folder to find the nearest in")
    host = "address to listen on (127.0.0.1); 0.0.0.0 lets others in"
    add("--host", default="127.0.0.1", help=host)
    add("--port", type=command.natural, default=7860, help="(7860)")
    options = parser.parse_args(arguments)
    before = [signal.signal(number, _stop) for number in STOPPING]
    try:
        page = build(options.models, options.images)
        _, address, _ = launch(page, options.host, options.port)
        print(f"The page is at {address}; Ctrl+C stops it.", flush=True)
        try:
            page.block_thread()
        finally:
            page.close()  # before the folder of uploads is removed
    finally:
        for number, handler in zip(STOPPING, before, strict=True):
            signal.signal(number, handler)
    return 0


def _stop(number, frame):
    """End the program with its exit handlers, which a signal would skip."""
    signal.signal(number, signal.SIG_IGN)
    raise SystemExit(128 + number)


def build(names: list[str], folder: str | None = None):
    """Load the models and return the page, a `gradio.Blocks`.

    Args:
        folder: Folder in which to find the nearest images, or None.

    Raises:
        ValueError: If a model does not load or the folder has no images.
        ImportError: If Gradio is not installed.
    """
    _gradio()  # before the models, which take longer
    paths = files.find([folder]) if folder is not None else []
    models = {}
    for name in names:
        print(f"Loading {name}", flush=True)
        models[name] = demo_models.load(name)
    indices = {}
    if folder is not None:
        for name, model in models.items():
            if isinstance(model, demo_models.WordsModel):
                model = model.named(demo_models.FIRST_CLASSES)
            if not hasattr(model, "features"):
                continue  # there is no one representation of an image

            def report(done, name=name):
                print(
                    f"{name}: {done} of {len(paths)} images",
                    end="\r" if sys.stdout.isatty() else "\n",
                    flush=True,
                )

            indices[name] = demo_models.Neighbours(model, paths, report)
    return _page(models, indices, folder)


def launch(page, host: str = "127.0.0.1", port: int | None = None):
    """Start serving the page, in threads of this process.

    Args:
        port: Port to listen on; None finds a free one.

    Returns:
        The application, its address and None, like `gradio.Blocks.launch`.

    Raises:
        OSError: If the port is taken.
    """
    return page.launch(
        server_name=host,
        server_port=port,
        prevent_thread_lock=True,
        quiet=True,
        share=False,
        run_history=False,
        footer_links=[],
        max_file_size=MAX_FILE_SIZE,
        state_session_capacity=VISITORS_KEPT,
        css=demo_drawing.CSS,
        head=HEAD,
    )


@functools.cache
def _gradio():
    """Import Gradio without telemetry, with a folder removed at exit."""
    # By default both packages report usage.
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    os.environ["GRADIO_TEMP_DIR"] = _folder_of_uploads()
    return optional("gradio", "demo")


@functools.cache
def _folder_of_uploads():
    folder = tempfile.mkdtemp(prefix="keras_vit-demo-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _upload_component():
    """Add an image input that passes on the uploaded file unchanged."""
    gr = _gradio()
    upload = gr.Image(
        label="Image",
        sources=["upload", "webcam", "clipboard"],
        height=320,
        elem_id="upload",
        buttons=[],
    )
    move = upload.async_move_resource_to_block_cache

    async def move_file(path):
        # Otherwise Gradio would fetch the address in a crafted request.
        if str(path).startswith(("http://", "https://")):
            raise gr.Error("Upload a file, not an address.")
        return await move(path)

    # Set on the instance: for a subclass Gradio writes stubs beside this file.
    upload.async_move_resource_to_block_cache = move_file
    upload.preprocess = lambda file: (
        file and (file.path, file.orig_name or "photograph")
    )
    return upload


def _words_component(models):
    """Add a field for classes, if a model has a text tower."""
    has_words = [isinstance(x, demo_models.WordsModel) for x in models.values()]
    return _gradio().Textbox(
        demo_models.FIRST_CLASSES,
        label="Classes, with commas between",
        max_length=MOST_LETTERS,
        submit_btn="Classify",
        visible=any(has_words),
        elem_id="words",
    )


def _page(models, indices, folder):
    gr = _gradio()
    with gr.Blocks(
        title="keras_vit",
        analytics_enabled=False,
        # Every half hour, delete files that are an hour old.
        delete_cache=(SECONDS_KEPT // 2, SECONDS_KEPT),
        fill_width=True,
    ) as page:
        gr.Markdown(INTRODUCTION)
        with gr.Row():
            with gr.Column(scale=1, min_width=300):
                upload = _upload_component()
                words = _words_component(models)
                message = gr.HTML(elem_id="message")
                _add_examples(upload)
            with gr.Column(scale=3 if len(models) > 1 else 2), gr.Row():
                panels = [_panel(name, i) for i, name in enumerate(models)]

        def judge(file, classes):
            return _judge(file, classes, models, indices, folder)

        gr.on(
            [upload.change, words.submit],
            judge,
            [upload, words],
            [message, *(part for panel in panels for part in panel)],
            show_progress="minimal",
            api_visibility="private",
        )
    return page.queue(max_size=MAX_WAITING, default_concurrency_limit=1)


def _add_examples(upload):
    """Add a button for each of the photographs in scikit-learn."""
    import sklearn.datasets

    gr = _gradio()
    folder_of = os.path.dirname(sklearn.datasets.__file__)
    # Gradio serves no files of other folders than its own.
    folder = tempfile.mkdtemp(dir=_folder_of_uploads())
    gr.Markdown(EXAMPLES)
    with gr.Row(elem_id="examples"):
        for name in ("china.jpg", "flower.jpg"):
            original = os.path.join(folder_of, "images", name)
            path = shutil.copy(original, folder)
            # `gr.Examples` would replace the component, and with it the check
            # of addresses, by a new one.
            gr.Button(name, icon=path, size="sm", min_width=100).click(
                functools.partial(str, path),
                None,
                upload,
                queue=False,
                show_progress="hidden",
                api_visibility="private",
            )


def _panel(name, number):
    """Add the panel of a model; return the components an upload changes."""
    gr = _gradio()
    with gr.Column(min_width=320, elem_classes="model"):
        gr.HTML(demo_drawing.heading(name))
        classes = gr.HTML(elem_id=f"classes-{number}")
        state = gr.State(time_to_live=SECONDS_KEPT)
        maps = gr.HTML(elem_id=f"maps-{number}")
        sliders = [
            gr.Slider(
                *limits,
                value,
                step=step,
                label=label,
                visible=False,
                elem_id=f"{label.lower()}-{number}",
                buttons=[],
            )
            for label, limits, value, step in (
                # Until an answer contains their number.
                ("Layer", (1, 2), 1, 1),
                ("Head", (1, 2), 1, 1),
                ("Score", (0, 1), FIRST_SCORE, 0.05),
            )
        ]
        nearest = gr.HTML(elem_id=f"nearest-{number}")
    gr.on(
        [slider.input for slider in sliders],
        _drawn,
        [state, *sliders],
        maps,
        queue=False,
        show_progress="hidden",
        trigger_mode="always_last",
        api_visibility="private",
    )
    return classes, state, maps, *sliders, nearest


def _judge(file, classes, models, indices, folder):
    """Return the message and each panel's contents for an upload."""
    gr = _gradio()
    hidden = gr.Slider(visible=False)
    nothing = ["", None, "", hidden, hidden, hidden, ""] * len(models)
    if file is None:
        return ["", *nothing]
    path, name = file
    try:
        image = read_shown(path)
        outputs = []
        for model_name, model in models.items():
            index = indices.get(model_name)
            if isinstance(model, demo_models.WordsModel):
                model = model.named(classes)
            outputs += _contents(path, image, model, index, folder)
    except (ValueError, OSError) as error:
        text = str(error).replace(repr(path), repr(name))
        return [demo_drawing.problem(text), *nothing]
    return [demo_drawing.note(*image.size, name), *outputs]


def _contents(path, image, model, index, folder):
    """Return the contents of a panel for an image."""
    gr = _gradio()
    hidden = gr.Slider(visible=False)
    if isinstance(model, demo_tasks.TaskModel):
        found = model.find(path, image.pixels)
        score = gr.Slider(value=FIRST_SCORE, visible=found.has_scores)
        picture = demo_tasks.draw(found, FIRST_SCORE)
        return ["", found, picture, hidden, hidden, score, ""]
    answer = model.ask(path)
    classes = demo_drawing.classes(answer.classes)
    nearest = ""
    if index is not None:
        found, vote = index.nearest(path)
        pictures = [
            (thumbnail(decode.read_pixels(p)), os.path.relpath(p, folder), s)
            for p, s in found
        ]
        nearest = demo_drawing.nearest(pictures, vote)
    if not answer.heads:
        return [classes, None, "", hidden, hidden, hidden, nearest]
    state = demo_drawing.Maps(image.pixels, answer.rollout, answer.heads)
    layers, heads = len(answer.heads), max(map(len, answer.heads))
    return [
        classes,
        state,
        demo_drawing.maps(state, layers, 1),
        gr.Slider(maximum=max(layers, 2), value=layers, visible=layers > 1),
        gr.Slider(maximum=max(heads, 2), value=1, visible=heads > 1),
        hidden,
        nearest,
    ]


def _drawn(state, layer, head, score):
    """Return what the sliders ask for, of a panel's state."""
    if isinstance(state, demo_tasks.Found):
        return demo_tasks.draw(state, score)
    return demo_drawing.maps(state, layer, head)
