"""The speed of a training by a clock that its steps turn, and operations against their closed form."""

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from playbook import Trainer
from playbook.runs.loggers import MetricsCSV
from playbook.testing.command import QUIET
from playbook.training import throughput
from playbook.training.peaks import PEAKS, _names, peak
from playbook.training.throughput import operations


class Clock:
    """Stands still until it is turned."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Slow(LightningModule, Dataset):
    """A sample takes a quarter of a second, a training step 3 s, a validation step 100 s."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.net = nn.Linear(8, 4)
        self.clock = clock

    def __len__(self) -> int:
        return 12

    def __getitem__(self, number: int) -> Tensor:
        self.clock.now += 0.25
        return torch.ones(8)

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        self.clock.now += 3
        self.log("train/loss", 1.0)
        return self.net(batch).sum()

    def validation_step(self, batch: Tensor, batch_idx: int) -> None:
        self.clock.now += 100

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)
    return clock


def fit(clock: Clock, run: Path, **settings: Any) -> list[dict[str, str]]:
    """The rows with the speed of a training of 3 steps an epoch."""
    module = Slow(clock)
    options: dict[str, Any] = {**QUIET, "max_epochs": 2, "num_sanity_val_steps": 0, **settings}
    trainer = Trainer(**options, run_dir=run)
    trainer.fit(module, DataLoader(module, 4), DataLoader(torch.ones(2, 8)))  # type: ignore[arg-type]  # has a length
    assert not [name for name in trainer.callback_metrics if name.startswith("speed")]
    return [row for row in MetricsCSV(run / "metrics.csv").read() if row.get("speed/samples_per_second")]


def test_rows_are_at_least_five_seconds_apart(clock: Clock, tmp_path: Path) -> None:
    """A step takes 4 s, 1 s of them for data: two make a row. The first step and validations do not count."""
    rows = fit(clock, tmp_path, log_every_n_steps=1)
    assert [row["step"] for row in rows] == ["2", "4"]
    for row in rows:
        assert float(row["speed/samples_per_second"]) == pytest.approx(8 / 8)
        assert float(row["speed/data_wait"]) == pytest.approx(2 / 8)
        assert "speed/mfu" not in row, "the peak of a CPU is not known"


def test_an_epoch_ends_with_a_row(clock: Clock, tmp_path: Path) -> None:
    rows = fit(clock, tmp_path, log_every_n_steps=50)
    assert [(row["epoch"], row["step"]) for row in rows] == [("0", "2"), ("1", "5")]


def test_nothing_is_logged_where_nothing_is_asked_for(clock: Clock, tmp_path: Path) -> None:
    assert fit(clock, tmp_path, log_every_n_steps=0) == []


def test_use_of_the_peak(clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample of Linear(8, 4) takes 2 · 8 · 4 operations forward, and as many for the weights' gradient."""
    monkeypatch.setattr(throughput, "peak", lambda trainer: 1280.0)
    monkeypatch.setattr(throughput, "COUNTED_AT", 1)
    monkeypatch.setattr(throughput, "operations", lambda *_: 128.0)
    rows = fit(clock, tmp_path, log_every_n_steps=1)
    assert [float(row["speed/mfu"]) for row in rows] == pytest.approx([0.1, 0.1])


def test_another_profiler_knows_no_waiting(clock: Clock, tmp_path: Path) -> None:
    rows = fit(clock, tmp_path, log_every_n_steps=1, profiler="simple")
    assert rows
    assert "speed/data_wait" not in rows[0]


class Normed(Slow):
    """Refuses a batch of one sample, as batch norms do, and may refuse others."""

    def __init__(self, fails: bool = False) -> None:
        super().__init__(Clock())
        self.norm = nn.BatchNorm1d(4)
        self.fails = fails

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        if self.fails:
            raise ValueError("expected 4 samples")
        self.log("train/loss", 1.0)
        return self.norm(self.net(batch)).sum()


@pytest.mark.slow  # the counter imports for 3 s
def test_operations_are_counted_without_a_trace() -> None:
    torch.manual_seed(0)
    trainer, module, batch = Trainer(**QUIET, run_dir=False), Normed(), torch.randn(5, 8)
    module.trainer = trainer
    state = {name: value.clone() for name, value in module.state_dict().items()}
    random = torch.get_rng_state()
    assert operations(trainer, module, batch, 0) == 128.0
    assert torch.equal(torch.get_rng_state(), random)
    for name, value in module.state_dict().items():
        assert torch.equal(value, state[name]), name
    assert all(parameter.grad is None for parameter in module.parameters())
    assert operations(trainer, Normed(fails=True), batch, 0) is None
    assert operations(trainer, module, batch[:1], 0) is None


def test_peaks(monkeypatch: pytest.MonkeyPatch) -> None:
    class OnGpu:
        class strategy:  # noqa: N801  # an attribute
            root_device = torch.device("cuda", 0)

        precision = "bf16-mixed"

    trainer = OnGpu()
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA A100-SXM4-80GB")
    assert peak(trainer) == 312e12
    for precision, expected in (("32-true", 19.5e12), ("64-true", None)):
        trainer.precision = precision
        assert peak(trainer) == expected
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    trainer.precision = "32-true"
    assert peak(trainer) is None, "matrix products may use TF32"
    trainer.precision = "16-mixed"
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA GeForce GT 1030")
    assert peak(trainer) is None
    trainer.strategy.root_device = torch.device("cpu")
    assert peak(trainer) is None


NAMES = [
    ("NVIDIA H100 PCIe", "H100 PCIe"),
    ("NVIDIA H100 80GB HBM3", "H100"),
    ("Tesla V100-SXM2-16GB", "V100"),
    ("NVIDIA L4", "L4"),
    ("NVIDIA L40S", "L40S"),
    ("NVIDIA A10", "A10"),
    ("NVIDIA GeForce RTX 4090", "RTX 4090"),
]


@pytest.mark.parametrize(("name", "key"), NAMES)
def test_names_of_devices(name: str, key: str) -> None:
    assert next(other for other in PEAKS if _names(other, name)) == key
