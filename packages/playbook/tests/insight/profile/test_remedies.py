"""What is tried, what counts as a gain, and what is kept of it."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from playbook.insight.profile import remedies, suitability
from playbook.insight.profile.remedies import Remedy, Trial, Trials, candidates, in_process, own_command, try_all
from playbook.insight.profile.steps import Steps


def steps(ms: float, start: float = 0.0, losses: tuple[float, ...] = (2.0, 1.0), planned: int | None = 1000) -> Steps:
    return Steps(ms, ms, 64e3 / ms, start, 100.0, list(losses), planned, "computation", "", {"data": 0.01})


def test_the_time_is_that_of_the_whole_training() -> None:
    trials = Trials(steps(10.0))
    assert trials.time_factor(steps(5.0)) == pytest.approx(0.5)
    assert trials.time_factor(steps(5.0, start=5.0)) == pytest.approx(1.0), "compiling takes what it gains"
    endless = Trials(steps(10.0, planned=None))
    assert endless.time_factor(steps(5.0, start=5.0, planned=None)) == pytest.approx(0.5)
    twice = Steps(10.0, 10.0, 12.8e3, 0.0, None, [], 500)
    assert trials.time_factor(twice) == pytest.approx(0.5), "twice as many samples in each step"


def test_gains_within_noise_do_not_count() -> None:
    trials = Trials(steps(10.0), again=steps(12.0))
    assert trials.noise == pytest.approx(1 / 6)
    assert not trials.helps(Trial(Remedy("a"), steps(9.0)))
    assert trials.helps(Trial(Remedy("a"), steps(8.0)))
    assert Trials(steps(10.0), again=steps(10.0)).noise == 0.03


@pytest.mark.parametrize("losses", [(2.0, 1.4), (float("nan"), 1.0)])
def test_another_loss_is_no_remedy(losses: tuple[float, ...]) -> None:
    trials = Trials(steps(10.0))
    assert not trials.helps(Trial(Remedy("a"), steps(5.0, losses=losses)))
    assert trials.helps(Trial(Remedy("a"), steps(5.0, losses=(2.01, 1.0))))
    assert not trials.helps(Trial(Remedy("a", keeps_training=False), steps(5.0)))
    assert not trials.helps(Trial(Remedy("a"), failure="no"))


def test_all_that_helps_is_tried_together_and_ranked() -> None:
    measured = {
        "as it is": 10.0,
        "2 workers": 7.0,
        "4 workers": 6.0,
        "slow": 11.0,
        "fused": 8.0,
        "4 workers + fused": 5.0,
    }
    tried: list[Remedy] = []

    def run(remedy: Remedy) -> Trial:
        tried.append(remedy)
        return Trial(remedy, steps(measured[remedy.name]))

    trials = Trials(steps(10.0))
    chosen = [
        Remedy("2 workers", ("--data.num_workers", "2")),
        Remedy("4 workers", ("--data.num_workers", "4")),
        Remedy("slow", ("--slow",)),
        Remedy("fused", ("--fused",)),
        Remedy("bf16", why_not="no instructions"),
    ]
    assert len(list(try_all(trials, chosen, run))) == 6
    assert tried[-1].options == ("--data.num_workers", "4", "--fused")
    assert [trial.remedy.name for trial in trials.ranked()] == ["4 workers + fused", "4 workers", "2 workers", "fused"]
    assert trials.trials[-1].failure == "no instructions"
    assert len(list(try_all(Trials(steps(10.0)), [Remedy("slow")], run))) == 1, "nothing to combine"


class Fused(nn.Module):
    """What candidates look at."""

    def __init__(self) -> None:
        super().__init__()
        self.hparams = {"optimizer": None}
        self.convolution = nn.Conv2d(1, 1, 1)


def trainer(device: str = "cpu", precision: str = "32-true", optimizer: Any = torch.optim.AdamW) -> Any:
    return SimpleNamespace(
        strategy=SimpleNamespace(root_device=torch.device(device)),
        callbacks=[],
        precision=precision,
        optimizers=[optimizer([nn.Parameter(torch.ones(1))])],
    )


def test_candidates_say_why_they_are_not_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(remedies.os, "cpu_count", lambda: 8)
    data = SimpleNamespace(num_workers=1, batch_size=16)
    waiting = Steps(1, 1, 1, 0, 1, shares={"data": 0.5})
    found = {remedy.name: remedy for remedy in candidates(trainer(), Fused(), data, waiting)}
    assert [name for name in found if "workers" in name] == ["0 workers", "2 workers", "8 workers"]
    assert found["batches of 32"].options == ("--data.batch_size", "32")
    assert not found["batches of 32"].keeps_training
    assert found["channels last"].why_not == "there is no configs/trainer/channels-last.yaml"
    assert found["activation checkpointing"].why_not == "the net has no list of layers"
    assert not found["fused optimizer"].why_not
    (tmp_path / "configs/trainer").mkdir(parents=True)
    (tmp_path / "configs/trainer/channels-last.yaml").touch()
    found = {remedy.name: remedy for remedy in candidates(trainer("cuda", "bf16-mixed"), Fused(), None, steps(1))}
    assert found["channels last"].options == ("--config", "configs/trainer/channels-last.yaml")
    assert found["bf16"].why_not == "the precision is bf16-mixed"
    assert found["workers"].why_not == "the data has no option num_workers"
    assert found["larger batch"].why_not == "the data has no option batch_size"
    assert {"tf32", "cuda graphs"} <= set(found)
    idle = candidates(trainer(), Fused(), data, steps(1))[0]
    assert idle.why_not == "1.0% of the time waits for data"
    having = trainer()
    having.callbacks = [type("ChannelsLast", (), {})()]
    assert {r.name: r for r in candidates(having, Fused(), data, steps(1))}[
        "channels last"
    ].why_not == "the recipe has it"


def test_suitability(monkeypatch: pytest.MonkeyPatch) -> None:
    assert suitability.channels_last(nn.Linear(1, 1)) == "the net has no convolutions of images"
    assert suitability.checkpointing(nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))) == ""
    optimizers = trainer().optimizers
    assert suitability.fused(nn.Linear(1, 1), optimizers) == "the model has no option optimizer"
    assert suitability.fused(Fused(), []) == "there are 0 optimizers"
    assert (
        suitability.fused(Fused(), trainer(optimizer=torch.optim.Adadelta).optimizers)
        == "Adadelta has no fused version"
    )
    assert (
        suitability.fused(Fused(), [torch.optim.AdamW([nn.Parameter(torch.ones(1))], fused=True)])
        == "the recipe has it"
    )
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": False}, raising=False)
    assert suitability.bf16(trainer()) == "the processor has no bf16 instructions"
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True}, raising=False)
    assert suitability.bf16(trainer()) == ""
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: False)
    assert suitability.bf16(trainer("cuda")) == "the GPU has no bf16 instructions"
    assert suitability.tf32() == ""
    monkeypatch.setattr(suitability.shutil, "which", lambda _: None)
    assert suitability.compiles("cpu") == "there is no C++ compiler"
    assert suitability.compiles("cuda") == ""


def test_a_trial_is_a_process_that_reports_json() -> None:
    report = json.dumps(
        {"steps": {"step_ms": 1, "median_ms": 1, "samples_per_second": 1, "start_s": 0, "memory_mib": 1}}
    )
    trial = in_process(
        [sys.executable, "-c", f"import sys; assert sys.argv[1:] == ['--x'], sys.argv; print('{report}')"],
        Remedy("x", ("--x",)),
    )
    assert trial.steps is not None, trial.failure
    assert trial.steps.step_ms == 1
    failed = in_process(
        [sys.executable, "-c", "import sys; sys.exit('note\\nerror: --x: no such option\\nlast')"], Remedy("x")
    )
    assert (failed.steps, failed.failure) == (None, "--x: no such option")
    silent = in_process([sys.executable, "-c", "import sys; sys.exit(3)"], Remedy("x"))
    assert silent.failure == "no message"
    with pytest.raises(KeyboardInterrupt):
        in_process([sys.executable, "-c", "import sys; sys.exit(130)"], Remedy("x"))


def test_the_command_of_a_trial() -> None:
    command = own_command("profile", ["--config", "a.yaml"])
    assert command[1] == "-m"
    assert command[3:] == ["profile", "--config", "a.yaml", "--only", "steps", "--format", "json"]
