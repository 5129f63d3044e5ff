"""What a training step costs: Playbook against a plain PyTorch loop, on the MLP recipe's net and data.

    python packages/playbook/benchmarks/step.py [ROUNDS]

Epochs of 17 batches, validation, checkpoints and progress off, one thread; alternating, medians. A step is what more
epochs cost, `fixed` the rest of a training: what `fit` does once.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import logging
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

import torch
from torch import Tensor

from playbook.training.resume.exact import ExactResume
from playbook.training.trainer import Trainer
from src.data.vision.digits import Digits
from src.nets.mlp import MLP
from src.tasks.classification import Batch, Classification

EPOCHS = 5, 40
BATCHES = 17
warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class LogsEveryStep(Classification):
    """The usual way: metric objects go to self.log at every step."""

    def _step(self, stage: str, batch: Batch, batch_idx: int) -> Tensor:
        inputs, target = batch
        logits = self(inputs)
        loss = torch.nn.functional.cross_entropy(logits, target)
        accuracy: Any = self.train_metrics["accuracy"]
        accuracy(logits, target)
        self.log("train/accuracy", accuracy, on_step=False, on_epoch=True)
        self.log("train/loss", loss, on_step=True, on_epoch=True)
        return loss

    def on_train_epoch_end(self) -> None:
        """Lightning does it."""


def plain(data: Digits, epochs: int) -> None:
    net = MLP(widths=[256, 256])
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for _ in range(epochs):
        for image, target in data.train_dataloader():
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(image), target).backward()
            optimizer.step()


def lightning(data: Digits, task: type[Classification], epochs: int) -> None:
    trainer = Trainer(
        max_epochs=epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
        callbacks=[ExactResume()],
    )
    trainer.fit(task(MLP(widths=[256, 256])), datamodule=data)


def main() -> None:
    os.environ["PL_GLOBAL_SEED"] = "1"
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    data = Digits()
    data.setup("fit")
    variants: dict[str, Callable[[int], None]] = {
        "plain loop": partial(plain, data),
        "Playbook": lambda epochs: lightning(Digits(), Classification, epochs),
        "self.log at every step": lambda epochs: lightning(Digits(), LogsEveryStep, epochs),
    }
    steps: dict[str, list[float]] = {name: [] for name in variants}
    fixed: dict[str, list[float]] = {name: [] for name in variants}
    for name, run in list(variants.items()) * (rounds + 1):
        few, many = (seconds(run, epochs) for epochs in EPOCHS)
        steps[name].append((many - few) / ((EPOCHS[1] - EPOCHS[0]) * BATCHES))
        fixed[name].append(few - EPOCHS[0] * BATCHES * steps[name][-1])
    base = statistics.median(steps["plain loop"][1:])  # the first round warms up
    for name in variants:
        step, rest = (statistics.median(values[name][1:]) for values in (steps, fixed))
        print(f"{name:<24} {1e6 * step:7.0f} µs a step   {step / base:.2f} × plain   fixed {1e3 * rest:6.0f} ms")
    print(f"n = {rounds}, torch {torch.__version__}")


def seconds(run: Callable[[int], None], epochs: int) -> float:
    """That a training takes."""
    start = time.perf_counter()
    run(epochs)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
