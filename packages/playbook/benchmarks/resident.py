"""Training batches of the resident loader against torchvision's transforms, image by image, in a DataLoader.

    python packages/playbook/benchmarks/resident.py [ROUNDS]

10,000 random images of 3 × 32 × 32 pixels in batches of 512, each mirrored or not, moved by up to 2 pixels, normalised
and with a square of 8 blanked; no net. One thread; alternating, medians.
"""

import os

if __name__ == "__main__":  # gpu.py, which imports this file, needs the GPU and all threads
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from playbook.data.resident import ResidentImages, mean_and_deviation

NUM, BATCH = 10_000, 512
IMAGES = torch.randint(0, 256, (NUM, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
TARGETS = torch.arange(NUM) % 10


class Resident(ResidentImages):
    """The images above, all but one to train with."""

    def setup(self, stage: str) -> None:
        self.hold((IMAGES, TARGETS), (IMAGES[:1], TARGETS[:1]))


class OneByOne(Dataset):
    """As torchvision's data sets are: an image at a time, changed by transforms.v2."""

    def __init__(self, images: Tensor, targets: Tensor) -> None:
        self.images, self.targets = images, targets
        mean, deviation = (value.tolist() for value in mean_and_deviation(images))
        self.change = v2.Compose([
            v2.RandomHorizontalFlip(),
            v2.RandomCrop(32, padding=2, padding_mode="reflect"),
            v2.ToDtype(torch.float32),
            v2.Normalize(mean, deviation),
            v2.RandomErasing(p=1, scale=(1 / 16, 1 / 16), ratio=(1, 1)),
        ])  # fmt: skip

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.change(self.images[index]), self.targets[index]


def main() -> None:
    os.environ["PL_GLOBAL_SEED"] = "1"
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    data = Resident(BATCH, val_share=1 / NUM, flip=True, translate=2, cutout=8)
    data.setup("fit")
    kept: Any = data.train_set
    images = OneByOne(kept.images, kept.targets)
    loaders: dict[str, Callable[[], DataLoader]] = {
        "resident": data.train_dataloader,
        "one by one": lambda: DataLoader(images, BATCH, shuffle=True),
        "one by one, 2 workers": lambda: DataLoader(images, BATCH, shuffle=True, num_workers=2),
    }
    times: dict[str, list[float]] = {name: [] for name in loaders}
    for _ in range(rounds):
        for name, loader in loaders.items():
            started = time.perf_counter()
            assert sum(len(target) for _, target in loader()) == NUM - 1
            times[name].append(time.perf_counter() - started)
    reference = statistics.median(times["resident"])
    for name, values in times.items():
        median = statistics.median(values)
        print(f"{name:22s} {NUM / median:8.0f} images/s   {median / reference:6.2f} × resident")


if __name__ == "__main__":
    main()
