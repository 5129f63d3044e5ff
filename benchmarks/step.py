"""What a training step costs: Playbook against a plain PyTorch loop, on the MLP recipe's net and data.

    python benchmarks/step.py [ROUNDS]

Five epochs of 17 batches each, validation, checkpoints and progress off, one thread; alternating, medians.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import logging
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
from torch import Tensor

from playbook.training.resume.exact import ExactResume
from playbook.training.trainer import Trainer
from src.data.digits import Digits
from src.nets.mlp import MLP
from src.tasks.classification import Batch, Classification

EPOCHS = 5
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


def plain(data: Digits) -> None:
    net = MLP(widths=[256, 256])
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for _ in range(EPOCHS):
        for image, target in data.train_dataloader():
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(image), target).backward()
            optimizer.step()


def lightning(data: Digits, task: type[Classification]) -> None:
    trainer = Trainer(
        max_epochs=EPOCHS,
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
    variants = {
        "plain loop": lambda: plain(data),
        "Playbook": lambda: lightning(Digits(), Classification),
        "self.log at every step": lambda: lightning(Digits(), LogsEveryStep),
    }
    times: dict[str, list[float]] = {name: [] for name in variants}
    for name, run in list(variants.items()) * (rounds + 1):
        start = time.perf_counter()
        run()
        times[name].append((time.perf_counter() - start) / (EPOCHS * 17) * 1e6)
    base = statistics.median(times["plain loop"][1:])
    for name, values in times.items():
        median = statistics.median(values[1:])  # the first round warms up
        print(f"{name:<24} {median:7.0f} µs a step   {median / base:.2f} × plain")
    print(f"n = {rounds}, torch {torch.__version__}")


if __name__ == "__main__":
    main()
