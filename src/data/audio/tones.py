"""Synthesized tones, for trying things without files."""

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from src.data.audio.audio_folder import AudioFolder
from src.data.audio.clips import Clip

RATE = 8000
WAVES: dict[str, Callable[[Tensor], Tensor]] = {  # of a phase in turns
    "sine": lambda phase: torch.sin(math.tau * phase),
    "square": lambda phase: torch.sign(torch.sin(math.tau * phase)),
    "sawtooth": lambda phase: 2 * (phase % 1) - 1,
}
KINDS = ("chirp", "noise", *WAVES)


class Tones(AudioFolder):
    """Sines, squares, sawtooths, chirps and white noise of 0.1 to 0.5 s at 8 kHz, synthesized by formula.

    Their frequency is 200 to 800 Hz, that of a chirp rises fourfold; all have noise 10 to 30 dB below the tone, and a
    loudness and phase of their own. The recordings are the same in every run.

    Args:
        num_each: recordings of each of the five kinds.
        multilabel: whether every recording is the sum of one to three of the kinds, and its target says which.
        shift: largest shift in time of training clips, as a share of their length, in [0, 1].
        gain: largest change of the loudness of training clips in dB, at least 0.
        batch_size: clips per batch and process, B, at least 1.
        num_workers: loader processes; 0 loads in the main process.
        on_error: what happens with inputs of `predict --input` that cannot be read: `stop` ends the run, `skip` leaves
            them out and counts them (`skipped_samples` in metrics.json).
        timeout_s: seconds without a batch after which a worker counts as hanging; 0 waits forever.
        bucket: number of training batches whose clips are sorted by length together; 0 turns it off.

    Shapes:
        audio (B, T), zero behind shorter clips; length (B,) in samples; target (B,), 0 to 4, or with several kinds
        (B, 5), 0 or 1.
    """

    def __init__(
        self,
        num_each: int = 100,
        multilabel: bool = False,
        shift: float = 0.1,
        gain: float = 6.0,
        batch_size: int = 32,
        num_workers: int = 0,
        on_error: Literal["stop", "skip"] = "stop",
        timeout_s: float = 600.0,
        bucket: int = 10,
    ) -> None:
        super().__init__(
            "",
            sample_rate=RATE,
            multilabel=multilabel,
            shift=shift,
            gain=gain,
            batch_size=batch_size,
            num_workers=num_workers,
            val_share=0.2,
            test_share=0.2,
            on_error=on_error,
            timeout_s=timeout_s,
            bucket=bucket,
        )
        if num_each < 5:
            raise ValueError(f"num_each: expected at least 5 recordings, got {num_each}")
        self.num_each = num_each
        self.save_hyperparameters()

    def find_clips(self) -> dict[str, list[Clip]]:
        self.facts["sample_rate"] = RATE
        self.is_single = True
        generator = torch.Generator().manual_seed(0)
        clips = []
        for number in range(self.num_each * len(KINDS)):
            size = int(torch.randint(RATE // 10, RATE // 2, (), generator=generator))
            first = number % len(KINDS)
            others = torch.randperm(len(KINDS), generator=generator)[: int(torch.randint(3, (), generator=generator))]
            kinds = (
                [KINDS[first], *(KINDS[k] for k in others.tolist() if k != first)]
                if self.multilabel
                else [KINDS[first]]
            )
            audio = torch.stack([synthesize(kind, size, generator) for kind in kinds]).sum(dim=0)  # (T,)
            audio = audio + 10 ** -(0.5 + float(torch.rand((), generator=generator))) * torch.randn(
                size, generator=generator
            )
            level = 0.02 + 0.2 * float(torch.rand((), generator=generator))
            clips.append(Clip(level * audio, f"tones:{number}", tuple(sorted(kinds))))
        return {"train": clips}


def synthesize(kind: str, size: int, generator: torch.Generator) -> Tensor:
    """A tone of random frequency and phase, or noise, (size,)."""
    if kind == "noise":
        return torch.randn(size, generator=generator)
    frequency, phase = torch.rand(2, generator=generator).tolist()
    frequency = 200 * 4**frequency  # Hz
    time = torch.arange(size) / RATE  # (size,), in seconds
    if kind == "chirp":  # the integral of a frequency that grows linearly
        return WAVES["sine"](phase + frequency * (time + 1.5 * time.square() * RATE / size))
    return WAVES[kind](phase + frequency * time)
