"""An option that the user changes when a run is continued takes effect, or is refused in one line."""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn

from playbook.checkpoints.io import load
from playbook.testing.command import Cli, Result, sampled
from playbook.testing.resume import PowerCutError
from running import MLP_DIGITS

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
        dropouts = [module.p for module in pl_module.modules() if isinstance(module, nn.Dropout)]
        rows.append(
            {
                "step": trainer.global_step + 1,
                "epoch": trainer.current_epoch + 1,
                "groups": groups,
                "clip": trainer.gradient_clip_val,
                "precision": trainer.precision,
                "dropout": dropouts[0] if dropouts else None,
            }
        )


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


@pytest.mark.parametrize("case", sampled(SCHEDULES, ("gamma", "warmup and cosine", "constant")))
@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_weight_decay_stays_away_from_norms_and_biases(cli: Cli) -> None:
    start(cli)
    assert "model.optimizer.weight_decay 0.5 (was 0.01)" in fit(cli, "run", "--model.optimizer.weight_decay", "0.5").out
    assert (steps("weight_decay")[7], steps("weight_decay")[8]) == (0.01, 0.5)
    assert set(steps("weight_decay", group=1).values()) == {0.0}
    assert steps("lr")[8] != steps("lr")[7], "the schedule goes on"


@pytest.mark.slow
def test_betas(cli: Cli) -> None:
    start(cli)
    fit(cli, "run", "--model.optimizer.betas", "[0.8, 0.9]")
    assert [tuple(steps("betas")[step]) for step in (7, 8, 15)] == [(0.9, 0.999), (0.8, 0.9), (0.8, 0.9)]


@pytest.mark.slow
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
        "expected AdamW as in the checkpoint",
    ),
    "amsgrad": (("--model.optimizer.amsgrad", "true"), "amsgrad True needs averages since the first step"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.slow
def test_what_the_state_of_the_optimizer_does_not_admit(cli: Cli, case: str) -> None:
    args, message = REFUSED[case]
    start(cli)
    before = load(Path("run/checkpoints/last.ckpt"))["global_step"], Path("run/config.yaml").read_text()
    done = fit(cli, "run", *args)
    assert done.code == 2
    assert message in done.err
    assert "--init_from loads only the weights" in done.err
    assert "Traceback" not in done.err
    assert (load(Path("run/checkpoints/last.ckpt"))["global_step"], Path("run/config.yaml").read_text()) == before


@pytest.mark.slow
def test_one_cycle_that_would_be_over(cli: Cli) -> None:
    start(cli, *schedule("OneCycleLR", max_lr=0.01))
    done = fit(cli, "run", *schedule("OneCycleLR", max_lr=0.01, total_steps=4))
    assert done.code == 2
    assert "schedule: OneCycleLR cannot continue from step 7: Tried to step" in done.err.replace("--model.", "")


PLATEAU = schedule("ReduceLROnPlateau", patience=0, threshold=0.9)  # nothing improves by so much


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_factor_of_a_plateau(cli: Cli) -> None:
    start(cli, *PLATEAU, cut=12)
    done = fit(cli, "run", *PLATEAU, "--model.schedule.factor", "0.5", "--trainer.max_epochs", "4")
    assert "model.schedule.factor 0.5 (was 0.1)" in done.out
    assert [steps("lr")[step] for step in (12, 16)] == pytest.approx([3e-4, 1.5e-4])


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.slow
def test_the_metric_of_a_plateau_starts_anew(cli: Cli, mode: str) -> None:
    """The best accuracy is no match for a loss above 1, were they compared."""
    patience = schedule("ReduceLROnPlateau", patience=5)
    start(cli, *patience, "--model.schedule.mode", mode, cut=12)
    [former] = load(Path("run/checkpoints/last.ckpt"))["lr_schedulers"]
    done = fit(cli, "run", *patience, "--model.schedule.monitor", "val/accuracy", "--model.schedule.mode", "max")
    assert done.code == 0, done.err
    [now] = load(Path("run/checkpoints/last.ckpt"))["lr_schedulers"]
    assert former["best"] > 1, "a loss"
    assert 0 < now["best"] < 1, "an accuracy"
    assert now["mode"] == "max"


@pytest.mark.slow
def test_the_best_is_chosen_anew_by_another_metric(cli: Cli) -> None:
    """An accuracy of 0.5 is no loss to fall below; so is the smallest accuracy not the largest."""
    fit(cli, "run", "--trainer.max_epochs", "1")
    former = json.loads(Path("run/metrics.json").read_text())["best"]
    assert former["monitor"] == "val/accuracy"
    monitor = ("--checkpoint.monitor", "val/loss", "--checkpoint.mode", "min")
    done = fit(cli, "run", "--trainer.max_epochs", "2", *monitor)
    assert "best.ckpt will be replaced: it is the best by val/accuracy (max)\n" in done.out
    best = json.loads(Path("run/metrics.json").read_text())["best"]
    assert (best["monitor"], best["mode"], best["epoch"]) == ("val/loss", "min", 2)
    assert best["score"] > former["score"]
    assert load(Path("run/checkpoints/best.ckpt"))["global_step"] == 2 * BATCHES
    done = fit(cli, "run", "--trainer.max_epochs", "3", "--checkpoint.monitor", "val/loss", "--checkpoint.mode", "max")
    assert "it is the best by val/loss (min)" in done.out
    assert json.loads(Path("run/metrics.json").read_text())["best"]["epoch"] == 3


@pytest.mark.slow
def test_without_a_metric_there_is_no_best_any_more(cli: Cli) -> None:
    fit(cli, "run", "--trainer.max_epochs", "1")
    assert fit(cli, "run", "--trainer.max_epochs", "2", "--checkpoint.monitor", "null").code == 0
    assert json.loads(Path("run/metrics.json").read_text())["best"] is None


@pytest.mark.slow
def test_the_cadence_of_checkpoints(cli: Cli) -> None:
    start(cli)
    done = fit(cli, "run", "--checkpoint.every_n_steps", "3")
    assert "continuing with checkpoint.every_n_steps 3 (was 1)" in done.out
    assert load(Path("run/checkpoints/previous.ckpt"))["global_step"] == 13, "after 10, the end of an epoch"


TRAINER = {
    "clip": ("trainer.gradient_clip_val", "0.5", 0.5),
    "precision": ("trainer.precision", "bf16-mixed", "bf16-mixed"),
    "dropout": ("model.net.dropout", "0.7", 0.7),
}


@pytest.mark.parametrize("setting", TRAINER)
@pytest.mark.slow
def test_a_setting_of_the_trainer_or_the_net(cli: Cli, setting: str) -> None:
    option, text, value = TRAINER[setting]
    start(cli)
    done = fit(cli, "run", f"--{option}", text)
    assert done.code == 0, done.err
    assert f"continuing with {option} {text}" in done.out
    values = {row["step"]: row[setting] for row in rows}
    assert (values[7] != value, values[8]) == (True, value)


@pytest.mark.slow
def test_an_option_that_a_callback_keeps_in_its_state(cli: Cli) -> None:
    stopping = ("--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor=val/loss")
    start(cli, *stopping, "--trainer.callbacks.patience=9")
    done = fit(cli, "run", *stopping, "--trainer.callbacks.patience=4")
    assert "continuing with trainer.callbacks.EarlyStopping.patience 4 (was 9)" in done.out
    states = load(Path("run/checkpoints/last.ckpt"))["callbacks"]
    assert [state["patience"] for key, state in states.items() if key.startswith("EarlyStopping")] == [4]


@pytest.mark.slow
def test_a_schedule_that_a_change_has_ended(cli: Cli) -> None:
    start(cli)  # seven steps; three epochs of one step each have three
    done = fit(cli, "run", "--trainer.accumulate_grad_batches", "5")
    assert "warning: the learning rate is 0 from step 8 on: with these changes, the schedule is over" in done.out
    assert set(list(steps("lr").values())[7:]) == {0.0}


def test_a_net_of_another_size_is_refused(cli: Cli) -> None:
    start(cli)
    done = fit(cli, "run", "--model.net.widths", "[8]")
    assert done.code == 2
    assert "does not fit this model" in done.err


LENGTHS = {  # steps of every epoch; seven were done, two of them in the second one
    "fewer batches": (("--trainer.limit_train_batches", "3"), [5, 3, 3]),
    "less than was done": (("--trainer.limit_train_batches", "1"), [5, 3, 1]),  # Lightning takes one batch more
    "fewer steps": (("--trainer.max_steps", "9"), [5, 4]),
    "validation within": (("--trainer.val_check_interval", "2"), [5, 5, 5]),
    "batches that are larger": (("--data.batch_size", "500"), [5, 4, 3]),
    "overfit": (("--trainer.overfit_batches", "3"), [5, 3, 3]),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", LENGTHS)
def test_the_length_of_epochs(cli: Cli, case: str) -> None:
    args, expected = LENGTHS[case]
    start(cli)
    done = fit(cli, "run", *args)
    assert done.code == 0, done.err
    epochs = {row["step"]: row["epoch"] for row in rows}
    assert [list(epochs.values()).count(epoch) for epoch in sorted(set(epochs.values()))] == expected


@pytest.mark.slow
def test_accumulation_begins_with_a_whole_step(cli: Cli) -> None:
    """Three batches of the epoch were done; the second of four holds two of them, which come again."""
    start(cli, cut=4)
    done = fit(cli, "run", "--trainer.accumulate_grad_batches", "2", "--trainer.max_epochs", "1")
    assert done.code == 0, done.err
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5]
    assert "continuing with 2 batches a step: 750 samples of the epoch done, 250 of them are repeated" in done.out


@pytest.mark.slow
def test_fewer_epochs_than_were_done(cli: Cli) -> None:
    start(cli, cut=14)
    done = fit(cli, "run", "--trainer.max_epochs", "1")
    assert done.code == 2, done.out
    assert done.err == "error: --trainer.max_epochs: expected at least the 2 epochs done so far, got 1\n"


@pytest.mark.slow
def test_another_seed(cli: Cli) -> None:
    start(cli)
    done = fit(cli, "run", "--seed_everything", "2")
    assert "continuing with seed_everything 2 (was 1)\n" in done.out
    assert "the rest of this epoch uses another seed's order" in done.out


OTHER = """
from example.data.digits import Digits

class Doubled(Digits):
    pass
"""


@pytest.mark.slow
def test_other_data(cli: Cli, workdir: Path) -> None:
    (workdir / "other.py").write_text(OTHER)
    start(cli)
    done = fit(cli, "run", "--data", "other.Doubled", "--data.batch_size", "250")
    assert done.code == 0, done.err
    assert "continuing with data Doubled (was Digits)\n" in done.out
    assert "the rest of this epoch uses the first batches of Doubled" in done.out


class Poisoned(Callback):
    """Makes the loss of one step infinite."""

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Any) -> None:
        if trainer.global_step == 6 and trainer.current_epoch == 1 and not any(row["step"] == 7 for row in rows):
            rows.append({"step": 7, "epoch": 2, "groups": [{"lr": None, "betas": None}]})
            loss.data.fill_(float("inf"))


@pytest.mark.slow
@pytest.mark.parametrize("change", [(), ("--model.optimizer.weight_decay", "0.1"), ("--model.schedule.final", "0.2")])
def test_a_rate_that_nonfinite_has_lowered_stays_low(cli: Cli, change: tuple[str, ...]) -> None:
    lowered = (f"--trainer.callbacks+={__name__}.Poisoned", "--trainer.callbacks+=NonFinite",
        "--trainer.callbacks.policy", "return", "--trainer.callbacks.factor", "0.25")  # fmt: skip
    whole = fit(cli, "whole", *change)
    assert whole.code == 0, whole.err
    expected = steps("lr")[9]
    rows.clear()
    start(cli, *lowered, cut=9)
    rows.append({"step": 7, "epoch": 2, "groups": [{"lr": None, "betas": None}]})
    done = fit(cli, "run", *lowered, *change)
    assert done.code == 0, done.err
    assert steps("lr")[9] == pytest.approx(0.25 * expected, rel=1e-9)


OWN = """
import lightning.pytorch as pl
import torch

class Own(pl.LightningModule):
    def __init__(self, lr: float = 0.1, decay: float = 0.0, factor: float = 0.5, extra: bool = False):
        super().__init__()
        self.save_hyperparameters()
        self.net = torch.nn.Linear(64, 10)
        self.extra = extra

    def training_step(self, batch, batch_idx):
        return torch.nn.functional.cross_entropy(self.net(batch[0].flatten(1)), batch[1])

    def validation_step(self, batch, batch_idx):
        self.log("val/loss", self.training_step(batch, batch_idx))

    def configure_optimizers(self):
        h = self.hparams
        parts = [[self.net.weight, self.net.bias]] if not self.extra else [[self.net.weight], [self.net.bias]]
        groups = [{"params": part} for part in parts]
        optimizer = torch.optim.SGD(groups, lr=h.lr, momentum=0.9, weight_decay=h.decay)
        schedule = torch.optim.lr_scheduler.SequentialLR(
            optimizer,
            [
                torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (step + 1) / 4),
                torch.optim.lr_scheduler.ExponentialLR(optimizer, h.factor),
            ],
            [4],
        )
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]
"""


def own(cli: Cli, run: str, *args: str, cut: int = 0) -> Result:
    return cli(
        "fit", "--model", "own.Own", "--data", "Digits", "--data.batch_size", "250", "--run_dir", run,
        "--ckpt_path", "last", "--trainer.max_epochs", "3", "--checkpoint.every_n_steps", "1",
        f"--trainer.callbacks+={__name__}.Notes", f"--trainer.callbacks.cut={cut}", *args,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("change", [("--model.lr", "0.01"), ("--model.factor", "0.8"), ("--model.decay", "0.3")])
@pytest.mark.parametrize("cut", [3, 8])
def test_a_module_that_makes_its_optimizer_itself(cli: Cli, workdir: Path, change: tuple[str, str], cut: int) -> None:
    (workdir / "own.py").write_text(OWN)
    whole = own(cli, "whole", *change)
    assert whole.code == 0, whole.err
    expected = {key: [row["groups"][0][key] for row in rows[cut - 1 :]] for key in ("lr", "weight_decay")}
    rows.clear()
    with pytest.raises(PowerCutError):
        own(cli, "run", cut=cut)
    rows.clear()
    done = own(cli, "run", *change)
    assert done.code == 0, done.err
    assert f"continuing with {change[0].removeprefix('--')} {change[1]} (was " in done.out
    for key, values in expected.items():
        assert [row["groups"][0][key] for row in rows] == pytest.approx(values), key


@pytest.mark.slow
def test_what_changed_in_the_source_takes_effect_too(cli: Cli, workdir: Path) -> None:
    (workdir / "own.py").write_text(OWN)
    with pytest.raises(PowerCutError):
        own(cli, "run", cut=8)
    (workdir / "own.py").write_text(OWN.replace("momentum=0.9", "momentum=0.55"))
    sys.modules.pop("own")
    importlib.invalidate_caches()
    done = own(cli, "run")
    assert "continuing with optimizer.momentum 0.55 (was 0.9)\n" in done.out
    assert rows[-1]["groups"][0]["momentum"] == 0.55
    assert changes()["optimizer.momentum"] == (0.9, 0.55)


def test_other_groups_of_parameters_are_refused(cli: Cli, workdir: Path) -> None:
    (workdir / "own.py").write_text(OWN)
    with pytest.raises(PowerCutError):
        own(cli, "run", cut=8)
    done = own(cli, "run", "--model.extra", "true")
    assert done.code == 2
    assert "expected groups of [2] parameters, as in the checkpoint, got [1, 1]; --init_from" in done.err


@pytest.mark.slow
def test_a_checkpoint_without_settings_is_continued(cli: Cli) -> None:
    """As Lightning's own Trainer saves it."""
    start(cli)
    path = Path("run/checkpoints/last.ckpt")
    checkpoint = load(path)
    del checkpoint["settings"]
    torch.save(checkpoint, path)
    done = fit(cli, "run", "--trainer.gradient_clip_val", "1.0")
    assert done.code == 0, done.err
    assert "continuing with trainer.gradient_clip_val 1.0 (was none)" in done.out
    assert "settings" in load(path)


AVERAGE = ("--trainer.callbacks+=lightning.pytorch.callbacks.EMAWeightAveraging", "--trainer.callbacks.decay", "0.9")


@pytest.mark.slow
def test_training_goes_on_from_the_raw_weights_without_their_average(cli: Cli, workdir: Path) -> None:
    """The checkpoint's state_dict is the average; steps with a rate of 0 leave what training goes on from."""
    (workdir / "own.py").write_text(OWN)
    with pytest.raises(PowerCutError):
        own(cli, "run", *AVERAGE, cut=8)
    saved = load(Path("run/checkpoints/last.ckpt"))
    raw, averaged = saved["current_model_state"], saved["state_dict"]
    assert not torch.equal(raw["net.weight"], averaged["net.weight"])
    done = own(cli, "run", "--trainer.callbacks", f"{__name__}.Notes", "--model.lr", "0")
    assert done.code == 0, done.err
    assert "continuing with trainer.callbacks Notes (was Notes, EMAWeightAveraging)\n" in done.out
    now = load(Path("run/checkpoints/last.ckpt"))
    assert "current_model_state" not in now
    assert torch.equal(now["state_dict"]["net.weight"], raw["net.weight"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The checkpoint was not created with WeightAveraging")
def test_an_average_that_begins_later(cli: Cli, workdir: Path) -> None:
    (workdir / "own.py").write_text(OWN)
    with pytest.raises(PowerCutError):
        own(cli, "run", cut=8)
    done = own(cli, "run", *AVERAGE)
    assert done.code == 0, done.err
    assert "continuing with trainer.callbacks Notes, EMAWeightAveraging (was Notes)\n" in done.out
    assert "current_model_state" in load(Path("run/checkpoints/last.ckpt"))
