"""A scheduler's frequency counts batches of an epoch; a run in which that differs from its steps says so."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import GradientAccumulationScheduler

from playbook.testing.command import QUIET
from playbook.testing.line import Line, points
from playbook.training.trainer import Trainer


class Scheduled(Line):
    def __init__(self, frequency: int, interval: str = "step") -> None:
        super().__init__()
        self.config = {"frequency": frequency, "interval": interval}

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: 1 / (k + 1))
        return [optimizer], [{"scheduler": self.scheduler, **self.config}]


def warned(capsys: pytest.CaptureFixture[str], module: Line, *callbacks: Any, **settings: Any) -> list[str]:
    options: dict[str, Any] = {**QUIET, "max_epochs": 2, "run_dir": False, "callbacks": list(callbacks), **settings}
    Trainer(**options).fit(module, points(13, batch_size=1), points())
    return [line for line in capsys.readouterr().err.splitlines() if "frequency" in line]


def test_under_accumulation_the_numbers_are_told(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Lightning-AI/pytorch-lightning#12894."""
    module = Scheduled(4)
    [line] = warned(capsys, module, accumulate_grad_batches=4)
    assert line.startswith("warning: LambdaLR: Lightning counts its frequency 4 in the batches of an epoch")
    assert "it steps 3 times in the 4 optimizer steps of an epoch" in line
    assert module.scheduler.last_epoch == 2 * 3


def test_a_scheduler_that_an_epoch_is_too_short_for(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = Scheduled(50)
    [line] = warned(capsys, module)
    assert "it steps 0 times in the 13 optimizer steps of an epoch" in line
    assert module.scheduler.last_epoch == 0


def test_accumulation_that_begins_later(workdir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [line] = warned(capsys, Scheduled(2), GradientAccumulationScheduler({1: 2}))
    assert "it steps 6 times in the 7 optimizer steps of an epoch" in line


@pytest.mark.parametrize(
    ("module", "settings"),
    [
        (Scheduled(4), {}),
        (Scheduled(1), {"accumulate_grad_batches": 4}),
        (Scheduled(2, "epoch"), {"accumulate_grad_batches": 4}),
    ],
)
def test_nothing_to_say(
    workdir: Path, module: Line, settings: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert warned(capsys, module, **settings) == []
