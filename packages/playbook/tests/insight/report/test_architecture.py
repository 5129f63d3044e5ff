"""Shapes and operations of stages, against closed forms."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from playbook.insight.report import architecture
from playbook.insight.report.blocks import Table, Text
from playbook.testing.line import Line


class Net(nn.Module):
    """A convolution, a norm and a layer, all of sizes that differ."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 5, 3, padding=1)
        self.norm = nn.BatchNorm2d(5)
        self.head = nn.Linear(5, 7)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.norm(self.conv(image)).mean(dim=(2, 3)))


def test_operations_are_those_of_the_products() -> None:
    net = Net().train()
    before = net.norm.running_mean.clone()  # type: ignore[union-attr]
    state = torch.get_rng_state()
    shapes, operations, fault = architecture.measure(net, lambda: net(torch.ones(1, 2, 6, 4)))
    assert not fault
    assert shapes == {"conv": "5 × 6 × 4", "norm": "5 × 6 × 4", "head": "7", "": "7"}
    conv, head = 2 * (2 * 3 * 3) * 5 * 6 * 4, 2 * 5 * 7  # a multiply-add counts as two
    assert operations == {"": conv + head, "conv": conv, "head": head}
    assert net.training
    assert torch.equal(net.norm.running_mean, before), "nothing was trained"  # type: ignore[arg-type]
    assert torch.equal(torch.get_rng_state(), state)
    assert not net.conv._forward_hooks


def test_a_module_of_its_own_kind_is_asked_for_predictions() -> None:
    class Alone(Line):
        def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
            return self.get_submodule("layer")(batch["x"])

    model = Alone()
    model.add_module("layer", model.net)
    del model.net
    text, table = architecture.blocks(model, {"x": torch.ones(1, 1), "y": torch.ones(1, 1)}, counts=False)
    assert isinstance(text, Text)
    assert text.text == "Alone: 2 parameters."
    assert isinstance(table, Table)
    assert table.rows == [{"stage": "layer", "module": "Linear", "output": "1", "parameters": 2}]


def test_what_cannot_be_called_is_told() -> None:
    model = Line()
    *_, last = architecture.blocks(model, torch.ones(1, 3), counts=False)
    assert isinstance(last, Text)
    assert last.text.startswith("Shapes are incomplete: RuntimeError (")
    *_, last = architecture.blocks(model, None, counts=False)
    assert last == Text("Shapes are incomplete: there was no batch.")


def test_frozen_parameters_are_counted() -> None:
    model = Line()
    model.net.bias.requires_grad_(False)
    assert architecture.blocks(model, torch.ones(1, 1), counts=False)[0] == Text(
        "Linear: 2 parameters, 1 of them trained."
    )


@pytest.mark.parametrize(("depth", "expected"), [(1, 3), (2, 6)])
def test_stages_go_deeper_as_long_as_the_table_is_short(depth: int, expected: int) -> None:
    net: nn.Module = nn.Sequential(*(nn.Linear(1, 1) for _ in range(3)))
    for _ in range(depth - 1):
        net = nn.Sequential(net, nn.Sequential(*(nn.Linear(1, 1) for _ in range(3))))
    assert len(architecture.stages(net)) == expected
    wide = nn.Sequential(*(nn.Linear(1, 1) for _ in range(99)))
    assert len(architecture.stages(wide)) == architecture.MOST_STAGES
