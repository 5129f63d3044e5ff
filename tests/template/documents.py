"""The documents of the repository, and the commands that they show."""

import re
import shlex

from tests.conftest import ROOT

DOCUMENTS = (
    *("README.md", "CONTRIBUTING.md", "AGENTS.md"),
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md")),
)
SETUP = "pip install uv && "


def commands(document: str) -> list[str]:
    """Lines of the sh blocks, and those behind a $ of the console blocks."""
    shown = []
    for kind, block in re.findall(r"```(sh|console)\n(.*?)```", (ROOT / document).read_text(encoding="utf-8"), re.S):
        lines = [line for line in block.splitlines() if line and not line.startswith("#")]
        shown += lines if kind == "sh" else [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return [command.removeprefix(SETUP) for command in shown]


def without_uv(command: str) -> list[str]:
    """The words of a command but for `uv run …`: the environment of the tests stands for the one that uv makes."""
    words = shlex.split(command)
    if words[:2] == ["uv", "run"]:
        words = words[2:]
        while words[0] in ("--group", "--extra"):
            words = words[2:]
    return words


def arguments(command: str) -> list[str] | None:
    """What follows `python -m src` in a command; None if it is another one."""
    words = without_uv(command)
    return words[3:] if words[:3] == ["python", "-m", "src"] else None


def sources(document: str) -> dict[str, str]:
    """Files below src/ that Python blocks give in full, by the path in their first line."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return {path: code for path, code in re.findall(r"```python\n# (src/\S+\.py)\n(.*?)```", text, re.S)}
