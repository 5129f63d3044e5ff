"""A test file that repeats a review and asserts what it has verified."""

from pathlib import Path

from src.doctor.findings import DEFECTS
from src.doctor.review import Report
from src.errors import UserError

_TEMPLATE = '''"""Written by `python -m src {command}`: the review finds none of these defects, and must not later."""

import json
import subprocess
import sys

import pytest

COMMAND = {args!r}
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
    text = _TEMPLATE.format(command=" ".join(args), args=args, verified=listed)
    file.write_text(text, encoding="utf-8")
    print(f"tests  {file.as_posix()} ({len(verified)})")
