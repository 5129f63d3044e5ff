"""Shifts, loudness and noise of training recordings."""

import pytest
import torch

from src.data.audio.clips import as_inputs
from src.data.audio.distortions import Distortions, decibels, mixed, shifted


def test_shifts() -> None:
    audio = torch.arange(1.0, 6.0)
    assert shifted(audio, 2).tolist() == [0, 0, 1, 2, 3]
    assert shifted(audio, -2).tolist() == [3, 4, 5, 0, 0]
    assert shifted(audio, 0).tolist() == [1, 2, 3, 4, 5]
    assert shifted(audio, 5).tolist() == shifted(audio, -5).tolist() == [0] * 5


def test_noise_is_weaker_by_the_ratio() -> None:
    torch.manual_seed(0)
    audio, noise = torch.randn(1000), 7 * torch.randn(1000)
    added = mixed(audio, noise, 12.0) - audio
    assert 10 * float((audio.square().sum() / added.square().sum()).log10()) == pytest.approx(12, abs=1e-3)
    assert torch.equal(mixed(torch.zeros(9), torch.randn(9), 0.0), torch.zeros(9))
    assert decibels(20) == 10


def test_random_changes_stay_within_their_limits() -> None:
    torch.manual_seed(0)
    change = Distortions(shift=0.1, gain=6.0, noise=[], snr=None)
    factors, starts = [], []
    for _ in range(300):
        inputs, target = change((as_inputs(torch.ones(50)), 3))
        assert target == 3
        assert int(inputs["length"]) == 50
        factors.append(float(inputs["audio"].max()))
        starts.append(int((inputs["audio"] == 0).sum()))
    assert max(factors) <= decibels(6.0) <= max(factors) * 1.05
    assert min(factors) >= decibels(-6.0) >= min(factors) / 1.05
    assert set(starts) == set(range(6))


def test_the_same_seed_has_the_same_changes() -> None:
    change = Distortions(0.2, 3.0, [], (10, 20))
    results = []
    for _ in range(2):
        torch.manual_seed(4)
        results.append(change((as_inputs(torch.ones(50)), 0))[0]["audio"])
    assert torch.equal(*results)
