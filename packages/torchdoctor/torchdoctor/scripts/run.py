"""Runs a script in a copy of its folder; the answer is passed in a file, as a script may exit at any time."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from torchdoctor import source
from torchdoctor.scripts import notes
from torchdoctor.scripts.folder import Copy, confine

_LINES = 4  # of what a script prints, at its end


class Run:
    """A run of a script in the calling process.

    Args:
        script: the file.
        place: a folder for the copy, the answer and all that is written.
        act: gets the script in the copy and the file for the answer, which is JSON; it ends the process.
        prepare: the process for it.
    """

    def __init__(
        self, script: Path, place: Path, act: Callable[[Path, Path], NoReturn], prepare: Callable[[], object]
    ) -> None:
        place.mkdir()
        here = Path.cwd().resolve()
        self.copy = Copy(here if script.is_relative_to(here) else script.parent, place / "tree")
        self.script, self.place = self.copy.folder / script.relative_to(self.copy.original), place
        self.act, self.prepare = act, prepare

    def __call__(self) -> NoReturn:
        confine(self.place)
        os.chdir(self.copy.folder)
        source.treat_copies_as_libraries(self.copy.original, self.copy.folder)
        notes.patch()
        self.prepare()
        _log_to(self.place / "output")
        self.act(self.script, self.place / "answer.json")

    @property
    def answer(self) -> dict[str, Any]:
        """The answer with paths of the original folder; empty if there is none."""
        file = self.place / "answer.json"
        return self.copy.restored(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else {}

    @property
    def last_lines(self) -> str:
        """The last lines of the script's output, joined into one."""
        text = (self.place / "output").read_text(encoding="utf-8", errors="replace")
        return self.copy.restored(" / ".join(line.strip() for line in text.strip().splitlines()[-_LINES:]))


def _log_to(file: Path) -> None:
    """Redirects the script's output to a file and closes its input."""
    log = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdin = os.fdopen(0, closefd=False)
    for stream in (1, 2):
        os.dup2(log, stream)
    sys.stdout, sys.stderr = (os.fdopen(stream, "w", buffering=1, closefd=False) for stream in (1, 2))
