"""The page of the server in headless Chromium: what is drawn, chosen or typed is sent, and its answers are shown."""

import base64
import json
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
import uvicorn
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader

from playbook.command.main import run as run_command
from playbook.deploy.export import Request, export, program_of
from playbook.deploy.parity import Tolerance
from playbook.deploy.server.app import make_app
from playbook.deploy.server.catalogue import Catalogue, Place
from playbook.deploy.server.limits import Limits
from playbook.runs.colours import class_colour
from playbook.testing.serving import Fake
from tests.conftest import CNN_DIGITS, ROOT, cli_process

DRIVER = shutil.which("chromedriver")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key of an element in the W3C's WebDriver protocol
ONE_BATCH = ("--config", str(ROOT / "configs/debug/one-batch.yaml"))
FITS = {
    "digits": ("--config", CNN_DIGITS, "--trainer.max_epochs", "2"),
    "masks": ("--config", str(ROOT / "configs/vision/unet-scenes.yaml"), *ONE_BATCH),
    "boxes": ("--config", str(ROOT / "configs/vision/yolo-n-scenes.yaml"), *ONE_BATCH),
    "texts": ("--config", str(ROOT / "configs/language/lstm-sst2.yaml"), *ONE_BATCH),
    "gaps": (
        *("--config", str(ROOT / "configs/language/mlm-sst2.yaml"), *ONE_BATCH),
        *("--data.sources", "[data/sst2/train.tsv]"),
    ),
    "gpt": ("--config", str(ROOT / "configs/language/gpt-shakespeare.yaml"), *ONE_BATCH),
}
SEVEN = ((-60, -100), (60, -100), (0, 100))  # a stroke, from the middle of the canvas
COLOUR = "getComputedStyle(node).borderTopColor"
MASK_COLOURS = """
    const mask = document.querySelector("figure img + img");
    const canvas = document.createElement("canvas");
    Object.assign(canvas, { width: mask.naturalWidth, height: mask.naturalHeight });
    const context = canvas.getContext("2d");
    context.drawImage(mask, 0, 0);
    const pixels = context.getImageData(0, 0, canvas.width, canvas.height).data;
    const colours = new Set();
    for (let i = 0; i < pixels.length; i += 4) colours.add(`rgb(${pixels[i]}, ${pixels[i + 1]}, ${pixels[i + 2]})`);
    return [...colours].sort();
"""

pytestmark = pytest.mark.skipif(DRIVER is None, reason="needs Chromium's chromedriver")


class Scaled(pl.LightningModule):
    """Two inputs and two outputs, in numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x: Tensor, scale: Tensor) -> dict[str, Tensor]:
        y = self.layer(x) * scale[:, None]
        return {"y": y, "total": y.sum(dim=1)}

    def val_dataloader(self) -> DataLoader:
        rows = [{"scale": torch.tensor(float(i)), "x": torch.full((3,), i / 7)} for i in range(8)]
        return DataLoader(rows, batch_size=4)  # type: ignore[arg-type]  # a list is a data set


class Browser:
    """A session of WebDriver, by its HTTP interface."""

    def __init__(self, port: int, profile: Path) -> None:
        self.address = f"http://127.0.0.1:{port}"
        arguments = [*FLAGS, f"--user-data-dir={profile}", "--window-size=360,740"]
        options = {"browserName": "chrome", "goog:chromeOptions": {"args": arguments}}
        options["goog:loggingPrefs"] = {"browser": "ALL"}
        session = self.send("POST", "/session", {"capabilities": {"alwaysMatch": options}})
        self.address += f"/session/{session['sessionId']}"

    def send(self, method: str, path: str, content: Any = None) -> Any:
        data = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(self.address + path, data, {"content-type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.loads(response.read())["value"]

    def find(self, selector: str) -> str:
        found = self.send("POST", "/element", {"using": "css selector", "value": selector})
        return f"/element/{found[ELEMENT]}"

    def text(self, selector: str) -> str:
        return self.send("GET", f"{self.find(selector)}/text")

    def script(self, code: str) -> Any:
        return self.send("POST", "/execute/sync", {"script": code, "args": []})

    def all(self, selector: str, value: str) -> list[Any]:
        """A value, as JavaScript of `node`, of all elements."""
        return self.script(f"return [...document.querySelectorAll({json.dumps(selector)})].map((node) => {value})")

    def click(self, selector: str) -> None:
        self.send("POST", f"{self.find(selector)}/click", {})

    def write(self, selector: str, text: str) -> None:
        element = self.find(selector)
        if selector != "#file":
            self.send("POST", f"{element}/clear", {})
        self.send("POST", f"{element}/value", {"text": text})

    def draw(self, points: tuple[tuple[int, int], ...]) -> None:
        """Moves the pressed pointer over the canvas."""
        canvas = {ELEMENT: self.find("#pad").removeprefix("/element/")}
        moves = [{"type": "pointerMove", "duration": 20, "origin": canvas, "x": x, "y": y} for x, y in points]
        stroke = [moves[0], {"type": "pointerDown", "button": 0}, *moves[1:], {"type": "pointerUp", "button": 0}]
        pointer = {"type": "pointer", "id": "pen", "parameters": {"pointerType": "touch"}, "actions": stroke}
        self.send("POST", "/actions", {"actions": [pointer]})

    def open(self, address: str) -> None:
        """Opens the page, and waits until it knows its model."""
        self.send("POST", "/url", {"url": address})
        until(lambda: self.text("#about"))

    def run(self) -> str:
        """Presses the button, and waits for the status."""
        self.script("document.getElementById('status').textContent = '…'")
        self.click("#run")
        until(lambda: self.text("#status") != "…")
        return self.text("#status")

    def log(self) -> list[Any]:
        """What the console has told since the last call, such as what the page's policy forbids."""
        return self.send("POST", "/se/log", {"type": "browser"})


def until(holds: Callable[[], Any]) -> None:
    for _ in range(300):
        if holds():
            return
        time.sleep(0.1)
    raise TimeoutError("10 s")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert DRIVER is not None, "the test is skipped otherwise"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with subprocess.Popen([DRIVER, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as driver:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=5).close()
                break
            except urllib.error.URLError:
                time.sleep(0.1)
        session = Browser(port, tmp_path_factory.mktemp("profile"))
        yield session
        session.send("DELETE", "")
        driver.terminate()


class Exports:
    """Exports of short runs, each trained and served when a test first asks for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.servers: dict[str, tuple[subprocess.Popen[str], str]] = {}

    def address(self, name: str) -> str:
        """Where the export of a name is served."""
        recipe = Path(FITS[name][1]) if name in FITS else ROOT
        if not recipe.exists():
            pytest.skip(f"the project has no {recipe.parent.name}")
        if name not in self.servers:
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(self.folder)
                self._export(name)
            server = cli_process("serve", name, "--port", "0", cwd=self.folder)
            assert server.stdout is not None
            self.servers[name] = server, server.stdout.readline().split()[-1]
        return self.servers[name][1]

    def _export(self, name: str) -> None:
        if name == "rows":
            request = Request("onnx", "none", Path("rows"), Tolerance(), speed=False)
            export(program_of(Scaled(), None, {}), None, {}, request)
            return
        assert run_command(["fit", *FITS[name], "--run_dir", f"runs/{name}"], "src") == 0
        command = ["export", "--ckpt_path", f"runs/{name}", "--format", "onnx", "--speed", "false"]
        assert run_command([*command, "--output", name], "src") == 0


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exports]:
    folder = tmp_path_factory.mktemp("page")
    (folder / "data/sst2").mkdir(parents=True)
    for split in ("train", "dev", "test"):
        rows = [f"{'a good' if i % 2 else 'no'} film {'!' * (i % 7)}\t{i % 2}\n" for i in range(40)]
        (folder / f"data/sst2/{split}.tsv").write_text("".join(rows))
    (folder / "data/tinyshakespeare").mkdir()
    (folder / "data/tinyshakespeare/input.txt").write_text(
        "First Citizen:\nBefore we proceed, hear me speak.\n\n" * 500
    )
    exports = Exports(folder)
    yield exports
    for server, _ in exports.servers.values():
        server.terminate()
        server.communicate(timeout=30)


def answer_of(address: str, content: bytes | dict[str, Any]) -> dict[str, Any]:
    """The server's own answer to an image, or to JSON."""
    with urllib.request.urlopen(f"{address}/v1/models", timeout=20) as response:
        [model] = json.loads(response.read())["models"]
    body = json.dumps(content).encode() if isinstance(content, dict) else content
    kind = "application/json" if isinstance(content, dict) else "image/png"
    request = urllib.request.Request(f"{address}/v1/models/{model['name']}", body, {"content-type": kind})
    with urllib.request.urlopen(request, timeout=20) as response:
        [answer] = json.loads(response.read())["answers"]
    return answer


def bars_of(answer: Mapping[str, Any]) -> list[str]:
    """Classes and probabilities as the page shows them."""
    ends = [key.removeprefix("class") for key in answer if key.startswith("class")]
    return [f"{answer[f'class{end}']}{100 * answer[f'probability{end}']:.1f}%" for end in ends]


@pytest.mark.slow
def test_a_drawn_digit_gets_its_class(browser: Browser, exports: Exports) -> None:
    address = exports.address("digits")
    browser.open(address)
    assert browser.run() == "Draw something or choose a picture first."
    browser.draw(SEVEN)
    drawing = browser.script("return document.getElementById('pad').toDataURL('image/png')")
    picture = exports.folder / "drawing.png"
    picture.write_bytes(base64.b64decode(drawing.partition(",")[2]))
    with Image.open(picture) as image:
        pixels = np.asarray(image.convert("L"))
    assert (pixels[0, 0], pixels[40, 140], pixels[200, 40]) == (0, 255, 0), "a white stroke on black"
    browser.write("#options input[name=top]", "3")
    assert browser.run().endswith(" ms")
    answer = load_py_answer(exports, picture)
    assert browser.all(".bar", "node.textContent") == bars_of(answer)[:3]
    browser.click("#inverted")
    assert browser.script(
        "return [...document.getElementById('pad').getContext('2d').getImageData(140, 40, 1, 1).data]"
    ) == [0, 0, 0, 255], "the stroke is black now"
    browser.click("#clear")
    assert browser.run() == "Draw something or choose a picture first."
    assert browser.log() == []


@pytest.mark.slow
def test_chosen_pictures_get_their_classes(browser: Browser, exports: Exports) -> None:
    address = exports.address("digits")
    pictures = [exports.folder / "one.png", exports.folder / "two.png"]
    for seed, picture in enumerate(pictures):
        pixels = np.random.default_rng(seed).integers(0, 256, (16, 16), np.uint8)
        Image.fromarray(pixels).save(picture)
    browser.open(address)
    browser.write("#file", "\n".join(map(str, pictures)))
    assert browser.run().endswith(" ms")
    shown = browser.all("article", "[...node.querySelectorAll('.bar')].map((bar) => bar.textContent)")
    assert shown == [bars_of(load_py_answer(exports, picture)) for picture in pictures]
    assert browser.all("figure img", "node.naturalWidth") == [16, 16]
    assert browser.log() == []


def load_py_answer(exports: Exports, picture: Path) -> dict[str, Any]:
    """What load.py of the artefact answers."""
    command = [sys.executable, "digits/load.py", str(picture)]
    done = subprocess.run(command, cwd=exports.folder, capture_output=True, text=True, check=True)
    [answer] = json.loads(done.stdout)
    return answer


@pytest.mark.slow
def test_a_mask_has_the_colours_of_its_legend(browser: Browser, exports: Exports) -> None:
    address = exports.address("masks")
    picture = exports.folder / "masks/example/input.png"
    answer = answer_of(address, picture.read_bytes())
    areas = {name: share for name, share in answer["area"].items() if share}
    browser.open(address)
    browser.write("#file", str(picture))
    assert browser.run().endswith(" ms")
    assert set(browser.all(".bar", "node.textContent")) == {f" {name}{100 * x:.1f}%" for name, x in areas.items()}
    swatches = browser.all(".swatch", "getComputedStyle(node).backgroundColor")
    assert sorted(swatches) == browser.script(MASK_COLOURS)
    numbers = [list(answer["area"]).index(name) for name in areas]
    assert set(swatches) == {f"rgb{class_colour(number)}" for number in numbers}
    browser.script(
        "const slider = document.querySelector('article input');"
        "slider.value = 20; slider.dispatchEvent(new Event('input'))"
    )
    assert browser.all("figure img + img", "getComputedStyle(node).opacity") == ["0.2"]
    assert browser.log() == []


@pytest.mark.slow
def test_boxes_lie_where_the_answer_says(browser: Browser, exports: Exports) -> None:
    address = exports.address("boxes")
    picture = exports.folder / "boxes/example/input.png"
    image = base64.b64encode(picture.read_bytes()).decode()
    boxes = answer_of(address, {"input": image, "options": {"score": 0.005}})["boxes"]
    assert boxes, "an untrained net is unsure, but not that unsure"
    with Image.open(picture) as image_file:
        width, height = image_file.size
    browser.open(address)
    browser.write("#file", str(picture))
    browser.write("#options input[name=score]", "0.005")
    assert browser.run().endswith(" ms")
    assert browser.all(".box", "node.textContent")[::-1] == [f"{box['class']} {box['score']:.2f}" for box in boxes]
    places = browser.all(
        ".box",
        "((box, image) => [box.left - image.left, box.top - image.top, box.right - image.left, box.bottom - image.top]"
        ".map((x, i) => x / (i % 2 ? image.height : image.width)))"
        "(node.getBoundingClientRect(), node.parentNode.querySelector('img').getBoundingClientRect())",
    )
    expected = [
        [box["left"] / width, box["top"] / height, box["right"] / width, box["bottom"] / height] for box in boxes
    ]
    np.testing.assert_allclose(places[::-1], expected, atol=0.015)
    colours = dict(zip(*(browser.all(".box", value) for value in ("node.textContent[0]", COLOUR)), strict=True))
    assert colours == {name: f"rgb{class_colour(1 + int(name))}" for name in {box["class"] for box in boxes}}
    assert browser.log() == []


@pytest.mark.slow
def test_texts_are_classified(browser: Browser, exports: Exports) -> None:
    address = exports.address("texts")
    answer = answer_of(address, {"input": "a good film"})
    browser.open(address)
    browser.write("#text", "a good film")
    assert browser.run().endswith(" ms")
    assert browser.all(".bar", "node.textContent") == bars_of(answer)
    browser.click("#layout option[value=lines]")
    browser.write("#text", "a good film\n\nno film\n")
    assert browser.run().endswith(" ms")
    rows = browser.all("tr", "[...node.cells].map((cell) => cell.textContent)")
    assert rows[0] == ["input", "class", "class_2"]
    assert [row[0] for row in rows[1:]] == ["a good film", "no film"]
    assert [cell.replace(" ", "") for cell in rows[1][1:]] == bars_of(answer)
    browser.click("#layout option[value=rows]")
    browser.write("#text", 'text,stars\n"a good, long film",3\nno film,1\n')
    assert browser.run().endswith(" ms")
    assert browser.all("td:first-child", "node.textContent") == ["1", "2"]
    assert browser.log() == []


@pytest.mark.slow
def test_gaps_are_filled(browser: Browser, exports: Exports) -> None:
    address = exports.address("gaps")
    answer = answer_of(address, {"input": "a <mask> film <mask>"})
    browser.open(address)
    assert "<mask>" in browser.text("#text-name")
    browser.write("#text", "a <mask> film <mask>")
    assert browser.run().endswith(" ms")
    assert browser.all(".text", "node.textContent") == [answer["text"]]
    assert browser.all("h3", "node.textContent") == ["Gap 1", "Gap 2"]
    words = answer["choices"].replace(" | ", ", ").split(", ")
    shown = browser.all(".bar", "node.firstChild.textContent + ' ' + node.querySelector('progress').value.toFixed(2)")
    assert shown == words
    assert browser.log() == []


@pytest.mark.slow
def test_a_language_model_streams(browser: Browser, exports: Exports) -> None:
    address = exports.address("gpt")
    answer = answer_of(address, {"input": "First", "options": {"max_new_tokens": 20}})
    browser.open(address)
    browser.write("#text", "First")
    browser.write("#options input[name=max_new_tokens]", "20")
    assert browser.run().endswith(" ms")
    assert browser.all(".text", "node.textContent") == ["First" + answer["text"]]
    browser.write("#options input[name=temperature]", "-1")
    assert "temperature" in browser.run()
    assert "error" in browser.all("#status", "node.className")
    assert browser.log() == []


@pytest.mark.parametrize(
    "text",
    ['[{"x": [1, 2, 3], "scale": 1}, {"x": [0, 0, 1], "scale": 2}]', '{"x": [1, 2, 3], "scale": 1}'],
)
def test_rows_become_a_table(browser: Browser, exports: Exports, text: str) -> None:
    address = exports.address("rows")
    rows = json.loads(text)
    answers = [answer_of(address, {"input": row}) for row in (rows if isinstance(rows, list) else [rows])]
    browser.open(address)
    browser.write("#text", text)
    assert browser.run().endswith(" ms")
    numbers = [float(x) for x in re.findall(r"-?\d+\.\d+", " ".join(browser.all("td", "node.textContent")))]
    np.testing.assert_allclose(numbers, [x for answer in answers for x in (*answer["y"], answer["total"])], rtol=1e-3)
    assert browser.log() == []


class Slow(Fake):
    """Streams until the client has gone."""

    def __init__(self) -> None:
        super().__init__("prompt", "generate")
        self.has_ended = threading.Event()

    def stream(self, sample: Any, **options: Any) -> Iterator[str]:
        try:
            while True:
                yield "<b>again</b> "
                time.sleep(0.02)
        finally:
            self.has_ended.set()


def test_token_versions_and_stop(browser: Browser) -> None:
    model = Slow()
    catalogue = Catalogue(Limits())
    catalogue.add(Place("m", 1), Fake("tensor"))
    catalogue.add(Place("m", 2), model)
    config = uvicorn.Config(make_app(catalogue, "secret", is_local=True), log_level="warning", lifespan="on")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as own:
        thread = threading.Thread(target=server.run, args=([own],))
        thread.start()
        browser.send("POST", "/url", {"url": f"http://127.0.0.1:{own.getsockname()[1]}"})
        until(lambda: "token" in browser.text("#status"))
        browser.write("#token", "secret\n")
        until(lambda: browser.text("#text-name") == "Prompt")
        assert browser.all("#model option", "node.text") == ["m, version 2", "m, version 1"]
        browser.write("#text", "go")
        browser.click("#run")
        until(lambda: "<b>again</b> <b>again</b>" in browser.text("#answers"))
        browser.click("#stop")
        until(lambda: browser.text("#status") == "Stopped.")
        assert model.has_ended.wait(10)
        browser.click("#model option:last-child")
        until(lambda: "Rows" in browser.text("#text-name"))
        browser.write("#text", "1,2\n3,x\n")
        assert browser.run() == "row 2: expected numbers, got 'x'"
        browser.write("#text", "1,2\n3,4\n")
        assert browser.run().endswith(" ms")
        assert browser.all("td", "node.textContent") == ["1", "[1,2]", "2", "[3,4]"]
        server.should_exit = True
        thread.join(20)
