"""The patch of each defect that has a repair: the case's program is clean after it, whatever the findings' words."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import case_files
from programs import needs_fork
from torchdoctor.findings import Finding
from torchdoctor.repairs.edits import REPAIRS, repair
from torchdoctor.report import Report
from torchdoctor.review import review_module

VARIANTS = {  # of the cases whose main program has no sure repair
    "causal-leak": "product",
    "detached-graph": "no_grad",
    "dtype-promotion": "vmap",
    "duplicate-worker-rng": "init_fn",
    "eval-augmentation": "hook",
    "host-sync": "step",
    "missing-log-softmax": "scores",
    "softmax-axis": "batch",
    "unnormalized-input": "pixels",
}
CASES = {case.defect: case for case in case_files.cases() if case.variant == VARIANTS.get(case.defect, "")}
_MOST = 3  # findings of a program


def reviewed(file: Path, case: case_files.Case) -> Report:
    """The review of a case's program in another file, for its defect alone."""
    scope = vars(import_module(file.stem))
    model, data = scope[f"{case.prefix}Model"], scope[f"{case.prefix}Data"]
    return review_module(lambda: (model(), data()), ids=frozenset({case.defect}))


@needs_fork
@pytest.mark.slow
@pytest.mark.parametrize("defect", REPAIRS)
def test_the_patch_removes_the_defect(workdir: Path, monkeypatch: pytest.MonkeyPatch, defect: str) -> None:
    as_dict = Finding.as_dict

    def reworded(finding: Finding) -> dict[str, Any]:
        return as_dict(finding) | {"message": "a defect", "fix": "another line"}

    monkeypatch.setattr(Finding, "as_dict", reworded)
    case, text = CASES[defect], CASES[defect].file.read_text(encoding="utf-8")
    for number in range(_MOST + 1):
        file = workdir / f"{case.file.stem}_{number}.py"
        file.write_text(text, encoding="utf-8")
        report = reviewed(file, case)
        if number and not report.findings:
            break
        own = [item for item in report.findings if item["file"] == str(file)]
        assert {item["message"] for item in own} == {"a defect"}, report
        patched = next(filter(None, (repair(text, item) for item in own)), None)
        assert patched is not None, f"no patch of {own}"
        text = patched
    else:
        pytest.fail(f"still found after {_MOST} patches: {report.findings}\n{text}")
    assert not report.notes, report.notes
