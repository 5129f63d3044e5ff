"""A short training leaves the model, the trainer and torch as they were."""

from typing import Any

import pytest
import torch

from playbook.insight.short_training import EndsItself, train_copy
from playbook.testing.command import UNSAVED
from playbook.testing.line import Points, line
from playbook.training import step_watch, timing
from playbook.training.trainer import Trainer


class EndsAfter(EndsItself):
    """Ends after a number of steps.

    Args:
        num_steps: to train.
    """

    def __init__(self, num_steps: int) -> None:
        self.num_steps = num_steps

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        trainer.should_stop = trainer.global_step >= self.num_steps


@pytest.mark.parametrize("num_steps", [*timing.WATCHED_STEPS, timing.WATCHED_STEPS[0] + 2])
def test_nothing_stays_replaced_wherever_it_ends(num_steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_watch, "_has_compiled", lambda: False)  # another test may have
    methods = dict(vars(torch.Tensor))
    module, trainer = line(), Trainer(**UNSAVED, max_epochs=1)
    train_copy(trainer, module, Points(), EndsAfter(num_steps))
    assert trainer.global_step >= num_steps
    assert dict(vars(torch.Tensor)) == methods
    assert module.net.weight.item() == 0
    assert trainer.fit_loop.max_epochs == 1
