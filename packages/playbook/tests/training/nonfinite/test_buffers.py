"""Buffers come back to what they were before a step, whatever changed them."""

import torch
from torch import Tensor, nn

from playbook.training.nonfinite import buffers
from playbook.training.nonfinite.buffers import Buffers


class Queue(nn.Module):
    """A large buffer, one that is None, and a shared one."""

    large: Tensor
    empty: Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(2)
        self.register_buffer("large", torch.zeros(buffers.SMALL + 1))
        self.register_buffer("empty", None)
        self.again = self.norm


def test_values_and_tensors_come_back() -> None:
    module = Queue()
    module.norm(torch.randn(8, 2))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    large = module.large
    copies = Buffers(module)
    copies.save()
    module.norm(torch.full((8, 2), torch.nan))
    large[3] = torch.nan
    module.large = torch.ones(2)
    module.empty = torch.ones(2)
    copies.restore()
    after = module.state_dict()
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert module.large is large, "what others refer to stays in place"
    assert module.empty is None


def test_each_save_takes_the_present_values() -> None:
    """Also of a large buffer, which is copied only after a change."""
    module = Queue()
    copies = Buffers(module)
    for value in (1.0, 2.0, 2.0):
        module.large.fill_(value)
        copies.save()
    module.large.fill_(3.0)
    copies.restore()
    assert module.large.unique().tolist() == [2.0]
    copies.save()
    module.large.fill_(4.0)
    copies.restore()
    assert module.large.unique().tolist() == [2.0]


def test_an_unchanged_large_buffer_is_not_copied_again() -> None:
    module = Queue()
    copies = Buffers(module)
    copies.save()
    module.large.data.fill_(5.0)  # behind the version's back, as nothing in a training does
    copies.save()
    copies.restore()
    assert module.large.unique().tolist() == [0.0]
