"""The programs in cases/, of which a file holds all those of one defect.

Its main pair is `Model` and `Data`, with the defect at a line that ends with `# here`, and `Repaired` in place of Model
or `RepairedData` in place of Data. Each variant of the defect follows a line `# -- by_hand`, as `ByHandModel`,
`ByHandData` and so on. In `clean_….py` nothing is wrong: all their programs follow such a line, and have no repair.

Some probes read the whole file of a class, so that one program may excuse another: those that ask whether there is
CUDA and those that do not stand in different files.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "cases"
MARK = "# here"
_HEADING = re.compile(r"# -- (\w+)")


@dataclass(frozen=True)
class Case:
    """A program: its file, its variant, empty for a main pair, and its lines in the file, counted from 1."""

    file: Path
    variant: str
    lines: range

    @property
    def name(self) -> str:
        """`double_softmax`, `double_softmax-layer`, `clean_losses-decibels`."""
        return f"{self.file.stem}-{self.variant}".rstrip("-")

    @property
    def defect(self) -> str:
        """The id of its defect, empty if it has none."""
        return "" if _is_clean(self.file) else self.file.stem.replace("_", "-")

    @property
    def prefix(self) -> str:
        """What the names of its classes begin with."""
        return "".join(map(str.capitalize, self.variant.split("_")))

    @property
    def marks(self) -> list[int]:
        """The lines that are marked as the defect."""
        text = _lines(self.file)
        return [number for number in self.lines if text[number - 1].endswith(MARK)]

    def parts(self, repaired: bool = False) -> tuple[Any, Any]:
        """The classes of its module and of its data, or of those of the repair."""
        scope = vars(import_module(f"cases.{self.file.stem}"))
        model, data = scope[f"{self.prefix}Model"], scope[f"{self.prefix}Data"]
        if repaired:
            model = scope.get(f"{self.prefix}Repaired", model)
            data = scope.get(f"{self.prefix}RepairedData", data)
        return model, data


def cases(folder: Path = FOLDER) -> Iterator[Case]:
    """All programs, file by file."""
    for file in sorted(folder.glob("*.py")):
        text = _lines(file)
        starts = [] if _is_clean(file) else [(1, "")]
        starts += [(number, found[1]) for number, line in enumerate(text, 1) if (found := _HEADING.fullmatch(line))]
        ends = [*(start for start, _ in starts), len(text) + 1][1:]
        for (start, variant), end in zip(starts, ends, strict=True):
            yield Case(file, variant, range(start, end))


def _is_clean(file: Path) -> bool:
    return file.stem.startswith("clean_")


def _lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines()
