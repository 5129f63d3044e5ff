"""What the tests use to start processes."""

import sys
from pathlib import Path

import pytest

import testing_jobs
from playbook.testing import processes


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="starts processes")
def test_processes_that_hang_are_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_HANGING_S", 15.0)
    processes.run_in_processes(testing_jobs.hang_once, (str(tmp_path),), 2, tmp_path / "store")
    assert {file.name for file in tmp_path.glob("done-*")} == {"done-0", "done-1"}
    assert (tmp_path / "came-1").read_text() == "xx"
