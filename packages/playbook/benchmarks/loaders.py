"""Training batches of the data modules against torchvision's or NumPy's way, without a net.

    python packages/playbook/benchmarks/loaders.py [mnist|cifar|jpeg|tokens] [ROUNDS]

- `mnist`, `cifar`: 10,000 random images of 1 × 28 × 28 or 3 × 32 × 32 pixels, batches of 512, moved by up to 2 pixels
  and normalised, those of CIFAR also mirrored or not and with a square of 8 blanked: resident, against a DataLoader
  whose transforms change an image at a time.
- `jpeg`: 400 photograph-like JPEGs of 500 × 375 pixels, a random crop of 224, mirrored or not, normalised, batches of
  64: ImageFolder against torchvision's.
- `tokens`: windows of 256 tokens from a file of 12 million, batches of 64: Text, whose windows overlap less and are the
  same after a resume, against one gather from a numpy.memmap.

Loaders have 0, 1 and 2 workers, and each way counts with its best number. Alternating, medians; raw results go to
loaders.json. A rate is the CPU time of the busiest process (of the workers, their mean), so that other programs disturb
it less; with workers it is what a machine with a free core for each reaches at most.
"""

import os

if __name__ == "__main__":  # gpu.py, which imports this file, needs the GPU and all threads
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import json
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate
from torch.utils.data import DataLoader, Dataset
from torchvision import datasets
from torchvision.transforms import v2

from playbook.data.resident import ResidentImages, mean_and_deviation
from src.data.language.text import Text
from src.data.vision.image_folder import ImageFolder

NUM, BATCH = 10_000, 512
WORKERS = 0, 1, 2
RESULTS = Path(__file__).with_suffix(".json")
IMAGENET = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
Makers = dict[str, Callable[[int], Iterable[Any]]]  # by way: batches, made by a number of workers


class Resident(ResidentImages):
    """Random images, all but one to train with."""

    def __init__(self, channels: int, side: int, num_workers: int = 0) -> None:
        is_colour = channels == 3
        super().__init__(
            BATCH, 1 / NUM, flip=is_colour, translate=2, cutout=8 if is_colour else 0, num_workers=num_workers
        )
        self.shape = NUM, channels, side, side

    def setup(self, stage: str) -> None:
        images = torch.randint(0, 256, self.shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
        targets = torch.arange(NUM) % 10
        self.hold((images, targets), (images[:1], targets[:1]))


class OneByOne(Dataset):
    """As torchvision's data sets are: an image at a time, changed by transforms.v2."""

    def __init__(self, images: Tensor, targets: Tensor) -> None:
        self.images, self.targets = images, targets
        mean, deviation = (value.tolist() for value in mean_and_deviation(images))
        is_colour = images.shape[1] == 3
        self.change = v2.Compose([
            *([v2.RandomHorizontalFlip()] if is_colour else []),
            v2.RandomCrop(images.shape[-1], padding=2, padding_mode="reflect"),
            v2.ToDtype(torch.float32),
            v2.Normalize(mean, deviation),
            *([v2.RandomErasing(p=1, scale=(1 / 16, 1 / 16), ratio=(1, 1))] if is_colour else []),
        ])  # fmt: skip

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.change(self.images[index]), self.targets[index]


def resident(channels: int, side: int, folder: Path) -> Makers:
    data: Any = Resident(channels, side)
    data.setup("fit")
    images = OneByOne(data.train_set.images, data.train_set.targets)
    return {
        "Playbook": lambda workers: loader_of(data, workers),
        "torchvision": lambda workers: DataLoader(images, BATCH, shuffle=True, num_workers=workers),
    }


def jpeg(folder: Path) -> Makers:
    write_photographs(folder, 400)
    data = ImageFolder(str(folder), val_share=0.01)
    data.setup("fit")
    crop = v2.RandomResizedCrop(224, scale=(0.25, 1.0))
    finish = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(*IMAGENET)]
    images = datasets.ImageFolder(str(folder / "train"), v2.Compose([crop, v2.RandomHorizontalFlip(), *finish]))
    return {
        "Playbook": lambda workers: loader_of(data, workers),
        "torchvision": lambda workers: DataLoader(images, 64, shuffle=True, num_workers=workers),
    }


def write_photographs(folder: Path, count: int) -> None:
    """JPEGs of 500 × 375 pixels with as many details as photographs: about 50 kB each."""
    generator = torch.Generator().manual_seed(0)
    for number in range(count):
        image = torch.full((1, 3, 375, 500), 128.0)
        for size, contrast in ((1, 5), (4, 12), (16, 30), (64, 50)):  # details of so many pixels
            details = torch.randn(1, 3, 375 // size, 500 // size, generator=generator)
            image += contrast * interpolate(details, (375, 500), mode="bilinear")
        pixels = image[0].clamp(0, 255).byte().permute(1, 2, 0).numpy()
        for split in ("train", "test") if number < 2 else ("train",):
            place = folder / split / "ab"[number % 2]
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(place / f"{number}.jpg", quality=90)


def tokens(folder: Path) -> Makers:
    text = folder / "text.txt"
    text.write_bytes(np.random.default_rng(0).choice(list(b"etaoin shrdlu\n"), 12_000_000).astype(np.uint8).tobytes())
    data: Any = Text(str(text), "bytes", context_length=256, batch_size=64, cache=str(folder / "cache"))
    data.prepare_data()
    data.setup("fit")
    file = data.train_tokens
    return {
        "Playbook": lambda workers: loader_of(data, workers),
        "numpy.memmap": lambda workers: gathered(file.path, file.dtype, len(data.train_set) // 64),
    }


def gathered(path: Path, dtype: np.dtype, num_batches: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Windows of 256 tokens at random places, a batch at a time."""
    array, offsets = np.memmap(path, dtype, mode="r"), np.arange(257)
    for _ in range(num_batches):
        rows = torch.from_numpy(array[np.random.randint(len(array) - 257, size=(64, 1)) + offsets].astype(np.int64))
        yield rows[:, :-1], rows[:, 1:]


def loader_of(data: Any, workers: int) -> DataLoader:
    data.num_workers = workers
    return data.train_dataloader()


def rate(make: Callable[[int], Iterable[Any]], workers: int) -> float:
    """Samples a second."""
    before = cpu_seconds()
    batches = make(workers)
    count = sum(len(batch[1]) for batch in batches)
    del batches  # ends the workers
    own, children = (after - start for after, start in zip(cpu_seconds(), before, strict=True))
    return count / max(own, children / max(workers, 1))


def cpu_seconds() -> tuple[float, float]:
    """CPU time of this process, and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time(), children.ru_utime + children.ru_stime


KINDS: dict[str, Callable[[Path], Makers]] = {
    "mnist": partial(resident, 1, 28),
    "cifar": partial(resident, 3, 32),
    "jpeg": jpeg,
    "tokens": tokens,
}


def main() -> None:
    os.environ["PL_GLOBAL_SEED"] = "1"
    names = [name for name in sys.argv[1:] if name in KINDS] or list(KINDS)
    rounds = next((int(word) for word in sys.argv[1:] if word.isdigit()), 5)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            makers = KINDS[name](Path(folder))
            counts = {way: WORKERS[:1] if way == "numpy.memmap" else WORKERS for way in makers}
            rates: dict[str, list[float]] = {f"{way}, {n} workers": [] for way in makers for n in counts[way]}
            for _ in range(rounds):
                for way, make in makers.items():
                    for workers in counts[way]:
                        rates[f"{way}, {workers} workers"].append(rate(make, workers))
        results[name] = {"torch": torch.__version__, "samples a second": rates}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        report(name, rates)


def report(name: str, rates: dict[str, list[float]]) -> None:
    medians = {variant: statistics.median(values) for variant, values in rates.items()}
    for variant, median in medians.items():
        print(f"{name:<8} {variant:<26} {median:10.0f} samples/s")
    own = [median for variant, median in medians.items() if variant.startswith("Playbook")]
    others = [median for variant, median in medians.items() if not variant.startswith("Playbook")]
    print(f"{name:<8} best / best {max(own) / max(others):.2f}, both without workers {own[0] / others[0]:.2f}")


if __name__ == "__main__":
    main()
