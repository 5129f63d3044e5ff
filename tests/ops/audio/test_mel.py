"""Mel filters and spectrograms, against numbers of librosa 0.11 (librosa.npz), which torchmetrics would import here."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from src.ops.mel import FLOOR, LogMel, hz_to_mel, mel_filters, mel_to_hz

SCALES = ("slaney", "htk")
LIBROSA = np.load(Path(__file__).with_name("librosa.npz"))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("norm", ["slaney", "none"])
@pytest.mark.parametrize(
    ("rate", "n_fft", "num_mels", "low", "high"), [(16_000, 512, 40, 0, None), (8000, 256, 23, 60, 3400)]
)
def test_filters_are_those_of_librosa(
    scale: Any, norm: Any, rate: int, n_fft: int, num_mels: int, low: float, high: float | None
) -> None:
    expected = LIBROSA[f"filters-{scale}-{norm}-{rate}"]
    filters = mel_filters(num_mels, n_fft, rate, low, high, scale, norm)
    assert filters.dtype == torch.float64
    np.testing.assert_allclose(filters.numpy(), expected, atol=1e-13)


@pytest.mark.parametrize("scale", SCALES)
def test_mels_and_back(scale: Any) -> None:
    frequencies = torch.tensor([0.0, 440.0, 999.9, 1000.0, 1000.1, 7999.0], dtype=torch.float64)
    mels = hz_to_mel(frequencies, scale)
    np.testing.assert_allclose(mels.numpy(), LIBROSA[f"mels-{scale}"], rtol=1e-12)
    torch.testing.assert_close(mel_to_hz(mels, scale), frequencies)


@pytest.mark.parametrize(("rate", "hop"), [(16_000, 160), (8000, 80)])
@pytest.mark.parametrize("scale", SCALES)
def test_spectrogram_is_that_of_librosa(rate: int, hop: int, scale: Any) -> None:
    times = torch.arange(2 * 2345, dtype=torch.float64).view(2, 2345)
    audio = 0.1 * torch.sin(0.0007 * times**1.4) + 0.03 * torch.cos(1.7 * times)
    power = LIBROSA[f"power-{scale}-{rate}"]  # with pad_mode="constant"
    spectrogram = LogMel(rate, 40, scale=scale).double()(audio)
    assert spectrogram.shape == (2, 40, 2345 // hop + 1)
    np.testing.assert_allclose(
        spectrogram.numpy(), np.log(np.maximum(power, FLOOR)), atol=1e-4
    )  # librosa's filters are in single


def test_silence_has_the_floor() -> None:
    assert torch.equal(LogMel()(torch.zeros(1, 1600)), torch.full((1, 40, 11), FLOOR).log())


def test_frames_whose_centres_lie_within() -> None:
    layer = LogMel(8000)
    lengths = torch.tensor([0, 1, 80, 81, 160])
    expected = [len([centre for centre in range(0, 1000, 80) if centre < length]) for length in lengths.tolist()]
    assert layer.num_frames(lengths).tolist() == expected


def test_half_precision_is_computed_in_single() -> None:
    audio = torch.randn(1, 800)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(LogMel()(audio), LogMel()(audio.clone()).float())
    close = LogMel()(audio.bfloat16())
    assert close.dtype == torch.float32
    torch.testing.assert_close(close, LogMel()(audio.bfloat16().float()))


def test_empty_filters_are_told() -> None:
    num_empty = int(LIBROSA["num_empty"])
    assert num_empty > 0
    with pytest.warns(UserWarning, match=f"num_mels: {num_empty} of 64 mel filters are empty at 16000 Hz"):
        LogMel(16_000, 64, window_s=256 / 16_000, scale="htk")


def test_rate_too_low() -> None:
    with pytest.raises(ValueError, match=r"sample_rate: expected at least one sample in 0.01 s, got 20"):
        LogMel(20)
