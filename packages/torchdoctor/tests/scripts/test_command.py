"""How a script runs in its review: what it may do, and what happens when it fails."""

from pathlib import Path

import pytest

from programs import Cli, needs_fork, sampled
from script_programs import CLEAN, CLOSURE, DEFECTS, LINES, changed, lines, reviewed, written
from torchdoctor.errors import ReviewError
from torchdoctor.options import select_ids
from torchdoctor.scripts.command import review_script

pytestmark = needs_fork
FAST = ("activation-on-logits", "missing-zero-grad")  # one of the replayed step, one of the rehearsal


@pytest.mark.parametrize("defect", sampled(DEFECTS, FAST))
@pytest.mark.slow
def test_finds_the_defect_at_its_line(tmp_path: Path, defect: str) -> None:
    report = reviewed(tmp_path, changed(DEFECTS[defect]), only=defect)
    assert lines(report) == [(defect, LINES.get(defect, DEFECTS[defect][1]))], report
    assert report.findings[0]["file"] == str(tmp_path / "train.py")


@pytest.mark.slow
def test_finds_nothing_in_a_clean_script(tmp_path: Path) -> None:
    report = reviewed(tmp_path, CLEAN)
    assert not report.findings, report
    assert not report.notes, report
    assert "the script runs to its end (48 steps)" not in report.checked  # its loaders give eight batches an epoch
    assert "the script runs to its end (24 steps)" in report.checked


@pytest.mark.slow
def test_a_process_that_feeds_the_training_runs_beside_it(tmp_path: Path) -> None:
    feeding = """
import multiprocessing


def feed(queue):
    while True:
        queue.put(list(range(4)))


queue = multiprocessing.Queue(2)
multiprocessing.Process(target=feed, args=(queue,), daemon=True).start()
assert queue.get() == list(range(4))
"""
    report = reviewed(tmp_path, feeding + CLEAN, only="crash")
    assert "the script runs to its end (24 steps)" in report.checked, report


@pytest.mark.slow
def test_processes_of_a_pool_work(tmp_path: Path) -> None:
    pool = "from multiprocessing import Pool\nwith Pool(2) as workers:\n    print(workers.map(abs, range(4)))\n"
    assert not reviewed(tmp_path, pool + CLEAN, only="crash").findings


WRITER = """
import queue
import threading

notes = queue.Queue(2)


def write():
    while True:
        notes.get()
        notes.task_done()


threading.Thread(target=write, daemon=True).start()
"""


@pytest.mark.slow
def test_a_thread_that_writes_notes(tmp_path: Path) -> None:
    """It does not exist in copies of the process, where its queue would be full after the first step."""
    noting = "        optimizer.step()\n        for name in ('loss', 'rate', 'norm'):\n            notes.put(name)\n"
    text = CLEAN.replace("        optimizer.step()\n", noting).replace("    model.eval()\n", "    notes.join()\n")
    [(defect, line)] = lines(reviewed(tmp_path, WRITER + text, only="eval-nondeterminism"))
    assert (defect, line) == ("eval-nondeterminism", LINES["eval-nondeterminism"])


@pytest.mark.slow
def test_nothing_of_the_folder_changes(tmp_path: Path) -> None:
    (tmp_path / "state.txt").write_text("before", encoding="utf-8")
    writing = "torch.save(model.state_dict(), 'model.pt')\nopen('state.txt', 'w').write('after')\n"
    report = reviewed(tmp_path, CLEAN + writing, only="crash")
    assert not report.findings, report
    assert "the script runs to its end (24 steps)" in report.checked
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state.txt", "train.py"]
    assert (tmp_path / "state.txt").read_text(encoding="utf-8") == "before"


@pytest.mark.slow
def test_writing_elsewhere_and_the_network_are_refused(tmp_path: Path) -> None:
    folder, other = tmp_path / "project", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    report = reviewed(folder, CLEAN + f"open({str(other / 'model.pt')!r}, 'w')\n", only="crash")
    assert not report.findings, report
    assert any("model.pt" in note for note in report.notes), report.notes
    assert not list(other.iterdir())
    report = reviewed(folder, CLEAN + "import urllib.request as r\nr.urlopen('http://localhost:1')\n", only="crash")
    assert any("blocks the network" in note for note in report.notes), report.notes
    first = (
        f"try:\n    open({str(other / 'model.pt')!r}, 'w')\nexcept OSError as error:\n    raise ValueError from error\n"
    )
    with pytest.raises(
        ReviewError, match=r"train\.py:4: a review runs without a network .*; run the script once before"
    ):
        reviewed(folder, first + CLEAN)


@pytest.mark.slow
def test_a_file_that_may_not_bewritten_is_no_crash(tmp_path: Path) -> None:
    """Also where torch says so in an error of its own."""
    (tmp_path / "script").mkdir()
    text = CLEAN + f"\ntorch.save(model.state_dict(), {str(tmp_path / 'weights.pt')!r})\n"
    report = reviewed(tmp_path / "script", text, only="crash,missing-zero-grad")
    assert not report.findings, report
    assert not (tmp_path / "weights.pt").exists()


@pytest.mark.slow
def test_a_question_that_nobody_answers_is_no_crash(tmp_path: Path) -> None:
    report = review_script(written(tmp_path, f"{CLEAN}print(float(input()))\n"), [], select_ids("crash"))
    assert not report.findings, report
    assert any("EOF" in note for note in report.notes), report


@pytest.mark.slow
def test_moving_a_new_folder_within_the_own_is_allowed(tmp_path: Path) -> None:
    moving = "import os\nos.makedirs('runs')\nos.mkdir('new')\nos.rename('new', 'runs/new')\n"
    report = reviewed(tmp_path, CLEAN + moving, only="crash")
    assert not report.findings, report
    assert not [note for note in report.notes if "rename" in note], report.notes
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_crash_is_a_finding_at_its_line(tmp_path: Path) -> None:
    report = reviewed(tmp_path, CLEAN + "print(accuracy)\n", only="crash")
    assert lines(report) == [("crash", "print(accuracy)")]
    assert "NameError" in report.findings[0]["message"]
    assert lines(reviewed(tmp_path, "1 / 0\n" + CLEAN, only="crash")) == [("crash", "1 / 0")]
    notes = ["the script does not start: ZeroDivisionError: division by zero"]
    assert review_script(tmp_path / "train.py", [], select_ids("host-sync")).notes == notes


@pytest.mark.slow
def test_an_error_that_only_short_loaders_cause_is_none(tmp_path: Path) -> None:
    counting = changed(("    print(epoch, correct)", "    assert sum(1 for _ in train_loader) == 16"))
    report = reviewed(tmp_path, counting, only="crash")
    assert not report.findings, report


@pytest.mark.slow
def test_a_script_that_asks_for_cuda_without_checking(tmp_path: Path) -> None:
    sent = changed(
        (
            "torch.manual_seed(0)",
            "device = torch.device('cuda:0')\ntorch.cuda.set_device(device)\ntorch.manual_seed(0)",
        ),
        ("model, losses = Net(), []", "model, losses = nn.DataParallel(Net().to(device), device_ids=[0]), []"),
        ("model(inputs), target)", "model(inputs.to(device)), target.cuda(non_blocking=True))"),
        ("(model(inputs).argmax(1) == target)", "(model(inputs.to(device)).argmax(1).cpu() == target)"),
    )
    report = reviewed(tmp_path, sent)
    assert not report.findings, report
    assert any("stayed on the CPU" in note for note in report.notes), report.notes


@pytest.mark.slow
def test_scripts_that_cannot_be_reviewed(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print('nothing to do')\n", encoding="utf-8")
    with pytest.raises(ReviewError, match="without calling backward"):
        review_script(script, [], select_ids())
    with pytest.raises(ReviewError, match=r"no such file. Nearest: .*train\.py"):
        review_script(tmp_path / "trian.py", [], select_ids())
    script.write_text(CLOSURE, encoding="utf-8")
    with pytest.raises(ReviewError, match=r"exit code 2 .*--steps"):
        review_script(script, [], select_ids())


ARGUMENTS = """
import sys
print("got", sys.argv[1:], flush=True)
raise SystemExit(3)
"""


@pytest.mark.slow
def test_everything_after_the_script_is_its_own(cli: Cli, workdir: Path) -> None:
    (workdir / "train.py").write_text(ARGUMENTS, encoding="utf-8")
    done = cli("--only", "crash", "train.py", "--debug", "--fix", "-h", "--format", "json")
    assert done.code == 2, done.err
    assert "got ['--debug', '--fix', '-h', '--format', 'json']" in done.err
    assert "Reviews a PyTorch training by running it" in cli("--fix", "--help", "train.py").out


@pytest.mark.slow
def test_a_compiled_copy_of_the_model_is_saved(tmp_path: Path) -> None:
    end = "torch.jit.script(model).save('model.pt')\n"
    report = reviewed(tmp_path, CLEAN + end, only="crash,graph-in-eval")
    assert not report.findings, report
    assert [text for text in report.checked if "runs to its end" in text], report


@pytest.mark.parametrize("files", [["__init__.py"], []])
@pytest.mark.slow
def test_a_package_of_the_scripts_own_with_the_name_of_a_loaded_one(tmp_path: Path, files: list[str]) -> None:
    """`tests` is loaded here, as the template's `src` is where it reviews a script with a folder of that name."""
    (tmp_path / "tests").mkdir()
    for name in files:
        (tmp_path / "tests" / name).touch()
    net = CLEAN[CLEAN.index("class Net") : CLEAN.index("model, losses")]
    (tmp_path / "tests" / "nets.py").write_text(f"import torch.nn.functional as F\nfrom torch import nn\n\n\n{net}")
    report = reviewed(tmp_path, CLEAN.replace(net, "from tests.nets import Net\n"), only="crash,unused-parameter")
    assert not report.findings, report
    assert [text for text in report.checked if "runs to its end" in text], report
