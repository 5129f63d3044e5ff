"""Trainings that are slow, each for one planted cause; see verdicts.py.

    python packages/playbook/benchmarks/verdict_cases.py CASE TRAINER FOLDER

TRAINER is `playbook`, `lightning` or `timing` (Lightning's Trainer with Playbook's profiler). FOLDER gets clock.json,
and of Playbook a run directory.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import json
import logging
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, default_collate

WARM_UP = 20  # steps that clock.json leaves out
warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def work(milliseconds: float) -> None:
    """Keeps a core busy, as decoding does."""
    end = time.perf_counter() + milliseconds / 1e3
    while time.perf_counter() < end:
        pass


class Samples(Dataset):
    """Random rows, some of which take time.

    Args:
        num: of samples.
        width: of a row.
        decode_ms: of each sample.
        burst_ms: of every `burst_every`-th sample in addition.
        burst_every: samples.
    """

    def __init__(
        self, num: int, width: int = 64, decode_ms: float = 0.0, burst_ms: float = 0.0, burst_every: int = 80
    ) -> None:
        self.rows = torch.randn(min(num, 256), width)
        self.num, self.decode_ms, self.burst_ms, self.burst_every = num, decode_ms, burst_ms, burst_every

    def __len__(self) -> int:
        return self.num

    def __getitem__(self, index: int) -> Tensor:
        work(self.decode_ms + (self.burst_ms if index % self.burst_every == self.burst_every - 1 else 0.0))
        return self.rows[index % len(self.rows)]


class Slow(pl.LightningModule):
    """A net with a mean square as its loss.

    Args:
        net: any.
        reads: whether each step reads its loss.
        keeps: whether outputs are kept with their graph.
        validation_ms: of each validation batch.
        straggler_ms: of the forward pass of rank 1.
    """

    def __init__(
        self,
        net: nn.Module,
        reads: bool = False,
        keeps: bool = False,
        validation_ms: float = 0.0,
        straggler_ms: float = 0.0,
    ) -> None:
        super().__init__()
        self.net, self.reads, self.keeps = net, reads, keeps
        self.validation_ms, self.straggler_ms = validation_ms, straggler_ms
        self.history: list[Any] = []

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        if self.straggler_ms and self.global_rank == 1:
            work(self.straggler_ms)
        output = self.net(batch)
        loss = output.square().mean()
        if self.reads:
            self.history.append(loss.item())
        if self.keeps:
            self.history.append(output)
        return loss

    def validation_step(self, batch: Tensor, batch_idx: int) -> None:
        work(self.validation_ms)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=1e-4)


class Heavy(Callback):
    """Works after every batch."""

    def on_train_batch_end(self, *args: Any, **kwargs: Any) -> None:
        work(20)


class Clock(Callback):
    """Notes the time of the steps after the first ones."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.start = (0.0, 0.0)

    def on_train_batch_end(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
        if trainer.global_step == WARM_UP:
            self.start = (time.perf_counter(), time.process_time())

    def on_train_end(self, trainer: Any, *args: Any) -> None:
        steps = trainer.global_step - WARM_UP
        wall, cpu = time.perf_counter() - self.start[0], time.process_time() - self.start[1]
        if trainer.is_global_zero:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(
                json.dumps({"steps": steps, "wall_ms": 1e3 * wall / steps, "cpu_ms": 1e3 * cpu / steps})
            )


class Wide(nn.Module):
    """A pass that computes: products of large matrices."""

    def __init__(self, width: int = 768, depth: int = 4) -> None:
        super().__init__()
        self.embed = nn.Linear(64, width)
        self.layers = nn.Sequential(*[nn.Linear(width, width) for _ in range(depth)])

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(self.embed(x).repeat(16, 1))  # (16 B, width)


class Tiny(nn.Module):
    """A pass of many operators that compute next to nothing."""

    def __init__(self, depth: int = 300) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(64))
        self.depth = depth

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.depth):
            x = (x * self.scale).tanh() + 0.1
        return x


class SlowCollate:
    """Combines samples slowly."""

    def __call__(self, samples: list[Any]) -> Any:
        work(25)
        return default_collate(samples)


@dataclass
class Case:
    """A planted cause.

    Args:
        net: of the training.
        task: arguments of Slow.
        data: arguments of Samples.
        loader: arguments of the DataLoader.
        steps: of an epoch.
        epochs: how many.
        validation: batches of each.
        callbacks: of the training.
        processes: that train together.
    """

    net: Callable[[], nn.Module] = lambda: nn.Linear(64, 64)
    task: dict[str, Any] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    loader: dict[str, Any] = field(default_factory=dict)
    steps: int = 120
    epochs: int = 1
    validation: int = 0
    callbacks: list[Callable[[], Callback]] = field(default_factory=list)
    processes: int = 1


CASES = {
    "slow decode, 0 workers": Case(data={"decode_ms": 2}),
    "slow decode, 2 workers": Case(data={"decode_ms": 6}, loader={"num_workers": 2}),
    "slow collate": Case(loader={"collate_fn": SlowCollate()}),
    "tiny kernels": Case(Tiny),
    "compute-bound": Case(Wide, steps=80),
    ".item() every step": Case(Wide, {"reads": True}, steps=80),
    "heavy callback": Case(callbacks=[Heavy]),
    "long validation": Case(task={"validation_ms": 20}, steps=30, epochs=4, validation=40),
    "checkpoint every step": Case(
        lambda: nn.Sequential(nn.Linear(64, 2048), nn.Linear(2048, 1024)),
        callbacks=[lambda: ModelCheckpoint(every_n_train_steps=1, save_top_k=-1, filename="{step}")],
        steps=60,
    ),
    "straggling rank": Case(task={"straggler_ms": 30}, processes=2, steps=100),
    "growing memory": Case(lambda: nn.Sequential(nn.Linear(64, 16384), nn.Tanh()), {"keeps": True}, steps=400),
    "bursty loader": Case(data={"burst_ms": 150}, steps=200),
    "a small step": Case(steps=1500),
}


def train(case: Case, kind: str, folder: Path) -> None:
    pl.seed_everything(1, verbose=False)
    batch_size = 8
    count = case.steps * batch_size * case.processes
    loader = DataLoader(Samples(count, **case.data), batch_size=batch_size, **case.loader)
    validation = DataLoader(Samples(case.validation * batch_size), batch_size=batch_size) if case.validation else None
    settings: dict[str, Any] = {
        "accelerator": "cpu",
        "devices": case.processes,
        "strategy": "ddp" if case.processes > 1 else "auto",
        "max_epochs": case.epochs,
        "callbacks": [*(make() for make in case.callbacks), Clock(folder / "clock.json")],
        "enable_progress_bar": False,
        "num_sanity_val_steps": 0,
    }
    if kind == "playbook":
        from playbook import Trainer

        trainer: pl.Trainer = Trainer(run_dir=folder / "run", **settings)
    else:
        profiler = None
        if kind == "timing":
            from playbook.training.timing import Timing

            profiler = Timing()
        trainer = pl.Trainer(
            logger=False,
            enable_model_summary=False,
            enable_checkpointing=any(isinstance(callback, ModelCheckpoint) for callback in settings["callbacks"]),
            default_root_dir=folder,
            profiler=profiler,
            **settings,
        )
    trainer.fit(Slow(case.net(), **case.task), loader, validation)


if __name__ == "__main__":
    train(CASES[sys.argv[1]], sys.argv[2], Path(sys.argv[3]).resolve())
