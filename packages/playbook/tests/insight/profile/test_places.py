"""Modules and lines of operations, in the forward and in the backward pass."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from playbook.insight.profile.places import ModuleStack, Place, Places, line_of, source


class Spy(TorchDispatchMode):
    """Keeps the place of each operation."""

    def __init__(self, places: Places) -> None:
        super().__init__()
        self.places = places
        self.seen: dict[str, tuple[Place, bool]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen[func.overloadpacket.__name__] = self.places.place()
        return func(*args, **(kwargs or {}))


class Net(nn.Module):
    """A layer inside, and an operation of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(2, 3), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).sin()  # the line of the sine


def watch(net: nn.Module, x: Tensor) -> dict[str, tuple[Place, bool]]:
    with ModuleStack(net) as modules, Places(modules) as places, Spy(places) as spy:
        net(x).sum().backward()
    return spy.seen


def test_operations_belong_to_modules_and_lines_in_both_passes() -> None:
    seen = watch(Net(), torch.ones(4, 2))
    assert seen["addmm"][0].module == "inner.0"
    assert seen["tanh"] == (Place("inner.1", seen["addmm"][0].line), False)
    assert "self.inner(x).sin()" in source(seen["sin"][0].line)
    assert seen["cos"] == (Place("", seen["sin"][0].line), True), "the sine's backward pass"
    assert seen["tanh_backward"] == (Place("inner.1", seen["tanh"][0].line), True)
    assert seen["mm"][0].module == "inner.0"


def test_a_failing_module_is_left_and_hooks_are_removed() -> None:
    net = Net()
    with ModuleStack(net) as modules:
        with pytest.raises(RuntimeError):
            net(torch.ones(4, 5))
        assert modules.paths == [""]
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())


def test_lines_of_libraries_are_passed_over() -> None:
    place = line_of(sys._getframe())
    assert Path(place.rpartition(":")[0]).name == "test_places.py"
    assert source(place) == "place = line_of(sys._getframe())"
    assert line_of(None) == ""
    assert source("") == ""
