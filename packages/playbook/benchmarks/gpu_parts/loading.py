"""Training batches of resident images on the device, and of a DataLoader with workers and pinned memory.

The 10,000 images and the augmentation of benchmarks/loaders.py, in batches of 512; every batch ends on the device, and
there is no net. The DataLoader applies torchvision's transforms to an image at a time. Starting its workers, which a
training does once, is not timed.
"""

import itertools
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import loaders as loader_benchmark
from torch.utils.data import DataLoader

from gpu_parts.measuring import Setting, ratio, summary
from playbook.training.trainer import Trainer


def measure(setting: Setting) -> Iterator[tuple[str, Any]]:
    num_workers = setting.pick(min(8, os.cpu_count() or 1), 1)
    data = loader_benchmark.Resident(channels=3, side=32)
    data.trainer = Trainer(run_dir=False, **setting.trainer_options)  # whose device it moves the images to
    data.setup("fit")
    held: Any = data.train_set
    images = loader_benchmark.OneByOne(held.images, held.targets)
    options: dict[str, Any] = {"shuffle": True, "num_workers": num_workers, "pin_memory": setting.is_gpu}
    loaders: dict[str, DataLoader] = {
        f"DataLoader, {num_workers} workers": DataLoader(
            images, loader_benchmark.BATCH, persistent_workers=True, **options
        ),
        "resident": data.train_dataloader(),
    }
    variants: dict[str, Callable[[], float]] = {
        name: partial(setting.seconds, partial(_run_through, setting, loader)) for name, loader in loaders.items()
    }
    seconds = setting.alternate(variants, rounds=setting.pick(5, 1))
    num_batches = min(len(loaders["resident"]), setting.pick(1_000, 2))
    for name, values in seconds.items():
        yield f"{name}, batches/s", summary([num_batches / value for value in values])
    first, second = seconds
    yield f"{first} / {second}, time", ratio(seconds, first, second)


def _run_through(setting: Setting, loader: DataLoader) -> None:
    for image, target in itertools.islice(loader, setting.pick(None, 2)):
        for tensor in (image, target):
            tensor.to(setting.device, non_blocking=True)
