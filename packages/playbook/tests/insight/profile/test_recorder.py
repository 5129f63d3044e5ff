"""One recorded step against numbers that are counted by hand."""

import torch
from torch import nn

from playbook.insight.profile import memory
from playbook.insight.profile.recorder import BACKWARD, OPTIMIZER, Recorder

BATCH, INPUTS, HIDDEN, OUTPUTS = 8, 4, 16, 3
FLOAT = 4  # bytes


def step() -> tuple[Recorder, nn.Sequential]:
    """The second step of a small net, after which the optimizer has its states."""
    net = nn.Sequential(nn.Linear(INPUTS, HIDDEN, bias=False), nn.Sigmoid(), nn.Linear(HIDDEN, OUTPUTS, bias=False))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, foreach=False)
    x = torch.ones(BATCH, INPUTS)
    net(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    recorder = Recorder(net, [optimizer], [x], torch.device("cpu"))
    with recorder:
        loss = net(x).sum()
        recorder.begin(BACKWARD)
        loss.backward()
        recorder.begin(OPTIMIZER)
        optimizer.step()
    return recorder, net


def test_floating_point_operations_are_those_of_the_matrix_products() -> None:
    recorder, _ = step()
    flops = {
        phase: sum(operation.flops for operation in recorder.operations if operation.phase == phase)
        for phase in ("forward", BACKWARD, OPTIMIZER)
    }
    first, second = 2 * BATCH * INPUTS * HIDDEN, 2 * BATCH * HIDDEN * OUTPUTS
    assert flops == {"forward": first + second, BACKWARD: first + 2 * second, OPTIMIZER: 0}, "the data has no gradient"
    product = next(operation for operation in recorder.operations if operation.name == "mm")
    assert product.bytes == FLOAT * (BATCH * INPUTS + INPUTS * HIDDEN + BATCH * HIDDEN)
    assert product.place.module == "0"


def test_memory_is_that_of_the_tensors_by_kind() -> None:
    recorder, _ = step()
    sizes: dict[str, int] = {}
    for block in recorder.blocks:
        sizes[block.kind] = sizes.get(block.kind, 0) + block.size
    weights = FLOAT * (INPUTS * HIDDEN + HIDDEN * OUTPUTS)
    assert sizes["parameters"] == sizes["optimizer"] == sizes["gradients"] == weights
    assert sizes["batch"] == FLOAT * BATCH * INPUTS
    # the backward pass of the sigmoid and of the last layer needs the sigmoid; the loss lives as well
    assert sizes["activations"] == FLOAT * (BATCH * HIDDEN + 1)
    measured = memory.timeline(recorder.blocks, len(recorder.operations))
    assert measured.peak_mib * memory.MIB >= 3 * weights + sizes["batch"]
    assert {block.place.module for block in recorder.blocks if block.kind == "parameters"} == {"0.weight", "2.weight"}
    assert set(recorder.starts) == {"forward", BACKWARD, OPTIMIZER}


def test_what_is_freed_is_no_longer_counted() -> None:
    net = nn.Linear(4, 4)
    recorder = Recorder(net, [], None, torch.device("cpu"))
    with recorder, torch.no_grad():
        first = torch.ones(1000)
        second = first + 1
        del first
        third = second * 2
    block = next(block for block in recorder.blocks if block.operation == "ones")
    assert (block.begin, block.end) == (0, 2)
    assert third[0] == 4
    assert [operation.name for operation in recorder.operations] == ["ones", "add", "mul"]
