"""The frame of all pages: contrast by WCAG 2.2 in both themes, texts that are no markup, nothing from elsewhere."""

import os
import re
import shutil
import subprocess
from itertools import product
from pathlib import Path

import pytest

from playbook.insight.page.frame import anchor, page
from playbook.pages import STYLE

LIGHT, DARK = (
    dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", part))
    for part in STYLE.read_text().partition("@media (prefers-color-scheme: dark)")[::2]
)
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")


def luminance(colour: str) -> float:
    """Relative luminance of an sRGB colour, in [0, 1] (WCAG 2.2)."""
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_black_on_white_is_the_most() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_texts_can_be_read(theme: dict[str, str]) -> None:
    texts = product(("ink", "quiet", "accent"), ("ground", "card"))
    further = [*product(("ink", "quiet", "good", "bad"), ("shade",)), *product(("good", "bad"), ("card",))]
    for name, ground in [*texts, *further]:
        assert contrast(theme[name], theme[ground]) >= 4.5, (name, ground)
    for ground in ("ground", "card", "shade"):
        assert contrast(theme["edge"], theme[ground]) >= 3, f"edge of a field on {ground}"
    for number in range(1, 7):
        assert contrast(theme[f"c{number}"], theme["card"]) >= 3, f"curve {number}"


def test_texts_are_no_markup() -> None:
    evil = "<img src=x>"
    html = page(evil, evil, [(evil, evil)], [(evil, "<p>own</p>")])
    assert "<img" not in html
    assert "<p>own</p>" in html


def test_links_lead_to_their_sections() -> None:
    html = page("t", "s", [], [("What differs", ""), ("Results (all)", "")])
    assert re.findall(r'<a href="#([^"]+)"', html) == re.findall(r'<section id="([^"]+)"', html)
    assert anchor("Results (all)") == "results-all"


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="needs chromium or google-chrome")
@pytest.mark.parametrize("width", [390, 1200])
def test_nothing_is_wider_than_the_window(tmp_path: Path, width: int) -> None:
    """The page is rendered; a script that this test adds measures it."""
    cells = "".join(f"<td>{number}{'x' * 40}</td>" for number in range(20))
    body = f'<div class="scroll"><table><tr>{cells}</tr></table></div><pre>{"y" * 500}</pre>'
    html = page("a" * 200, "b" * 200, [("n", "1")] * 12, [(f"Section {n}", body) for n in range(12)])
    html = re.sub(r"<meta http-equiv=[^>]*>", "", html)
    script = "document.title = document.documentElement.scrollWidth + ' of ' + window.innerWidth"
    file = tmp_path / "page.html"
    file.write_text(html.replace("</body>", f"<script>{script}</script></body>"))
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    command = [str(BROWSER), *options, f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},900"]
    done = subprocess.run(
        [*command, "--dump-dom", file.as_uri()], capture_output=True, text=True, check=False, env={**os.environ}
    )
    title = re.search(r"<title>(\d+) of (\d+)</title>", done.stdout)
    assert title is not None, done.stderr[-2000:]
    assert int(title[1]) <= int(title[2]), title[0]
