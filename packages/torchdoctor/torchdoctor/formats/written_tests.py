"""A test file that repeats a review and asserts what it has verified."""

import json
from pathlib import Path

from torchdoctor.errors import ReviewError
from torchdoctor.registry import all_defects
from torchdoctor.report import Report

# options that a repetition sets itself
_REPLACED = ("--only", "--skip", "--severity", "--format", "--write-tests", "--write_tests")
_FIX = "--fix"  # has no value
_TEMPLATE = '''"""What a review has verified: none of these defects is found, and none must be later."""

import json
import subprocess
import sys

import pytest

COMMAND = {command}
VERIFIED = {verified}


@pytest.fixture(scope="module")
def findings() -> list[dict]:
    command = [sys.executable, *COMMAND, "--only", ",".join(VERIFIED), "--format", "json"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode in (0, 1), answer.stderr
    return json.loads(answer.stdout)["findings"]


@pytest.mark.parametrize("defect", VERIFIED)
def test_review(findings: list[dict], defect: str) -> None:
    found = [item for item in findings if item["id"] == defect]
    assert not found, "\\n".join(f"{{item['file']}}:{{item['line']}}: {{item['message']}}" for item in found)
'''


def write(file: Path, report: Report, command: list[str]) -> None:
    """Writes one test for every defect that was looked for and not found.

    Args:
        file: a new Python file.
        report: of the review that the tests repeat.
        command: of that review, after the name of the Python interpreter: ["-m", "torchdoctor", …]. Options that the
            tests set themselves are left out.

    Raises:
        ReviewError: the file is there already, or no Python file.
    """
    require_new(file)
    reported = {item["id"] for item in report.findings}
    verified = [name for name in all_defects() if name in report.looked_for and name not in reported]
    listed = "[\n" + "".join(f'    "{name}",\n' for name in verified) + "]"
    file.parent.mkdir(parents=True, exist_ok=True)
    text = _TEMPLATE.format(command=json.dumps(repeated(command)), verified=listed)
    file.write_text(text, encoding="utf-8")
    print(f"tests  {file.as_posix()} ({len(verified)})")


def require_new(file: Path) -> None:
    """Checks before a review that its tests can be written.

    Raises:
        ReviewError: the file is there already, or no Python file.
    """
    if file.suffix != ".py":
        raise ReviewError(f"--write-tests {file.as_posix()}: expected a .py file")
    if file.exists():
        raise ReviewError(f"--write-tests {file.as_posix()}: is there already")


def repeated(command: list[str]) -> list[str]:
    """The command of a review, without options that whoever repeats it sets anew.

    Args:
        command: with a space or an equals sign between an option and its value.
    """
    remaining_args: list[str] = []
    args = iter(command)
    for arg in args:
        if arg.partition("=")[0] == _FIX:
            continue
        if arg.partition("=")[0] not in _REPLACED:
            remaining_args.append(arg)
        elif "=" not in arg:
            next(args, None)
    return remaining_args
