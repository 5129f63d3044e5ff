"""The card shows every text as it is, whatever Markdown would make of it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from playbook.deploy.card import write_card, write_weights_card
from playbook.deploy.weights import Net

ODD = [
    "a`b",
    "``",
    "x|y",
    "back\\|slash",
    "*bold*",
    "_edge_",
    "t_shirt",
    "<b>",
    "&lt;",
    "[a](b)",
    "$1 and $2",
    "#",
    "~~no~~",
]


def manifest_of(**entries: Any) -> dict[str, Any]:
    manifest = {
        "name": "net",
        "net": "CNN",
        "task": "Classification",
        "format": "torchscript",
        "quantization": "none",
        "runtime": {"package": "torch", "oldest": "2.15"},
        "postprocessing": {"kind": "classes", "names": ["a", "b"]},
        "metrics": {},
        "inputs": [{"name": "image", "dtype": "float32", "shape": ["B", 3]}],
        "outputs": [{"name": "logits", "dtype": "float32", "shape": ["B", 2]}],
        "dims": {"B": [1, None]},
        "parity": {
            "max_error": 0.1,
            "mean_error": 0.1,
            "scale": 1.0,
            "agreement": None,
            "samples": 1,
            "cases": [{"B": 1, "max_error": 0.1}],
            "metrics": {},
        },
        "files": {"model.ts": {"bytes": 1}},
        "eager_bytes": 1,
        "machine": {"processor": "CPU", "threads": 1},
        "speed": [],
    }
    return {**manifest, **entries}


def shown(card: Path) -> list[str]:
    """Texts of the blocks and table cells of a card, as a reader sees them."""
    blocks = MarkdownIt("commonmark").enable("table").parse(card.read_text(encoding="utf-8"))
    return ["".join(part.content for part in block.children or []) for block in blocks if block.type == "inline"]


@pytest.mark.parametrize("text", ODD)
def test_names_of_all_kinds(tmp_path: Path, text: str) -> None:
    output = {"name": text, "dtype": "float32", "shape": ["B", 2]}
    speed = [{"way": text, "batch": 1, "milliseconds": 1.0, "samples_per_second": 1.0}]
    manifest = manifest_of(
        name=text,
        metrics={text: 0.5},
        postprocessing={"kind": "classes", "names": [text, "b"]},
        outputs=[output],
        speed=speed,
        machine={"processor": text, "threads": 1},
    )
    texts = shown(write_card(tmp_path, manifest))
    assert texts[0] == text
    assert f"2 classes: {text}, b." in texts
    assert texts.count(text) == 4, json.dumps(texts)  # heading, metric, output and way
    assert f"Medians on {text}, 1 threads:" in texts
    assert "output" in texts


def test_lines_become_one(tmp_path: Path) -> None:
    texts = shown(
        write_weights_card(
            tmp_path, manifest_of(name="a\n\n# b\n", format="safetensors", weights=Net("net.", "nets.CNN", True))
        )
    )
    assert texts[0] == "a # b"
    assert not any(re.fullmatch("b", text) for text in texts)


def test_columns_of_a_table(tmp_path: Path) -> None:
    columns = [{"name": "age_|_", "kind": "number"}, {"name": "job", "kind": "category"}]
    file = write_card(tmp_path, manifest_of(preprocessing={"kind": "table", "columns": columns}))
    text = " ".join(MarkdownIt("commonmark").render(file.read_text()).split())
    assert "with these columns, in any order: age_|_ (number), job (category)." in text
    assert "model.predict(model.sources(&quot;FILE.csv&quot;))" in text
    assert "sources" not in write_card(tmp_path, manifest_of()).read_text()
