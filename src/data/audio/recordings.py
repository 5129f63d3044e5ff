"""Reads recordings: to one channel, at one sampling rate."""

from pathlib import Path

import torch
from torch import Tensor

from playbook import AudioHeader, UserError, audio_header, decode_audio
from src.ops.resampling import resample

SUFFIXES = (".wav", ".flac", ".ogg", ".opus", ".mp3", ".aif", ".aiff")


def inspect_recording(source: Path | bytes) -> AudioHeader:
    """Reads the header of a recording.

    Args:
        source: path or bytes of a file.

    Raises:
        UserError: it cannot be read, has no samples, or is a WAV shorter than its header says.
    """
    try:
        return audio_header(source)
    except ValueError as error:
        raise UserError(str(error)) from error


def read_recording(source: Path | bytes, sample_rate: int, start: int = 0, stop: int | None = None) -> Tensor:
    """Reads a recording, or a part of it, as one channel.

    Args:
        source: path or bytes of a file.
        sample_rate: samples per second of the result; other rates are resampled.
        start: first sample of the part, at the rate of the file.
        stop: the sample after the part. Defaults to the end.

    Returns:
        The mean of the channels (T,), as a rule in [-1, 1].

    Raises:
        UserError: as `inspect_recording`, or samples are damaged or not finite.
    """
    try:
        audio, rate = decode_audio(source, start, stop)
    except ValueError as error:
        raise UserError(str(error)) from error
    return resample(torch.from_numpy(audio), rate, sample_rate)
