"""The precision of matrix products is set while something runs, and comes back."""

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer

from playbook.testing.command import QUIET
from playbook.testing.line import Line, line, points
from src.callbacks.matmul import MatmulPrecision


class Observed(Line):
    """Notes the precision at every step."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def _error(self, batch: Any) -> Any:
        self.seen.add(torch.get_float32_matmul_precision())
        return super()._error(batch)


def test_set_while_running_and_restored(tmp_path: Path) -> None:
    assert torch.get_float32_matmul_precision() == "highest"
    module = Observed()
    settings = {**QUIET, "max_epochs": 1, "enable_checkpointing": False, "default_root_dir": tmp_path}
    trainer = Trainer(**settings, callbacks=[MatmulPrecision()])
    trainer.fit(module, points(), points())
    assert module.seen == {"high"}
    assert torch.get_float32_matmul_precision() == "highest"
    trainer.test(module, points(), verbose=False)
    assert module.seen == {"high"}
    assert torch.get_float32_matmul_precision() == "highest"


def test_results_on_the_cpu_do_not_change(tmp_path: Path) -> None:
    weights = []
    both: list[list[Callback]] = [[], [MatmulPrecision("high")]]
    for callbacks in both:
        module = line()
        settings = {**QUIET, "max_epochs": 2, "enable_checkpointing": False, "default_root_dir": tmp_path}
        Trainer(**settings, callbacks=callbacks).fit(module, points(), points())
        weights.append(module.net.weight.item())
    assert weights[0] == weights[1]
