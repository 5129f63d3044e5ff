"""An option that the user changes when a run is continued takes effect, or is refused in one line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import Callback, LightningModule, Trainer

from playbook.checkpoints.io import load
from tests.playbook.running import MLP_DIGITS, Cli, Result
from tests.playbook.training.resume.test_exact import PowerCutError

PLAIN = ("--model.schedule", "null")  # a constant rate
BATCHES = 5  # 1,078 samples in batches of 250: four full ones and a short one
rows: list[dict[str, Any]] = []  # settings at every optimizer step of this test


class Notes(Callback):
    """Notes the settings of every step, and ends the run in the middle of one.

    Args:
        cut: step that the run ends in, counted from 1; 0 lets it run to its end.
    """

    def __init__(self, cut: int = 0) -> None:
        self.cut = cut

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
        if trainer.global_step + 1 == self.cut:
            raise PowerCutError
        groups = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
        rows.append({"step": trainer.global_step + 1, "groups": groups, "clip": trainer.gradient_clip_val})


@pytest.fixture(autouse=True)
def _no_rows() -> Iterator[None]:
    rows.clear()
    yield
    rows.clear()


def fit(cli: Cli, run: str, *args: str, cut: int = 0) -> Result:
    return cli(
        "fit", "--config", MLP_DIGITS, "--run_dir", run, "--ckpt_path", "last", "--data.batch_size", "250",
        "--trainer.max_epochs", "3", "--model.net.widths", "[16]", "--checkpoint.every_n_steps", "1",
        f"--trainer.callbacks+={__name__}.Notes", f"--trainer.callbacks.cut={cut}", *args,
    )  # fmt: skip


def start(cli: Cli, *args: str, cut: int = 8) -> None:
    """Leaves a checkpoint of the step before `cut`."""
    with pytest.raises(PowerCutError):
        fit(cli, "run", *args, cut=cut)


def steps(key: str, group: int = 0) -> dict[int, Any]:
    """The setting at every step; of a step that was done twice, at the second time."""
    return {row["step"]: row["groups"][group][key] for row in rows}


def rates_and_betas(from_step: int) -> list[float]:
    rates, betas = steps("lr"), steps("betas")
    return [value for step in range(from_step, max(rates) + 1) for value in (rates[step], betas[step][0])]


def changes(run: str = "run") -> dict[str, Any]:
    entries = json.loads(Path(run, "metrics.json").read_text())["changes"]
    return {entry["option"]: (entry["from"], entry["to"]) for entry in entries}


def schedule(name: str, **arguments: Any) -> tuple[str, ...]:
    options = [part for key, value in arguments.items() for part in (f"--model.schedule.{key}", str(value))]
    return ("--model.schedule", name, *options)


# what is changed, from and to; the rates from step 8 on are those of a run that had the second from its start
SCHEDULES = {
    "constant": (PLAIN, (*PLAIN, "--model.optimizer.lr", "1e-5")),
    "warmup and cosine": ((), ("--model.optimizer.lr", "1e-5")),
    "share of the warmup": ((), ("--model.schedule.warmup", "0.8")),
    "last rate": ((), ("--model.schedule.final", "0.5")),
    "length": ((), ("--trainer.max_epochs", "4")),
    "gamma": (schedule("StepLR", step_size=1), schedule("StepLR", step_size=1, gamma=0.5)),
    "rate of steps": (
        schedule("StepLR", step_size=1), (*schedule("StepLR", step_size=1), "--model.optimizer.lr", "0.01"),
    ),
    "milestones": (schedule("MultiStepLR", milestones=[1]), schedule("MultiStepLR", milestones=[2])),
    "half a cosine": (schedule("CosineAnnealingLR", T_max=3), schedule("CosineAnnealingLR", T_max=6, eta_min=1e-4)),
    "one cycle": (schedule("OneCycleLR", max_lr=0.01), schedule("OneCycleLR", max_lr=0.02, pct_start=0.6)),
    "length of one cycle": (
        schedule("OneCycleLR", max_lr=0.01), (*schedule("OneCycleLR", max_lr=0.01), "--trainer.max_epochs", "4"),
    ),
    "cyclic": (
        schedule("CyclicLR", base_lr=1e-4, max_lr=0.01, step_size_up=3),
        schedule("CyclicLR", base_lr=1e-3, max_lr=0.01, step_size_up=4),
    ),
    "another class": ((), schedule("ExponentialLR", gamma=0.5)),
    "from one cycle": (schedule("OneCycleLR", max_lr=0.01), schedule("StepLR", step_size=2)),
    "no schedule any more": (schedule("OneCycleLR", max_lr=0.01), PLAIN),
    "a schedule by step": (PLAIN, ()),
    "a schedule by epoch": (PLAIN, schedule("ExponentialLR", gamma=0.5)),
}  # fmt: skip


@pytest.mark.parametrize("case", SCHEDULES)
def test_rates_are_those_of_a_run_that_had_the_change_from_its_start(cli: Cli, case: str) -> None:
    former, now = SCHEDULES[case]
    whole = fit(cli, "whole", *now)
    assert whole.code == 0, whole.err
    expected = rates_and_betas(from_step=8)
    start(cli, *former)
    done = fit(cli, "run", *now)
    assert done.code == 0, done.err
    assert rates_and_betas(from_step=8) == pytest.approx(expected, rel=1e-12)
    assert "continuing with " in done.out


def test_a_rate_is_told_and_recorded_and_saved(cli: Cli) -> None:
    start(cli, *PLAIN)
    done = fit(cli, "run", "--model.optimizer.lr", "1e-5", *PLAIN)
    assert "continuing with model.optimizer.lr 1e-05 (was 0.003)\n" in done.out
    assert "learning rate from step 8 on: 1e-05 (was 0.003)\n" in done.out
    assert changes()["model.optimizer.lr"] == (0.003, 1e-5)
    assert "lr: 1.0e-05" in Path("run/config.yaml").read_text()
    again = fit(cli, "run", "--model.optimizer.lr", "1e-5", "--trainer.max_epochs", "4", *PLAIN)
    assert "optimizer.lr" not in again.out, "the checkpoint has it by now"
    assert set(steps("lr").values()) == {0.003, 1e-5}
    assert list(changes()) == ["trainer.callbacks.Notes.cut", "model.optimizer.lr", "trainer.max_epochs"]


def test_weight_decay_stays_away_from_norms_and_biases(cli: Cli) -> None:
    start(cli)
    assert "model.optimizer.weight_decay 0.5 (was 0.01)" in fit(cli, "run", "--model.optimizer.weight_decay", "0.5").out
    assert (steps("weight_decay")[7], steps("weight_decay")[8]) == (0.01, 0.5)
    assert set(steps("weight_decay", group=1).values()) == {0.0}
    assert steps("lr")[8] != steps("lr")[7], "the schedule goes on"


def test_betas(cli: Cli) -> None:
    start(cli)
    fit(cli, "run", "--model.optimizer.betas", "[0.8, 0.9]")
    assert [tuple(steps("betas")[step]) for step in (7, 8, 15)] == [(0.9, 0.999), (0.8, 0.9), (0.8, 0.9)]


def test_momentum_of_sgd_may_begin_later(cli: Cli) -> None:
    start(cli, "--model.optimizer", "SGD", "--model.optimizer.lr", "0.1")
    done = fit(
        cli, "run", "--model.optimizer", "SGD", "--model.optimizer.lr", "0.1", "--model.optimizer.momentum", "0.9"
    )
    assert done.code == 0, done.err
    assert (steps("momentum")[7], steps("momentum")[8]) == (0, 0.9)


REFUSED = {
    "class": (
        ("--model.optimizer", "SGD", "--model.optimizer.lr", "0.1"),
        "expected AdamW, whose state",
    ),
    "amsgrad": (("--model.optimizer.amsgrad", "true"), "amsgrad True needs averages from the first step on"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_state_of_the_optimizer_does_not_admit(cli: Cli, case: str) -> None:
    args, message = REFUSED[case]
    start(cli)
    before = load(Path("run/checkpoints/last.ckpt"))["global_step"], Path("run/config.yaml").read_text()
    done = fit(cli, "run", *args)
    assert done.code == 2
    assert message in done.err
    assert "--init_from starts from the weights alone" in done.err
    assert "Traceback" not in done.err
    assert (load(Path("run/checkpoints/last.ckpt"))["global_step"], Path("run/config.yaml").read_text()) == before


def test_one_cycle_that_would_be_over(cli: Cli) -> None:
    start(cli, *schedule("OneCycleLR", max_lr=0.01))
    done = fit(cli, "run", *schedule("OneCycleLR", max_lr=0.01, total_steps=4))
    assert done.code == 2
    assert "schedule: OneCycleLR cannot go on from its step 7: Tried to step" in done.err.replace("--model.", "")


PLATEAU = schedule("ReduceLROnPlateau", patience=0, threshold=0.9)  # nothing improves by so much


def test_a_plateau_has_cut_the_rate_and_a_new_one_counts_from_now(cli: Cli) -> None:
    start(cli, *PLATEAU, cut=12)
    cut = steps("lr")[11]
    assert cut == pytest.approx(0.003 * 0.1), "after the second validation"
    fit(cli, "run", *PLATEAU)
    assert steps("lr")[12] == cut, "nothing has changed"
    rows.clear()
    start(cli, "--run_dir", "two", *PLATEAU, cut=12)
    fit(cli, "run", "--run_dir", "two", *PLATEAU, "--model.optimizer.lr", "0.02", "--trainer.max_epochs", "4")
    assert steps("lr")[12] == 0.02
    assert steps("lr")[16] == pytest.approx(0.002), "and is cut in its turn"


def test_the_factor_of_a_plateau(cli: Cli) -> None:
    start(cli, *PLATEAU, cut=12)
    done = fit(cli, "run", *PLATEAU, "--model.schedule.factor", "0.5", "--trainer.max_epochs", "4")
    assert "model.schedule.factor 0.5 (was 0.1)" in done.out
    assert [steps("lr")[step] for step in (12, 16)] == pytest.approx([3e-4, 1.5e-4])


def test_the_metric_of_a_plateau_starts_anew(cli: Cli) -> None:
    patience = schedule("ReduceLROnPlateau", patience=5)
    start(cli, *patience, cut=12)
    [former] = load(Path("run/checkpoints/last.ckpt"))["lr_schedulers"]
    done = fit(cli, "run", *patience, "--model.schedule.monitor", "val/accuracy", "--model.schedule.mode", "max")
    assert done.code == 0, done.err
    [now] = load(Path("run/checkpoints/last.ckpt"))["lr_schedulers"]
    assert former["best"] > 1.5, "a loss"
    assert 0 < now["best"] < 1, "an accuracy"
    assert now["mode"] == "max"
