"""Labelled parts of recordings, as a data set, and batches of different lengths."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from src.data.audio.recordings import read_recording

Inputs = dict[str, Tensor]


class Clip(NamedTuple):
    """A recording, or a part of one, with its labels.

    Args:
        source: the file, or samples (T,) at the rate of the data.
        name: what tables call it.
        labels: names of its classes.
        start: where it begins in the file, in seconds.
        end: where it ends; None for the end of the file.
        place: the row that describes it, such as train.csv:17; empty for files in folders.
    """

    source: Path | Tensor
    name: str
    labels: tuple[str, ...]
    start: float = 0.0
    end: float | None = None
    place: str = ""


class Part(NamedTuple):
    """Which samples of a file are read.

    Args:
        start: the first one.
        stop: the one after the last.
        rate: samples per second of the file.
    """

    start: int
    stop: int
    rate: int

    def inner(self, first: int, size: int) -> "Part":
        """The `size` samples from number `first` of the part on."""
        return Part(self.start + first, min(self.start + first + size, self.stop), self.rate)


class Clips(Dataset):
    """Clips by index, read when they are asked for.

    Args:
        clips: their files and names.
        parts: of each clip.
        targets: class number of each clip (N,), or whether it has each label (N, K).
        sample_rate: samples per second of the audio.
        seconds: length of the longest audio; of longer clips, training takes a random part, evaluation the middle.
        is_training: whether the part is random, from torch's generator.
    """

    def __init__(
        self,
        clips: Sequence[Clip],
        parts: Sequence[Part],
        targets: list[int] | Tensor,
        sample_rate: int,
        seconds: float,
        is_training: bool = False,
    ) -> None:
        self.files = [clip.source for clip in clips]
        self.names = [clip.name for clip in clips]
        self.parts = list(parts)
        self.targets = targets
        self.sample_rate = sample_rate
        self.seconds = seconds
        self.is_training = is_training
        self.lengths = [round(min((part.stop - part.start) / part.rate, seconds) * sample_rate) for part in self.parts]

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> tuple[Inputs, int | Tensor]:
        source, part = self.files[index], self.parts[index]
        longest = round(self.seconds * part.rate)
        if (surplus := part.stop - part.start - longest) > 0:
            first = int(torch.randint(surplus + 1, ())) if self.is_training else surplus // 2
            part = part.inner(first, longest)
        if isinstance(source, Tensor):
            audio = source[part.start : part.stop]
        else:
            audio = read_recording(source, self.sample_rate, part.start, part.stop)
        return as_inputs(audio), self.targets[index]


def as_inputs(audio: Tensor) -> Inputs:
    """The inputs of one recording (T,)."""
    return {"audio": audio, "length": torch.tensor(len(audio))}


def collate(samples: Sequence[tuple[Inputs, Any]]) -> tuple[Inputs, Tensor]:
    """Makes a batch: audio (B, T), where T is the longest length, with zeros behind shorter ones; length and target."""
    audio = pad_sequence([inputs["audio"] for inputs, _ in samples], batch_first=True)  # (B, T)
    length = torch.stack([inputs["length"] for inputs, _ in samples])
    return {"audio": audio, "length": length}, torch.stack([torch.as_tensor(target) for _, target in samples])
