"""Rates against closed forms and against torch's own classes."""

import io
import math
import random
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch.optim import SGD, Optimizer, lr_scheduler

from playbook.optim.schedules import ReduceLROnPlateau, WarmupCosine, scheduler_config


def optimizer_with(*rates: float) -> Optimizer:
    return SGD([{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": rate} for rate in rates])


def rates_over(scheduler: Any, num_steps: int) -> list[list[float]]:
    """What each group trains with at steps 0 … num_steps - 1, and after them."""
    rates = []
    for _ in range(num_steps):
        rates.append([group["lr"] for group in scheduler.optimizer.param_groups])
        scheduler.optimizer.step()
        scheduler.step()
    return [*rates, [group["lr"] for group in scheduler.optimizer.param_groups]]


def closed_form(step: int, total_steps: int, warmup_steps: int, final: float) -> float:
    """Share of the peak: a ramp, then the cosine by its half angle."""
    if step < warmup_steps:
        return (step + 1) / (warmup_steps + 1)
    angle = math.pi / 2 * (step - warmup_steps) / (total_steps - warmup_steps)
    return math.cos(angle) ** 2 + final * math.sin(angle) ** 2


@pytest.mark.parametrize(
    ("total_steps", "warmup", "warmup_steps", "final"),
    [
        (100, 0.1, 10, 0.0),
        (100, 0.1, 10, 0.25),
        (37, 0.0, 0, 0.0),
        (37, 0.5, 18, 1.0),
        (7, 0.2, 1, 0.1),
        (1000, 0.999, 999, 0.0),
        (4, 0.9, 3, 0.0),  # 3.6 would round to 4: nothing would be left for the cosine
        (1, 0.9, 0, 0.0),
    ],
)
def test_warmup_cosine_is_its_closed_form(total_steps: int, warmup: float, warmup_steps: int, final: float) -> None:
    scheduler = WarmupCosine(optimizer_with(0.3, 0.02), total_steps, warmup, final)
    rates = rates_over(scheduler, total_steps)
    for step, (first, second) in enumerate(rates):
        share = closed_form(step, total_steps, warmup_steps, final)
        assert first == pytest.approx(0.3 * share, abs=1e-12), f"step {step}"
        assert second == pytest.approx(0.02 * share, abs=1e-12), f"step {step}"
    assert rates[0][0] > 0, "the first step learns nothing"
    assert max(rate for rate, _ in rates) == pytest.approx(0.3)
    assert rates[-1] == pytest.approx([0.3 * final, 0.02 * final], abs=1e-12)


def test_warmup_cosine_rises_then_falls_then_stays() -> None:
    scheduler = WarmupCosine(optimizer_with(1.0), total_steps=50, warmup=0.2, final=0.1)
    rates = [rate for (rate,) in rates_over(scheduler, 60)]
    assert all(a < b for a, b in pairwise(rates[:11])), rates[:11]
    assert all(a > b for a, b in pairwise(rates[10:51])), rates[10:51]
    assert rates[50:] == pytest.approx([0.1] * 11), "longer than planned, the cosine would rise again"


def test_warmup_cosine_goes_on_from_its_state() -> None:
    whole = rates_over(WarmupCosine(optimizer_with(1.0), 20), 20)
    begun = WarmupCosine(optimizer_with(1.0), 20)
    rates_over(begun, 8)
    file = io.BytesIO()
    torch.save({"optimizer": begun.optimizer.state_dict(), "schedule": begun.state_dict()}, file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    resumed = WarmupCosine(optimizer_with(1.0), 20)
    resumed.optimizer.load_state_dict(state["optimizer"])
    resumed.load_state_dict(state["schedule"])
    assert rates_over(resumed, 12) == whole[8:]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"warmup": 1.0}, r"warmup: expected a share of the steps in \[0, 1\), got 1.0"),
        ({"warmup": -0.1}, r"warmup: expected a share of the steps in \[0, 1\), got -0.1"),
        ({"final": 1.5}, r"final: expected a share of the peak rate in \[0, 1\], got 1.5"),
        ({"final": -1.0}, r"final: expected a share of the peak rate in \[0, 1\], got -1.0"),
        ({"total_steps": 0}, "total_steps: expected at least 1 optimizer step, got 0"),
        ({"total_steps": None}, "total_steps: expected at least 1 optimizer step, got None"),
    ],
)
def test_warmup_cosine_arguments_out_of_range(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WarmupCosine(optimizer_with(1.0), **{"total_steps": 10, **arguments})


def test_plateau_cuts_after_the_patience_and_never_below_the_minimum() -> None:
    scheduler = ReduceLROnPlateau(optimizer_with(1.0), factor=0.1, patience=2, min_lr=0.005)
    rates = []
    for loss in [3.0, 2.0, 2.0, 2.0, 2.0, 1.0, *[2.0] * 9]:
        scheduler.step(loss)
        rates.append(scheduler.optimizer.param_groups[0]["lr"])
    # the best is the second; the third epoch without a better one cuts, then counting starts anew
    assert rates == pytest.approx([1.0] * 4 + [0.1] * 4 + [0.01] * 3 + [0.005] * 4)


@pytest.mark.parametrize("mode", ["min", "max"])
def test_plateau_passes_every_argument_on(mode: Any) -> None:
    arguments: dict[str, Any] = {
        "mode": mode, "factor": 0.7, "patience": 1, "threshold": 0.2, "cooldown": 3, "min_lr": 0.05
    }  # fmt: skip
    ours = ReduceLROnPlateau(optimizer_with(1.0, 0.5), monitor="val/accuracy", **arguments)
    theirs = lr_scheduler.ReduceLROnPlateau(optimizer_with(1.0, 0.5), **arguments)
    draw = random.Random(0)
    for _ in range(60):
        value = draw.random()
        ours.step(value)
        theirs.step(value)
        assert [group["lr"] for group in ours.optimizer.param_groups] == [
            group["lr"] for group in theirs.optimizer.param_groups
        ]
    assert ours.optimizer.param_groups[0]["lr"] == 0.05, "nothing was cut, so nothing was compared"


class EverySecondStep(lr_scheduler.StepLR):
    """A user's schedule that asks for steps."""

    interval = "step"


@pytest.mark.parametrize(
    ("make", "interval"),
    [
        (lambda optimizer: WarmupCosine(optimizer, total_steps=10), "step"),
        (lambda optimizer: lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=10), "step"),
        (lambda optimizer: lr_scheduler.CyclicLR(optimizer, base_lr=0.1, max_lr=1.0), "step"),
        (lambda optimizer: EverySecondStep(optimizer, 2), "step"),
        (lambda optimizer: lr_scheduler.StepLR(optimizer, 2), "epoch"),
        (lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 10), "epoch"),
    ],
    ids=["WarmupCosine", "OneCycleLR", "CyclicLR", "a class that says so", "StepLR", "CosineAnnealingLR"],
)
def test_how_often_a_schedule_moves(make: Any, interval: str) -> None:
    optimizer = SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1, momentum=0.9)  # CyclicLR cycles the momentum too
    scheduler = make(optimizer)
    assert scheduler_config(scheduler) == {"scheduler": scheduler, "interval": interval}


def test_a_plateau_watches_its_metric_every_epoch() -> None:
    ours = ReduceLROnPlateau(optimizer_with(1.0), monitor="val/accuracy", mode="max")
    assert scheduler_config(ours) == {"scheduler": ours, "interval": "epoch", "monitor": "val/accuracy"}
    theirs = lr_scheduler.ReduceLROnPlateau(optimizer_with(1.0))
    assert scheduler_config(theirs) == {"scheduler": theirs, "interval": "epoch", "monitor": "val/loss"}
