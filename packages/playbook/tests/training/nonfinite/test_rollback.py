"""What is lowered when a training returns to its checkpoint, in every kind of schedule."""

import pytest
import torch
from torch.optim import SGD, lr_scheduler

from playbook.optim.schedules import scale_rates

SCHEDULES = {
    "lambda": lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1)),
    "sequential": lambda optimizer: lr_scheduler.SequentialLR(
        optimizer,
        [lr_scheduler.LinearLR(optimizer, 0.5, total_iters=2), lr_scheduler.CosineAnnealingLR(optimizer, 8)],
        milestones=[2],
    ),
    "cyclic": lambda optimizer: lr_scheduler.CyclicLR(optimizer, 0.1, 1.0, step_size_up=3),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_lowered_schedule_goes_on_at_a_part_of_its_rates(name: str) -> None:
    """The reference is the same schedule, run to the same step and never lowered."""
    rates: dict[float, list[float]] = {}
    for factor in (1.0, 0.25):
        optimizer = SGD([torch.zeros(1, requires_grad=True)], lr=0.4)
        scheduler = SCHEDULES[name](optimizer)
        rates[factor] = []
        for step in range(9):
            if step == 4:
                scale_rates([optimizer], [scheduler], factor)
            optimizer.step()
            scheduler.step()
            rates[factor].append(optimizer.param_groups[0]["lr"])
    assert rates[0.25][:4] == rates[1.0][:4]
    assert rates[0.25][4:] == pytest.approx([0.25 * rate for rate in rates[1.0][4:]])
