"""The finders against losses whose best rate is known, memory that ends at a known size, and the command line."""

import csv
import math
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from example.nets.mlp import MLP
from example.tasks.classification import Classification
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from playbook.errors import UserError
from playbook.insight.finders import find_batch_size, find_lr
from playbook.insight.sweeps import Sweep, Trial, report
from playbook.testing.command import UNSAVED, Cli
from playbook.training.trainer import Trainer
from running import CNN_DIGITS
from test_third_party import STRANGER

SETTINGS: dict[str, Any] = {**UNSAVED, "max_epochs": 1}


class Bowl(pl.LightningModule):
    """L = ½ k w² from w = 1: gradient descent multiplies w by 1 - lr k, so it diverges beyond lr = 2 / k."""

    def __init__(self, k: float = 10.0, shares: tuple[float, ...] = (1.0,)) -> None:
        super().__init__()
        self.w = nn.ParameterList([nn.Parameter(torch.ones(())) for _ in shares])
        self.k, self.shares = k, shares

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return sum(0.5 * self.k * w.square() for w in self.w)  # type: ignore[return-value]

    def configure_optimizers(self) -> Any:
        groups = [{"params": [w], "lr": 0.3 * share} for w, share in zip(self.w, self.shares, strict=True)]
        optimizer = torch.optim.SGD(groups)
        return [optimizer], [{"scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.01), "interval": "step"}]


class Seen(pl.Callback):
    """What every step was done with."""

    def __init__(self) -> None:
        self.rates: list[list[float]] = []
        self.starts: list[float] = []

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.starts.append(next(pl_module.parameters()).item())

    def on_before_optimizer_step(self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: Any) -> None:
        self.rates.append([group["lr"] for group in optimizer.param_groups])


class Points(pl.LightningDataModule):
    """Forty numbers."""

    def __init__(self, batch_size: int = 4) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.sizes: list[int] = []

    def train_dataloader(self) -> DataLoader:
        self.sizes.append(self.hparams["batch_size"])
        return DataLoader(TensorDataset(torch.arange(40.0)[:, None]), batch_size=self.hparams["batch_size"])


class Hungry(pl.LightningModule):
    """Runs out of memory above so many samples."""

    def __init__(self, limit: int = 16, words: str = "CUDA out of memory. Tried to allocate 1 GiB") -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)
        self.limit, self.words = limit, words

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        if len(batch[0]) > self.limit:
            raise torch.OutOfMemoryError(self.words)
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def test_rates_rise_evenly_and_the_schedule_stands_still() -> None:
    seen = Seen()
    found = find_lr(Trainer(**SETTINGS, callbacks=[seen]), Bowl(k=1e-3, shares=(1.0, 0.1)), Points(), 1e-4, 1.0, 41)
    expected = torch.logspace(-4, 0, 41, dtype=torch.float64)
    torch.testing.assert_close(torch.tensor(found.rates, dtype=torch.float64), expected)
    rates = torch.tensor(seen.rates, dtype=torch.float64)
    torch.testing.assert_close(rates, torch.stack([expected, expected / 10], 1))


def test_diverges_where_theory_says_and_suggests_less() -> None:
    model = Bowl(k=10.0)
    found = find_lr(Trainer(**SETTINGS), model, Points(), 1e-4, 100.0, 200)
    assert found.diverged
    assert 2 / model.k < found.rates[-1] < 100.0
    assert found.suggestion is not None
    assert found.suggestion < 2 / model.k
    assert model.w[0].item() == 1.0, "the model is left as it is"


def test_accumulated_batches_are_one_step() -> None:
    found = find_lr(Trainer(**SETTINGS, accumulate_grad_batches=2), Bowl(k=1.0), Points(), 1e-4, 1e-3, 12)
    assert len(found.losses) == 12
    assert found.losses[0] == pytest.approx(0.5), "the mean over the batches of a step"


def test_the_suggestion_is_the_steepest_fall_of_a_known_curve() -> None:
    """A logistic fall in the logarithm of the rate is steepest in its middle."""
    rates = [10 ** (-6 + 6 * i / 200) for i in range(201)]
    middle = 1e-3
    losses = [2 / (1 + (rate / middle) ** 2) for rate in rates]
    assert Sweep(rates, losses, False).suggestion == pytest.approx(middle, rel=0.15)
    assert Sweep(rates, [-100 + loss for loss in losses], False).suggestion == pytest.approx(middle, rel=0.15)


def test_noise_is_no_fall() -> None:
    rates = [10 ** (-6 + 6 * i / 100) for i in range(101)]
    generator = torch.Generator().manual_seed(0)
    losses = [(2 + 0.1 * torch.randn(101, generator=generator)).tolist() for _ in range(20)]
    found = [Sweep(rates, values, False) for values in losses]
    assert [sweep.suggestion for sweep in found] == [None] * 20
    assert "does not fall" in found[0].verdict("--lr")
    assert "not finite" in Sweep(rates, [math.nan], True).verdict("--lr")


@pytest.mark.slow
def test_batch_sizes_double_until_memory_ends() -> None:
    model, data, seen = Hungry(), Points(), Seen()
    trials = find_batch_size(Trainer(**SETTINGS, callbacks=[seen]), model, data, steps_per_trial=4)
    assert [trial.batch_size for trial in trials] == [4, 8, 16, 32]
    assert [trial.samples_per_second is None for trial in trials] == [False, False, False, True]
    assert data.sizes == [4, 8, 16, 32]
    assert data.hparams["batch_size"] == 4, "the data is left as it was"
    assert seen.starts == [model.layer.weight.item()] * 4, "every trial begins with the same weights"
    assert len(seen.rates) == 3 * 4


@pytest.mark.slow
def test_batch_sizes_end_with_the_data_and_the_maximum() -> None:
    def sizes(**options: int) -> list[int]:
        return [t.batch_size for t in find_batch_size(Trainer(**SETTINGS), Hungry(1000), Points(), **options)]

    assert sizes() == [4, 8, 16, 32], "of forty samples"
    assert sizes(max_batch_size=15) == [4, 8]


def test_other_errors_are_not_taken_for_memory() -> None:
    with pytest.raises(RuntimeError, match="something else"):
        find_batch_size(Trainer(**SETTINGS), Wrong(), Points())


class Wrong(Hungry):
    """Fails for a reason of its own."""

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        raise RuntimeError("something else")


class Fixed(Points):
    """Has a batch size that its loader ignores."""

    def train_dataloader(self) -> DataLoader:
        return DataLoader(TensorDataset(torch.arange(40.0)[:, None]), batch_size=5)


class Silent(Bowl):
    """Returns no loss."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizer: Any = self.optimizers()
        optimizer.step()


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (None, {}, "Hungry has no batch_size"),
        (pl.LightningDataModule(), {}, "LightningDataModule has no batch_size"),
        (Fixed(), {}, "does not use its batch_size"),
        (Points(), {"max_batch_size": 2}, "max_batch_size: expected at least the data's own 4, got 2"),
        (Points(), {"steps_per_trial": 2}, "steps_per_trial: expected at least 3, got 2"),
    ],
)
def test_mistakes_with_batches(data: Any, options: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        find_batch_size(Trainer(**SETTINGS), Hungry(), data, **options)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (Bowl(), {"min_lr": 1.0, "max_lr": 0.1}, "min_lr, max_lr: expected"),
        (Bowl(), {"num_steps": 9}, "num_steps: expected at least 10, got 9"),
        (Silent(), {}, "returns no loss"),
    ],
)
def test_mistakes_with_rates(model: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        find_lr(Trainer(**SETTINGS), model, Points(), **options)


def test_report_is_aligned_and_takes_the_fastest() -> None:
    trials = [Trial(64, 1234.5, 0.5), Trial(128, 2000.0, 1.25), Trial(256, 1500.0, 2.5), Trial(512, None, None)]
    lines = report(trials).splitlines()
    assert len({len(line) for line in lines[:5]}) == 1
    assert lines[2].split() == ["128", "2,000", "1.25"]
    assert lines[4].split() == ["512", "out", "of", "memory", "–"]
    assert lines[5].startswith("--data.batch_size 128 ")
    assert "learning rate" in lines[6]
    assert "no batch size fits" in report([Trial(64, None, None)])


@pytest.mark.slow
def test_find_lr_from_the_command_line(cli: Cli) -> None:
    done = cli(
        "find_lr", "--config", CNN_DIGITS, "--model.net.widths", "[8, 16]", "--num_steps", "40", "--min_lr", "1e-5",
        "--run_dir", "run",
    )  # fmt: skip
    assert done.code == 0, done.err
    option, rate = done.out.split()[:2]
    assert option == "--model.optimizer.lr"
    assert 1e-3 < float(rate) < 0.5
    assert {path.name for path in Path("run").iterdir()} == {"find_lr.csv", "find_lr.png"}
    with Path("run/find_lr.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert float(rows[0]["lr"]) == 1e-5
    assert 2 < float(rows[0]["loss"]) < 3, "ln 10 = 2.3 for ten classes"
    pasted = ("--config", CNN_DIGITS, option, rate, "--trainer.fast_dev_run", "true", "--run_dir", "pasted")
    assert cli("fit", *pasted).code == 0


@pytest.mark.slow
def test_find_batch_size_from_the_command_line(cli: Cli) -> None:
    args = ("--config", CNN_DIGITS, "--model.net.widths", "[4]", "--max_batch_size", "128", "--steps_per_trial", "4")
    done = cli("find_batch_size", *args, "--run_dir", "run")
    assert done.code == 0, done.err
    assert [line.split()[0] for line in done.out.splitlines()[:3]] == ["batch_size", "64", "128"]
    assert [path.name for path in Path("run").iterdir()] == ["find_batch_size.csv"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*max_epochs.*")
def test_both_work_with_strangers(cli: Cli, workdir: Path) -> None:
    (workdir / "stranger.py").write_text(
        STRANGER.replace("batch_size=8", "**{'batch_size': 8} | settings")
        .replace("**{'batch_size': 8} | settings, **settings", "**{'batch_size': 8} | settings")
        .replace("shuffle: bool = True", "shuffle: bool = True, batch_size: int = 8")
        .replace("self.shuffle = shuffle", "self.shuffle, self.batch_size = shuffle, batch_size")
        .replace("rows(shuffle=self.shuffle)", "rows(shuffle=self.shuffle, batch_size=self.batch_size)")
    )
    both = ("--model", "stranger.Saving", "--data", "stranger.StrangersData")
    done = cli("find_lr", *both, "--run_dir", "rates")
    assert done.code == 0, done.err
    assert done.out.startswith("--model.lr ")
    done = cli("find_batch_size", *both, "--run_dir", "sizes", "--steps_per_trial", "3")
    assert done.code == 0, done.err
    assert [line.split()[0] for line in done.out.splitlines()[1:4]] == ["8", "16", "32"]
    done = cli("find_batch_size", "--model", "stranger.OwnLoaders")
    assert done.code == 2
    assert done.err == "error: --data: OwnLoaders has no batch_size to change\n"


def test_from_python_the_weights_stay() -> None:
    from example.data.digits import Digits

    model = Classification(MLP(10, in_features=64))
    before = [p.clone() for p in model.parameters()]
    assert find_lr(Trainer(**SETTINGS), model, Digits(), num_steps=10).losses
    assert all(torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
