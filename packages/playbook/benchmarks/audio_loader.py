"""Recordings a second that a loader delivers: AudioFolder beside a plain loop over soundfile and torch's DataLoader.

    uv run --extra audio python packages/playbook/benchmarks/audio_loader.py [NUM_RECORDINGS] [ROUNDS]

Recordings of 0.25 to 0.75 s of noise at 16 kHz are written first. The ways alternate, one pass each a round, without
workers; CPU time of a pass, median over the rounds. The plain loop makes no batches; torch's loader pads batches of 32.
AudioFolder does so too, resumes exactly, and looks at every WAV's header for missing samples; in training it also sorts
by length, shifts, and changes the loudness.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import soundfile
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

ROOT = Path(__file__).parents[3]  # of the template
sys.path.insert(0, str(ROOT))
RATE, BATCH_SIZE = 16_000, 32


def write(folder: Path, num_recordings: int) -> list[Path]:
    generator = torch.Generator().manual_seed(0)
    files = []
    for number in range(num_recordings):
        size = int(torch.randint(RATE // 4, 3 * RATE // 4, (), generator=generator))
        file = folder / f"{number % 10}" / f"{number:05}.wav"
        file.parent.mkdir(exist_ok=True)
        soundfile.write(file, 0.1 * torch.randn(size, generator=generator).numpy(), RATE)
        files.append(file)
    return files


class Plain(Dataset):
    """Recordings by index, as most people write it."""

    def __init__(self, files: list[Path]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Tensor:
        return torch.from_numpy(soundfile.read(self.files[index], dtype="float32")[0])


def seconds(passes: Iterable[object]) -> float:
    start = time.process_time()
    for _ in passes:
        pass
    return time.process_time() - start


def main(num_recordings: int, num_rounds: int) -> None:
    from src.data.audio.audio_folder import AudioFolder

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        files = write(Path(name), num_recordings)
        data = AudioFolder(name, batch_size=BATCH_SIZE, val_share=0.495, test_share=0.01)
        start = time.process_time()
        data.setup("fit")
        print(f"setup of {num_recordings:,} recordings: {time.process_time() - start:.2f} s of CPU time")
        size = len(data.val_dataloader().dataset)  # type: ignore[arg-type]
        plain = Plain(files[:size])
        ways: dict[str, Callable[[], Iterable[object]]] = {
            "plain loop": lambda: (plain[index] for index in range(size)),
            "torch's DataLoader": lambda: DataLoader(
                plain, BATCH_SIZE, shuffle=True, collate_fn=lambda rows: pad_sequence(rows, batch_first=True)
            ),
            "AudioFolder, evaluation": data.val_dataloader,
            "AudioFolder, training": data.train_dataloader,
        }
        times: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(num_rounds):
            for way, passes in ways.items():
                times[way].append(seconds(passes()))
    for way, own in times.items():
        median = statistics.median(own)
        print(f"{way:24} {1e3 * median / size:.3f} ms a recording, {size / median:8,.0f} a second of CPU time")


if __name__ == "__main__":
    main(*(int(arg) for arg in sys.argv[1:])) if len(sys.argv) == 3 else main(10_000, 5)
