"""What a training step costs: Playbook and Lightning against plain PyTorch loops, on a tiny net.

    python packages/playbook/benchmarks/step.py [ROUNDS]

The MLP of the recipe mlp-digits on its digits, repeated to 337 batches of 64 an epoch, one thread, alternating,
medians; raw results go to step.json. Playbook runs with its default logging, validation after each epoch, checkpoints
and exact resume; the plain loops validate as well. A step is what more epochs cost, `fixed` the rest of a training.
Times are CPU time of the process, so that other programs disturb them less.
"""

import os

if __name__ == "__main__":  # gpu.py, which imports this file, needs the GPU and all threads
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ["PL_GLOBAL_SEED"] = "1"

import contextlib
import io
import json
import logging
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import Accuracy, MeanMetric

from playbook.training.trainer import Trainer
from src.data.vision.digits import Digits
from src.nets.mlp import MLP
from src.tasks.classification import Classification

EPOCHS = 1, 3
REPEATS = 20
RESULTS = Path(__file__).with_suffix(".json")
warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class RepeatedDigits(Digits):
    """Digits with each training image twenty times."""

    def setup(self, stage: str) -> None:
        super().setup(stage)
        images, targets = self.train_set.tensors  # type: ignore[attr-defined]  # a TensorDataset
        self.train_set = TensorDataset(images.repeat(REPEATS, 1, 1, 1), targets.repeat(REPEATS))


class Ordinary(pl.LightningModule):
    """As most people write it: it knows nothing of Playbook."""

    def __init__(self, logs_every_step: bool) -> None:
        super().__init__()
        self.net = net()
        self.logs_every_step = logs_every_step
        self.train_loss, self.accuracy = MeanMetric(), Accuracy("multiclass", num_classes=10)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        image, target = batch
        logits = self.net(image)
        loss = cross_entropy(logits, target)
        if self.logs_every_step:
            self.accuracy(logits, target)
            self.log("train/accuracy", self.accuracy, on_step=False, on_epoch=True)
            self.log("train/loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        image, target = batch
        self.log("val/loss", cross_entropy(self.net(image), target))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def net() -> nn.Module:
    return MLP(widths=[256, 256], dropout=0.3)


def loaders(data: Digits) -> tuple[DataLoader, DataLoader]:
    return DataLoader(data.train_set, batch_size=64, shuffle=True), DataLoader(data.val_set, batch_size=64)


def plain(data: Digits, is_cut: bool, fused: bool | None, epochs: int) -> None:
    """A loop as in PyTorch's tutorials; with data cut into batches beforehand if asked."""
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=fused)
    train, val = loaders(data)
    train_batches: Any = list(train) if is_cut else train
    for _ in range(epochs):
        model.train()
        for image, target in train_batches:
            optimizer.zero_grad()
            cross_entropy(model(image), target).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for image, target in val:
                cross_entropy(model(image), target)


def playbook(data: Any, model: Callable[[], pl.LightningModule], uses_loaders: bool, epochs: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(max_epochs=epochs, run_dir=f"{folder}/run")
        if uses_loaders:
            trainer.fit(model(), *loaders(data))
        else:
            trainer.fit(model(), datamodule=data)


def lightning(data: Digits, model: Callable[[], pl.LightningModule], epochs: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        trainer = pl.Trainer(max_epochs=epochs, default_root_dir=folder, enable_model_summary=False)
        trainer.fit(model(), *loaders(data))


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    data = RepeatedDigits()
    data.setup("fit")
    num_batches = len(loaders(data)[0])
    variants: dict[str, Callable[[int], None]] = {
        "plain loop, DataLoader": partial(plain, data, False, None),
        "plain loop, batches cut before, fused AdamW": partial(plain, data, True, True),
        "Playbook": partial(playbook, RepeatedDigits(), lambda: Classification(net()), False),
        "Playbook, ordinary module and DataLoader": partial(playbook, data, partial(Ordinary, False), True),
        "Lightning, ordinary module and DataLoader": partial(lightning, data, partial(Ordinary, False)),
        "Lightning, metrics logged at every step": partial(lightning, data, partial(Ordinary, True)),
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in variants}  # a step, and the fixed rest
    for name, run in list(variants.items()) * (rounds + 1):
        few, many = (seconds(run, epochs) for epochs in EPOCHS)
        step = (many - few) / ((EPOCHS[1] - EPOCHS[0]) * num_batches)
        times[name].append((step, few - EPOCHS[0] * num_batches * step))
    times = {name: values[1:] for name, values in times.items()}  # the first round warms up
    (with_loader, *_), (cut, *_), *_ = ((statistics.median(step for step, _ in v), v) for v in times.values())
    print(f"{'':<44} µs a step   × DataLoader   × cut before   fixed ms")
    for name, values in times.items():
        step, rest = (statistics.median(column) for column in zip(*values, strict=True))
        print(f"{name:<44} {1e6 * step:9.0f} {step / with_loader:14.2f} {step / cut:14.2f} {1e3 * rest:10.0f}")
    print(f"n = {rounds}, torch {torch.__version__}, lightning {pl.__version__}")
    RESULTS.write_text(json.dumps({"rounds": rounds, "torch": torch.__version__, "seconds": times}, indent=1) + "\n")


def seconds(run: Callable[[int], None], epochs: int) -> float:
    """CPU time of a training, whose output is dropped."""
    start = time.process_time()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        run(epochs)
    return time.process_time() - start


if __name__ == "__main__":
    main()
