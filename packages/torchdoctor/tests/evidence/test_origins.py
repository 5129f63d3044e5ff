"""The lines that made things: also in loops, comprehensions and helpers, and those of copies."""

import copy
import inspect

import pytest
import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from torchdoctor.evidence import origins


@pytest.fixture(autouse=True)
def noted(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (nn.Module, Optimizer, LRScheduler, DataLoader):
        monkeypatch.setattr(kind, "__init__", kind.__init__)  # as it is put back afterwards
    origins.note_makers()


def block(width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(width, width),  # helper
        nn.ReLU(),
    )


def make(kind: type[nn.Module]) -> nn.Module:
    return kind()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([block(4) for _ in range(2)])
        layers = []
        for width in (4, 8):
            layers.append(nn.Linear(4, width))  # loop
        self.heads = nn.ModuleList(layers)
        self.outputs = nn.ModuleDict({name: nn.Linear(8, 1) for name in "ab"})  # comprehension
        self.activation = make(nn.GELU)  # argument
        layer = nn.TransformerEncoderLayer(8, 2)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)  # copies
        self.average = copy.deepcopy(self.heads)  # copy


@pytest.mark.parametrize(
    ("path", "mark"),
    [
        ("blocks.1.0", "# helper"),
        ("heads.1", "# loop"),
        ("outputs.b", "# comprehension"),
        ("activation", "# argument"),
        ("encoder.layers.1.norm1", "# copies"),
        ("average.0", "# copy"),
    ],
)
def test_line_of_a_layer(path: str, mark: str) -> None:
    net = Net()
    place = origins.layer(net, net.get_submodule(path))
    assert place is not None
    assert place.code.endswith(mark), place


def test_lines_of_an_optimizer_and_its_callers() -> None:
    def make() -> Optimizer:
        return torch.optim.SGD([torch.zeros(1, requires_grad=True)])

    optimizer = make()
    lines = [place.line for place in origins.makers(optimizer)]
    first = inspect.getsourcelines(test_lines_of_an_optimizer_and_its_callers)[1]
    assert lines[:2] == [first + 2, first + 4]


def test_another_thing_with_the_same_identity_is_not_taken_for_it() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)])
    assert origins.makers(optimizer)
    assert not origins.makers(copy.copy(optimizer))
