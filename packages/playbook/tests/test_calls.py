"""What the forward of a LightningModule gets of a batch, for `predict` and `export`."""

from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn

from playbook.calls import Call, call_of, named_call

X, M, Y = torch.ones(3, 2), torch.zeros(3, 2), torch.arange(3)
NAMED = {"x": X, "m": M, "y": Y}


class One(LightningModule):
    def forward(self, x: Tensor) -> Tensor:
        return x


class Two(LightningModule):
    def forward(self, x: Tensor, m: Tensor, y: Tensor | None = None) -> Tensor:
        return x + m


class Optional(LightningModule):
    def forward(self, x: Tensor, m: Tensor | None = None) -> Tensor:
        return x if m is None else x + m


class Example(Optional):
    def __init__(self) -> None:
        super().__init__()
        self.example_input_array = (X, M)


class Names(LightningModule):
    def forward(self, **inputs: Tensor) -> Tensor:
        return inputs["x"] + inputs["m"]


class Shown(Names):
    def __init__(self) -> None:
        super().__init__()
        self.example_input_array = {"x": X, "m": M}


class Several(LightningModule):
    def forward(self, *inputs: Tensor) -> Tensor:
        return inputs[0]


class Whole(LightningModule):
    """Hands on its batch as it is."""

    def forward(self, batch: Any) -> Tensor:
        return batch["x"] if isinstance(batch, dict) else batch[0]

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("loss", self(batch).sum())


class Steps(LightningModule):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return batch[0].sum()


@pytest.mark.parametrize(
    ("module", "batch", "expected"),
    [
        (One(), X, Call((X,), {})),
        (One(), [X, Y], Call((X,), {})),
        (One(), NAMED, Call((), {"x": X})),
        (One(), {"image": X}, Call(({"image": X},), {})),
        (Two(), [X, M, Y], Call((X, M), {})),
        (Two(), [(X, M), Y], Call((X, M), {})),
        (Two(), NAMED, Call((), {"x": X, "m": M})),  # a label that is optional is for training
        (Optional(), [X, M, Y], Call((X,), {})),
        (Example(), [X, M, Y], Call((X, M), {})),
        (Names(), NAMED, Call((), NAMED)),
        (Shown(), [X, M, Y], Call((), {"x": X, "m": M})),
        (Shown(), NAMED, Call((), {"x": X, "m": M})),
        (Several(), [X, Y], Call((X,), {})),
        (Whole(), [X, Y], Call(([X, Y],), {})),
        (nn.Linear(2, 1), [X, Y], Call((X,), {})),
    ],
)
def test_arguments_of_forward(module: nn.Module, batch: Any, expected: Call) -> None:
    call = call_of(module, batch)
    assert [*map(id, call.positional)] == [*map(id, expected.positional)] or str(call) == str(expected)
    assert {name: id(value) for name, value in call.named.items()} == {
        name: id(value) for name, value in expected.named.items()
    }


@pytest.mark.parametrize(
    ("module", "batch", "reason"),
    [
        (Steps(), [X, Y], "has no method forward"),
        (Names(), [X, Y], r"forward\(\*\*inputs\) names no argument, .*example_input_array"),
        (Two(), [X], "forward needs x, m, but a batch has 1 entries; self.example_input_array"),
        (Two(), {"x": X}, "forward needs m, but a batch has x"),
        (One(), [object(), Y], "expected inputs that are a tensor or a dict of tensors, got object"),
        (One(), {"x": "text"}, "x: expected a tensor, got str"),
    ],
)
def test_one_reason_where_that_is_unknown(module: nn.Module, batch: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        named_call(module, batch)


@pytest.mark.parametrize(
    ("module", "batch", "names"),
    [
        (Two(), [X, M, Y], ["x", "m"]),
        (Names(), NAMED, ["x", "m", "y"]),
        (Several(), [X, Y], ["input"]),
        (Whole(), NAMED, ["x", "m", "y"]),
        (Whole(), [X, Y], ["input_0", "input_1"]),
    ],
)
def test_the_named_module_answers_as_the_module(module: Any, batch: Any, names: list[str]) -> None:
    call = call_of(module, batch)
    inputs, named = named_call(module, batch)
    assert list(inputs) == names
    assert torch.equal(named(**inputs), module(*call.positional, **call.named))
