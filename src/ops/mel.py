"""Mel filters and log-mel spectrograms, equal to librosa's."""

import math
import warnings
from typing import Literal

import torch
from torch import Tensor, nn

from src.ops.losses import precise

Scale = Literal["slaney", "htk"]
FLOOR = 1e-6  # of the energies, so that silence has a finite logarithm
HZ_A_MEL, BREAK_HZ, OCTAVES = 200 / 3, 1000.0, 27 / math.log(6.4)  # of Slaney's scale: linear, then logarithmic


def hz_to_mel(frequency: Tensor, scale: Scale) -> Tensor:
    """Mels of frequencies in Hz: Slaney's scale (1998), or that of the HTK book, 2595 log₁₀(1 + f / 700)."""
    if scale == "htk":
        return 2595 * torch.log10(1 + frequency / 700)
    above = BREAK_HZ / HZ_A_MEL + OCTAVES * (frequency.clamp(min=BREAK_HZ) / BREAK_HZ).log()
    return torch.where(frequency < BREAK_HZ, frequency / HZ_A_MEL, above)


def mel_to_hz(mel: Tensor, scale: Scale) -> Tensor:
    """Frequencies in Hz of mels."""
    if scale == "htk":
        return 700 * (10 ** (mel / 2595) - 1)
    first = BREAK_HZ / HZ_A_MEL
    return torch.where(mel < first, mel * HZ_A_MEL, BREAK_HZ * ((mel.clamp(min=first) - first) / OCTAVES).exp())


def mel_filters(
    num_mels: int,
    n_fft: int,
    sample_rate: int,
    low: float = 0.0,
    high: float | None = None,
    scale: Scale = "slaney",
    norm: Literal["slaney", "none"] = "slaney",
) -> Tensor:
    """Triangular filters, evenly spaced in mels.

    Args:
        num_mels: number of filters M.
        n_fft: samples of a Fourier transform.
        sample_rate: samples per second.
        low: frequency in Hz where the first filter begins.
        high: frequency in Hz where the last filter ends. Defaults to half of the sampling rate.
        scale: slaney or htk.
        norm: slaney divides each filter by half of its width in Hz; none leaves a peak of 1.

    Returns:
        (M, n_fft // 2 + 1) in float64. A filter that is narrower than a step of the transform may be empty.
    """
    ends = torch.tensor([low, sample_rate / 2 if high is None else high], dtype=torch.float64)
    first, last = hz_to_mel(ends, scale).tolist()
    edges = mel_to_hz(torch.linspace(first, last, num_mels + 2, dtype=torch.float64), scale)[:, None]  # (M + 2, 1)
    frequencies = torch.linspace(0, sample_rate / 2, n_fft // 2 + 1, dtype=torch.float64)  # (F,)
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]  # (M, 1) each
    rising, falling = (frequencies - left) / (centre - left), (right - frequencies) / (right - centre)
    filters = torch.minimum(rising, falling).clamp(min=0)  # (M, F)
    return filters * 2 / (right - left) if norm == "slaney" else filters


class LogMel(nn.Module):
    """Logarithms of the energies in mel bands, the frames of which are centred at multiples of the hop.

    Args:
        sample_rate: samples per second.
        num_mels: number of bands M.
        window_s: length of a frame in seconds; its transform has the next power of two of samples.
        hop_s: seconds from a frame to the next.
        scale: of the mel filters, slaney or htk.

    Shapes:
        audio (B, T) → (B, M, N) with N = T // hop + 1 frames.

    Warns:
        UserWarning: filters are empty, as there are more than the transform can tell apart.
    """

    window: Tensor
    filters: Tensor

    def __init__(
        self,
        sample_rate: int = 16_000,
        num_mels: int = 40,
        window_s: float = 0.025,
        hop_s: float = 0.01,
        scale: Scale = "slaney",
    ) -> None:
        super().__init__()
        size = round(window_s * sample_rate)
        self.hop = round(hop_s * sample_rate)
        if min(size, self.hop) < 1:
            raise ValueError(
                f"sample_rate: expected at least one sample in {min(window_s, hop_s)} s, got {sample_rate}"
            )
        self.n_fft = 2 ** math.ceil(math.log2(size))
        filters = mel_filters(num_mels, self.n_fft, sample_rate, scale=scale)
        if num_empty := int((filters.amax(dim=1) == 0).sum()):
            text = (
                f"num_mels: {num_empty} of {num_mels} mel filters are empty at {sample_rate} Hz; expected fewer filters"
            )
            warnings.warn(text, stacklevel=2)
        padding = self.n_fft - size
        window = nn.functional.pad(torch.hann_window(size), (padding // 2, padding - padding // 2))  # (n_fft,)
        self.register_buffer("window", window, persistent=False)
        self.register_buffer("filters", filters.float(), persistent=False)  # (M, n_fft // 2 + 1)

    def forward(self, audio: Tensor) -> Tensor:
        audio = precise(audio)  # half precision has no Fourier transform
        window, filters = self.window.to(audio.dtype), self.filters.to(audio.dtype)
        with torch.autocast(audio.device.type, enabled=False):
            spectrum = torch.stft(
                audio, self.n_fft, self.hop, window=window, center=True, pad_mode="constant", return_complex=True
            )  # (B, n_fft // 2 + 1, N)
            power = spectrum.real.square() + spectrum.imag.square()
            return (filters @ power).clamp(min=FLOOR).log()  # (B, M, N)

    def num_frames(self, length: Tensor) -> Tensor:
        """Frames (B,) whose centres lie within recordings of these lengths in samples (B,)."""
        return (length + self.hop - 1) // self.hop
