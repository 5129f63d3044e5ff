"""Optimizers and schedules of any module go on with what they are made with now; here from Python."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch.optim import SGD, Adam, RMSprop
from torch.optim import lr_scheduler as schedules

from playbook.checkpoints.io import load
from playbook.errors import UserError
from playbook.optim.schedules import scale_rates
from playbook.testing.command import UNSAVED
from playbook.testing.line import Line, points
from playbook.training.resume.changes import Changes
from playbook.training.resume.exact import ExactResume
from playbook.training.resume.settings import plain

Make = Callable[[Any], Any]


class Made(Line):
    """Has its optimizers made by a function, and notes the rates of all groups at every step."""

    def __init__(self, make: Make, manual: bool = False) -> None:
        super().__init__()
        self.make, self.automatic_optimization = make, not manual
        self.rates: list[list[float]] = []

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = super().training_step(batch, batch_idx)
        self.rates.append([float(g["lr"]) for optimizer in self.trainer.optimizers for g in optimizer.param_groups])
        if not self.automatic_optimization:
            self.manual_backward(loss)
            for optimizer in self.optimizers():  # type: ignore[union-attr]  # there are several
                optimizer.step()
        return loss

    def configure_optimizers(self) -> Any:
        return self.make(self.net)


def train(module: Made, epochs: int, file: Path | None = None, *callbacks: pl.Callback) -> pl.Trainer:
    """Two steps an epoch."""
    callbacks = (ExactResume(), Changes(), *callbacks)
    trainer = pl.Trainer(**UNSAVED, callbacks=list(callbacks), max_epochs=epochs)
    trainer.fit(module, points(), points(), ckpt_path=str(file) if file else None, weights_only=True)
    return trainer


def continued(former: Make, now: Make, folder: Path, manual: bool = False, epochs: int = 4) -> Made:
    """Two epochs of the former, then what is left with the one of now."""
    train(Made(former, manual), 2).save_checkpoint(folder / "two.ckpt")
    module = Made(now, manual)
    train(module, epochs, folder / "two.ckpt")
    return module


def sgd(schedule: Callable[[Any], Any], lr: float = 0.1, interval: str = "step") -> Make:
    def make(net: Any) -> Any:
        optimizer = SGD(net.parameters(), lr=lr)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule(optimizer), "interval": interval}}

    return make


class Power:
    """A function of the step whose setting PyTorch saves and restores."""

    def __init__(self, base: float) -> None:
        self.base = base

    def __call__(self, step: int) -> float:
        return self.base**step


def chained(gamma: float) -> Callable[[Any], Any]:
    return lambda optimizer: schedules.ChainedScheduler(
        [schedules.ConstantLR(optimizer, 0.5, total_iters=3), schedules.ExponentialLR(optimizer, gamma)]
    )


PAIRS: dict[str, tuple[Make, Make]] = {
    "chained": (sgd(chained(0.9)), sgd(chained(0.8))),
    "restarts": (
        sgd(lambda o: schedules.CosineAnnealingWarmRestarts(o, 3)),
        sgd(lambda o: schedules.CosineAnnealingWarmRestarts(o, 5)),
    ),
    "linear": (sgd(lambda o: schedules.LinearLR(o, 0.1)), sgd(lambda o: schedules.LinearLR(o, 0.1), lr=0.2)),
    "object": (
        sgd(lambda o: schedules.LambdaLR(o, Power(0.9))),
        sgd(lambda o: schedules.LambdaLR(o, Power(0.7))),
    ),
    "list": (
        sgd(lambda o: schedules.LambdaLR(o, lambda step: [1, 2, 3, 4, 5, 6, 7, 8, 9][step])),
        sgd(lambda o: schedules.LambdaLR(o, lambda step: [9, 8, 7, 6, 5, 4, 3, 2, 1][step])),
    ),
    "by epoch, then by step": (
        sgd(lambda o: schedules.ExponentialLR(o, 0.9), interval="epoch"),
        sgd(lambda o: schedules.ExponentialLR(o, 0.9)),
    ),
    "a group of its own": (
        lambda net: SGD([{"params": [net.weight], "lr": 0.2}, {"params": [net.bias]}], lr=0.1),
        lambda net: SGD([{"params": [net.weight], "lr": 0.2}, {"params": [net.bias]}], lr=0.3),
    ),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_rates_are_those_of_a_run_that_had_the_change_from_its_start(tmp_path: Path, pair: str) -> None:
    whole = Made(PAIRS[pair][1])
    train(whole, 4)
    rates = continued(*PAIRS[pair], tmp_path).rates
    assert torch.tensor(rates).double().tolist() == torch.tensor(whole.rates[4:]).double().tolist()


@pytest.mark.parametrize("pair", PAIRS)
def test_nothing_changes_without_a_change(tmp_path: Path, pair: str, capsys: pytest.CaptureFixture[str]) -> None:
    former, _ = PAIRS[pair]
    whole = Made(former)
    train(whole, 4)
    module = continued(former, former, tmp_path)
    assert module.rates == whole.rates[4:]
    assert "continuing with" not in capsys.readouterr().out


def test_what_is_said_without_a_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cases: list[tuple[Make, Make, str]] = [
        (lambda n: SGD(n.parameters(), lr=0.1), lambda n: SGD(n.parameters(), lr=0.2), "optimizer.lr 0.2 (was 0.1)"),
        (lambda n: SGD(n.parameters(), lr=0.1), sgd(chained(0.8)), "schedule ChainedScheduler (was none)"),
        (*PAIRS["linear"], "optimizer.lr 0.2 (was 0.1)"),
        (*PAIRS["object"], "schedule LambdaLR with other arguments (was LambdaLR)"),
        (*PAIRS["restarts"], "schedule.T_0 5 (was 3)"),
    ]
    for former, now, text in cases:
        continued(former, now, tmp_path)
        assert f"continuing with {text}\n" in capsys.readouterr().out


def test_one_of_two_optimizers(tmp_path: Path) -> None:
    def two(lr: float) -> Make:
        def make(net: Any) -> Any:
            optimizers = [SGD([net.weight], lr=0.1), SGD([net.bias], lr=lr)]
            return optimizers, [schedules.ExponentialLR(optimizers[0], 0.5)]

        return make

    assert continued(two(0.2), two(0.4), tmp_path, manual=True).rates == [[0.1, 0.4]] * 4, "stepped by nobody"


def test_a_rate_that_the_user_changes_stands_against_a_lowered_one(tmp_path: Path) -> None:
    def exponential(lr: float, gamma: float) -> Make:
        return sgd(lambda optimizer: schedules.ExponentialLR(optimizer, gamma), lr)

    class Lowers(pl.Callback):
        def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
            if trainer.global_step == 2:
                scale_rates(trainer.optimizers, [c.scheduler for c in trainer.lr_scheduler_configs], 0.5)

    for lr, gamma, first in [(0.1, 0.5, 0.5 * 0.1 * 0.5**4), (0.1, 0.9, 0.5 * 0.1 * 0.9**4), (0.3, 0.9, 0.3 * 0.9**4)]:
        train(Made(exponential(0.1, 0.5)), 2, None, Lowers()).save_checkpoint(tmp_path / "two.ckpt")
        module = Made(exponential(lr, gamma))
        train(module, 3, tmp_path / "two.ckpt")
        assert module.rates == [[pytest.approx(first)], [pytest.approx(first * gamma)]]


@pytest.mark.parametrize(
    ("former", "now", "key"),
    [
        (lambda n: Adam(n.parameters()), lambda n: Adam(n.parameters(), amsgrad=True), "amsgrad True"),
        (lambda n: RMSprop(n.parameters()), lambda n: RMSprop(n.parameters(), centered=True), "centered True"),
        (lambda n: RMSprop(n.parameters()), lambda n: RMSprop(n.parameters(), momentum=0.9), "momentum 0.9"),
    ],
)
def test_settings_that_need_a_state_of_their_own(tmp_path: Path, former: Make, now: Make, key: str) -> None:
    with pytest.raises(UserError, match=f"^optimizer: {key} needs averages since the first step"):
        continued(former, now, tmp_path)


def test_groups_that_a_callback_adds(tmp_path: Path) -> None:
    class Adds(pl.Callback):
        def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            trainer.optimizers[0].add_param_group({"params": [torch.nn.Parameter(torch.zeros(1))], "lr": 0.7})

    def weighted(decay: float, schedule: bool = False) -> Make:
        def make(net: Any) -> Any:
            optimizer = SGD(net.parameters(), lr=0.1, weight_decay=decay)
            return ([optimizer], [schedules.ConstantLR(optimizer)]) if schedule else optimizer

        return make

    train(Made(weighted(0.0)), 2, None, Adds()).save_checkpoint(tmp_path / "two.ckpt")
    trainer = train(Made(weighted(0.5)), 3, tmp_path / "two.ckpt", Adds())
    assert [group["weight_decay"] for group in trainer.optimizers[0].param_groups] == [0.5, 0.0]
    with pytest.raises(UserError, match=r"^schedule: cannot change if a callback has added parameter groups"):
        train(Made(weighted(0.0, schedule=True)), 3, tmp_path / "two.ckpt", Adds())


def test_a_checkpoint_that_says_nothing_of_settings(tmp_path: Path) -> None:
    """Of Lightning alone: what it restores stays."""
    file = tmp_path / "foreign.ckpt"
    train(Made(lambda net: SGD(net.parameters(), lr=0.1)), 2).save_checkpoint(file)
    checkpoint = load(file)
    del checkpoint["settings"]
    torch.save(checkpoint, file)
    module = Made(lambda net: SGD(net.parameters(), lr=0.2))
    train(module, 3, file)
    assert module.rates == [[0.1], [0.1]]


def test_a_second_training_of_the_same_callback_is_no_continuation(tmp_path: Path) -> None:
    file, changes = tmp_path / "two.ckpt", Changes()
    train(Made(lambda net: SGD(net.parameters(), lr=0.1)), 2).save_checkpoint(file)
    for path, lr in [(file, 0.2), (None, 0.3)]:
        module = Made(lambda net, lr=lr: SGD(net.parameters(), lr=lr))
        trainer = pl.Trainer(**UNSAVED, callbacks=[ExactResume(), changes], max_epochs=3)
        trainer.fit(module, points(), points(), ckpt_path=path, weights_only=True)
        assert module.rates[-1] == [lr]


def test_plain_values() -> None:
    values = {1: torch.tensor([0.5]), "t": (1, True), "nan": float("nan"), "f": len, "s": {2}, "i": float("inf")}
    assert plain(values) == {
        "1": [0.5], "t": [1, True], "nan": "nan", "f": "builtin_function_or_method", "s": [2], "i": float("inf"),
    }  # fmt: skip
