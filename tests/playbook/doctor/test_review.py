"""What holds of any program: nothing it does takes the review down, causes hide consequences, reasons silence."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from playbook.doctor import batch, sandbox
from playbook.doctor.findings import DEFECTS, Finding, Place
from playbook.doctor.review import CAUSES, review
from tests.playbook.doctor.programs import Blobs, Classifier
from tests.playbook.running import Cli

ONLY = frozenset({"crash", "double-softmax"})


class _Raises(Classifier):
    def on_train_start(self) -> None:
        raise RuntimeError("hostile")


class _Ends(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        os._exit(3)


class _Hangs(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        time.sleep(60)


def test_a_program_that_raises_is_a_finding_with_its_line() -> None:
    (found,) = review(lambda: (_Raises(), Blobs()), ids=ONLY).findings
    assert (found["id"], found["code"]) == ("crash", 'raise RuntimeError("hostile")')


def test_a_program_that_ends_its_process_is_a_note() -> None:
    report = review(lambda: (_Ends(), Blobs()), ids=frozenset({"double-softmax"}))
    assert report.notes == ["loss_input: ended its process with 3"]


def test_a_program_that_hangs_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("playbook.doctor.subject._LONGEST_S", 1.0)  # for its first step alone
    start = time.monotonic()
    report = review(lambda: (_Hangs(), Blobs()), ids=frozenset({"double-softmax"}), limit_s=10.0)
    assert report.notes == ["loss_input: took more than 2 s"]
    assert time.monotonic() - start < 20


def test_the_model_stays_as_it_is() -> None:
    model, data = Classifier(), Blobs()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    review(lambda: (model, data), ids=frozenset({"crash", "batch-mixing"}))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model._trainer is None


class _Silenced(Classifier):
    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).softmax(1)  # doctor: ignore[double-softmax] a reason


class _Unreasoned(Classifier):
    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).softmax(1)  # doctor: ignore[double-softmax]


def test_a_comment_silences_a_finding_if_it_has_a_reason() -> None:
    assert not review(lambda: (_Silenced(), Blobs()), ids=ONLY).findings
    assert review(lambda: (_Unreasoned(), Blobs()), ids=ONLY).findings


def test_no_two_causes_hide_each_other() -> None:
    for cause, hidden in CAUSES.items():
        assert not any(cause in CAUSES.get(name, set()) for name in hidden), cause


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="a file that is open is opened again by /proc")
def test_copies_do_not_move_each_others_place_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(range(200)))
    with (tmp_path / "data").open("rb", buffering=0) as file:
        file.seek(10)
        rest = list(range(10, 200))

        def read() -> list[int]:
            return [byte for _ in rest for byte in file.read(1)]

        assert sandbox.calls([read, read, read], 20) == [rest, rest, rest]
        assert file.tell() == 10


def test_sandbox() -> None:
    assert sandbox.call(lambda: {"answer": [1, 2]}, 5) == {"answer": [1, 2]}
    with pytest.raises(sandbox.SandboxError, match="ZeroDivisionError"):
        sandbox.call(lambda: 1 // 0, 5)
    first, second = sandbox.calls([lambda: os._exit(7), lambda: "fine"], 5)
    assert (str(first), second) == ("ended its process with 7", "fine")


def test_a_batch_of_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = tmp_path / "names.txt"
    names.write_text("tests.playbook.doctor.cases.double_softmax\ntests.playbook.doctor.cases.missing_super_init\n")
    assert batch.run(names) == 1
    softmax, init = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert [item["id"] for item in softmax["findings"]] == ["double-softmax"]
    assert init["module"] == "tests.playbook.doctor.cases.missing_super_init"
    assert [item["id"] for item in init["findings"]] == ["missing-super-init"]


def test_every_defect_has_its_words() -> None:
    for name, (severity, impact) in DEFECTS.items():
        assert severity in ("critical", "warning", "advice"), name
        assert impact.endswith("."), name
    assert Finding("crash", Place(__file__, 1), "m", "f").as_dict()["code"].startswith('"""')


PROGRAM = (
    "--model",
    "tests.playbook.doctor.cases.double_softmax.Model",
    "--data",
    "tests.playbook.doctor.cases.double_softmax.Data",
)


def test_the_verb(cli: Cli, workdir: Path) -> None:
    few = ("--only", "double-softmax,batch-mixing")
    done = cli("doctor", *PROGRAM, *few, "--write_tests", "test_review.py")
    assert done.code == 1, done.err
    assert "critical  double-softmax  " in done.out
    assert "samples of a batch do not change each other" in done.out
    assert '"batch-mixing",\n]' in Path("test_review.py").read_text()
    found = json.loads(cli("doctor", *PROGRAM, *few, "--format", "json").out)["findings"]
    assert [item["id"] for item in found] == ["double-softmax"]
    sarif = json.loads(cli("doctor", *PROGRAM, *few, "--format", "sarif").out)
    (result,) = sarif["runs"][0]["results"]
    assert result["level"] == "error"
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == found[0]["line"]
    assert "## Critical issues" in cli("doctor", *PROGRAM, *few, "--format", "markdown").out
    assert cli("doctor", *PROGRAM, "--only", "batch-mixing").code == 0
    assert cli("doctor", *PROGRAM, "--only", "double-softmax", "--severity", "critical").code == 1


def test_mistakes_are_told(cli: Cli, workdir: Path) -> None:
    assert (
        "--only double-softmx: no such defect. Nearest: double-softmax"
        in cli("doctor", *PROGRAM, "--only", "double-softmx").err
    )
    done = cli("doctor", *PROGRAM, "--thresholds", "{dead_units.shar: 1}")
    assert (done.code, "dead_units" in done.err) == (2, True), done.err
    assert "--batch none.txt: expected a file" in cli("doctor", "--batch", "none.txt").err
    Path("there.py").write_text("")
    assert "is there already" in cli("doctor", *PROGRAM, "--only", "batch-mixing", "--write_tests", "there.py").err


def test_a_module_that_cannot_be_built(cli: Cli, workdir: Path) -> None:
    case = "tests.playbook.doctor.cases.missing_super_init"
    done = cli("doctor", "--model", f"{case}.Model", "--data", f"{case}.Data", "--format", "json")
    assert done.code == 1, done.err
    assert [item["id"] for item in json.loads(done.out)["findings"]] == ["missing-super-init"]


def test_fit_stops_at_a_critical_finding(cli: Cli, workdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("playbook.training.review.DEAR", set(DEFECTS) - {"double-softmax", "batch-mixing"})
    done = cli("fit", "--doctor", *PROGRAM, "--trainer.max_epochs", "1", "--run_dir", "run")
    assert done.code == 2
    assert "error: --doctor: double-softmax, see above" in done.err
    case = "tests.playbook.doctor.cases.adam_l2"
    fine = cli(
        "fit",
        "--doctor",
        "--model",
        f"{case}.Model",
        "--data",
        f"{case}.Data",
        "--trainer.max_epochs",
        "1",
        "--run_dir",
        "fine",
    )
    assert fine.code == 0, fine.err
    assert "nothing found, 2 checks passed" in fine.out
