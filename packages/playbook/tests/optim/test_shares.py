"""Groups keep their ratio under every schedule of torch, resumed or not, and the first follows torch's own rates."""

import io
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import SGD, Optimizer, lr_scheduler
from torch.optim.swa_utils import SWALR

from playbook.optim.schedules import ReduceLROnPlateau, WarmupCosine, keep_shares, scale_rates

SHARES = (1.0, 0.25, 3.0)
NUM_STEPS = 12
BASE = 0.1


def sequence(optimizer: Optimizer, kind: Any) -> Any:
    first = lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=3)
    second = lr_scheduler.CosineAnnealingLR(optimizer, T_max=9, eta_min=0.01)
    third = lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
    if kind is lr_scheduler.SequentialLR:
        return lr_scheduler.SequentialLR(optimizer, [first, second, third], milestones=[3, 8])
    return lr_scheduler.ChainedScheduler([first, third], optimizer)


SCHEDULES: dict[str, Callable[[Optimizer], Any]] = {
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda step: 1 / (1 + step)),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda step: 0.9),
    "StepLR": lambda o: lr_scheduler.StepLR(o, step_size=4),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, milestones=[2, 7]),
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o, factor=0.3, total_iters=5),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o, start_factor=0.2, total_iters=6),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, gamma=0.8),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o, total_iters=NUM_STEPS, power=2),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=5, eta_min=0.02),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=4, eta_min=0.02),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, base_lr=0.03, max_lr=0.7, step_size_up=3),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.7, total_steps=NUM_STEPS + 1, three_phase=True),
    "SequentialLR": lambda o: sequence(o, lr_scheduler.SequentialLR),
    "ChainedScheduler": lambda o: sequence(o, lr_scheduler.ChainedScheduler),
    "torch's ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=0, min_lr=1e-3, factor=0.3),
    "ReduceLROnPlateau": lambda o: ReduceLROnPlateau(o, patience=0, factor=0.5),
    "SWALR": lambda o: SWALR(o, swa_lr=0.01, anneal_epochs=5),
    "WarmupCosine": lambda o: WarmupCosine(o, total_steps=NUM_STEPS, warmup=0.3, final=0.05),
}


def optimizer_of(num_groups: int) -> Optimizer:
    return SGD([{"params": [nn.Parameter(torch.zeros(1))]} for _ in range(num_groups)], lr=BASE, momentum=0.9)


def step(scheduler: Any) -> list[float]:
    """Rates that a step is taken with."""
    rates = [float(group["lr"]) for group in scheduler.optimizer.param_groups]
    scheduler.optimizer.step()
    with warnings.catch_warnings(action="ignore"):  # SequentialLR steps its parts by number, which is deprecated
        scheduler.step(*([1.0] if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau) else []))
    return rates


def made(name: str) -> Any:
    optimizer = optimizer_of(len(SHARES))
    scheduler = SCHEDULES[name](optimizer)
    keep_shares(optimizer, scheduler, SHARES)
    return scheduler


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_keeps_the_ratio(name: str) -> None:
    scheduler, alone = made(name), SCHEDULES[name](optimizer_of(1))
    for number in range(NUM_STEPS):
        [expected], rates = step(alone), step(scheduler)
        assert rates == pytest.approx([share * expected for share in SHARES], rel=1e-9, abs=0), f"step {number}"
    assert scheduler.get_last_lr() == pytest.approx([share * alone.get_last_lr()[0] for share in SHARES], rel=1e-9)


def test_there_is_a_case_for_every_schedule_of_torch() -> None:
    ours = {name.rpartition(" ")[2] for name in SCHEDULES}
    assert {name for name in lr_scheduler.__all__ if name != "LRScheduler"} <= ours


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_goes_on_from_its_state(name: str) -> None:
    """The states of checkpoints are read without running code, so they must be plain."""
    if name == "CyclicLR":
        pytest.skip("torch's own state of CyclicLR has a reference to a method")
    whole = made(name)
    rates = [step(whole) for _ in range(NUM_STEPS)]
    begun = made(name)
    for _ in range(5):
        step(begun)
    file = io.BytesIO()
    torch.save({"optimizer": begun.optimizer.state_dict(), "schedule": begun.state_dict()}, file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    resumed = made(name)
    resumed.optimizer.load_state_dict(state["optimizer"])
    resumed.load_state_dict(state["schedule"])
    assert [step(resumed) for _ in range(NUM_STEPS - 5)] == rates[5:]


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_lowered_rate_keeps_the_ratio(name: str) -> None:
    """As NonFinite lowers rates in the middle of a training."""
    scheduler = made(name)
    for _ in range(3):
        step(scheduler)
    scale_rates([scheduler.optimizer], [scheduler], 0.5)
    for number in range(3, NUM_STEPS):
        rates = step(scheduler)
        assert [rate / rates[0] for rate in rates] == pytest.approx(SHARES, rel=1e-6), f"step {number}"


def test_a_plateau_lowers_small_rates_with_the_others() -> None:
    """Torch leaves a rate alone that would fall by less than 1e-8, one group before the other."""
    optimizer = optimizer_of(3)
    scheduler = ReduceLROnPlateau(optimizer, patience=0, factor=0.1)
    keep_shares(optimizer, scheduler, SHARES)
    for _ in range(NUM_STEPS):
        rates = step(scheduler)
    assert [rate / rates[0] for rate in rates] == pytest.approx(SHARES)


def test_without_a_schedule_the_groups_have_their_share() -> None:
    keep_shares(optimizer := optimizer_of(3), None, SHARES)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.1, 0.025, 0.3])
