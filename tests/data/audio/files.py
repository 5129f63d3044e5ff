"""Small recordings in files."""

import math
from pathlib import Path
from typing import Any

import soundfile
import torch

RATE = 8000


def tone(num_samples: int = 800, frequency: float = 440.0, level: float = 0.25) -> torch.Tensor:
    return level * torch.sin(2 * math.pi * frequency * torch.arange(num_samples) / RATE)


def write(file: Path, audio: torch.Tensor | None = None, rate: int = RATE, **options: Any) -> Path:
    """Writes a recording (T,) or (T, channels), in the format that the suffix says."""
    file.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(file, (tone() if audio is None else audio).numpy(), rate, **options)
    return file


def write_folder(root: Path, counts: dict[str, int], start: int = 800) -> list[Path]:
    """Writes recordings root/LABEL/N.wav of lengths that grow, and returns their paths."""
    files = []
    for number, (label, count) in enumerate(counts.items()):
        files += [
            write(root / label / f"{index:02}.wav", tone(start + 40 * index, 200.0 * (number + 1)))
            for index in range(count)
        ]
    return files
