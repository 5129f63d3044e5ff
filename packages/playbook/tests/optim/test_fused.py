"""Fused steps, where nobody has chosen otherwise."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch.plugins.precision import MixedPrecision, Precision
from torch.optim import SGD, Adam, AdamW

from playbook.optim.fused import fused_option


def trainer(device: str = "cpu", world_size: int = 1, precision: Any = None) -> Any:
    strategy = SimpleNamespace(root_device=torch.device(device))
    return SimpleNamespace(world_size=world_size, strategy=strategy, precision_plugin=precision or Precision())


def test_on_the_cpu() -> None:
    assert fused_option(AdamW, partial(AdamW, lr=1e-3), trainer()) == {"fused": True}
    assert fused_option(Adam, Adam, trainer()) == {"fused": True}


@pytest.mark.parametrize(
    "keywords",
    [{"fused": False}, {"foreach": False}, {"foreach": True}, {"capturable": True}, {"differentiable": True}],
)
def test_choices_stay(keywords: dict[str, bool]) -> None:
    assert fused_option(AdamW, partial(AdamW, **keywords), trainer()) == {}


@pytest.mark.parametrize(
    "where",
    [trainer("cuda"), trainer(world_size=2), trainer(precision=MixedPrecision("bf16-mixed", "cpu")), None],
    ids=["GPU", "DDP", "bf16", "alone"],
)
def test_elsewhere_torch_chooses(where: Any) -> None:
    assert fused_option(AdamW, AdamW, where) == {}


def test_other_optimizers_are_left_alone() -> None:
    assert fused_option(SGD, SGD, trainer()) == {}
    assert fused_option(type("Mine", (AdamW,), {}), AdamW, trainer()) == {}


def test_a_fused_step_is_that_of_adamw() -> None:
    def trained(**options: Any) -> torch.Tensor:
        torch.manual_seed(0)
        weight = torch.nn.Parameter(torch.randn(5, 3))
        optimizer = AdamW([weight], lr=0.1, **options)
        for _ in range(10):
            optimizer.zero_grad()
            weight.pow(2).sum().backward()
            optimizer.step()
        return weight.detach()

    torch.testing.assert_close(trained(**fused_option(AdamW, AdamW, trainer())), trained())
