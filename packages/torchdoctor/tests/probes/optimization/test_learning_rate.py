"""What a training comes to, however its last steps look."""

import math

import pytest
import torch
from torch import Tensor, nn

from programs import Blobs, Classifier
from torchdoctor.probes.optimization import learning_rate
from torchdoctor.probes.optimization.learning_rate import _QUICK, _settled_loss, _too_high, _training
from torchdoctor.running.opening import open_subject
from torchdoctor.running.subject import Subject


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
    assert _settled_loss(falling + [5.0] * 8) < 0.05


def test_a_rise_stays() -> None:
    assert _settled_loss([1.0 + step for step in range(100)]) == pytest.approx(75.0, abs=1)
    assert _settled_loss([1.0] * 20 + [50.0] * 30) == 50.0


def test_what_is_no_number_stays_so() -> None:
    assert math.isnan(_settled_loss([1.0] * 20 + [math.nan]))


@pytest.mark.parametrize(("num_steps", "is_found"), [(8, False), (60, True)])
def test_a_rise_in_the_first_steps_alone_is_no_divergence(
    monkeypatch: pytest.MonkeyPatch, num_steps: int, is_found: bool
) -> None:
    """Only 8 steps of 0.4 s fit into the time; the rate to try is the largest that trains."""

    def run(subject: Subject, steps: int, scale: float) -> dict[str, list[float]]:
        return {"losses": [7.0 if scale == 1 else 7.0 / (1 + step) for step in range(num_steps)]}

    monkeypatch.setattr(learning_rate, "_forked_training", run)
    subject = Subject(Classifier(), None, [])  # type: ignore[arg-type]  # its training is made up
    text, scale = _too_high(subject, base=2.0, reached=3.5, change=0.5, thrown=3.0, diverged=2.0)
    assert (bool(text), scale) == (is_found, 0.1 if is_found else 0.0)
