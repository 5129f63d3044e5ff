"""Reviews many programs in one process: a module name a line in, one JSON object a line out."""

import json
from importlib import import_module
from pathlib import Path

import lightning.pytorch as pl

from playbook.doctor.errors import ReviewError
from playbook.doctor.review import review


def names_in(args: list[str]) -> Path | None:
    """The file of `--batch FILE`, if the command has it.

    Raises:
        ReviewError: the file is missing.
    """
    for index, arg in enumerate(args):
        name, equals, value = arg.partition("=")
        if name == "--batch":
            path = Path(value if equals else "".join(args[index + 1 : index + 2]))
            if not path.is_file():
                raise ReviewError(f"--batch {path.as_posix()}: expected a file with a module name a line")
            return path
    return None


def run(names: Path) -> int:
    """Prints `{"module", "findings", …}` for each module named in a file; returns 1 if any has a critical finding.

    Raises:
        ReviewError: this system cannot copy a process.
    """
    is_severe = False
    for name in names.read_text(encoding="utf-8").split():
        report = review(lambda name=name: _build(name))
        is_severe |= any(item["severity"] == "critical" for item in report.findings)
        answer = {"module": name, "findings": report.findings, "notes": report.notes, "seconds": report.seconds}
        print(json.dumps(answer), flush=True)
    return int(is_severe)


def _build(name: str) -> tuple[pl.LightningModule, pl.LightningDataModule | None]:
    module = import_module(name)
    data = getattr(module, "Data", None)
    return module.Model(), data() if data is not None else None
