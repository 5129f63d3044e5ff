"""Tones at another rate are the same tones."""

import math

import pytest
import torch

from src.ops.resampling import resample


def tone(rate: int, seconds: float = 0.5, frequency: float = 1000.0) -> torch.Tensor:
    return torch.sin(2 * math.pi * frequency * torch.arange(round(seconds * rate), dtype=torch.float64) / rate)


@pytest.mark.parametrize(
    ("old", "new"), [(48_000, 16_000), (44_100, 16_000), (16_000, 44_100), (8000, 16_000), (22_050, 8000)]
)
def test_signal_to_noise_of_a_tone(old: int, new: int) -> None:
    result, expected = resample(tone(old), old, new), tone(new)
    assert result.shape == expected.shape
    inner = slice(len(expected) // 4, -len(expected) // 4)  # away from the sudden ends
    noise = (result - expected)[inner].square().mean()
    snr = 10 * math.log10(expected[inner].square().mean() / noise)
    assert snr > 150, f"{snr:.0f} dB"


@pytest.mark.parametrize("first", [0, 255, 256, 999])
def test_rates_without_a_common_factor(first: int) -> None:
    """1,000 outputs of a round are computed in blocks: here against the sum of all samples, for one output."""
    old, new = 1001, 1000
    audio = torch.randn(old + 200, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    result = resample(audio, old, new)
    assert len(result) == math.ceil(len(audio) * new / old)
    cutoff = 0.9475937167399596 * new / old
    crossings = (torch.arange(len(audio), dtype=torch.float64) - first * old / new) * cutoff
    window = torch.special.i0(14.769656459379492 * (1 - (crossings / 64).square()).clamp(min=0).sqrt())
    window = window / torch.special.i0(torch.tensor(14.769656459379492, dtype=torch.float64))
    expected = (audio * torch.sinc(crossings) * window * (crossings.abs() <= 64)).sum() * cutoff
    torch.testing.assert_close(result[first], expected)


def test_frequencies_above_half_of_the_new_rate_vanish() -> None:
    result = resample(tone(16_000, frequency=6000.0), 16_000, 8000)
    assert result[500:-500].abs().max() < 1e-6


@pytest.mark.parametrize(("size", "expected"), [(1, 1), (3, 1), (4, 2), (300, 100)])
def test_length(size: int, expected: int) -> None:
    assert len(resample(torch.ones(size), 48_000, 16_000)) == expected


def test_batches_and_equal_rates() -> None:
    audio = torch.randn(2, 3, 400)
    assert resample(audio, 8000, 8000) is audio
    together = resample(audio, 8000, 12_000)
    assert together.shape == (2, 3, 600)
    torch.testing.assert_close(together[1, 2], resample(audio[1, 2], 8000, 12_000))
