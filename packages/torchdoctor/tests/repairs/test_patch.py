"""Patches: diffs that tools apply, and files that are written only where a second review shows that it helps."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from programs import Cli, needs_fork, python_path
from script_programs import CLEAN
from torchdoctor.findings import STEP
from torchdoctor.formats import sarif
from torchdoctor.formats.render import render
from torchdoctor.registry import all_defects
from torchdoctor.repairs.patch import TrialError, diff, reviewer, with_patches, write_patches
from torchdoctor.report import APPLIED, Report

TEXT = "import torch\n\n\ndef make(p):\n    return torch.optim.Adam(p, weight_decay=0.1)\n"
LOAD = "net.load_state_dict(torch.load(p, weights_only=False))"


def finding(defect: str, file: Path, line: int, severity: str = "warning", **more: Any) -> dict[str, Any]:
    code = file.read_text(encoding="utf-8").splitlines()[line - 1].strip()
    found = {"id": defect, "severity": severity, "file": str(file), "line": line, "code": code, "message": "a figure"}
    found |= {"impact": "It costs.", "fix": "fix()", "values": {}, "shown_by": all_defects()[defect].shown_by._asdict()}
    return found | {"probe": "run"} | more


def report(*findings: dict[str, Any], looked_for: tuple[str, ...] = ("adam-l2", "unsafe-load", "crash")) -> Report:
    return with_patches(Report(list(findings), looked_for=list(looked_for)))


@pytest.fixture
def program(workdir: Path) -> Path:
    file = workdir / "net.py"
    file.write_text(f"{TEXT}{LOAD}\n", encoding="utf-8")
    return file


@pytest.mark.parametrize("old", ["a\nb\nc\n", "a\nb\nc", "b\n", "a\r\nb\r\nc\r\n"])
@pytest.mark.parametrize("tool", [["git", "apply", "-"], ["patch", "-p1", "--binary"]])
def test_tools_apply_the_diff(workdir: Path, old: str, tool: list[str]) -> None:
    if shutil.which(tool[0]) is None:
        pytest.skip(f"{tool[0]} is not installed")
    (workdir / "folder").mkdir()
    file = workdir / "folder" / "a b.py"
    file.write_bytes(old.encode())
    new = old.replace("b", "B\n\nB")
    subprocess.run(tool, input=diff("folder/a b.py", old, new).encode(), cwd=workdir, check=True, capture_output=True)
    assert file.read_bytes() == new.encode()


def test_a_finding_has_a_diff_where_the_repair_is_sure(program: Path, tmp_path: Path) -> None:
    outside = tmp_path.parent / "outside.py"
    outside.write_text(TEXT, encoding="utf-8")
    sure, unsure, foreign = report(
        finding("adam-l2", program, 5), finding("adam-l2", program, 4), finding("adam-l2", outside, 5)
    ).findings
    assert sure["patch"].startswith("--- a/net.py\n+++ b/net.py\n@@ ")
    assert "+    return torch.optim.AdamW(p, weight_decay=0.1)\n" in sure["patch"]
    assert (unsure["patch"], foreign["patch"]) == ("", "")


def test_patches_that_help_are_written(program: Path) -> None:
    """The second one on top of the first, whose review no longer finds what the third is for."""
    first, second = finding("adam-l2", program, 5), finding("unsafe-load", program, 6)
    seen: list[str] = []

    def again(texts: dict[Path, str]) -> Report:
        seen.append(texts[program])
        assert program.read_text(encoding="utf-8") == f"{TEXT}{LOAD}\n"
        return report(*([second] if len(seen) == 1 else []))

    done = write_patches(report(first, second), again)
    assert [item["trial"] for item in done.findings] == [APPLIED, APPLIED]
    assert seen[1] == seen[0].replace("weights_only=False", "weights_only=True") == program.read_text(encoding="utf-8")
    assert not done.is_critical


def test_a_defect_that_another_patch_removed_needs_none(program: Path) -> None:
    first, second = finding("adam-l2", program, 5), finding("unsafe-load", program, 6)
    done = write_patches(report(first, second), lambda _: report())
    assert [item["trial"] for item in done.findings] == [APPLIED, "not needed: another patch has removed the finding"]
    assert LOAD in program.read_text(encoding="utf-8")


OBJECTIONS = {
    "still finds it": report,
    "then finds crash: a figure": lambda item: report(item | {"id": "crash", "severity": "critical"}),
    "could not look for adam-l2": lambda _: report(looked_for=("unsafe-load",)),
    "could not look for unsafe-load": lambda _: report(looked_for=("adam-l2", "crash")),
}


@pytest.mark.parametrize("objection", OBJECTIONS)
def test_patches_that_do_not_help_are_not_written(program: Path, objection: str) -> None:
    found, text = finding("adam-l2", program, 5, "critical"), program.read_text(encoding="utf-8")
    done = write_patches(report(found), lambda _: OBJECTIONS[objection](found))
    (trial,) = (item["trial"] for item in done.findings)
    assert trial.startswith("not written: a second review"), trial
    assert objection in trial
    assert program.read_text(encoding="utf-8") == text
    assert done.is_critical


def test_a_review_that_fails_writes_nothing(program: Path) -> None:
    def again(_: dict[Path, str]) -> Report:
        raise TrialError("a second review took more than 900 s")

    (item,) = write_patches(report(finding("adam-l2", program, 5)), again).findings
    assert item["trial"] == "not written: a second review took more than 900 s"


def test_a_file_that_changes_meanwhile_is_not_written(program: Path) -> None:
    def again(_: dict[Path, str]) -> Report:
        program.write_text("mine\n", encoding="utf-8")
        return report()

    (item,) = write_patches(report(finding("adam-l2", program, 5)), again).findings
    assert item["trial"] == "not written: the file was changed during the review"
    assert program.read_text(encoding="utf-8") == "mine\n"


def test_the_second_review_runs_in_a_copy(program: Path) -> None:
    """Its current folder and module path are the copy's, the paths that it reports the originals."""
    (program.parent / "folder").mkdir()
    linked = program.parent / "folder" / "inner.py"
    linked.write_text("old\n", encoding="utf-8")
    answer = {"checked": [], "notes": [], "looked_for": ["adam-l2"]}
    show = "import json, net, os; text = open('net.py').read() + open('folder/inner.py').read(); "
    show += "findings = [{'file': os.path.abspath('net.py'), 'text': text, 'module': net.__file__}]; "
    show += f"print(json.dumps({answer} | {{'findings': findings}}))"
    later = reviewer(["-c", show])({program: "new = 1\n", linked: "newer\n"})
    (item,) = later.findings
    assert item == {"file": str(program), "text": "new = 1\nnewer\n", "module": str(program)}
    assert program.read_text(encoding="utf-8") == f"{TEXT}{LOAD}\n"
    with pytest.raises(TrialError, match="exit code 1: ValueError: nothing"):
        reviewer(["-c", "raise ValueError('nothing')"])({})


def test_the_report_says_what_became_of_a_patch(program: Path) -> None:
    found = report(finding("adam-l2", program, 5))
    for form in ("terminal", "markdown"):
        text = render(found, form, "net")
        assert "not tried; `--fix` writes it" in text
        assert "+    return torch.optim.AdamW" in text
        assert "the source: the options of the optimizer were read" in text
    found.findings[0]["trial"] = APPLIED
    assert "net · 1 warning, 1 of 1 patches written · 0 checks" in render(found, "terminal", "net")
    assert json.loads(render(found, "json", "net"))["findings"][0]["trial"] == APPLIED


def test_reasons_stand_once_with_all_that_was_not_looked_for() -> None:
    notes = [
        "overfit: took more than 12 s",
        "shuffling, dtype: the batches are sparse",
        "run: no time was left",
        "so: x",
    ]
    text = render(Report(notes=notes), "terminal", "net")
    assert "  not done in time: loss-not-decreasing, crash\n" in text
    assert "  the batches are sparse: train-not-shuffled, dtype-promotion\n" in text
    assert text.endswith("  so: x")


def test_sarif_names_lines_of_the_repository(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As GitHub asks: relative URIs from the root of the checkout, a line from 1 on, a rule and a place each."""
    (program.parent / ".git").mkdir()
    (folder := program.parent / "a b").mkdir()
    monkeypatch.chdir(folder)
    program = program.rename(folder / "net.py")
    nowhere = finding("crash", program, 1) | {"file": "", "line": 0, "code": ""}
    found = report(finding("adam-l2", program, 5, "advice"), nowhere)
    run = json.loads(sarif.as_text(found, "net.Model"))["runs"][0]
    (result,) = run["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "a%20b/net.py"}
    assert place["region"]["startLine"] == 5
    assert result["level"] == "note"
    rule = run["tool"]["driver"]["rules"][result["ruleIndex"]]
    assert rule["id"] == result["ruleId"] == "adam-l2"
    assert all(rule[name]["text"] for name in ("shortDescription", "fullDescription", "help"))
    assert run["automationDetails"]["id"] == "torchdoctor/net.Model/"
    (notification,) = run["invocations"][0]["toolExecutionNotifications"]
    assert notification["message"]["text"].startswith("a figure. It costs.")
    run = json.loads(sarif.as_text(found, "net.py"))["runs"][0]
    assert run["results"][1]["locations"][0]["physicalLocation"]["region"]["startLine"] == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a\nb\nc\n", "a\nB\nc\n"),
        ("a\nb\nc\n", "a\nb\nx\nc\n"),
        ("a\nb\nc\n", "c\n"),
        ("a\n" + "b\n" * 20 + "c\n", "A\nA\n" + "b\n" * 20 + "C\n"),
        ("", "a\n"),
    ],
)
def test_fixes_in_sarif_are_those_of_the_diff(workdir: Path, old: str, new: str) -> None:
    found = [
        {"id": "crash", "severity": "critical", "file": "net.py", "line": 1, "code": "", "message": "", "impact": ""}
    ]
    found[0] |= {"fix": "", "shown_by": STEP._asdict(), "patch": diff("net.py", old, new)}
    (result,) = json.loads(sarif.as_text(Report(found), "net"))["runs"][0]["results"]
    lines = old.splitlines(keepends=True)
    for change in reversed(result["fixes"][0]["artifactChanges"][0]["replacements"]):
        region = change["deletedRegion"]
        assert (region["startColumn"], region["endColumn"]) == (1, 1)
        lines[region["startLine"] - 1 : region["endLine"] - 1] = [change["insertedContent"]["text"]]
    assert "".join(lines) == new


SPOILED = {
    "double-softmax": CLEAN.replace("return self.second(x)", "return self.second(x).softmax(1)"),
    "stuck-in-eval": CLEAN.replace("    model.train()\n", ""),
}


@needs_fork
@pytest.mark.slow
@pytest.mark.parametrize("defect", SPOILED)
def test_a_script_is_repaired(cli: Cli, workdir: Path, monkeypatch: pytest.MonkeyPatch, defect: str) -> None:
    monkeypatch.setenv("PYTHONPATH", python_path())
    script = workdir / "train.py"
    script.write_text(SPOILED[defect], encoding="utf-8")
    script.chmod(0o755)
    done = cli("--only", defect, "--fix", "train.py")
    assert done.code == 0, done.out
    assert APPLIED in done.out
    assert script.read_text(encoding="utf-8") == CLEAN
    assert script.stat().st_mode & 0o777 == 0o755


MODULE = """
from programs import Blobs as Data
from programs import Classifier


class Model(Classifier):
    def forward(self, x):
        return self.net(x).softmax(-1)
"""


@needs_fork
@pytest.mark.slow
def test_a_module_is_repaired(cli: Cli, workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", python_path())
    monkeypatch.syspath_prepend(str(workdir))
    file = workdir / "softened.py"
    file.write_text(MODULE, encoding="utf-8")
    args = ("--model", "softened.Model", "--data", "softened.Data", "--only", "double-softmax,batch-mixing")
    done = cli(*args, "--fix")
    assert done.code == 0, done.out
    assert "1 of 1 patches written" in done.out
    assert file.read_text(encoding="utf-8") == MODULE.replace(".softmax(-1)", "")
    assert "trying the patch of double-softmax at softened.py:8" in done.err
    sys.modules.pop("softened")
