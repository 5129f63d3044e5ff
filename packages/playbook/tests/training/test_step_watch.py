"""Where values are read from tensors, and how many operators a loss has."""

import functools
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from playbook.training import step_watch
from playbook.training.step_watch import READS, StepWatch, num_nodes


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(step_watch, "_has_compiled", lambda: False)  # another test may have
    watch = StepWatch(lambda: False)
    yield watch
    watch.end(0)


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")
def test_each_way_to_read_a_value_is_counted(watch: StepWatch) -> None:
    one = torch.ones((), requires_grad=True)
    watch.begin()
    for _ in range(2):
        values = [one.item(), one.tolist(), one.cpu(), float(one), int(one), bool(one)]
        with pytest.raises(RuntimeError, match="requires grad"):
            one.numpy()
    watch.end(2)
    one.item()
    assert [float(value) for value in values] == [1.0] * 6
    assert {method: count for (_, _, method), count in watch.reads.items()} == dict.fromkeys(
        [name.strip("_") for name in READS], 2
    )
    assert {file for file, _, _ in watch.lines_of_every_step()} == {__file__}
    assert not set(READS) & vars(torch.Tensor).keys()


def test_values_that_are_on_the_cpu_anywhere_do_not_count(watch: StepWatch) -> None:
    watch.begin()
    assert torch.arange(3).max().item() == 2  # as of labels that a data set has loaded
    watch.end(1)
    assert not watch.reads


def test_what_happens_in_some_steps_is_not_in_every_step(watch: StepWatch) -> None:
    watch.begin()
    for step in range(3):
        if step == 0:
            torch.ones(1, requires_grad=True).item()
    watch.end(3)
    assert len(watch.reads) == 1
    assert watch.lines_of_every_step() == []


def test_nothing_is_replaced_where_something_was_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", SimpleNamespace(counters={"frames": {"total": 1}}))
    watch = StepWatch(lambda: False)
    watch.begin()
    assert not set(READS) & vars(torch.Tensor).keys()
    watch.end(1)
    assert watch.num_operators is None
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", SimpleNamespace(counters={"frames": {}}))
    watch.begin()
    assert "item" in vars(torch.Tensor)
    watch.end(1)


def test_libraries_do_not_count(watch: StepWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_watch, "is_user_file", lambda file: file != __file__)
    watch.begin()
    torch.ones(1, requires_grad=True).item()
    assert not watch.reads


def test_what_another_has_replaced_stays(watch: StepWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    original = torch.Tensor.tolist

    def other(tensor: torch.Tensor) -> Any:
        return original(tensor)

    monkeypatch.setattr(torch.Tensor, "tolist", other)
    watch.begin()
    assert torch.Tensor.tolist is other
    watch.end(1)
    assert torch.Tensor.tolist is other


def test_operators_of_a_loss() -> None:
    x = torch.ones(3, requires_grad=True)
    assert num_nodes((x * 2).sum()) == 2
    assert num_nodes((x * x + x).sum()) == 3
    assert num_nodes(functools.reduce(lambda value, _: value.tanh(), range(100), x).sum()) == 101
    assert num_nodes(torch.ones(())) == 0


def test_operators_of_several_backwards_are_those_of_a_step(watch: StepWatch) -> None:
    backward = torch.Tensor.backward
    x = torch.ones(3, requires_grad=True)
    watch.begin()
    for _ in range(3):
        (x * 2).sum().backward()
        x.sum().backward()
    watch.end(3)
    assert watch.num_operators == 3
    assert 0 < watch.backward_s < 1
    assert torch.Tensor.backward is backward
    assert x.grad is not None
    assert x.grad.tolist() == [9.0, 9.0, 9.0]
