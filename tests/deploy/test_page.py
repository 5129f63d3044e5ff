"""The page of the server in headless Chromium: a picture is chosen, and its class shown."""

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.conftest import Cli, cli_process
from tests.deploy.test_serving import FIT

DRIVER = shutil.which("chromedriver")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key of an element in the W3C's WebDriver protocol


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


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    assert DRIVER is not None, "the test is skipped otherwise"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with subprocess.Popen([DRIVER, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as driver:
        for _ in range(50):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=5).close()
                break
            except urllib.error.URLError:
                time.sleep(0.1)
        session = Browser(port, tmp_path / "profile")
        yield session
        session.send("DELETE", "")
        driver.terminate()


@pytest.mark.slow
@pytest.mark.skipif(DRIVER is None, reason="needs Chromium's chromedriver")
def test_a_picture_gets_its_class(cli: Cli, workdir: Path, browser: Browser) -> None:
    assert cli("fit", *FIT).code == 0
    assert cli("export", "--ckpt_path", "run", "--format", "onnx", "--output", "digits", "--speed", "false").code == 0
    picture = Path("digit.png").absolute()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (16, 16), np.uint8)).save(picture)
    server = cli_process("serve", "digits", "--port", "0", cwd=workdir)
    try:
        assert server.stdout is not None
        browser.send("POST", "/url", {"url": server.stdout.readline().split()[-1]})
        for _ in range(50):
            if "version 1" in browser.text("#model"):
                break
            time.sleep(0.1)
        browser.send("POST", f"{browser.find('#file')}/value", {"text": str(picture)})
        browser.send("POST", f"{browser.find('#options input')}/value", {"text": "3"})
        browser.send("POST", f"{browser.find('button')}/click", {})
        for _ in range(50):
            if browser.text("#answers"):
                break
            time.sleep(0.1)
        expected = json.loads(subprocess_answer(workdir, picture))
        shown = browser.text("#answers").split()
        assert shown == [part for end in ("", "_2", "_3") for part in told(expected, end)]
        assert browser.text("#status") == ""
        assert browser.send("GET", f"{browser.find('#picture')}/displayed")
        log = browser.send("POST", "/se/log", {"type": "browser"})
        assert log == [], "no error, and nothing that the page's policy forbids"
    finally:
        server.terminate()
        server.communicate(timeout=30)


def subprocess_answer(workdir: Path, picture: Path) -> str:
    """What load.py of the artefact answers, as one object."""
    done = subprocess.run(
        [sys.executable, "digits/load.py", str(picture)], cwd=workdir, capture_output=True, text=True, check=True
    )
    return json.dumps(json.loads(done.stdout)[0])


def told(answer: dict[str, Any], end: str) -> list[str]:
    """Class and probability as the page shows them."""
    return [answer[f"class{end}"], f"{answer[f'probability{end}']:.4f}"]
