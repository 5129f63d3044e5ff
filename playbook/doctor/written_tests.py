"""A test file that repeats a review and asserts what it has verified."""

import json
from pathlib import Path

from playbook.doctor.findings import DEFECTS
from playbook.doctor.review import Report
from playbook.errors import UserError

_REPLACED = ("--only", "--skip", "--severity", "--format", "--write_tests")  # options that the tests set themselves
_TEMPLATE = '''"""What a review has verified: none of these defects is found, and none must be later."""

import json
import subprocess
import sys

import pytest

COMMAND = {command}
VERIFIED = {verified}


@pytest.fixture(scope="module")
def findings() -> list[dict]:
    command = [sys.executable, "-m", "src", *COMMAND, "--only", ",".join(VERIFIED), "--format", "json"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode in (0, 1), answer.stderr
    return json.loads(answer.stdout)["findings"]


@pytest.mark.parametrize("defect", VERIFIED)
def test_review(findings: list[dict], defect: str) -> None:
    found = [item for item in findings if item["id"] == defect]
    assert not found, "\\n".join(f"{{item['file']}}:{{item['line']}}: {{item['message']}}" for item in found)
'''


def write(file: Path, report: Report, args: list[str]) -> None:
    """Writes one test for every defect that was looked for and not found.

    Raises:
        UserError: the file is there already, or no Python file.
    """
    if file.suffix != ".py" or file.exists():
        raise UserError(
            f"--write_tests {file.as_posix()}: {'is there already' if file.exists() else 'expected a .py file'}"
        )
    found = {item["id"] for item in report.findings}
    verified = [name for name in DEFECTS if name in report.looked_for and name not in found]
    listed = "[\n" + "".join(f'    "{name}",\n' for name in verified) + "]"
    file.parent.mkdir(parents=True, exist_ok=True)
    text = _TEMPLATE.format(command=json.dumps(_kept(args)), verified=listed)
    file.write_text(text, encoding="utf-8")
    print(f"tests  {file.as_posix()} ({len(verified)})")


def _kept(args: list[str]) -> list[str]:
    kept: list[str] = []
    remaining = iter(args)
    for arg in remaining:
        if arg.partition("=")[0] not in _REPLACED:
            kept.append(arg)
        elif "=" not in arg:
            next(remaining, None)
    return kept
