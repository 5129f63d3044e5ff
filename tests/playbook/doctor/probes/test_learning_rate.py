"""What a training comes to, however its last steps look."""

import math

import pytest
import torch
from torch import Tensor, nn

from playbook.doctor.opening import open_subject
from playbook.doctor.probes.learning_rate import _QUICK, _settled, _training
from playbook.doctor.subject import Subject
from tests.playbook.doctor.programs import Blobs, Classifier


class _DataDriven(nn.Module):
    """A layer that its first batch scales, as flows and quantisers do."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(100 * torch.randn(32, 8))
        self.register_buffer("started", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if self.training and not self.started:
            self.weight.data /= (x @ self.weight.data.T).std()
            self.started.fill_(1)
        return x @ self.weight.T


def test_weights_that_the_first_batch_sets_are_no_change_by_the_optimizer() -> None:
    changes: list[float] = []

    def look(begun: Subject) -> None:
        changes.extend(_training(begun, _QUICK, 1.0)["changes"])

    model = Classifier()
    model.net[0] = _DataDriven()
    open_subject(model, Blobs(), {}, look)
    assert max(changes) < 0.1


def test_a_spike_is_no_divergence() -> None:
    falling = [1 / (1 + step) for step in range(60)]
    assert _settled(falling + [5.0] * 8) < 0.05


def test_a_rise_stays() -> None:
    assert _settled([1.0 + step for step in range(100)]) == pytest.approx(75.0, abs=1)
    assert _settled([1.0] * 20 + [50.0] * 30) == 50.0


def test_what_is_no_number_stays_so() -> None:
    assert math.isnan(_settled([1.0] * 20 + [math.nan]))
