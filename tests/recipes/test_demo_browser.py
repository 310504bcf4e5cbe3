"""The web page in Chromium: what a visitor does, and what they see."""

import contextlib
import importlib.util
import io
import json
import pathlib
import shutil
import socket
import sys
import time

import numpy as np
import pytest
from PIL import Image

from keras_vit import inspection
from recipes import demo, demo_models

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "export"))
import images  # noqa: E402

MISSING = [
    *(p for p in ("chromium", "chromedriver") if shutil.which(p) is None),
    *(p for p in ("gradio", "selenium") if not importlib.util.find_spec(p)),
]
pytestmark = [
    pytest.mark.browser,
    pytest.mark.backend("tensorflow"),
    # Of Gradio's own imports and threads.
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(
        bool(MISSING),
        reason=f"needs {' and '.join(MISSING)}: apt-get install chromium "
        "chromium-driver; pip install -r requirements/demo.txt selenium",
    ),
]

NUM_IMAGES = 3
SECONDS = 120  # before a test gives up


def encode(width, height, kind="JPEG", **options):
    file = io.BytesIO()
    pixels = images.pixels(height, width, seed=width)
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Paths of uploads by name."""
    folder = tmp_path_factory.mktemp("uploads")
    valid = images.valid()
    rotated = Image.Exif()
    rotated[0x0112] = 6  # a quarter turn
    contents = {
        "photo.jpg": encode(60, 40),
        "other.png": encode(50, 30, "PNG"),
        "large.jpg": encode(6000, 4000),
        "rotated.jpg": encode(60, 40, exif=rotated),
        "moving.gif": valid["animated gif"],
        "text.jpg": b"This is a text.",
        "cut.jpg": encode(60, 40)[:-300],
        "bomb.png": images.encode(np.zeros((8000, 8000), bool), "PNG"),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture(scope="module")
def models(page_models):
    return [
        str(page_models / name)
        for name in ("vit.keras", "mixer.keras", "vit/1")
    ]


@pytest.fixture(scope="module")
def connections():
    """Fills with the hosts that this process connects to."""
    found, connect = [], socket.socket.connect

    def watched(self, address):
        if isinstance(address, tuple):  # no socket of this machine's files
            found.append(address[0])
        return connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", watched)
        yield found


@pytest.fixture(scope="module")
def page(models, connections, tmp_path_factory):
    folder = tmp_path_factory.mktemp("train")
    for i in range(NUM_IMAGES):
        content = encode(20 + i, 20, "PNG")
        (folder / f"{i}.png").write_bytes(content)
    return demo.build(models, str(folder))


@pytest.fixture(scope="module")
def address(page):
    _, address, _ = demo.launch(page)
    yield address
    page.close()


@contextlib.contextmanager
def chromium(address):
    """Yields a browser of its own, with the page open."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--no-proxy-server",
        "--window-size=1400,1000",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL"})
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    driver = webdriver.Chrome(options, service)
    try:
        driver.get(address)
        yield driver
    finally:
        driver.quit()


@pytest.fixture(scope="module")
def browser(address):
    with chromium(address) as driver:
        yield driver


def wait(condition):
    """Returns what a condition gives, once that is true."""
    from selenium.common.exceptions import WebDriverException

    deadline = time.monotonic() + SECONDS
    while True:
        with contextlib.suppress(WebDriverException):
            found = condition()
            if found:
                return found
        assert time.monotonic() < deadline, "the page did not answer"
        time.sleep(0.05)


def find(driver, selector):
    return driver.find_elements("css selector", selector)


def text(driver, name):
    return "\n".join(x.text for x in find(driver, f"#{name}"))


def send(driver, path):
    """Uploads a file, in place of the last one."""
    wait(lambda: find(driver, "#upload input[type=file]"))[0].send_keys(
        str(path)
    )


def upload(driver, path):
    """Uploads a file; returns the message about it."""
    send(driver, path)
    wait(lambda: path.name in text(driver, "message"))
    return text(driver, "message")


def rows(answer):
    """What the page prints of an answer's classes."""
    lines = [[name, f"{score:.2%}"] for name, score in answer.classes]
    return sum(lines, [])


def test_an_upload_is_answered_by_every_model(browser, files, models):
    photo = files / "photo.jpg"
    assert upload(browser, photo) == "photo.jpg: 60 x 40 pixels"
    for i, name in enumerate(models):
        expected = rows(demo_models.load(name).ask(str(photo)))
        assert text(browser, f"classes-{i}").split("\n") == expected
        nearest = text(browser, f"nearest-{i}").split("\n")
        assert nearest[0] == "Nearest images"
        assert len(nearest) == 1 + NUM_IMAGES
    # The pictures are within the page.
    sources = [x.get_attribute("src") for x in find(browser, ".model img")]
    assert len(sources) == 2 * 2 + 3 * NUM_IMAGES
    assert all(s.startswith("data:image/jpeg;base64,") for s in sources)


def test_sliders_draw_at_once_what_was_computed_once(
    browser, files, monkeypatch
):
    from selenium.webdriver.common.keys import Keys

    upload(browser, files / "photo.jpg")
    monkeypatch.setattr(inspection, "attention_maps", None)
    monkeypatch.setattr(demo_models.KerasModel, "ask", None)
    assert "Layer 2 of 2, head 1 of 2" in text(browser, "maps-0")
    drawn = [x.get_attribute("src") for x in find(browser, "#maps-0 img")]
    for slider, key, caption in (
        ("layer-0", Keys.ARROW_LEFT, "Layer 1 of 2, head 1 of 2"),
        ("head-0", Keys.ARROW_RIGHT, "Layer 1 of 2, head 2 of 2"),
    ):
        find(browser, f"#{slider} input[type=range]")[0].send_keys(key)
        wait(lambda c=caption: c in text(browser, "maps-0"))
    rollout, head = find(browser, "#maps-0 img")
    assert rollout.get_attribute("src") == drawn[0]
    assert head.get_attribute("src") != drawn[1]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("text.jpg", "'text.jpg' is not a JPEG, PNG, GIF, BMP or WebP image"),
        ("cut.jpg", "'cut.jpg' does not decode"),
        ("bomb.png", "more than 50 million pixels"),
    ],
)
def test_what_is_no_image_is_refused_with_a_message(
    name, message, browser, files
):
    assert message in upload(browser, files / name)
    assert text(browser, "classes-0") == text(browser, "maps-0") == ""
    # No icon of a broken image.
    assert not any(x.is_displayed() for x in find(browser, "#upload img"))
    page = browser.page_source
    assert "Traceback" not in page and "keras_vit/" not in page
    # The next image is answered as if nothing had happened.
    assert "photo.jpg" in upload(browser, files / "photo.jpg")
    assert text(browser, "classes-0").count("%") == 5


def test_two_visitors_at_once_see_their_own_image(
    browser, address, files, models
):
    from selenium.webdriver.common.keys import Keys

    model = demo_models.load(models[0])
    with chromium(address) as other:
        pairs = ((browser, "photo.jpg"), (other, "other.png"))
        for driver, name in pairs:
            send(driver, files / name)
        for driver, name in pairs:
            wait(lambda d=driver, n=name: n in text(d, "message"))
            expected = rows(model.ask(str(files / name)))
            assert text(driver, "classes-0").split("\n") == expected
        shapes = []
        for driver, _ in pairs:
            slider = find(driver, "#layer-0 input[type=range]")[0]
            slider.send_keys(Keys.ARROW_LEFT)
            wait(lambda d=driver: "Layer 1 of 2" in text(d, "maps-0"))
            _, head = find(driver, "#maps-0 img")
            size = "return [arguments[0].naturalWidth, arguments[0]"
            size += ".naturalHeight]"
            shapes.append(driver.execute_script(size, head))
        assert shapes == [[60, 40], [50, 30]]


def test_neither_browser_nor_server_asks_anybody_else(
    browser, address, files, connections
):
    upload(browser, files / "photo.jpg")
    events = [
        json.loads(entry["message"])["message"]
        for entry in browser.get_log("performance")
    ]
    urls = [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]
    assert any("/upload" in url for url in urls)
    own = (address, "data:", "blob:")
    assert [url for url in urls if not url.startswith(own)] == []
    assert "127.0.0.1" in connections  # such as the driver's
    assert set(connections) <= {"127.0.0.1", "localhost", "::1"}


def test_neither_page_nor_config_names_a_folder(page, page_models, address):
    import urllib.request

    for url in (address, f"{address}config"):
        with urllib.request.urlopen(url) as answer:
            assert str(page_models) not in answer.read().decode()
    assert page._queue.max_size == demo.MAX_WAITING


def test_a_crafted_request_cannot_have_the_server_fetch_an_address(page):
    import gradio

    upload = next(x for x in page.blocks.values() if x.elem_id == "upload")
    fetch = upload.async_move_resource_to_block_cache
    with pytest.raises(gradio.Error, match="Upload a file, not an address"):
        fetch("http://example.com/image.png").send(None)
