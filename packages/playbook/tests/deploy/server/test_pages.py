"""The pages / and /docs: what they show, in a browser and in the commands that they name."""

import base64
import html
import io
import json
import random
import re
import shutil
import subprocess
import sys
import wave
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from deploy.server.browser import BROWSER, Page, browsing
from deploy.server.running import running
from deploy.test_runtime_rows import PLAN
from deploy.test_server import client_of, png
from playbook.deploy.runtime.audio import AudioHeader, audio_windows
from playbook.deploy.server.app import PAGE
from playbook.deploy.server.catalogue import Catalogue, Model, Place
from playbook.deploy.server.docs import docs_page
from playbook.deploy.server.limits import Limits
from playbook.testing.serving import Fake

LIMITS = Limits(timeout_s=10.0)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="needs chromium or google-chrome")
IS_READY = "document.querySelector('article.empty')"
HAS_ANSWER = "document.querySelector('article:not(.empty)') && document.getElementById('stop').hidden"
DROP = """const files = new DataTransfer();
const bytes = Uint8Array.from(atob("{}"), (letter) => letter.charCodeAt(0));
files.items.add(new File([bytes], "{}"));
document.getElementById("drop").dispatchEvent(new DragEvent("drop", {{ dataTransfer: files, cancelable: true }}));
document.getElementById("form").requestSubmit();"""


class Finder(Fake):
    """Finds five objects, close to each other, in any picture; the names of classes are long, and look like markup."""

    def __init__(self) -> None:
        super().__init__("image", "boxes")
        self.manifest |= {"postprocessing": {"kind": "boxes", "names": ["<b>a cat</b>" * 3, "dog"], "score": 0.25}}

    def answer_samples(self, samples: Sequence[Any], **options: Any) -> list[dict[str, Any]]:
        sides = {"left": 20.0, "top": 5.0, "right": 90.0, "bottom": 70.0}
        boxes = [{"class": "<b>a cat</b>" * 3, "score": 0.9 - n / 10, **sides} for n in range(5)]
        return [{"boxes": [box for box in boxes if box["score"] > options.get("score", 0)]} for _ in samples]


def shell_lines(page: str) -> list[str]:
    return [html.unescape(line) for line in re.findall(r'<pre class="shell">(.*?)</pre>', page, re.DOTALL)]


def rows_model() -> Fake:
    model = Fake("row")
    model.manifest |= {"preprocessing": PLAN}
    return model


@pytest.mark.slow
def test_the_server_starts_without_what_makes_reports() -> None:
    code = "import sys, playbook.deploy.server.app; print({'torch', 'matplotlib', 'lightning'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_commands_of_docs_work(tmp_path: Path) -> None:
    (tmp_path / "picture.png").write_bytes(png())
    (tmp_path / "recording.wav").write_bytes(b"RIFF")
    np.save(tmp_path / "array.npy", np.zeros(2, np.float32))
    kinds = [
        Fake("image", "classes"),
        Fake("audio"),
        Fake("text", "labels"),
        Fake("prompt", "generate"),
        Fake("tensor"),
    ]
    with running(*kinds, rows_model(), limits=LIMITS) as server:
        address = f"http://127.0.0.1:{server.port}"
        page = subprocess.run(["curl", "-sS", f"{address}/docs"], capture_output=True, text=True, check=True).stdout
        lines = shell_lines(page)
        for line in lines:
            done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=tmp_path, check=False)
            assert done.returncode == 0, (line, done.stderr)
            assert not done.stdout.startswith('{"error"'), (line, done.stdout)
        schema = subprocess.run(["curl", "-sS", f"{address}/openapi.json"], capture_output=True, check=True).stdout
    for path in json.loads(schema)["paths"]:  # each has a line
        address = re.escape(path.replace("/versions/{version}", "")).replace(r"\{name\}", r"m\d")
        assert any(re.search(f"{address}(['?\\s]|$)", line) for line in lines), path


def test_docs_with_a_token_name_no_model() -> None:
    with client_of(Fake("text"), token="secret") as client:
        page = client.get("/docs").text
    assert "/v1/models/m" not in page
    assert "secret" not in page
    lines = shell_lines(page)
    assert 'curl -sS -H "Authorization: Bearer $TOKEN" http://localhost/v1/models/"$NAME"' in lines
    assert (
        'curl -sS -H "Authorization: Bearer $TOKEN" http://localhost/v1/models/"$NAME"/example -o example' not in lines
    )
    assert "curl -sS http://localhost/health" in lines


def test_docs_hold_no_markup_and_no_commands_of_others() -> None:
    limits = Limits()
    model = Model(Place("<img src=x>", 1), Fake("text"), limits, Catalogue(limits).metrics)
    page = docs_page([model], "http://a;touch x;<script>", False)
    assert "<img" not in page
    assert "<script" not in page
    assert all("'http://a;touch x;<script>/" in line for line in shell_lines(page))
    model.queue.close(1.0)


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_labels_hide_no_other() -> None:
    """Of 40 pictures with up to 30 boxes, no two labels overlap, all lie within, and one alone always has a place."""
    draw = random.Random(1)
    cases = []
    for _ in range(40):
        width, height = draw.randint(60, 400), draw.randint(40, 400)
        boxes = []
        for _ in range(draw.randint(1, 30)):
            left, top = draw.uniform(0, width - 5), draw.uniform(0, height - 5)
            boxes.append({"left": left, "top": top, "right": left + draw.uniform(3, 90), "bottom": top + 20})
        sizes = [{"width": draw.uniform(10, 59), "height": 15} for _ in boxes]
        cases.append([boxes, sizes, width, height])
    file = (PAGE / "labels.js").as_uri()
    placed = f"{json.dumps(cases)}.map((one) => placeLabels(...one))"
    code = f'import {{ placeLabels }} from "{file}"; console.log(JSON.stringify({placed}))'
    done = subprocess.run(["node", "--input-type=module", "-e", code], capture_output=True, text=True, check=True)
    num_placed = 0
    for (boxes, sizes, width, height), places in zip(cases, json.loads(done.stdout), strict=True):
        assert len(places) == len(boxes)
        assert places[0] is not None
        labels = [(p["left"], p["top"], s["width"], s["height"]) for p, s in zip(places, sizes, strict=True) if p]
        num_placed += len(labels)
        for number, (left, top, wide, high) in enumerate(labels):
            assert left >= 0 <= top
            assert left + wide <= width + 1e-9
            assert top + high <= height + 1e-9
            for other_left, other_top, other_wide, other_high in labels[:number]:
                apart_x = left >= other_left + other_wide or other_left >= left + wide
                apart_y = top >= other_top + other_high or other_top >= top + high
                assert apart_x or apart_y, (width, height, labels)
    assert num_placed > 0.8 * sum(len(boxes) for boxes, *_ in cases)


def picture(width: int = 120, height: int = 80) -> str:
    file = io.BytesIO()
    Image.new("RGB", (width, height), "gray").save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def assert_no_overflow(page: Page) -> None:
    wide, window = page.run("return [document.documentElement.scrollWidth, innerWidth]")
    assert wide <= window


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize("width", [400, 1280])
def test_boxes_on_the_page(tmp_path: Path, width: int) -> None:
    with running(Finder(), limits=LIMITS) as server, browsing(tmp_path) as page:
        address = f"http://127.0.0.1:{server.port}/"
        page.open(address, width)
        page.wait(IS_READY)
        assert page.run("return document.title") == "Try m0"
        assert page.run("return document.getElementById('drawing').hidden"), "a pad for a model of colours"
        assert "boxes above a score of" in page.run("return document.getElementById('options').textContent")
        assert_no_overflow(page)
        page.run(DROP.format(picture(), "street.png"))
        page.wait(f"{HAS_ANSWER} && document.querySelectorAll('.tag').length === 5")
        page.run("await new Promise(requestAnimationFrame); await new Promise(requestAnimationFrame)")
        assert page.run("return document.querySelector('.headline').textContent").startswith("5 objects")
        assert page.run("return document.querySelectorAll('article b').length") == 0, "a text became markup"
        labels: list[Mapping[str, float]] = page.run(
            "return [...document.querySelectorAll('.tag')].filter((tag) => tag.style.visibility !== 'hidden')"
            ".map((tag) => { const r = tag.getBoundingClientRect();"
            " return { left: r.left, right: r.right, top: r.top, bottom: r.bottom } })"
        )
        assert labels
        for number, one in enumerate(labels):
            for other in labels[:number]:
                is_apart_x = one["left"] >= other["right"] or other["left"] >= one["right"]
                assert is_apart_x or one["top"] >= other["bottom"] or other["top"] >= one["bottom"], labels
        assert_no_overflow(page)
        page.run(
            "const input = document.querySelector('[name=score]'); input.value = 0.85;"
            "input.dispatchEvent(new Event('input')); input.dispatchEvent(new Event('change', { bubbles: true }))"
        )
        page.wait(f"{HAS_ANSWER} && document.querySelectorAll('.tag').length === 1")
        page.run(DROP.format("AAAA", "holiday.png"))
        page.wait("document.getElementById('status').className === 'error'")
        assert "holiday.png" in page.run("return document.getElementById('status').textContent")
        assert page.run("return document.getElementById('answers').childElementCount") == 0, "former answers remain"
        own = (address, "data:", f"blob:{address}")
        assert [url for url in page.addresses if not url.startswith(own)] == []
        page.open(f"{address}docs", width)
        assert_no_overflow(page)


class Forecaster(Fake):
    """Continues a series (T, 1) by three steps."""

    def __init__(self) -> None:
        super().__init__("tensor", inputs=[{"name": "past", "dtype": "float32", "shape": ["B", 4, 1]}])

    def answer_samples(self, samples: Sequence[Any], **options: Any) -> list[dict[str, Any]]:
        return [{"forecast": np.array([[5.0], [6.0], [7.0]])} for _ in samples]


@pytest.mark.slow
@needs_browser
def test_text_numbers_and_drawings_on_the_page(tmp_path: Path) -> None:
    drawings = Fake("image", "classes")
    drawings.manifest |= {"preprocessing": {"kind": "image", "channels": 1}, "postprocessing": {"kind": "classes"}}
    enter = "document.getElementById('text').value = '{}'; document.getElementById('form').requestSubmit()"
    choose = (
        "const one = document.getElementById('model'); one.selectedIndex = {}; one.dispatchEvent(new Event('change'))"
    )
    texts, numbers = Fake("prompt", "generate"), Forecaster()
    with running(texts, numbers, drawings, limits=LIMITS) as server, browsing(tmp_path) as page:
        page.open(f"http://127.0.0.1:{server.port}/", 400)
        page.wait(IS_READY)
        page.run(enter.format("<i>Once</i> "))
        page.wait(f"{HAS_ANSWER} && !document.getElementById('run').disabled")
        assert page.run("return document.querySelector('.passage').textContent") == "<i>Once</i> one two"
        page.run(choose.format(1))
        page.wait(f"{IS_READY} && document.title === 'Try m1'")
        page.run(enter.format("[[1], [2], [3], [4]]"))
        page.wait(HAS_ANSWER)
        counts = "return [...document.querySelectorAll('polyline')].map((line) => line.points.numberOfItems)"
        assert page.run(counts) == [4, 4]  # what was given, and from its last step the three that follow
        page.run(choose.format(2))
        page.wait(f"{IS_READY} && document.title === 'Try m2' && !document.getElementById('drawing').hidden")
        assert_no_overflow(page)


class Listener(Fake):
    """Names the number of bytes of a recording."""

    def __init__(self) -> None:
        super().__init__("audio")
        self.manifest |= {"preprocessing": {"kind": "audio", "sample_rate": 8000, "seconds": 0.5, "overlap": 0.5}}

    def answer_samples(self, samples: Sequence[Any], **options: Any) -> list[dict[str, Any]]:
        return [{"class": f"{len(sample)} bytes", "probability": 0.5} for sample in samples]


@pytest.mark.slow
@needs_browser
def test_a_long_recording_on_the_page(tmp_path: Path) -> None:
    """Its windows are those of `predict --input`, each sent as a WAV file of floats."""
    header = AudioHeader(num_samples=11_000, sample_rate=8000, num_channels=1)
    file = io.BytesIO()
    with wave.open(file, "wb") as recording:
        recording.setparams((1, 2, header.sample_rate, 0, "NONE", "NONE"))
        recording.writeframes(np.zeros(header.num_samples, "<i2").tobytes())
    with running(Listener(), limits=LIMITS) as server, browsing(tmp_path / "profile") as page:
        page.open(f"http://127.0.0.1:{server.port}/", 400)
        page.wait(IS_READY)
        page.run(DROP.format(base64.b64encode(file.getvalue()).decode(), "birds.wav"))
        page.wait(HAS_ANSWER)
        lines = page.run("return [...document.querySelectorAll('.times button')].map((line) => line.textContent)")
        windows = [(start / 8000, stop / 8000) for start, stop in audio_windows(header, 0.5, 0.5)]
        assert lines == [f"{start:.2f} to {stop:.2f} s 16044 bytes 50.0 %" for start, stop in windows]
        assert page.run("return document.querySelector('.headline').textContent") == "16044 bytes in 5 of 5 windows"
        assert_no_overflow(page)


@pytest.mark.slow
@needs_browser
def test_a_row_on_the_page(tmp_path: Path) -> None:
    """A form by column, filled with typical values and said to be made up; an empty field is a missing value."""
    with running(rows_model(), limits=LIMITS) as server, browsing(tmp_path) as page:
        page.open(f"http://127.0.0.1:{server.port}/", 400)
        page.wait(IS_READY)
        names = page.run("return [...document.querySelectorAll('#columns input')].map((input) => input.name)")
        assert names == ["age", "size", "born", "job"]
        assert "typical values" in page.run("return document.getElementById('origin').textContent")
        page.run("document.querySelector('#columns input').value = ''; document.getElementById('form').requestSubmit()")
        page.wait(HAS_ANSWER)
        assert "'age': None" in page.run("return document.getElementById('answers').textContent")
        assert_no_overflow(page)
