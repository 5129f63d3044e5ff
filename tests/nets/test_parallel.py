"""Every net, sharded over two processes by its blocks, takes the step that one process takes.

Nets are found as in test_nets.py; those with variants, and tensor parallelism, are in the tests of each domain.
"""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_leaves

from playbook.command.discovery import Entry
from playbook.testing.parallel import Case, assert_equal_to_one_process
from tests.conftest import ROOT
from tests.nets.test_nets import LARGE, SMALL, build, double, example_of, rows, run


def step(entry: Entry, net: nn.Module, share: int, shares: int) -> tuple[Tensor, Tensor]:
    """Weighted mean squares of a net's outputs, or of a detector's losses in training, on two of four samples."""
    inputs, _ = example_of(entry, 4)
    size = 4 // shares
    inputs = double(rows(inputs, list(range(share * size, (share + 1) * size))))
    if isinstance(inputs, dict) and "targets" in inputs:
        for module in net.train().modules():  # batch norms take the statistics of their own rank in training
            module.train(not isinstance(module, _BatchNorm))
    torch.manual_seed(share)  # detectors train on random boxes
    outputs = torch.stack([(weights_like(output) * output.square()).mean() for output in tree_leaves(run(net, inputs))])
    return outputs, 100 * outputs.mean()


def weights_like(output: Tensor) -> Tensor:
    """Unequal weights, since the sum of a normalized vector's squares has no gradient."""
    return torch.linspace(0.5, 1.5, output.numel(), dtype=output.dtype).view(output.shape)


def case(entry: Entry) -> Case:
    """In float64, where rounding stays far below any mistake, however deep the net."""
    return Case(lambda: build(entry).double(), partial(step, entry), is_mean=False, deviation=0.0)  # build adds noise


CASES = {entry.name: case(entry) for entry in [*SMALL, *LARGE]}


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("entries", [SMALL, LARGE], ids=["small", "large"])
def test_fsdp2_equals_one_process(entries: Any, tmp_path: Path) -> None:
    assert_equal_to_one_process(__file__, "fsdp2", [entry.name for entry in entries], tmp_path)


def test_nets_say_nothing_of_processes() -> None:
    for file in (ROOT / "src/nets").rglob("*.py"):
        assert "torch.distributed" not in file.read_text(encoding="utf-8"), file
