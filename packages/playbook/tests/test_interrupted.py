"""Several processes, of which one is killed or told to stop: nothing hangs, and the same command goes on bitwise."""

import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest

from jobs import RICH, Group, on
from playbook.testing.command import QUIET
from playbook.testing.processes import TIMEOUT_S, assert_same_run, srun, steps
from playbook.training.resume import checkpoint
from playbook.training.resume.signals import StopOnSignal
from running import PROJECT, cli_process, python_path

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


@pytest.fixture(scope="module")
def whole(own: Path) -> Path:
    """The run of two processes that nothing disturbed."""
    Group(2, *RICH, *on(2), "--run_dir", "whole", cwd=own).finish()
    return own / "whole"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workers", "victims"), [("0", [1]), pytest.param("2", [1, 0, 0, 1], marks=pytest.mark.slow)], ids=["0", "2"]
)
def test_a_killed_process_ends_all_and_the_run_goes_on_bitwise(
    own: Path, whole: Path, workers: str, victims: list[int]
) -> None:
    draw = random.Random(int(workers))
    run = own / f"killed-{workers}"
    args = (*RICH, *on(2), "--data.num_workers", workers, "--run_dir", run.name)
    for victim in victims:
        group, reached = Group(2, *args, cwd=own), steps(run) + draw.randrange(2, 6)
        group.wait_until(lambda reached=reached: steps(run) >= reached)
        time.sleep(draw.uniform(0, 0.2))
        group.send(signal.SIGKILL, victim)
        codes = group.wait()
        assert codes[victim] == -signal.SIGKILL
        assert codes[1 - victim] not in (0, None), group.output()
        assert "Traceback" not in group.output()
        assert "another process of this training has ended" in group.output()
    Group(2, *args, cwd=own).finish()
    assert_same_run(run, whole)


@pytest.mark.slow
@pytest.mark.parametrize("to", ["parent", "all"])
def test_sigterm_to_the_command_leaves_one_checkpoint_and_no_process(own: Path, whole: Path, to: str) -> None:
    run = own / f"terminated-{to}"
    args = (*RICH[1:], *on(2), "--run_dir", run.name)
    env = {"PYTHONPATH": f"{python_path()}:{own}"}
    command = cli_process("fit", *args, cwd=own, env=env, new_group=True)
    until = time.monotonic() + TIMEOUT_S
    while steps(run) < 3 and time.monotonic() < until:
        assert command.poll() is None, command.communicate()
        time.sleep(0.01)
    (os.killpg if to == "all" else os.kill)(command.pid, signal.SIGTERM)
    out, err = command.communicate(timeout=TIMEOUT_S)
    assert command.returncode == 143, err
    assert out.count("stopped by SIGTERM") == 1, out
    assert err.strip() == "stopping with a checkpoint at the end of this step; again to stop at once"
    assert alive_in(command.pid) == []
    Group(2, *RICH, *on(2), "--run_dir", run.name, cwd=own).finish()
    assert_same_run(run, whole)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["Early", "Late"])
def test_sigterm_outside_of_the_training_ends_all_processes(own: Path, moment: str) -> None:
    """The others wait for the first one inside of torch, where no signal reaches Python."""
    args = (*RICH[1:], *on(2), "--run_dir", moment, "--trainer.max_epochs", "1", f"--trainer.callbacks+=own.{moment}")
    command = cli_process("fit", *args, cwd=own, env={"PYTHONPATH": f"{python_path()}:{own}"}, new_group=True)
    out, err = command.communicate(timeout=TIMEOUT_S)
    assert command.returncode == 143, err
    assert out.count("stopped by SIGTERM") == 1
    assert "Traceback" not in err
    assert alive_in(command.pid) == []


def alive_in(session: int) -> list[str]:
    """Processes of a session, zombies among them: /proc/<pid>/stat is `pid (name) state parent group session …`."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:  # it has ended in the meantime
            continue
        if int(text.rpartition(")")[2].split()[3]) == session:
            found.append(text)
    return found


def test_a_signal_amid_the_agreement_waits_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of a process's waiting is there; what came after it was asked must be neither lost nor obeyed alone."""
    saver, trainer = checkpoint.Checkpoint(), pl.Trainer(**QUIET)

    def interrupted(trainer: Any, *values: int) -> list[int]:
        StopOnSignal(saver)._on_signal(signal.SIGUSR1, None)
        return list(values)

    monkeypatch.setattr(checkpoint, "highest", interrupted)
    saver._agree(trainer)
    assert saver.stopping is None
    monkeypatch.setattr(checkpoint, "highest", lambda trainer, *values: list(values))
    saver._agree(trainer)
    assert saver.stopping == signal.SIGUSR1


@pytest.mark.slow
def test_hosts_that_do_not_share_the_directory_are_refused(own: Path, whole: Path) -> None:
    """One goes on from a checkpoint, the other has none: they would wait for each other in different places."""
    elsewhere = own / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(own / "own.py", elsewhere)
    shutil.copytree(whole, own / "known")
    args = (*RICH, *on(2), "--run_dir", "known", "--trainer.max_epochs", "6")
    group = Group(2, *args, cwd=[own, elsewhere])
    assert 0 not in group.wait()
    said = "error: --run_dir: a process would resume None, the first process known/checkpoints/last.ckpt"
    assert said in group.output(), group.output()
    assert "Traceback" not in group.output()


SCONTROL = """#!/bin/sh
echo "$@" >> "$CALLS"
"""


@pytest.mark.slow
@pytest.mark.parametrize("option", [(), ("--checkpoint.requeue_exit_code", "99")])
def test_slurm_requeues_once_and_the_same_command_goes_on(
    own: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: tuple[str, ...]
) -> None:
    scontrol, calls = tmp_path / "scontrol", tmp_path / "calls"
    scontrol.write_text(SCONTROL)
    scontrol.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(calls))
    run = own / f"requeued-{len(option)}"
    partial = ("--config", str(PROJECT / "configs/trainer/slurm.yaml"))
    args = (*RICH, *on(2), *partial, "--run_dir", run.name, *option)
    group = Group(2, *args, cwd=own, env=srun)
    group.wait_until(lambda: steps(run) >= 3)
    group.send(signal.SIGUSR1)
    code = 99 if option else 128 + signal.SIGUSR1
    assert group.wait() == [code, code], group.output()
    assert calls.read_text() == "requeue 4711\n"
    assert group.output().count("requeued  SLURM job 4711") == 1
    Group(2, *args, cwd=own, env=srun).finish()
    assert calls.read_text() == "requeue 4711\n"
    assert_same_run(run, whole)
