"""The help of every class of the project says of every option what it is."""

import re

import pytest

from playbook import project
from playbook.command import class_names, discovery, signatures
from playbook.testing.command import Cli

OPTIONS = {"tasks": "model", "data": "data", "nets": "model.net", "callbacks": "trainer.callbacks"}
CLASSES = [(OPTIONS[kind], entry.path) for kind in OPTIONS for entry in discovery.classes(kind)]
CLASSES += [("model.optimizer", entry.path) for entry in class_names.ours("optimizer")]
CLASSES += [("model.schedule", entry.path) for entry in class_names.ours("schedule")]


def texts(page: str, option: str) -> dict[str, str]:
    """Text of every option on a page of help, without its type and default."""
    blocks = re.split(rf"^  --{re.escape(option)}\.(\w+)", page, flags=re.MULTILINE)[1:]
    lines = {name: " ".join(block.split()) for name, block in zip(blocks[::2], blocks[1::2], strict=True)}
    return {
        name: re.sub(r" ?(\[(default: .*|required)\]|;? ?classes: --[\w.]+)", "", text) for name, text in lines.items()
    }


@pytest.mark.parametrize(("option", "path"), CLASSES, ids=[path for _, path in CLASSES])
def test_every_option_has_a_text(cli: Cli, option: str, path: str) -> None:
    project.choose("src")
    done = cli("fit", f"--{option}.help", path)
    assert done.code == 0, done.err
    signature = signatures.signature(path)
    assert signature is not None
    assert signature.is_complete
    words = texts(done.out, option)
    expected = list(signature.parameters)[option in ("model.optimizer", "model.schedule") :]
    assert list(words) == expected
    assert not [name for name, text in words.items() if len(text.split()) < 3], words  # the type and two words at least


def test_a_missing_text_would_be_seen() -> None:
    page = "Title\n\n  --data.size int      [default: 3]\n  --data.flip bool   whether to flip. [default: true]\n"
    assert texts(page, "data") == {"size": "int", "flip": "bool whether to flip."}
