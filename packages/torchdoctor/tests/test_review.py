"""What holds of any program: nothing it does takes the review down, causes hide consequences, reasons silence."""

import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from programs import Blobs, Classifier, Cli, needs_fork, python_path
from torchdoctor.errors import ReviewError
from torchdoctor.findings import NotLookedAt
from torchdoctor.formats.render import not_looked_at
from torchdoctor.formats.written_tests import write
from torchdoctor.probe import Probe
from torchdoctor.registry import all_defects
from torchdoctor.report import Report
from torchdoctor.review import looked_for, notes_of, review_module, run_probes
from torchdoctor.running import sandbox
from torchdoctor.running.subject import Subject

pytestmark = needs_fork
ONLY = frozenset({"crash", "double-softmax"})


class _Raises(Classifier):
    def on_train_start(self) -> None:
        raise RuntimeError("hostile")


class _Ends(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        os._exit(3)


def test_an_error_is_described_in_a_line() -> None:
    def fail() -> None:
        raise RuntimeError("first\n\n" + "second " * 1000)

    with pytest.raises(sandbox.SandboxError) as error:
        sandbox.call(fail, 10.0)
    assert str(error.value).startswith("RuntimeError: first second second"), error.value
    assert str(error.value).count("\n") == 0
    assert len(str(error.value)) < 400


class _Hangs(Classifier):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        time.sleep(60)


def test_a_program_that_raises_is_a_finding_with_its_line() -> None:
    (found,) = review_module(lambda: (_Raises(), Blobs()), ids=ONLY).findings
    assert (found["id"], found["code"]) == ("crash", 'raise RuntimeError("hostile")')


def test_a_program_that_ends_its_process_is_a_note() -> None:
    report = review_module(lambda: (_Ends(), Blobs()), ids=frozenset({"double-softmax"}))
    assert report.notes == ["loss_input: ended its process with 3"]


class _InOneCycle(Classifier):
    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.05)
        steps = self.trainer.max_steps
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.05, total_steps=steps)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


@pytest.mark.slow
def test_steps_that_the_trainer_must_be_given_are_a_note() -> None:
    report = review_module(lambda: (_InOneCycle(), Blobs()), ids=ONLY)
    assert not report.findings
    assert report.notes == ["the program needs --trainer.max_steps, here 10000"]
    assert not review_module(lambda: (_InOneCycle(), Blobs()), {"max_steps": 500}, ids=ONLY).notes


class _CrashesAnywhere(Classifier):
    """Has a tensor that does not follow the model, and an error of shapes on any device."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.ones(8)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = super().training_step([batch[0] * self.scale, batch[1]], batch_idx)
        return loss + (batch[0] @ batch[0]).sum()


@pytest.mark.slow
def test_an_error_on_the_cpu_is_no_consequence_of_an_accelerator() -> None:
    report = review_module(lambda: (_CrashesAnywhere(), Blobs()), ids=frozenset({"crash", "device-unsafe-tensor"}))
    assert {found["id"] for found in report.findings} == {"crash", "device-unsafe-tensor"}, report


class _Misfits(Classifier):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x[:, 1:])


def test_an_error_that_stops_several_probes_is_one_note() -> None:
    report = review_module(lambda: (_Misfits(), Blobs()), ids=frozenset({"crash", "bad-broadcast", "double-softmax"}))
    assert [item["id"] for item in report.findings] == ["crash"], report
    (note,) = report.notes
    assert note.startswith("broadcast, loss_input: RuntimeError"), note


@pytest.mark.slow
def test_a_program_that_hangs_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("shortening", "subject"):
        monkeypatch.setattr(f"torchdoctor.running.{module}.LONGEST_S", 0.5)  # for its first step alone
    start = time.monotonic()
    report = review_module(lambda: (_Hangs(), Blobs()), ids=frozenset({"double-softmax"}), limit_s=5.0)
    assert report.notes == ["loss_input: took more than 1 s"]
    assert time.monotonic() - start < 20


def test_the_model_stays_as_it_is() -> None:
    model, data = Classifier(), Blobs()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    review_module(lambda: (model, data), ids=frozenset({"crash", "batch-mixing"}))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model._trainer is None


class _Silenced(Classifier):
    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).softmax(1)  # doctor: ignore[double-softmax] a reason


class _Unreasoned(Classifier):
    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).softmax(1)  # doctor: ignore[double-softmax]


@pytest.mark.slow
def test_a_comment_silences_a_finding_if_it_has_a_reason() -> None:
    assert not review_module(lambda: (_Silenced(), Blobs()), ids=ONLY).findings
    assert review_module(lambda: (_Unreasoned(), Blobs()), ids=ONLY).findings


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="a file that is open is opened again by /proc")
def test_copies_do_not_move_each_others_place_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(range(200)))
    with (tmp_path / "data").open("rb", buffering=0) as file:
        file.seek(10)
        rest = list(range(10, 200))

        def read() -> Iterator[int]:
            return (byte for _ in rest for byte in file.read(1))

        assert sandbox.gather([read, read, read], 20) == [rest, rest, rest]
        assert file.tell() == 10


def test_sandbox() -> None:
    assert sandbox.call(lambda: {"answer": [1, 2]}, 5) == {"answer": [1, 2]}
    with pytest.raises(sandbox.SandboxError, match="ZeroDivisionError"):
        sandbox.call(lambda: 1 // 0, 5)
    with pytest.raises(sandbox.SandboxError, match="ended its process with 7"):
        sandbox.call(lambda: os._exit(7), 5)


def test_a_process_that_a_copy_leaves_behind_is_not_waited_for() -> None:
    start = time.monotonic()
    assert sandbox.call(lambda: len(multiprocessing.active_children()) if _leave_behind() else -1, 30) == 1
    assert time.monotonic() - start < 20


def _leave_behind() -> bool:
    multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,), daemon=True).start()
    return True


@pytest.mark.slow
def test_what_a_copy_said_before_it_ends_counts() -> None:
    def hang() -> Iterator[str]:
        yield "first"
        time.sleep(60)

    def fail() -> Iterator[str]:
        yield "second"
        raise ValueError("no more")

    (first, late), (second, error) = sandbox.gather([hang, fail], 2)
    assert (first, second) == ("first", "second")
    assert "took more than 2 s" in str(late)
    assert "ValueError: no more" in str(error)


@pytest.mark.slow
def test_what_was_found_before_time_is_up_counts() -> None:
    quick = Probe(lambda _: ["all is well"], (), is_light=True)
    slow = Probe(lambda _: time.sleep(60) or [], (), is_light=True)
    begun = Subject(Classifier(), pl.Trainer(logger=False, accelerator="cpu"), [])
    results = run_probes({"quick": quick, "slow": slow}, begun, time.monotonic() + 2, share_s=20)
    assert results["quick"] == {"findings": [], "checked": ["all is well"], "notes": []}
    assert results["slow"] == {"error": "no time was left"}


@pytest.mark.slow
def test_a_batch_of_programs(tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    names.write_text("cases.double_softmax\ncases.missing_super_init\n")
    command = [sys.executable, str(Path(__file__).parents[1] / "benchmarks/batch.py"), str(names)]
    env = {**os.environ, "PYTHONPATH": python_path()}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 1, done.stderr
    softmax, init = map(json.loads, done.stdout.splitlines())
    assert [item["id"] for item in softmax["findings"]] == ["double-softmax"]
    assert init["module"] == "cases.missing_super_init"
    assert [item["id"] for item in init["findings"]] == ["missing-super-init"]


def test_a_system_without_fork_is_told(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fork")
    with pytest.raises(ReviewError, match=r"copies its process \(os.fork\), which this system cannot"):
        review_module(lambda: (Classifier(), Blobs()))
    done = cli(*PROGRAM)
    assert (done.code, done.err.count("\n")) == (2, 1), done.err
    assert "error: the review copies its process" in done.err


PROGRAM = (
    "--model",
    "cases.double_softmax.Model",
    "--data",
    "cases.double_softmax.Data",
)


@pytest.mark.slow
def test_the_command(cli: Cli, workdir: Path) -> None:
    few = ("--only", "double-softmax,batch-mixing")
    done = cli(*PROGRAM, *few, "--write_tests", "test_review.py")
    assert done.code == 1, done.err
    assert "critical  double-softmax  " in done.out
    assert "samples of a batch do not change each other" in done.out
    written = Path("test_review.py").read_text()
    assert 'VERIFIED = [\n    "batch-mixing",\n]' in written
    assert f"COMMAND = {json.dumps(['-m', 'torchdoctor', *PROGRAM])}\n" in written
    found = json.loads(cli(*PROGRAM, *few, "--format", "json").out)["findings"]
    assert [item["id"] for item in found] == ["double-softmax"]
    sarif = json.loads(cli(*PROGRAM, *few, "--format", "sarif").out)
    (result,) = sarif["runs"][0]["results"]
    assert result["level"] == "error"
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == found[0]["line"]
    assert "## Critical issues" in cli(*PROGRAM, *few, "--format", "markdown").out
    assert cli(*PROGRAM, "--only", "batch-mixing").code == 0
    assert cli(*PROGRAM, "--only", "double-softmax", "--severity", "critical").code == 1


def test_what_a_program_prints_is_not_in_its_report(cli: Cli, workdir: Path) -> None:
    Path("speaking.py").write_text(
        'from cases.double_softmax import Data, Model\nprint("imported")\n', encoding="utf-8"
    )
    done = cli("--model", "speaking.Model", "--data", "speaking.Data", "--only", "batch-mixing", "--format=json")
    assert json.loads(done.out)["findings"] == []
    assert "imported" in done.err


@pytest.mark.slow
def test_written_tests_pass_until_the_defect_comes_back(workdir: Path) -> None:
    """In processes of their own, by the command that the caller named."""
    command = ["-m", "torchdoctor", *PROGRAM, "--only=batch-mixing", "--format", "json"]
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    env = {**os.environ, "PYTHONPATH": python_path()}
    write(workdir / "test_mixing.py", Report(looked_for=["batch-mixing"]), command)
    write(workdir / "test_both.py", Report(looked_for=["batch-mixing", "double-softmax"]), command)
    done = subprocess.run([*run, "test_mixing.py"], capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
    done = subprocess.run([*run, "test_both.py"], capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 1, done.stdout
    assert "1 failed, 1 passed" in done.stdout


def test_mistakes_are_told(cli: Cli, workdir: Path) -> None:
    assert (
        "--only double-softmx: no such defect. Nearest: double-softmax" in cli(*PROGRAM, "--only", "double-softmx").err
    )
    done = cli(*PROGRAM, "--thresholds", "{dead_units.shar: 1}")
    assert (done.code, "dead_units" in done.err) == (2, True), done.err
    Path("there.py").write_text("")
    done = cli(*PROGRAM, "--only", "batch-mixing", "--write_tests", "there.py")
    assert (done.code, done.out, done.err) == (2, "", "error: --write-tests there.py: is there already\n"), done
    done = cli(*PROGRAM, "--only", "batch-mixing", "--write_tests", "tests.txt")
    assert (done.code, done.err) == (2, "error: --write-tests tests.txt: expected a .py file\n"), done


def test_a_module_that_cannot_be_built(cli: Cli, workdir: Path) -> None:
    case = "cases.missing_super_init"
    done = cli("--model", f"{case}.Model", "--data", f"{case}.Data", "--format", "json")
    assert done.code == 1, done.err
    assert [item["id"] for item in json.loads(done.out)["findings"]] == ["missing-super-init"]


class _Shifted(Dataset):
    """A sample is asked for by its number, a shift and a scale."""

    def __init__(self, samples: Dataset) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)  # type: ignore[arg-type]  # it has a length

    def __getitem__(self, asked: tuple[int, tuple[float, float]]) -> tuple[Tensor, Tensor]:
        number, (shift, scale) = asked
        x, y = self.samples[number]
        return scale * (x + shift), y


class _ByThree(Blobs):
    def train_dataloader(self) -> DataLoader:
        return self._loader(self.train_set, torch.randperm(400))

    def val_dataloader(self) -> DataLoader:
        return self._loader(self.val_set, torch.arange(100))

    def _loader(self, samples: Dataset, order: Tensor) -> DataLoader:
        batches = [[(int(number), (0.1, 1.0)) for number in numbers] for numbers in order.split(20)]
        return DataLoader(_Shifted(samples), batch_sampler=batches)


def test_samples_that_are_asked_for_by_more_than_a_number() -> None:
    ids = frozenset({"eval-drops-data", "train-not-shuffled"})
    report = review_module(lambda: (Classifier(), _ByThree()), ids=ids)
    assert not report.findings, report
    assert not report.notes, report


def test_what_a_probe_could_not_have_found_is_a_note_and_not_verified() -> None:
    defect = all_defects()["batch-mixing"]
    unable = Probe(lambda _: [NotLookedAt(defect, "no axis has the samples")], (defect,), is_light=True)
    begun = Subject(Classifier(), pl.Trainer(logger=False, accelerator="cpu"), [])
    results = run_probes({"unable": unable}, begun, time.monotonic() + 20, share_s=20)
    assert notes_of(results, frozenset({"batch-mixing"})) == ["batch-mixing: no axis has the samples"]
    assert not notes_of(results, frozenset({"crash"}))
    assert looked_for(unable, results["unable"], unable.ids) == []
    assert not_looked_at(["batch-mixing: no axis has the samples"]) == ["no axis has the samples: batch-mixing"]
