"""Which axis holds the units, and how calls of one module are told apart."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from playbook.training.statistics.units import Units


class Trains:
    training = True


def counts(net: nn.Module, *inputs: Tensor) -> dict[str, tuple[float, int]]:
    trainer: Any = Trains()
    units = Units(trainer, net)
    for tensor in inputs:
        units.begin_forward()
        net(tensor)
    return {name: (dead.item(), total) for name, (dead, total) in units.close().items()}


@pytest.mark.parametrize(
    ("layer", "shape", "total"),
    [(nn.Conv2d(1, 3, 1), (2, 1, 4, 4), 3), (nn.Conv1d(1, 3, 1), (2, 1, 4), 3), (nn.Linear(4, 5), (2, 3, 4), 5)],
)
def test_units_are_channels_and_features(layer: Any, shape: tuple[int, ...], total: int) -> None:
    nn.init.zeros_(layer.weight)
    layer.bias.data.fill_(-1.0)
    layer.bias.data[0] = 1.0
    assert counts(nn.Sequential(layer, nn.ReLU()), torch.ones(shape)) == {"1": (total - 1, total)}


def test_calls_of_one_module_are_told_apart() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            self.act(x)  # (B, 2), both positive
            return self.act(x[:, :1] - 5)  # (B, 1), negative until the second batch

    low, high = torch.ones(1, 2), torch.full((1, 2), 9.0)
    assert counts(Twice(), low) == {"act": (1, 3)}
    assert counts(Twice(), low, high) == {"act": (0, 3)}


def test_what_has_no_units_is_left_out() -> None:
    assert counts(nn.ReLU(), torch.ones(3)) == {}
    assert counts(nn.ReLU(), torch.ones(0, 3)) == {}
