"""Reviews many programs in one process, which saves their imports: a JSON object a line for each.

    python packages/torchdoctor/benchmarks/batch.py NAMES.txt

NAMES.txt: names of modules, one a line, each with `Model` and perhaps `Data`; the folder of the modules is on
PYTHONPATH. The exit code is 1 if any has a critical finding.
"""

import json
import os
import sys
from importlib import import_module
from pathlib import Path

os.environ |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}  # as the command line sets them

import lightning.pytorch as pl

from torchdoctor.review import review_module


def review_all(names: list[str]) -> int:
    """Prints `{"module", "findings", …}` for each program; returns 1 if any has a critical finding."""
    is_severe = False
    for name in names:
        report = review_module(lambda name=name: build(name))
        is_severe |= report.is_critical
        answer = {"module": name, "findings": report.findings, "notes": report.notes, "seconds": report.seconds}
        print(json.dumps(answer), flush=True)
    return int(is_severe)


def build(name: str) -> tuple[pl.LightningModule, pl.LightningDataModule | None]:
    """The module and the data of one program."""
    module = import_module(name)
    data = getattr(module, "Data", None)
    return module.Model(), data() if data is not None else None


if __name__ == "__main__":
    if len(sys.argv) < 2 or not Path(sys.argv[1]).is_file():
        sys.exit(f"{' '.join(sys.argv[1:])}: expected a file with the name of a module a line")
    sys.exit(review_all(Path(sys.argv[1]).read_text(encoding="utf-8").split()))
