"""Random changes of training recordings: shift in time, loudness, noise."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from src.data.audio.clips import Inputs, as_inputs
from src.data.audio.recordings import inspect_recording, read_recording


class Distortions:
    """Shifts a recording in time, changes its loudness, and adds noise; random numbers are torch's.

    Args:
        shift: largest shift, as a share of the recording; what is left free is silent.
        gain: largest change of the loudness in dB.
        noise: files of noise; white noise if there are none.
        snr: lowest and highest ratio of signal to noise in dB; None adds no noise.
    """

    def __init__(self, shift: float, gain: float, noise: Sequence[Path], snr: Sequence[float] | None) -> None:
        self.shift, self.gain, self.noise, self.snr = shift, gain, list(noise), snr
        self.sample_rate = 0  # of the data, once that is known

    def __call__(self, sample: tuple[Inputs, Any]) -> tuple[Inputs, Any]:
        inputs, target = sample
        audio = inputs["audio"]  # (T,)
        reach = int(self.shift * len(audio))
        audio = shifted(audio, int(torch.randint(-reach, reach + 1, ())))
        audio = audio * decibels(_uniform(-self.gain, self.gain))
        if self.snr is not None:
            audio = mixed(audio, self._noise(len(audio)), _uniform(*self.snr))
        return as_inputs(audio), target

    def _noise(self, length: int) -> Tensor:
        """White noise, or a random part of a random file, from its beginning again where it is too short."""
        if not self.noise:
            return torch.randn(length)
        file = self.noise[int(torch.randint(len(self.noise), ()))]
        about = inspect_recording(file)
        size = min(-(-length * about.sample_rate // self.sample_rate), about.num_samples)
        start = int(torch.randint(about.num_samples - size + 1, ()))
        part = read_recording(file, self.sample_rate, start, start + size)
        return part.repeat(-(-length // len(part)))[:length]


def shifted(audio: Tensor, number: int) -> Tensor:
    """Audio (T,) that begins a number of samples later, or earlier if it is negative; the rest is silent."""
    result = torch.zeros_like(audio)
    if number >= 0:
        result[number:] = audio[: len(audio) - number]
    else:
        result[:number] = audio[-number:]
    return result


def mixed(audio: Tensor, noise: Tensor, snr: float) -> Tensor:
    """Audio (T,) with noise (T,), `snr` dB weaker by their mean squares; nothing is added to silence."""
    power = audio.square().mean() / noise.square().mean().clamp(min=1e-12)
    return audio + noise * power.sqrt() * decibels(-snr)


def decibels(level: float) -> float:
    """The factor of an amplitude for a change in dB."""
    return 10 ** (level / 20)


def _uniform(low: float, high: float) -> float:
    return low + (high - low) * float(torch.rand(()))
