"""The verb on a recipe, with what is kept where it is stopped, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest

from playbook.insight.profile import remedies, runner, steps
from playbook.insight.profile.remedies import Remedy, Trial
from playbook.insight.profile.steps import Steps
from playbook.testing.command import Cli
from running import MLP_DIGITS

ARGS = ("profile", "--config", MLP_DIGITS, "--run_dir", "run", "--steps", "6")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(runner.loading, "SECONDS", 0.02)
    monkeypatch.setattr(runner.roofline, "SECONDS", 0.01)


def faster(command: Any, remedy: Remedy) -> Trial:
    assert command[1:4] == ["-m", "example", "profile"]
    assert "--run_dir" not in command
    ms = {"as it is": 10.0, "batches of 128": 1.0}.get(remedy.name, 4.0)
    return Trial(remedy, Steps(ms, ms, 64e3 / ms, 0.0, 100.0, [1.0]))


def test_a_recipe_is_profiled(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remedies, "in_process", faster)
    done = cli(*ARGS, "--format", "json")
    assert done.code == 0, done.err
    assert "bound by" in done.err
    values = json.loads(done.out)
    assert {path.name for path in Path("run").iterdir()} == {"profile.html", "profile.json", "trace.json.gz"}
    assert json.loads(Path("run/profile.json").read_text()) == values
    assert values["command"] == f"python -m example fit --config {MLP_DIGITS}"
    assert values["steps"]["planned"] > 100
    assert {"fused optimizer", "batches of 128"} <= {entry["change"] for entry in values["remedies"]}
    html = Path("run/profile.html").read_text()
    assert "self.layers" in html or "example/nets/mlp.py" in html


def test_what_is_done_is_kept_when_it_is_stopped(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(command: Any, remedy: Remedy) -> Trial:
        if remedy.name.startswith("batches"):
            raise KeyboardInterrupt
        return faster(command, remedy)

    monkeypatch.setattr(remedies, "in_process", stopped)
    done = cli(*ARGS)
    assert done.code == 130
    assert "stopped before 1 of" in done.out
    assert "Stopped before 1 of" in Path("run/profile.html").read_text()


def test_steps_and_data_alone(cli: Cli) -> None:
    done = cli(*ARGS, "--only", "steps", "--format", "json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["steps"]["step_ms"] > 0
    assert not Path("run").exists()
    done = cli(*ARGS, "--only", "data")
    assert done.code == 0, done.err
    assert "whole loader, no workers" in done.out
    assert [path.name for path in Path("run").iterdir()] == ["profile.html"]


@pytest.mark.slow
def test_a_trial_is_this_command(cli: Cli) -> None:
    done = cli(*ARGS, "--remedies", "false", "--format", "json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["remedies"] == []


FAILING = """
from example.tasks.classification import Classification


class Failing(Classification):
    def training_step(self, batch, batch_idx):
        if batch_idx == 2:
            raise RuntimeError("in step 3")
        return super().training_step(batch, batch_idx)
"""


@pytest.mark.slow
def test_a_recipe_that_fails_leaves_nothing_behind(cli: Cli, workdir: Path) -> None:
    (workdir / "failing.py").write_text(FAILING)
    with pytest.raises(RuntimeError, match="in step 3"):
        cli(*ARGS, "--model", "failing.Failing")
    assert not Path("run").exists()


@pytest.mark.slow
def test_another_profiler_is_left_out_with_a_word(cli: Cli) -> None:
    done = cli(*ARGS, "--only", "steps", "--trainer.profiler", "simple")
    assert done.code == 0
    assert "--trainer.profiler: left out" in done.err


@pytest.mark.slow
def test_mistakes_are_told_in_a_line(cli: Cli) -> None:
    for args, message in (
        (("--steps", "0"), "error: --steps: expected at least 1, got 0\n"),
        (("--only", "all"), "--only"),
        (
            ("--trainer.devices", "2", "--trainer.strategy", "ddp"),
            "error: --trainer.devices: expected 1 to profile, got 2",
        ),
    ):
        done = cli(*ARGS, *args)
        assert done.code == 2, args
        assert message in done.err
    assert not Path("run").exists()
